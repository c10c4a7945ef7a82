"""Images for tests: a root filesystem of a few files, a fleet to bake into it, and a disk of it."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fleet import Fleet, write_fleet

from generator import authority

if TYPE_CHECKING:
    from collections.abc import Iterator

BINARY = b"\x7fELF the llmgw of this release"
NEWER = b"\x7fELF the llmgw of the next one"
SERVER = "https://10.0.0.140:7443"
URL = "https://h.example/{arch}"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="an image's files are root's")
needs_disks = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("mke2fs", "qemu-img", "losetup"))),
    reason="mounting a disk needs root, e2fsprogs and qemu-utils",
)


def fleet_in(root: Path, binary: bytes = BINARY) -> Fleet:
    """Return a fleet whose release is `binary`, which lies in the workspace as ``llmgw``."""
    fleet = Fleet(root)
    (root / "pki").mkdir(mode=0o700, parents=True)
    for name, data in _authority().items():
        (root / "pki" / name).write_bytes(data)
        (root / "pki" / name).chmod(0o600)
    fleet.write(n7="{}")
    release(fleet, binary)
    return fleet


@functools.cache
def _authority() -> dict[str, bytes]:
    """Return the files of an authority: one is enough for all."""
    with tempfile.TemporaryDirectory() as folder:
        made, _ = authority.create(Path(folder) / "pki", datetime.now(UTC))
        return {path.name: path.read_bytes() for path in made.folder.iterdir()}


def release(fleet: Fleet, binary: bytes) -> None:
    write_fleet(fleet, SERVER, URL, binary)
    (fleet.root / "llmgw").write_bytes(binary)


def rootfs_in(root: Path, machine: int = 62) -> Path:
    """Return a Debian of a few files; `machine` is its shell's e_machine (62: amd64)."""
    for folder in ("bin", "etc", "usr/sbin", "var/lib"):
        (root / folder).mkdir(parents=True)
    (root / "bin/dash").write_bytes(struct.pack("<4s14xH", b"\x7fELF", machine))
    (root / "bin/sh").symlink_to("dash")
    (root / "etc/os-release").write_text("ID=debian\n")
    (root / "usr/sbin/update-ca-certificates").write_text("#!/bin/sh\n")
    return root


def state(root: Path) -> dict[str, tuple[int, int, int, str]]:
    """Return inode, mode, time of change and content's digest of each file under `root`."""
    found = {}
    for path in sorted(root.rglob("*")):
        it = path.lstat()
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        digest = hashlib.sha256(data).hexdigest()
        found[str(path.relative_to(root))] = (it.st_ino, it.st_mode, it.st_mtime_ns, digest)
    return found


def disk_of(tree: Path, disk: Path, size: str = "64M", offset: int = 0) -> Path:
    """Write an ext4 of a folder into a raw image, `offset` bytes from its start."""
    subprocess.run(
        ["mke2fs", "-q", "-t", "ext4", "-E", f"offset={offset}", "-d", tree, disk, size],
        check=True,
        capture_output=True,
    )
    return disk


@contextmanager
def mounted(disk: Path, offset: int = 0, how: str = "rw") -> Iterator[Path]:
    """Yield the root folder of a raw image."""
    root = disk.with_name(f"{disk.name}.mnt")
    root.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", f"loop,offset={offset},{how}", disk, root], check=True)
    try:
        yield root
    finally:
        subprocess.run(["umount", root], check=True)
