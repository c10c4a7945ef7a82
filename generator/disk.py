"""Where the file systems of a disk image are: its partition table, GPT or MBR, or none."""

from __future__ import annotations

import stat
import struct
from typing import TYPE_CHECKING

from generator import files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

Extent = tuple[int, int]
"""Where a file system begins and how long it is, in bytes."""

_HEAD = 4096  # bytes
_SECTORS = (512, 4096)  # bytes; GPT counts in what the disk was made with
_EXTENDED = (0x05, 0x0F, 0x85)
_MOST = 128  # partitions: what a GPT has room for unless it says otherwise
_NOTHING = bytes(16)
_FURTHEST = 1 << 62  # bytes: a table that is none may say anything
# What Linux boots from: offset and magic of ext4, XFS, btrfs.
_KNOWN = ((0x438, b"\x53\xef"), (0, b"XFSB"), (0x10040, b"_BHRfS_M"))


def is_qcow2(head: bytes) -> bool:
    """Tell whether a file begins like a qcow2 image."""
    return head.startswith(b"QFI\xfb")


def kind(path: Path) -> str:
    """Return ``qcow2``, ``raw``, or nothing for a file that is no disk image. Raises `Refused`."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return ""  # to read a FIFO would wait for ever, and a device is no file of an image
        with path.open("rb") as file:
            if is_qcow2(file.read(_HEAD)):
                return "qcow2"
            return "raw" if is_raw(file) else ""
    except OSError as error:
        raise files.cannot("read", path, error) from error


def is_raw(file: BinaryIO) -> bool:
    """Tell whether a file looks like a raw disk: a known file system, or a partition table."""
    return _known(file, 0) or any(_gpt(file)) or any(_mbr(file))


def file_systems(file: BinaryIO) -> list[Extent]:
    """Return where in a raw image there is a file system that Linux boots from."""
    file.seek(0, 2)
    end = file.tell()
    if _known(file, 0):
        return [(0, end)]
    found = list(_gpt(file)) or list(_mbr(file))
    return [(start, size) for start, size in found if start < end and _known(file, start)]


def _read(file: BinaryIO, offset: int, size: int) -> bytes:
    if offset >= _FURTHEST:
        return bytes(size)
    file.seek(offset)
    return file.read(size).ljust(size, b"\0")


def _known(file: BinaryIO, offset: int) -> bool:
    return any(_read(file, offset + at, len(magic)) == magic for at, magic in _KNOWN)


def _gpt(file: BinaryIO) -> Iterator[Extent]:
    """Read a GUID partition table (UEFI 2.10, 5.3)."""
    for sector in _SECTORS:
        head = _read(file, sector, 92)
        if not head.startswith(b"EFI PART"):
            continue
        table, count, size = struct.unpack_from("<QII", head, 72)
        for number in range(min(count, _MOST) if size >= 48 else 0):  # noqa: PLR2004 - bytes read
            entry = _read(file, table * sector + number * size, 48)
            first, last = struct.unpack_from("<QQ", entry, 32)
            if entry[:16] != _NOTHING and last >= first:
                yield first * sector, (last - first + 1) * sector
        return


def _mbr(file: BinaryIO) -> Iterator[Extent]:
    """Read the four entries of an MBR, and the chain of logical ones."""
    for kind, start, size in _entries(file, 0):
        if kind in _EXTENDED:
            yield from _logical(file, start)
        elif kind not in (0, 0xEE):  # 0xEE guards a GPT
            yield start, size


def _logical(file: BinaryIO, extended: int) -> Iterator[Extent]:
    at = extended
    for _ in range(_MOST):
        following = 0
        for kind, start, size in _entries(file, at):
            if kind in _EXTENDED:
                following = extended + start
            elif kind:
                yield at + start, size
        if not following:
            return
        at = following


def _entries(file: BinaryIO, offset: int) -> Iterator[tuple[int, int, int]]:
    sector = _read(file, offset, 512)
    if sector[510:] != b"\x55\xaa":
        return
    for number in range(4):
        kind, start, size = struct.unpack_from("<4xB3xII", sector, 446 + 16 * number)
        yield kind, start * 512, size * 512
