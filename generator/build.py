"""Making the seeds of a fleet: in parts, each of which counts as issued as a whole.

A part is signed, rendered, verified, packed and written to a folder beside; then its rows are
written to the manifest, then to the ledger, and then its files are moved to their places. So
whatever is in its place is whole and in the ledger, and a build that was killed goes on with the
part that it was at.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from generator import (
    __version__,
    alike,
    artifact,
    attachments,
    chain,
    custody,
    fields,
    files,
    issue,
    jobs,
    ledger,
    make,
    pem,
    plan,
    store,
    template,
)
from generator import identity as identities
from generator import spec as specs
from generator.manifest import Row
from generator.problem import Problem, Refused, refuse

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from generator.identity import Identity
    from generator.journal import Journal
    from generator.kept import Kept
    from generator.plan import Basis
    from generator.spec import Spec


@dataclass(frozen=True)
class Made:
    """A node's seed: its rows, and its identity in PEM where the store is to keep it.

    `issued` is None where nothing was. `staged` is false where the same is in its place already.
    """

    row: Row
    issued: ledger.Row | None = None
    keep: tuple[bytes, bytes] | None = field(default=None, repr=False)
    staged: bool = True


@dataclass(frozen=True)
class Batch:
    """What became of a part: its seeds, the nodes that were refused, and problems."""

    made: tuple[Made, ...]
    refused: tuple[str, ...]
    problems: tuple[Problem, ...]


def signing(basis: Basis, issuer: issue.Issuer, *, unstored: bool) -> issue.Signing | None:
    """Return who signs, None where the store has all identities and none is `unstored`.

    The passphrase is asked for here, before there is more than one process. Raises `Refused`.
    """
    if basis.store and not unstored:
        kept = next(basis.store.glob("*.pem"), None)
        if kept and issuer.ask and pem.is_encrypted(pem.read(kept)):
            issuer.ask()
        return None
    custody.check_there(issuer.folder, key=not issuer.command)
    with ledger.opened(issuer.folder):
        pass  # that it takes rows is known before anything is signed
    return issue.signing(issuer, basis.now)


def build(  # noqa: PLR0913, PLR0917 - what a build is made from
    basis: Basis,
    issuer: issue.Issuer,
    by: issue.Signing | None,
    kept: Kept,
    leave: AbstractSet[str],
    journal: Journal,
    processes: int,
    *,
    keep_going: bool,
) -> Generator[Batch, None, None]:
    """Make what is in `kept` but for the nodes in `leave`; each part counts when it is given.

    Raises `Refused` where the disk or the ledger does not take it, and without `keep_going` for
    a node that is refused.
    """
    maker = _Maker(basis, issuer, by, journal.staging)
    with ExitStack() as stack:
        # Closed, that is: no child goes on writing where this one has left off.
        batches = stack.enter_context(
            closing(
                jobs.run(
                    lambda number: maker.batch(
                        spec for spec in kept.read(number) if spec.node_id not in leave
                    ),
                    kept.parts(),
                    processes,
                )
            )
        )
        book = None
        for batch in batches:
            errors = [problem for problem in batch.problems if problem.severity == "error"]
            if errors and not keep_going:
                raise Refused(errors)
            if by and book is None:  # not before the children are there: none may inherit it
                book = stack.enter_context(ledger.opened(issuer.folder))
            _commit(basis, by, book, journal, batch.made)
            yield batch


def _commit(
    basis: Basis,
    by: issue.Signing | None,
    book: ledger.Ledger | None,
    journal: Journal,
    made: Sequence[Made],
) -> None:
    """Let a part count: its rows are written, then its files are moved to their places."""
    rows = [one.row for one in made if basis.manifest.get(one.row.node) != one.row]
    with journal.adding(rows), ExitStack() as stack:
        puts = []
        keep = [(one.row.node, one.keep) for one in made if one.keep]
        if basis.store and by and keep:
            stack.enter_context(store.locked(basis.store, store.WAIT))
            puts = [
                stack.enter_context(store.staged(basis.store, node, *pair, by.passphrase))
                for node, pair in keep
            ]
        if book:
            book.record([one.issued for one in made if one.issued])
        for put in puts:
            put()
        for one in made:
            if one.staged:
                artifact.publish(journal.staging, basis.folder, one.row.node, one.row.form)


class _Maker:
    """Makes seeds and stages them; the children of a build inherit it."""

    def __init__(
        self, basis: Basis, issuer: issue.Issuer, by: issue.Signing | None, staging: Path
    ) -> None:
        self._basis, self._issuer, self._by, self._staging = basis, issuer, by, staging
        self._templates = template.environment(basis.place.root / "templates")
        self._checker = alike.Checker()

    def batch(self, chosen: Iterable[Spec]) -> Batch:
        """Make the seeds of some nodes; what is refused is left out and told.

        Raises `Refused` where the disk takes no more: that is no single node's fault.
        """
        made: list[Made] = []
        refused: list[str] = []
        problems: list[Problem] = []
        with files.writing() as write:
            for spec in chosen:
                try:
                    one, found, notes = self._one(spec)
                except Refused as error:
                    refused.append(spec.node_id)
                    problems += [replace(p, nodes=(spec.node_id,)) for p in error.problems]
                    continue
                if one.staged:
                    artifact.stage(self._staging, spec.node_id, one.row.form, found, write)
                made.append(one)
                problems += notes
        return Batch(tuple(made), tuple(refused), tuple(problems))

    def _one(self, spec: Spec) -> tuple[Made, artifact.Parts, tuple[Problem, ...]]:
        basis, node = self._basis, spec.node_id
        whole = attachments.fill(spec, basis.place.root, basis.environ, stand_in=basis.compared)
        who, how, notes, issued = self._identity(spec)
        epoch = basis.environ.get(make.EPOCH)
        check = self._checker.check
        done = make.make(whole, who, self._templates, basis.form, epoch, check=check)
        found = artifact.parts(done.packed)
        known = artifact.digest(found)
        about = fields.of(spec, whole, None if basis.compared else known.key)
        row = Row(
            node=node,
            artifact=artifact.name(node, basis.form),
            form=basis.form,
            sha256=known.sha256,
            bytes=known.size,
            instance_id=done.instance_id,
            serial=who.serial,
            not_before=chain.when(who.not_before),
            not_after=chain.when(who.not_after),
            identity=how,
            spec_sha256=fields.digest(about),
        )
        if basis.compared:
            same = artifact.read(basis.folder, node, basis.form) == found
            return Made(row, staged=not same), found, ()
        row = replace(
            row,
            spec=about,
            gen_seed=__version__,
            templates=basis.templates,
            authority=plan.roots_digest(who.roots_pem),
        )
        if not issued:
            return Made(row), found, notes
        entry = ledger.row(who, basis.now, specs.digest(spec), basis.environ)
        keep = (who.certificate_pem, who.key or b"") if basis.store else None
        return Made(row, entry, keep), found, notes

    def _identity(self, spec: Spec) -> tuple[Identity, str, tuple[Problem, ...], bool]:
        """Return an identity, its kind as in a manifest's row, warnings, and whether it is new."""
        place, node, now = self._basis.store, spec.node_id, self._basis.now
        if self._basis.compared:
            return identities.placeholder(node), issue.PLACEHOLDER, (), False
        if place and os.path.lexists(store.path(place, node)):
            found, notes, _ = issue.kept(place, self._issuer, node, now)
            return found, "stored", notes, False
        if self._by is None:
            raise refuse(f"{store.path(place or self._basis.folder, node)} went away", "try again")
        found, notes = self._by.sign(node, spec.identity.days)
        return found, "stored" if place else "issued", notes, True
