"""A machine's own disk: an overlay over a tree that stays as it is, so that it costs nothing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from generator.prove import nspawn

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "gen-seed-prove-"


@contextlib.contextmanager
def workspace() -> Iterator[Path]:
    """Yield a temp folder for a machine, with an empty ``root`` to mount on; gone at the end."""
    with contextlib.ExitStack() as stack:
        work = Path(tempfile.mkdtemp(prefix=_PREFIX))
        stack.enter_context(_locked(work))
        stack.callback(_remove, work)
        (work / "root").mkdir(mode=0o755)
        yield work


@contextlib.contextmanager
def overlay(tree: Path) -> Iterator[Path]:
    """Yield a workspace whose ``root`` is the tree, writable. Needs root."""
    with workspace() as work:
        for name in ("upper", "work"):
            (work / name).mkdir(mode=0o755)
        layers = f"lowerdir={tree},upperdir={work}/upper,workdir={work}/work"
        subprocess.run(
            ["mount", "-t", "overlay", "-o", layers, "overlay", work / "root"], check=True
        )
        yield work


@contextlib.contextmanager
def in_place(tree: Path) -> Iterator[Path]:
    """Yield a workspace whose ``root`` is the tree itself, a disk's: it is changed. Needs root."""
    with workspace() as work:
        subprocess.run(["mount", "--bind", tree, work / "root"], check=True)
        yield work


def sweep() -> None:
    """Take away what a killed run has left in the temp folder."""
    for root in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/root"):  # made after the lock
        work = root.parent
        with contextlib.suppress(BlockingIOError), _locked(work), nspawn.cgroups(work.name):
            _remove(work)


@contextlib.contextmanager
def _locked(work: Path) -> Iterator[None]:
    """Hold a folder as one that is in use; BlockingIOError when a living process holds it."""
    descriptor = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _remove(work: Path) -> None:
    # Lazily: a process that is still dying may hold the mount for a moment.
    if os.path.ismount(work / "root"):
        subprocess.run(["umount", "--lazy", work / "root"], check=True)
    shutil.rmtree(work)
