"""A disk image as a folder: mounted by the kernel where we are root, else by libguestfs.

An image is never worked on itself: what is changed is a copy beside it, which takes its place
by a rename, so that a kill at any moment leaves the old image or the new one.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from generator import disk, files
from generator.problem import Refused, refuse
from generator.tree import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_HEAD = 4096  # bytes
_NEWNS = 0x20000  # CLONE_NEWNS, <linux/sched.h>
_SYSTEM = ("/etc/os-release", "/usr/lib/os-release")
# Not mounted by us, and part of what an image is.
_APART = ("/etc", "/usr", "/usr/local", "/var", "/var/lib", "/var/log", "/var/lib/cloud")


def kind(path: Path) -> str:
    """Return ``qcow2``, ``raw``, or nothing for a file that is no disk image. Raises `Refused`."""
    try:
        with path.open("rb") as file:
            if disk.is_qcow2(file.read(_HEAD)):
                return "qcow2"
            return "raw" if disk.is_raw(file) else ""
    except OSError as error:
        raise files.cannot("read", path, error) from error


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
    form = kind(path)
    if not form:
        raise refuse(f"{path} is no disk image", "raw or qcow2; a folder is --rootfs")
    target = Path(os.path.realpath(path))
    state = target.stat()
    work = target.with_name(f".{target.name[:200]}.{os.urandom(6).hex()}.tmp")
    ready = work.with_suffix(".qcow2")
    try:
        if form == "raw":
            _run(["cp", "--sparse=always", "--reflink=auto", "--", str(target), str(work)])
        else:
            _run(["qemu-img", "convert", "-f", "qcow2", "-O", "raw", str(target), str(work)])
        copy = Copy(work)
        yield copy
        if copy.keep:
            if form == "qcow2":
                _run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(work), str(ready)])
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
    if kind(path) == "qcow2" and os.geteuid() == 0 and not shutil.which("guestmount"):
        with copied(path) as copy, mounted(copy.path, str(path), writable=False) as root:
            yield root
    else:
        with mounted(path, str(path), writable=False) as root:
            yield root


@contextmanager
def mounted(image: Path, name: str, *, writable: bool) -> Iterator[Path]:
    """Yield the root folder of a raw image, mounted; `name` is for messages. Raises `Refused`."""
    with tempfile.TemporaryDirectory(prefix="gen-seed-image-") as folder:
        root = Path(folder) / "root"
        root.mkdir()
        unmount = _mount(image, name, root, writable=writable)
        try:
            yield root
        finally:
            _run(unmount)


def _mount(image: Path, name: str, root: Path, *, writable: bool) -> list[str]:
    """Mount the root file system of an image at `root`; return the command that ends that."""
    guest = shutil.which("guestmount")
    if os.geteuid() == 0:
        try:
            _loop(image, name, root, writable=writable)
        except Refused:
            if not guest:
                raise
        else:
            return ["umount", str(root)]
    elif not guest:
        raise refuse(
            f"{name}: mounting an image needs root, or libguestfs",
            "run gen-seed with sudo, install guestmount, or use --tar with virt-tar-in",
        )
    mode = "--rw" if writable else "--ro"
    _run(["guestmount", "-a", str(image), "-i", mode, str(root)])
    return ["guestunmount", str(root)]


def _loop(image: Path, name: str, root: Path, *, writable: bool) -> None:
    with image.open("rb") as file:
        extents = disk.file_systems(file)
    _apart()
    found = [extent for extent in extents if _is_system(image, extent, root)]
    if len(found) != 1:
        what = f"{len(found)} root file systems" if found else "no root file system"
        raise refuse(
            f"{name} has {what} that the kernel can mount by itself",
            "LVM, encryption and subvolumes need libguestfs: install guestmount, or mount it"
            " yourself and use --rootfs",
        )
    _mount_loop(image, found[0], root, "rw" if writable else "ro,noload")
    fstab = Folder(root).read("/etc/fstab")
    if elsewhere := mounts_apart(fstab.data if fstab else b""):
        _run(["umount", str(root)])
        raise refuse(
            f"{name} has a file system of its own for {', '.join(elsewhere)}",
            "install guestmount, or mount it yourself and use --rootfs",
        )


def mounts_apart(fstab: bytes) -> list[str]:
    """Return which of the folders that concern us an fstab(5) mounts from elsewhere.

    >>> mounts_apart(b"LABEL=root / ext4\\n/dev/sda2 /var ext4\\n# /dev/sda3 /usr xfs\\n")
    ['/var']
    """
    lines = [line.split() for line in fstab.decode(errors="replace").splitlines()]
    places = [line[1] for line in lines if len(line) > 1 and not line[0].startswith("#")]
    return [place for place in places if place in _APART]


def _is_system(image: Path, extent: disk.Extent, root: Path) -> bool:
    try:
        _mount_loop(image, extent, root, "ro,noload")
    except Refused:
        return False
    try:
        return any(os.path.lexists(f"{root}{path}") for path in _SYSTEM)
    finally:
        _run(["umount", str(root)])


def _mount_loop(image: Path, extent: disk.Extent, root: Path, how: str) -> None:
    start, size = extent
    options = f"loop,offset={start},sizelimit={size},nosuid,nodev"
    # `noload` (ext4: the journal is not replayed on a read-only mount) is not known to all.
    modes = dict.fromkeys((how, how.replace("noload", "norecovery"), how.partition(",")[0]))
    for mode in modes:
        try:
            _run(["mount", "-o", f"{options},{mode}", str(image), str(root)])
        except Refused as refused:
            problem = refused
        else:
            return
    raise problem


def _apart() -> None:
    """Have what we mount be seen by us alone, and end with us, however we end."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEWNS):
        number = ctypes.get_errno()
        raise refuse(f"a mount of our own is not possible: {os.strerror(number).lower()}")
    _run(["mount", "--make-rprivate", "/"])


def _run(command: Sequence[str]) -> None:
    """Run a program of this machine's. Raises `Refused` with the last line of what it said."""
    environ = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, env=environ
        )
    except FileNotFoundError as error:
        raise refuse(f"{command[0]} is not installed", "see docs/recipes.md") from error
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise refuse(f"{command[0]} failed: {said[-1] if said else done.returncode}")


def trim(root: Path) -> None:
    """Give back the room of what is free, so that zeros take none; not every system can."""
    subprocess.run(
        ["fstrim", str(root)], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
