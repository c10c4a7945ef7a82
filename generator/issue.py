"""Which identity a seed gets: a fresh one, the stored one, a given one, or the stand-in."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from generator import authority, chain, custody, ledger, signer, standing, store
from generator import identity as identities
from generator import spec as specs
from generator.problem import Problem, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from generator.identity import Identity
    from generator.passphrase import Ask
    from generator.spec import Spec

PLACEHOLDER = "placeholder"
_MANY = 4  # serial numbers that are too many for a message


@dataclass(frozen=True)
class Issuer:
    """Where certificates come from: the authority in `folder`, or a `command` in its stead.

    With a command the folder has its roots, and the ledger all the same.
    """

    folder: Path
    ask: Ask | None = None
    command: signer.Command | None = None


@dataclass(frozen=True)
class Wanted:
    """Which identity the operator asked for; none of these: a fresh one, kept nowhere.

    `given`: "placeholder" or a folder; `reuse`: the one in the store, where there is one;
    `renew`: another in its place; `identities`: the store, else the one beside the
    authority; `revoke_previous`: whatever else the node has is revoked.
    """

    given: str | None = None
    reuse: bool = False
    renew: bool = False
    identities: Path | None = None
    revoke_previous: bool = False


@dataclass(frozen=True)
class Obtained:
    """An identity that counts as issued once `commit` has been called.

    `origin` says in words where it comes from; `notes` are warnings, `talk` what else the
    operator should know.
    """

    identity: Identity
    origin: str
    notes: tuple[Problem, ...] = ()
    talk: tuple[str, ...] = ()
    commit: Callable[[], None] = lambda: None


@contextmanager
def obtain(spec: Spec, wanted: Wanted, issuer: Issuer, now: datetime) -> Iterator[Obtained]:
    """Yield the identity for `spec`.

    That the ledger takes a row, and the store an identity, is known before anything is
    signed. Raises `Refused`.
    """
    node = spec.node_id
    if wanted.given == PLACEHOLDER:
        yield Obtained(identities.placeholder(node), "a placeholder: no cluster accepts it")
        return
    if wanted.given is not None:
        found = identities.load(Path(wanted.given), node, now, issuer.folder)
        yield Obtained(found, f"from {wanted.given}")
        return
    if not (wanted.reuse or wanted.renew):
        with _fresh(spec, wanted, issuer, now) as made:
            yield made
        return
    place = wanted.identities or issuer.folder / store.NAME
    if wanted.renew or not os.path.lexists(store.path(place, node)):
        custody.check_there(issuer.folder, key=not issuer.command)
        patience = store.WAIT + (issuer.command.timeout if issuer.command else 0)
        with store.locked(place, patience):
            # Another process may have stored one while this one waited.
            if wanted.renew or not os.path.lexists(store.path(place, node)):
                with _fresh(spec, wanted, issuer, now, place) as made:
                    yield made
                return
    with _stored(place, wanted, issuer, node, now) as obtained:
        yield obtained


@contextmanager
def _fresh(
    spec: Spec, wanted: Wanted, issuer: Issuer, now: datetime, place: Path | None = None
) -> Iterator[Obtained]:
    """Yield an identity that is signed in memory; `place` is a locked store that keeps it.

    `commit` writes its row to the ledger, then puts it into the store.
    """
    node = spec.node_id
    with certified(issuer, node, spec.identity.days, now) as (book, signed):
        made, origin, notes, passphrase = signed
        row = ledger.row(made, now, specs.digest(spec), os.environ)
        earlier = standing.out_there(ledger.reading(issuer.folder, "node", node), now)
        talk = tuple(_fate(node, earlier, revoked=wanted.revoke_previous))

        def commit() -> None:
            book.record([row], revocation(now) if wanted.revoke_previous else None)

        if place is None:
            yield Obtained(made, origin, notes, talk, commit)
            return
        pair = made.certificate_pem, made.key or b""
        with store.staged(place, node, *pair, passphrase, replacing=wanted.renew) as put:

            def commit_and_keep() -> None:
                commit()
                put()

            origin += f", kept in {store.path(place, node)}"
            yield Obtained(made, origin, notes, talk, commit_and_keep)


@dataclass(frozen=True)
class Signing:
    """Who signs, ready to: `sign` takes a node id and days, and returns it with warnings.

    `origin` says in words who it is, `notes` are warnings about it, `passphrase` is that of
    the authority's key.
    """

    sign: Callable[[str, int], tuple[Identity, tuple[Problem, ...]]]
    origin: str
    notes: tuple[Problem, ...] = ()
    passphrase: bytes | None = field(default=None, repr=False)


def signing(issuer: Issuer, now: datetime) -> Signing:
    """Return what signs certificates that begin `now`; the authority's key is loaded once.

    What it signs is in no ledger yet. Raises `Refused`.
    """
    if command := issuer.command:
        folder = issuer.folder
        return Signing(
            lambda node, days: signer.issue(command, folder, node, days, now),
            f"signed by {command.name}",
        )
    by, warnings = authority.load(issuer.folder, now, issuer.ask)
    return Signing(
        lambda node, days: authority.issue(by, node, days, now),
        f"issued by {chain.name_of(by.certificate)} in {issuer.folder}",
        warnings,
        by.passphrase,
    )


Signed = tuple["Identity", str, tuple["Problem", ...], bytes | None]
"""An identity, where it comes from, warnings, and the passphrase of the authority's key."""


@contextmanager
def certified(
    issuer: Issuer, node_id: str, days: int, now: datetime
) -> Iterator[tuple[ledger.Ledger, Signed]]:
    """Yield the open ledger and an identity that is not in it yet."""
    by = signing(issuer, now)
    with ledger.opened(issuer.folder) as book:
        made, notes = by.sign(node_id, days)
        yield book, (made, by.origin, (*by.notes, *notes), by.passphrase)


def revocation(now: datetime, reason: str = "superseded") -> ledger.Revocation:
    """Return a revocation by whoever runs this process."""
    return ledger.Revocation(chain.when(now), reason, ledger.user(os.environ))


def kept(
    place: Path, issuer: Issuer, node: str, now: datetime
) -> tuple[Identity, tuple[Problem, ...], list[ledger.Row]]:
    """Return the identity of a node that the store in `place` has, warnings, the node's rows.

    Raises `Refused` where it cannot be used: another is made only when somebody asks for it.
    """
    file = store.path(place, node)
    stored = store.find(place, node, now, issuer.folder, issuer.ask)
    if stored is None:
        raise refuse(f"{file} went away", "try again")
    found, warnings = stored
    rows = ledger.reading(issuer.folder, "node", node)
    own = [row for row in rows if row.fingerprint == found.fingerprint]
    if own and own[0].revoked_at:
        raise refuse(f"{file} was revoked on {own[0].revoked_at}", store.renew(node))
    if not own:
        hint = f"gen-seed ca import {file}"
        warnings.append(Problem(f"{file} is not in the ledger", hint, severity="warning"))
    return found, tuple(warnings), rows


@contextmanager
def _stored(
    place: Path, wanted: Wanted, issuer: Issuer, node: str, now: datetime
) -> Iterator[Obtained]:
    found, warnings, rows = kept(place, issuer, node, now)
    origin = f"reused from {store.path(place, node)}"
    if not wanted.revoke_previous:
        yield Obtained(found, origin, warnings)
        return
    others = standing.out_there(rows, now, but=found.fingerprint)
    with ledger.opened(issuer.folder) as book:

        def revoke_others() -> None:
            book.revoke(revocation(now), "node", node, [found.fingerprint])

        talk = tuple(_fate(node, others, revoked=True))
        yield Obtained(found, origin, warnings, talk, revoke_others)


def _fate(node: str, earlier: list[ledger.Row], *, revoked: bool) -> Iterator[str]:
    """Say what becomes of the certificates that the node had before."""
    if not earlier:
        return
    several = len(earlier) > 1
    many = f"{len(earlier)} earlier certificates" if several else "the earlier certificate"
    if revoked:
        yield f"{node}: revoked {many}; a new list says so to whoever reads it: gen-seed ca crl"
        return
    last = max(row.not_after for row in earlier)[:10]
    works = "keep working, the last" if several else "keeps working"
    yield f"{node}: {many} {works} until {last}; to revoke: gen-seed ca revoke --serial"
    serials = [row.serial for row in earlier]
    yield "    " + (" ".join(serials) if len(serials) < _MANY else "(gen-seed ca list has them)")
