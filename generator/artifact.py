"""A node's artifact in an out folder: its name, what is there, and putting another in its place."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from generator import files
from generator.problem import Refused, refuse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from generator.pack import Packed

_PARTS = ("user-data", "meta-data", "network-config")

Parts = Mapping[str, bytes]
"""The files of an artifact by name; that of one which is a file itself is empty."""


@dataclass(frozen=True)
class Digest:
    """SHA-256 in hex, size in bytes, and a key that only who has the artifact can make.

    That of a folder is the digest of its files' digests, in lines as sha256sum prints them.
    """

    sha256: str
    size: int
    key: bytes


def name(node: str, form: str) -> str:
    """Return what a node's artifact is called; no node id has a dot, so no two are the same."""
    return node if form == "dir" else f"{node}.{form}"


def parts(packed: Packed) -> Parts:
    """Return the files of what was packed."""
    if isinstance(packed, Mapping):
        return {name: data for name, data in packed.items() if data is not None}
    return {"": packed}


def digest(found: Parts) -> Digest:
    """Return the digest of an artifact."""
    digests = {part: hashlib.sha256(data) for part, data in sorted(found.items())}
    whole = digests.get("")
    if whole is None:
        lines = [f"{digest.hexdigest()}  {part}\n" for part, digest in digests.items()]
        whole = hashlib.sha256("".join(lines).encode())
    # The digest goes into the manifest. The key goes on from what it was before its last step,
    # which cannot be told from it, and takes no second look at the data.
    key = hashlib.sha256()
    for digest in digests.values():
        further = digest.copy()
        further.update(b"gen-seed")
        key.update(further.digest())
    return Digest(whole.hexdigest(), sum(map(len, found.values())), key.digest())


def read(folder: Path, node: str, form: str) -> Parts | None:
    """Return the artifact that is there; None where there is none, or something else."""
    path = folder / name(node, form)
    if path.is_symlink():
        return None  # whatever it leads to is not ours
    names = [n for n in _PARTS if os.path.lexists(path / n)] if form == "dir" else [""]
    try:
        return {n: files.read(path / n if n else path) for n in names} or None
    except Refused:
        return None


def size(folder: Path, node: str, form: str) -> int | None:
    """Return the bytes of the artifact that is there; None where there is none."""
    path = folder / name(node, form)
    try:
        if form == "dir" and path.is_dir():
            return sum(os.lstat(path / n).st_size for n in _PARTS if os.path.lexists(path / n))
        return os.lstat(path).st_size
    except OSError:
        return None


def check_place(folder: Path, node: str, form: str) -> None:
    """Refuse a place where something is that an artifact must not replace."""
    path = folder / name(node, form)
    if os.path.lexists(path) and path.is_dir() != (form == "dir"):
        what = "a file, and a folder is" if form == "dir" else "a folder, and a file is"
        raise refuse(f"{path} is {what} to be written", "move it away, or name another folder: -d")
    if form != "dir":
        return
    if path.is_symlink():
        raise refuse(f"{path} is a symbolic link", "remove it, or name another folder: -d")
    for part in _PARTS:
        if (path / part).is_dir() and not (path / part).is_symlink():
            raise refuse(f"{path / part} is a folder, and a file is to be written", "move it away")


def stage(
    staging: Path, node: str, form: str, found: Parts, write: Callable[[Path, bytes], None]
) -> None:
    """Write an artifact into a folder of the same file system, to be published from there."""
    path = staging / name(node, form)
    if form == "dir":
        files.make_folder(path, 0o700)
    for part, data in found.items():
        write(path / part if part else path, data)


def publish(staging: Path, folder: Path, node: str, form: str) -> None:
    """Move what was staged to its place; each file of it whole. Raises `Refused`."""
    source, target = staging / name(node, form), folder / name(node, form)
    try:
        if form != "dir" or not target.exists():
            source.replace(target)
            return
        for part in reversed(_PARTS):  # user-data last: the identity is in it
            if (source / part).exists():
                (source / part).replace(target / part)
            else:
                (target / part).unlink(missing_ok=True)
        source.rmdir()
    except OSError as error:
        raise files.cannot("write", target, error) from error
