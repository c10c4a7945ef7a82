"""Writing a manifest: appended to while a build runs, sorted and joined when it is done."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, BinaryIO

from generator import files, lock, manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from generator.manifest import Row
    from generator.selection import Shard

_PATIENCE = 20.0  # seconds; what a killed build had begun takes less
_BLOCK = 1 << 20


class Journal:
    """The manifest of one build, which nobody else writes; made by `opened`.

    `staging` is a folder for what is not yet in its place, and empty at the start.
    """

    def __init__(self, path: Path, others: list[Path]) -> None:
        self._path, self._others = path, others
        self.staging = path.with_name(f".{path.stem}.tmp")

    @contextmanager
    def adding(self, rows: Iterable[Row]) -> Iterator[None]:
        """Append `rows`; where the body fails they are taken away again. Raises `Refused`.

        Before anything is issued: that the disk takes the rows is known then.
        """
        data = b"".join(manifest.line(row) + b"\n" for row in rows)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(self._path, flags, 0o600), "r+b") as file:
                end = _end(file)
                try:
                    file.seek(end)
                    file.truncate()
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                    yield
                except BaseException:
                    os.ftruncate(file.fileno(), end)
                    raise
        except OSError as error:
            raise files.cannot("write", self._path, error) from error

    def finish(self, without: set[str]) -> None:
        """Sort the manifest, without some nodes; what it was joined with goes away.

        The same rows are the same bytes, whatever order they were made in. Raises `Refused`.
        """
        found = manifest.read_all([*self._others, self._path])
        if found.tidy and not self._others and not without:
            return
        beside = self.staging / self._path.name
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.writelines(found.line(n) for n in found.nodes() if n not in without)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
            for other in self._others:
                other.unlink(missing_ok=True)
        except OSError as error:
            raise files.cannot("write", self._path, error) from error


@contextmanager
def opened(folder: Path, shard: Shard | None) -> Iterator[Journal]:
    """Give the manifest of a build in `folder`, which is made where it is missing, 0700.

    Builds of different shards go on side by side, any other has the folder for itself. Raises
    `Refused`.
    """
    files.make_folder(folder, 0o700)
    path = folder / manifest.name(shard)
    with ExitStack() as held:
        held.enter_context(lock.held(folder, _PATIENCE, shared=shard is not None))
        others = []
        if shard:
            held.enter_context(lock.held(folder / f".{path.stem}.lock", _PATIENCE))
        else:
            # No shard is built just now.
            for left in folder.glob(".manifest-*.lock"):
                left.unlink(missing_ok=True)
            for left in folder.glob(".manifest-*.tmp"):
                shutil.rmtree(left, ignore_errors=True)
            others = [other for other in manifest.paths(folder) if other != path]
        journal = Journal(path, others)
        try:
            shutil.rmtree(journal.staging, ignore_errors=True)  # what a kill has left behind
            files.make_folder(journal.staging, 0o700)
            yield journal
        finally:
            shutil.rmtree(journal.staging, ignore_errors=True)


def _end(file: BinaryIO) -> int:
    """Return where the last whole line ends: a kill may have cut one short."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - _BLOCK)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
