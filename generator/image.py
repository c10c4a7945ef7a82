"""Changes a disk image, or reads it.

An image is never worked on itself: what is changed is a copy beside it, which takes its place
by a rename, so that a kill at any moment leaves the old image or the new one.
"""

from __future__ import annotations

import os
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
    work = target.with_name(f".{target.name[:200]}.{os.urandom(6).hex()}.tmp")
    ready = work.with_suffix(".qcow2")
    try:
        if form == "raw":
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
