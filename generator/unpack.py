"""What is handed over becomes artifacts again: an ISO, a FAT image, a folder, or user-data."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from generator import files, vfat
from generator.problem import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAMES = ("user-data", "meta-data", "network-config", "vendor-data")
"""The names that cloud-init looks for in a NoCloud seed."""
_LIMIT = 4 << 30  # bytes: a seed may carry a release


@dataclass(frozen=True)
class Unpacked:
    """A seed as it was found: `kind` in words, the volume's label or None, artifacts, sizes.

    `others` are the sizes in bytes of files that no cloud-init reads.
    """

    kind: str
    label: str | None
    size: int
    artifacts: Mapping[str, bytes]
    others: Mapping[str, int]


def unpack(path: Path) -> Unpacked:
    """Return what a file or a folder holds. Raises `Refused` for what is no seed."""
    if path.is_dir():
        found = {name: files.read(path / name) for name in NAMES if (path / name).exists()}
        if not found:
            raise refuse(f"{path} holds no seed", f"a seed's folder has {' and '.join(NAMES[:2])}")
        return _sorted("folder", None, found)
    return from_bytes(files.read(path, limit=_LIMIT), str(path))


def from_bytes(data: bytes, name: str) -> Unpacked:
    """Return what the content of a file holds; `name` is for messages. Raises `Refused`."""
    try:
        if data[32769:32774] == b"CD001":
            return _iso(data)
        if vfat.is_vfat(data):
            volume = vfat.read(data)
            return _sorted("FAT image", volume.label, volume.files, len(data))
    except ValueError as error:
        raise refuse(f"{name}: {error}", "make the seed again") from error
    if not data.lstrip().startswith((b"#cloud-config", b"## template", b"\x1f\x8b")):
        raise refuse(
            f"{name} is no seed", "a NoCloud ISO or FAT image, a folder of one, or user-data"
        )
    return _sorted("user-data", None, {"user-data": data})


def _sorted(
    kind: str, label: str | None, found: Mapping[str, bytes], size: int | None = None
) -> Unpacked:
    artifacts = {name: found[name] for name in NAMES if name in found}
    others = {name: len(data) for name, data in found.items() if name not in artifacts}
    whole = sum(map(len, found.values())) if size is None else size
    return Unpacked(kind, label, whole, artifacts, others)


def _iso(data: bytes) -> Unpacked:
    import pycdlib
    from pycdlib.pycdlibexception import PyCdlibException

    label = data[32808:32840].decode("latin-1").rstrip()  # ECMA-119, 8.4.7
    blocks = int.from_bytes(data[32848:32852], "little")
    if len(data) < blocks * 2048:
        raise ValueError(f"the ISO is cut short: {len(data)} bytes of {blocks * 2048}")
    image = pycdlib.PyCdlib()
    found = {}
    try:
        image.open_fp(io.BytesIO(data))
        facade = image.get_rock_ridge_facade() if image.has_rock_ridge() else None
        if facade is None:
            raise ValueError("the ISO has no Rock Ridge names: cloud-init would not find its files")
        for child in facade.list_children("/"):
            if child.is_file():
                name = child.rock_ridge.name().decode("utf-8", "replace")
                content = io.BytesIO()
                facade.get_file_from_iso_fp(content, f"/{name}")
                found[name] = content.getvalue()
        image.close()
    except (PyCdlibException, ArithmeticError, LookupError, OSError) as error:
        raise ValueError("the ISO is damaged") from error
    return _sorted("ISO", label, found, len(data))
