"""Locks between processes: files that are locked, not files that are there."""

from __future__ import annotations

import fcntl
import os
import shlex
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from generator import files
from generator.problem import refuse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TICK = 0.05  # seconds between two looks


@contextmanager
def held(path: Path, timeout: float, *, shared: bool = False) -> Iterator[bool]:
    """Hold the lock at `path`, a folder or a file, which is made where it is missing.

    Waits up to `timeout` seconds for it. With `shared`, others who share it may hold it as
    well. Yields False where the file system has no locks: then nobody is kept out. Children
    inherit it, and it is free when they have ended too. Raises `Refused`.
    """
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise files.cannot("write", path, error) from error
    try:
        how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        deadline = time.monotonic() + timeout
        while (taken := _take(descriptor, how)) is False:
            if time.monotonic() > deadline:
                raise refuse(
                    f"another process has held {path} for {timeout:.0f} seconds",
                    f"see who it is: fuser -v {shlex.quote(str(path))}",
                )
            time.sleep(_TICK)
        yield bool(taken)
    finally:
        os.close(descriptor)


def _take(descriptor: int, how: int) -> bool | None:
    """Take the lock if it is free; None where the file system has no locks."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
