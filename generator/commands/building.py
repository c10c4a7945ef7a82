"""What `gen-seed build` does, from what was asked for to what is said at the end."""

from __future__ import annotations

import shlex
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import click

from generator.commands import choosing
from generator.options import say, show_rows, tell
from generator.problem import count, some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from generator.build import Batch
    from generator.commands.build import Wanted
    from generator.issue import Signing
    from generator.journal import Journal
    from generator.manifest import Manifest, Row
    from generator.plan import Basis
    from generator.survey import Survey

_REPORTED = (
    *("artifact", "sha256", "bytes", "instance_id", "serial", "not_before", "not_after"),
    *("identity", "spec_sha256"),
)


def build(folder: Path, wanted: Wanted) -> None:
    """Make the seeds that are wanted. Raises `Refused`."""
    from generator import journal, manifest

    run = _Run(folder, wanted)
    # Nothing is made, not even the folder, where something is wrong.
    early = None if run.out.is_dir() else run.prepare(manifest.read(run.out))
    with journal.opened(run.out, wanted.shard) as book:
        if early is None or manifest.paths(run.out):  # or another build was first
            early = run.prepare(manifest.read(run.out))
        basis, found, by = early
        run.make(basis, found, by, book)
        run.finish(basis, book)
    run.report(basis, found)
    if run.failed:
        raise click.exceptions.Exit(1)


class _Run:
    def __init__(self, folder: Path, wanted: Wanted) -> None:
        from generator import selection, workspace

        self.wanted = wanted
        self.processes = choosing.processes(wanted.jobs)
        self.place = workspace.open_workspace(folder)
        self.out = choosing.folder(folder, wanted.out)
        self.nodes = selection.select(
            self.place, wanted.nodes, wanted.group, wanted.shard, self.processes
        )
        self.issuer = choosing.issuer(self.place, wanted.pki, wanted.passphrase_file)
        self.made = 0
        self.names: set[str] = set()
        self.refused: set[str] = set()
        self.warned = 0
        self.failed = False

    def survey(self, there: Manifest) -> tuple[Basis, Survey]:
        """Look at all nodes; raise `Refused` where one is wrong and is not to be left out."""
        from generator import survey
        from generator.problem import Refused

        wanted = self.wanted
        basis = choosing.basis(
            self.place,
            self.out,
            there,
            wanted.format,
            self.issuer,
            placeholder=wanted.placeholder,
            reuse=wanted.reuse,
            fresh=wanted.fresh,
        )
        with self._progress("checking", len(self.nodes)) as move:
            found = survey.survey(
                basis,
                self.nodes,
                self.processes,
                lambda part: move(len(part.plans) + len(part.refused)),
            )
        if errors := found.problems():
            if not wanted.keep_going or self.place.problems:
                raise Refused(errors)
            tell(errors)
            self.failed = True
        self.refused = set(found.refused)
        return basis, found

    def prepare(self, there: Manifest) -> tuple[Basis, Survey, Signing | None]:
        """Look at all nodes, and at who signs where there is something to sign."""
        from generator import build

        basis, found = self.survey(there)
        if basis.compared or not found.kept.count:
            return basis, found, None
        return basis, found, build.signing(basis, self.issuer, unstored=found.unstored)

    def make(self, basis: Basis, found: Survey, by: Signing | None, book: Journal) -> None:
        """Make the seeds, and tell of each part when it counts."""
        from generator import build

        if not found.kept.count:
            return
        if not basis.compared:
            tell(by.notes if by else ())
            say(f"{count(found.kept.count, 'seed')}: {by.origin if by else 'identities reused'}")
        with self._progress("building", found.kept.count) as move:
            batches = build.build(
                basis,
                self.issuer,
                by,
                found.kept,
                found.refused,
                book,
                self.processes,
                keep_going=self.wanted.keep_going,
            )
            with closing(batches):
                for batch in batches:
                    move(len(batch.made))
                    self._count(batch)

    def _count(self, batch: Batch) -> None:
        errors = [problem for problem in batch.problems if problem.severity == "error"]
        self.failed = self.failed or bool(errors)
        self.warned += len(batch.problems) - len(errors)
        tell(batch.problems if self.wanted.verbose else errors)
        self.refused |= set(batch.refused)
        for row in (one.row for one in batch.made if one.staged):
            self.made += 1
            if self.wanted.report == "json":
                self.names.add(row.node)
            if self.wanted.verbose:
                end = f"certificate {row.serial}, ends on {row.not_after[:10]}"
                say(f"{row.node}: {self.out / row.artifact}, {end}")

    def finish(self, basis: Basis, book: Journal) -> None:
        """Bring the manifest into order, and tell of seeds whose nodes are no more."""
        from generator import plan

        left: list[Row] = []
        without: set[str] = set()
        if self.wanted.whole:
            left, without = plan.gone(basis, self.wanted.shard)
        book.finish(without)
        for row in left:
            say(f"{row.node} is no node any more: {_removing(self.out / row.artifact)}")

    def report(self, basis: Basis, found: Survey) -> None:
        """Say what became of the nodes."""
        warnings = found.problems("warning")
        if self.wanted.verbose:
            tell(warnings)
        if self.wanted.report == "json":
            show_rows("nodes", self._rows())
            return
        if not self.wanted.verbose and (warned := self.warned + len(warnings)):
            say(f"{count(warned, 'warning')}: -v shows them")
        if found.soon:
            say(f"stored identities at or near their end: {some(found.soon)}")
            say("    gen-seed NODE --renew makes another")
        refused = f", {len(self.refused)} refused" if self.refused else ""
        unchanged = len(self.nodes) - self.made - len(self.refused)
        say(f"{self.out}: {self.made} made, {unchanged} unchanged{refused}")
        if self.made and not basis.compared:
            say(f"each holds a private key: keep {self.out} as you keep keys")

    def _rows(self) -> Iterator[dict[str, Any]]:
        from generator import manifest

        there = manifest.read(self.out)
        for node in self.nodes:
            row = there.get(node)
            values = {name: row and getattr(row, name) for name in _REPORTED}
            yield {"node": node, "state": self._state(node), **values}

    def _state(self, node: str) -> str:
        if node in self.refused:
            return "refused"
        return "made" if node in self.names else "unchanged"

    @contextmanager
    def _progress(self, label: str, length: int) -> Iterator[Callable[[int], None]]:
        shown = self.wanted.report == "text" and not self.wanted.verbose
        with choosing.progress(label, length, shown=shown) as move:
            yield move


def _removing(path: Path) -> str:
    return f"rm -r {shlex.quote(str(path))}"


def check(folder: Path, wanted: Wanted) -> None:
    """Compare snapshots with what building would make; write nothing. Raises `Refused`."""
    from generator import files, manifest, snapshot

    run = _Run(folder, wanted)
    basis, found = run.survey(manifest.read(run.out))
    differing = 0
    for text in snapshot.compare(basis, found.kept, run.processes):
        differing += 1
        files.put_stdout(text.encode())
    strays = snapshot.strays(basis, wanted.shard) if wanted.whole else []
    for name in strays:
        say(f"{run.out / name} is of no node: {_removing(run.out / name)}")
    if differing:
        say(
            f"{differing} of {count(len(run.nodes), 'snapshot')} in {run.out}"
            f" {'is' if differing == 1 else 'are'} not up to date; to change that, run this without"
            " --check and review what changes"
        )
    elif not run.failed:
        left = f"; to be deleted: {len(strays)}" if strays else ""
        say(f"{run.out}: up to date, {count(len(run.nodes), 'snapshot')}{left}")
    if differing or strays or run.failed:
        raise click.exceptions.Exit(1)
