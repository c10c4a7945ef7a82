"""Specs that are to be built, kept on the disk until all nodes are known to be right."""

from __future__ import annotations

import os
import pickle
import tempfile
from typing import TYPE_CHECKING

from generator import files

if TYPE_CHECKING:
    from generator.spec import Spec


class Kept:
    """The specs that are to be built, on the disk until then: many are more than memory takes.

    The file has no name: nobody else can open it, and nothing is left of it after a kill.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with its owner
        self._places: list[tuple[int, int]] = []
        self.count = 0

    def add(self, pickled: bytes, count: int) -> None:
        """Keep some pickled specs. Raises `Refused`."""
        try:
            self._places.append((self._file.seek(0, os.SEEK_END), len(pickled)))
            self._file.write(pickled)
            self._file.flush()
        except OSError as error:
            where = f"to {tempfile.gettempdir()}, which TMPDIR names"
            raise files.cannot("write", where, error) from error
        self.count += count

    def parts(self) -> range:
        """Return the numbers of what was added."""
        return range(len(self._places))

    def read(self, number: int) -> list[Spec]:
        """Return the specs of one part; any process that was forked can."""
        start, length = self._places[number]
        found: list[Spec] = pickle.loads(os.pread(self._file.fileno(), length, start))  # noqa: S301
        return found
