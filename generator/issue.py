"""Which identity a seed gets: a fresh one from the authority, a given one, or the stand-in."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from generator import authority, chain, ledger
from generator import identity as identities
from generator import spec as specs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from generator.identity import Identity
    from generator.problem import Problem
    from generator.spec import Spec

PLACEHOLDER = "placeholder"


@dataclass(frozen=True)
class Obtained:
    """An identity that counts as issued once `commit` has been called.

    `origin` says in words where it comes from; `notes` are warnings.
    """

    identity: Identity
    origin: str
    notes: tuple[Problem, ...] = ()
    commit: Callable[[], None] = lambda: None


@contextmanager
def obtain(spec: Spec, given: str | None, folder: Path, now: datetime) -> Iterator[Obtained]:
    """Yield the identity for `spec`: `given` as --identity has it, else fresh from `folder`.

    `folder` is the authority's. That its ledger takes a row is known before anything is
    signed. Raises `Refused`.
    """
    if given == PLACEHOLDER:
        yield Obtained(identities.placeholder(spec.node_id), "a placeholder: no cluster accepts it")
        return
    if given is not None:
        found = identities.load(Path(given), spec.node_id, now, folder)
        yield Obtained(found, f"from {given}")
        return
    signer, warnings = authority.load(folder, now)
    with ledger.opened(folder) as book:
        fresh, more = authority.issue(signer, spec.node_id, spec.identity.days, now)
        row = ledger.row(fresh, now, specs.digest(spec), os.environ)
        origin = f"issued by {chain.name_of(signer.certificate)} in {folder}"
        yield Obtained(fresh, origin, (*warnings, *more), lambda: book.record([row]))
