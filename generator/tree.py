"""An image's files, in a folder or in a tar: found, read, written and taken away.

A link of the image leads to a place in the image, never to one of this machine: an absolute
/etc -> /somewhere would otherwise have us read, or change, the build machine's own files.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import lzma
import os
import re
import shutil
import stat
import tarfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from generator import files
from generator.problem import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from generator.baked import Entry

_LINKS = 40  # as many as the kernel follows
_LIMIT = 2 << 30  # bytes of a file that is read
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{12}\.tmp")  # as `Folder.put` names it


@dataclass(frozen=True)
class Found:
    """A regular file of an image: its mode, whether it is root's, and its content."""

    mode: int
    is_roots: bool
    data: bytes


def unfinished(path: str) -> str:
    """Return the path of the file that a `Folder.put` which was killed left half of at `path`.

    >>> unfinished("/etc/llmgw/.ca.pem.0123456789ab.tmp"), unfinished("/etc/llmgw/ca.pem")
    ('/etc/llmgw/ca.pem', '')
    """
    folder, slash, name = path.rpartition("/")
    found = _TEMPORARY.fullmatch(name)
    return f"{folder}{slash}{found[1]}" if found else ""


class Tree(Protocol):
    """The files of an image; paths are absolute, as in the machine that will run it."""

    def find(self, pattern: str) -> list[str]:
        """Return the paths that fit, sorted; ``*`` stands for one name or a part of it."""

    def read(self, path: str) -> Found | None:
        """Return a regular file, None where there is none."""


def inside(root: Path, path: str, *, last: bool = False) -> Path:
    """Return this machine's path of an image's `path`, every link resolved against `root`.

    The last part is followed only if `last` says so. Raises OSError for a loop of links.
    """
    todo, links = path.split("/")[::-1], 0
    done: list[str] = []
    while todo:
        part = todo.pop()
        if part == "..":
            done = done[:-1]
        elif part not in ("", "."):
            here = root.joinpath(*done, part)
            if (last or todo) and here.is_symlink():
                links += 1
                if links > _LINKS:
                    raise OSError(errno.ELOOP, f"too many links in {path}")
                target = str(here.readlink())
                done = [] if target.startswith("/") else done
                todo += target.split("/")[::-1]
            else:
                done.append(part)
    return root.joinpath(*done)


class Folder:
    """A root filesystem in a folder of this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, pattern: str) -> list[str]:
        """Return the paths that fit, sorted."""
        found = [""]
        for part in pattern.strip("/").split("/"):
            found = [f"{base}/{name}" for base in found for name in self._names(base, part)]
        return sorted(found)

    def _names(self, base: str, part: str) -> Sequence[str]:
        with contextlib.suppress(OSError):  # no folder, or links that lead nowhere
            folder = inside(self.root, base, last=True)
            if "*" in part:
                return fnmatch.filter(os.listdir(folder), part)  # noqa: PTH208
            return (part,) if os.path.lexists(folder / part) else ()
        return ()

    def read(self, path: str) -> Found | None:
        """Return a regular file; a link in its place counts as none."""
        try:
            place = inside(self.root, path)
            state = place.lstat()
        except OSError:
            return None
        if not stat.S_ISREG(state.st_mode):
            return None
        data = files.read(place, limit=_LIMIT)
        return Found(stat.S_IMODE(state.st_mode), state.st_uid == state.st_gid == 0, data)

    def put(self, entry: Entry) -> bool:
        """Make a file what `entry` says, whole or not at all; tell whether it was not already.

        A link in its place gives way. Raises `Refused`.
        """
        if self.read(entry.path) == Found(entry.mode, True, entry.data):
            return False
        place = self._place(entry.path)
        if place.is_dir() and not place.is_symlink():
            raise refuse(f"{place} is a folder", "a file belongs there: take the folder away")
        self._make_folder(place.parent)
        temporary = place.with_name(f".{place.name}.{os.urandom(6).hex()}.tmp")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(entry.data)
                file.flush()
                _own(descriptor)
                os.fchmod(descriptor, entry.mode)  # not less the umask
                os.fsync(descriptor)
            temporary.replace(place)
        except OSError as error:
            raise files.cannot("write", place, error) from error
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def _place(self, path: str) -> Path:
        try:
            return inside(self.root, path)
        except OSError as error:
            raise files.cannot("find", f"{self.root}{path}", error) from error

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        try:
            folder.mkdir(0o755)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                _own(descriptor)
                os.fchmod(descriptor, 0o755)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise files.cannot("make", folder, error) from error

    def remove(self, path: str) -> bool:
        """Take away a file, a link or a folder with all that is in it; tell whether it was there.

        Links in it are not followed. Raises `Refused`.
        """
        place = self._place(path)
        try:
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            else:
                place.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise files.cannot("take away", place, error) from error
        return True


def _own(descriptor: int) -> None:
    state = os.fstat(descriptor)
    if (state.st_uid, state.st_gid) != (0, 0):
        os.fchown(descriptor, 0, 0)


class Tar:
    """The files of a tar: one that gen-seed made, or a whole root filesystem."""

    def __init__(self, path: Path) -> None:
        try:
            self._archive = tarfile.open(path)  # noqa: SIM115 - for as long as this lives
            members = self._archive.getmembers()
        except (tarfile.TarError, zlib.error, lzma.LZMAError, OSError, EOFError) as error:
            raise refuse(f"{path} is no tar, or it is damaged") from error
        self._members = {f"/{head.name.removeprefix('./').lstrip('/')}": head for head in members}

    def find(self, pattern: str) -> list[str]:
        """Return the paths that fit, sorted."""
        parts = pattern.count("/")
        fits = fnmatch.filter(self._members, pattern)
        return sorted(path for path in fits if path.count("/") == parts)

    def read(self, path: str) -> Found | None:
        """Return a regular file."""
        head = self._members.get(path)
        if head is None or not head.isreg():
            return None
        file = self._archive.extractfile(head)
        data = file.read(_LIMIT) if file else b""
        return Found(head.mode & 0o7777, head.uid == head.gid == 0, data)
