"""Mounts a disk image: by the kernel where we are root and it can, else by libguestfs."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from generator import disk
from generator.problem import Refused, refuse
from generator.tree import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from generator.problem import Problem

_PATIENCE = 120  # seconds
_LOOK = 10  # seconds that udev may take for its look at a device
_NEWNS = 0x20000  # CLONE_NEWNS, <linux/sched.h>
_SYSTEM = ("/etc/os-release", "/usr/lib/os-release")
# Not mounted by us, and part of what an image is.
_APART = ("/etc", "/usr", "/usr/local", "/var", "/var/lib", "/var/log", "/var/lib/cloud")


@dataclass(frozen=True)
class Mounted:
    """The root folder of an image, and whether libguestfs mounted it."""

    root: Path
    by_libguestfs: bool


@contextmanager
def mounted(image: Path, name: str, *, writable: bool) -> Iterator[Mounted]:
    """Yield an image, mounted; `name` is for messages. Raises `Refused`."""
    with tempfile.TemporaryDirectory(prefix="gen-seed-image-") as folder:
        root = Path(folder) / "root"
        root.mkdir()
        guest = _mount(image, name, root, writable=writable)
        try:
            yield Mounted(root, guest is not None)
        finally:
            run(["guestunmount" if guest else "umount", str(root)])
            if guest:
                _wait(int(guest.read_text()))


def _mount(image: Path, name: str, root: Path, *, writable: bool) -> Path | None:
    """Mount the root file system of an image at `root`.

    Returns a file with the process of libguestfs that does it, None where the kernel does.
    """
    guest = shutil.which("guestmount")
    problems: tuple[Problem, ...] = ()
    if os.geteuid() == 0:
        try:
            _loop(image, name, root, writable=writable)
        except Refused as refused:
            problems = refused.problems
        else:
            return None
    elif not guest:
        raise refuse(
            f"{name}: mounting an image needs root, or libguestfs",
            "run gen-seed with sudo, install guestmount, or use --tar with virt-tar-in",
        )
    if not guest:
        raise Refused(problems)
    # The format is said: a guest can write what a raw disk is taken for.
    form, mode = f"--format={disk.kind(image)}", "--rw" if writable else "--ro"
    process = root.with_name("pid")
    how = [form, "-a", str(image), "-i", mode, "--pid-file", str(process)]
    try:
        run(["guestmount", *how, str(root)])
    except Refused as refused:
        raise Refused((*problems, *refused.problems)) from None
    return process


def _wait(process: int) -> None:
    """Wait for libguestfs to be done with an image, which is after it was unmounted."""
    end = time.monotonic() + _PATIENCE
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < end:
            os.kill(process, 0)
            time.sleep(0.1)
        raise refuse(f"libguestfs did not end within {_PATIENCE} seconds", "try again")


def _loop(image: Path, name: str, root: Path, *, writable: bool) -> None:
    with image.open("rb") as file:
        extents = disk.file_systems(file)
    _apart()
    failed: list[Problem] = []
    found = [extent for extent in extents if _is_system(image, extent, root, failed)]
    if len(found) != 1:
        what = f"{len(found)} root file systems" if found else "no root file system"
        told = f" ({failed[0].message})" if failed and not found else ""
        raise refuse(
            f"{name} has {what} that the kernel can mount by itself{told}",
            "LVM, encryption and subvolumes need libguestfs: install guestmount, or mount it"
            " yourself and use --rootfs",
        )
    if writable:
        _mount_writable(image, found[0], name, root)
    else:
        _mount_loop(image, found[0], root, "ro,noload")
    fstab = Folder(root).read("/etc/fstab")
    if elsewhere := mounts_apart(fstab.data if fstab else b""):
        run(["umount", str(root)])
        raise refuse(
            f"{name} has a file system of its own for {', '.join(elsewhere)}",
            "install guestmount, or mount it yourself and use --rootfs",
        )


def mounts_apart(fstab: bytes) -> list[str]:
    """Return which of the folders that concern us an fstab(5) mounts from elsewhere.

    >>> mounts_apart(b"LABEL=root / ext4\\n/dev/sda2 /var ext4\\n# /dev/sda3 /usr xfs\\n")
    ['/var']
    >>> mounts_apart(b"/dev/sda2 /usr/ ext4\\n")
    ['/usr']
    """
    lines = [line.split() for line in fstab.decode(errors="replace").splitlines()]
    rows = [line for line in lines if len(line) > 1 and not line[0].startswith("#")]
    places = [line[1].rstrip("/") for line in rows]
    return [place for place in places if place in _APART]


def _is_system(image: Path, extent: disk.Extent, root: Path, failed: list[Problem]) -> bool:
    """Tell whether there is a system; what cannot be mounted goes to `failed`."""
    try:
        _mount_loop(image, extent, root, "ro,noload")
    except Refused as refused:
        failed += refused.problems
        return False
    try:
        return any(os.path.lexists(f"{root}{path}") for path in _SYSTEM)
    finally:
        run(["umount", str(root)])


def _mount_writable(image: Path, extent: disk.Extent, name: str, root: Path) -> None:
    """Mount what was looked at read-only a moment ago.

    Its loop device lives on while somebody has it open, as udev has who looks at each new one,
    and mount(8) would take that again, read-only.
    """
    end = time.monotonic() + _LOOK
    while True:
        _mount_loop(image, extent, root, "rw")
        if not os.statvfs(root).f_flag & os.ST_RDONLY:
            return
        run(["umount", str(root)])
        if time.monotonic() > end:
            raise refuse(f"{name} can be mounted only to be read", "its file system may be damaged")
        time.sleep(0.1)


def _mount_loop(image: Path, extent: disk.Extent, root: Path, how: str) -> None:
    start, size = extent
    options = f"loop,offset={start},sizelimit={size},nosuid,nodev"
    for mode in modes(how):
        try:
            run(["mount", "-o", f"{options},{mode}", str(image), str(root)])
        except Refused as refused:
            problem = refused
        else:
            return
    raise problem


def modes(how: str) -> list[str]:
    """Return the options with which to try a mount, one after the other.

    `noload` (ext4: the journal is not replayed on a read-only mount) is not known to all, and XFS
    wants `nouuid` where this machine runs from the same image.

    >>> modes("rw"), modes("ro,noload")
    (['rw', 'rw,nouuid'], ['ro,noload', 'ro,norecovery', 'ro', 'ro,norecovery,nouuid'])
    """
    other = how.replace("noload", "norecovery")
    return [*dict.fromkeys((how, other, how.partition(",")[0], f"{other},nouuid"))]


def _apart() -> None:
    """Have what we mount be seen by us alone, and end with us, however we end."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEWNS):
        number = ctypes.get_errno()
        raise refuse(f"a mount of our own is not possible: {os.strerror(number).lower()}")
    run(["mount", "--make-rprivate", "/"])


def run(command: Sequence[str]) -> None:
    """Run a program of this machine's. Raises `Refused` with the line that tells why."""
    environ = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, env=environ,
            umask=0o077,  # a copy of an image may hold a key
        )  # fmt: skip
    except FileNotFoundError as error:
        raise refuse(f"{command[0]} is not installed", "see docs/recipes.md") from error
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        reason = next((line for line in said if "error" in line), "".join(said[-1:]))
        raise refuse(f"{command[0]} failed: {reason or done.returncode}")


def sparsify(image: Path) -> None:
    """Give back what is free of a raw image that is not mounted, by libguestfs.

    To fill it with zeros takes minutes there, and reaches not every block. Raises `Refused`.
    """
    run(["virt-sparsify", "--quiet", "--in-place", "--format", "raw", str(image)])


def settle(root: Path) -> None:
    """Have the journal of a mounted file system written to its places. Raises `Refused`."""
    for how in ("ro", "rw"):
        run(["mount", "-o", f"remount,{how}", str(root)])


def trim(root: Path) -> None:
    """Give back the room of what is free, so that zeros take none; not every system can."""
    subprocess.run(
        ["fstrim", str(root)], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
