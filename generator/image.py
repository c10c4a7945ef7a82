"""Changes a disk image, or reads it.

An image is never worked on itself: what is changed is a copy beside it, which takes its place
by a rename, so that a kill at any moment leaves the old image or the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from generator import disk, files
from generator.mounting import mounted, run
from generator.problem import refuse

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Copy:
    """A raw copy of an image; `keep` has it take the image's place in the end."""

    path: Path
    keep: bool = False


@contextmanager
def copied(path: Path) -> Iterator[Copy]:
    """Yield a raw copy beside an image; in the end it becomes the image, if it is to be kept.

    A qcow2 image is written anew, with all that is zero left out. Raises `Refused`.
    """
    form = disk.kind(path)
    if not form:
        raise refuse(f"{path} is no disk image", "raw or qcow2; a folder is --rootfs")
    target = Path(os.path.realpath(path))
    state = target.stat()
    lock = -1
    work = target.with_name(f".{target.name[:200]}.{os.urandom(6).hex()}.tmp")
    ready = work.with_suffix(".qcow2")
    try:
        _tidy(target)
        # Locked for as long as we live, so that the next knows whether anybody works on it.
        lock = os.open(work, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with contextlib.suppress(OSError):  # not every file system can
            fcntl.flock(lock, fcntl.LOCK_EX)
        if form == "raw":
            _check_unused(target, path)  # of qcow2 qemu-img says so itself
            run(["cp", "--sparse=always", "--reflink=auto", "--", str(target), str(work)])
        else:
            run(["qemu-img", "convert", "-f", "qcow2", "-O", "raw", str(target), str(work)])
        copy = Copy(work)
        yield copy
        if copy.keep:
            if form == "qcow2":
                run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(work), str(ready)])
            made = ready if form == "qcow2" else work
            _settle(made, state)
            made.replace(target)
    except OSError as error:
        raise files.cannot("write", path, error) from error
    finally:
        work.unlink(missing_ok=True)
        ready.unlink(missing_ok=True)
        if lock >= 0:
            os.close(lock)


def _tidy(target: Path) -> None:
    """Take away the copies of an image that killed runs have left; a key may be in them."""
    name = re.compile(rf"\.{re.escape(target.name[:200])}\.[0-9a-f]{{12}}\.tmp")
    for path in target.parent.iterdir():
        if name.fullmatch(path.name):
            with contextlib.suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                path.with_suffix(".qcow2").unlink(missing_ok=True)


def check_room(copy: Path, name: str) -> None:
    """Raise `Refused` where a copy, of the image called `name`, cannot be written as a whole."""
    state, place = copy.stat(), os.statvfs(copy)
    lacking = state.st_size - state.st_blocks * 512 - place.f_bavail * place.f_frsize
    if lacking > 0:
        raise refuse(
            f"{name}: to zero what is free of it takes {lacking} bytes more than its folder has",
            "make room, or work on it where there is some",
        )


def _check_unused(target: Path, path: Path) -> None:
    """Raise `Refused` for an image that a machine runs from, or that is mounted.

    What that writes from now on would be lost, and what it has not written yet is not in a copy.
    """
    # Who cannot write it cannot ask, and not every file system can answer.
    with contextlib.suppress(OSError), target.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise refuse(f"{path} is in use", "stop the machine that runs from it") from error
    mounts = Path("/proc/self/mountinfo").read_text("utf-8", "replace")
    devices = {line.split()[2] for line in mounts.splitlines()}
    for loop in Path("/sys/block").glob("loop*"):
        with contextlib.suppress(OSError):  # it is another's, and may go at any moment
            backing = (loop / "loop/backing_file").read_text("utf-8").rstrip("\n")
            own = {number.read_text().strip() for number in (loop / "dev", *loop.glob("*/dev"))}
            if backing == str(target) and own & devices:
                raise refuse(f"{path} is mounted", f"unmount it: umount /dev/{loop.name}")


def _settle(made: Path, state: os.stat_result) -> None:
    """Give the copy the owner and the mode of the image, and see it on the disk."""
    descriptor = os.open(made, os.O_RDONLY)
    try:
        if os.geteuid() == 0:
            os.fchown(descriptor, state.st_uid, state.st_gid)
        os.fchmod(descriptor, state.st_mode & 0o7777)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def read_only(path: Path) -> Iterator[Path]:
    """Yield the root folder of an image, to be read. Raises `Refused`."""
    if disk.kind(path) == "qcow2" and os.geteuid() == 0:  # the kernel knows raw images only
        with copied(path) as copy, mounted(copy.path, str(path), writable=False) as there:
            yield there.root
    else:
        with mounted(path, str(path), writable=False) as there:
            yield there.root
