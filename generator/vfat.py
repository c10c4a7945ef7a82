"""Reads the files in the root folder of a FAT image, as cloud-localds and hypervisors make them.

Only reading, only the root: FAT12, FAT16 and FAT32 with long names (Microsoft's "FAT File System
Specification", 2005).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER, _LABEL, _LONG = 0x10, 0x08, 0x0F
_DELETED, _END = 0xE5, 0x00
_ENTRY = 32  # bytes
_FIRST = 2  # the number of the first cluster that holds data


@dataclass(frozen=True)
class Volume:
    """The label, and the root folder's files by name."""

    label: str
    files: dict[str, bytes]


def is_vfat(data: bytes) -> bool:
    """Tell whether an image begins like a FAT file system."""
    return data[510:512] == b"\x55\xaa" and (data[54:57] == b"FAT" or data[82:85] == b"FAT")


def read(data: bytes) -> Volume:
    """Return the volume's files. Raises ValueError where the image is cut short or damaged."""
    try:
        return _Reader(data).volume()
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError("the image is cut short or damaged") from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        (sector, self._per_cluster, reserved, copies, self._entries, total) = struct.unpack_from(
            "<HBHBHH", data, 11
        )
        total = total or struct.unpack_from("<I", data, 32)[0]
        self._fat_sectors = struct.unpack_from("<H", data, 22)[0]
        self._wide = not self._fat_sectors
        self._fat_sectors = self._fat_sectors or struct.unpack_from("<I", data, 36)[0]
        if not sector or not self._per_cluster or len(data) < total * sector:
            raise ValueError("the image is cut short or damaged")
        self._sector = sector
        self._fat = reserved * sector
        self._root = self._fat + copies * self._fat_sectors * sector
        self._clusters = self._root + self._entries * _ENTRY
        count = (total - self._clusters // sector) // self._per_cluster
        # The number of clusters alone says how wide an entry of the table is.
        self._bits = 32 if self._wide else 12 if count < 4085 else 16  # noqa: PLR2004 - theirs

    def volume(self) -> Volume:
        if self._wide:
            folder = self._chain(struct.unpack_from("<I", self._data, 44)[0])
        else:
            folder = self._data[self._root : self._clusters]
        label, files = "", {}
        for name, attributes, cluster, size in self._listing(folder):
            if attributes & _LABEL:
                label = name
            elif not attributes & _FOLDER:
                content = self._chain(cluster)[:size] if size else b""
                if len(content) != size:
                    raise ValueError(f"{name} is cut short")
                files[name] = content
        return Volume(label, files)

    def _chain(self, cluster: int) -> bytes:
        size, parts = self._sector * self._per_cluster, []
        end = {12: 0xFF8, 16: 0xFFF8, 32: 0x0FFFFFF8}[self._bits]
        while _FIRST <= cluster < end:
            at = self._clusters + (cluster - _FIRST) * size
            parts.append(self._data[at : at + size])
            if len(parts) * size > len(self._data):
                raise ValueError("the image is damaged: a file that never ends")
            cluster = self._next(cluster)
        return b"".join(parts)

    def _next(self, cluster: int) -> int:
        if self._bits == 12:  # noqa: PLR2004 - bits
            pair: int = struct.unpack_from("<H", self._data, self._fat + cluster * 3 // 2)[0]
            return pair >> 4 if cluster % 2 else pair & 0xFFF
        form, mask = ("<H", 0xFFFF) if self._bits == 16 else ("<I", 0x0FFFFFFF)  # noqa: PLR2004
        width = struct.calcsize(form)
        found: int = struct.unpack_from(form, self._data, self._fat + cluster * width)[0]
        return found & mask

    def _listing(self, folder: bytes) -> Iterator[tuple[str, int, int, int]]:
        """Yield name, attributes, first cluster and size of each entry."""
        long = ""
        for at in range(0, len(folder) - _ENTRY + 1, _ENTRY):
            entry = folder[at : at + _ENTRY]
            if entry[0] == _END:
                return
            if entry[0] == _DELETED:
                continue
            if entry[11] == _LONG:
                # The parts of a long name stand before their entry, the last one first.
                long = (entry[1:11] + entry[14:26] + entry[28:32]).decode("utf-16-le") + long
                continue
            name = long.split("\0")[0] or _short(entry)
            long = ""
            high, low, size = struct.unpack("<H4xHI", entry[20:32])
            yield name, entry[11], (high << 16 | low if self._wide else low), size


def _short(entry: bytes) -> str:
    """Return an 8.3 name; two bits say that Linux and Windows show its parts in lower case."""
    stem, suffix = (part.decode("cp437").rstrip() for part in (entry[:8], entry[8:11]))
    if entry[11] & _LABEL:
        return entry[:11].decode("cp437").rstrip()
    stem = stem.lower() if entry[12] & 0x08 else stem
    suffix = suffix.lower() if entry[12] & 0x10 else suffix
    return f"{stem}.{suffix}" if suffix else stem
