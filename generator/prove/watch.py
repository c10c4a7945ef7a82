"""Proof that a secret's file was readable by nobody else, at no moment of a boot.

fanotify(7) stops every open in the guest until we have looked: a file that is made with
a wide mode and narrowed afterwards is seen while it is wide, however short the moment.
Who could read it had to open it, so nothing that matters happens between two opens; a
change of mode is seen at the next open of anything (a program that is started opens its
libraries).
"""

from __future__ import annotations

import ctypes
import os
import select
import stat
import struct
import threading
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

# <linux/fanotify.h>
_INIT = 0x4 | 0x1 | 0x10  # FAN_CLASS_CONTENT, FAN_CLOEXEC, FAN_UNLIMITED_QUEUE
_ADD_FILESYSTEM = 0x1 | 0x100  # FAN_MARK_ADD, FAN_MARK_FILESYSTEM
_CLOSE_WRITE, _OPEN_PERM, _ALLOW = 0x8, 0x10000, 1
_AT_FDCWD = -100
_EVENT = struct.Struct("=IBBHQii")  # length, version, reserved, its own length, mask, fd, pid
_MOST = 1 << 20  # bytes; a file that holds a key is smaller


class Watch:
    """Watches the disk under `root` for files that hold `secret` (bytes they contain).

    Use it as a context manager around a machine's boots. Works for every process of the
    guest and needs nothing in it. /run and /tmp are not on the disk.
    """

    def __init__(self, root: Path, secret: bytes) -> None:
        self._root, self._secret = root, secret
        # A file is known by its folder and inode, so that a rename keeps its history and
        # an inode used again elsewhere has none.
        self._modes: dict[tuple[str, int], set[int]] = defaultdict(set)
        self._holders: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        libc = ctypes.CDLL(None, use_errno=True)
        self._queue = _checked(libc.fanotify_init(_INIT, os.O_RDONLY | os.O_CLOEXEC))
        mask = ctypes.c_uint64(_OPEN_PERM | _CLOSE_WRITE)
        path = os.fsencode(self._root)
        _checked(libc.fanotify_mark(self._queue, _ADD_FILESYSTEM, mask, _AT_FDCWD, path))
        self._stop, self._stopped = os.pipe()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._stopped)
        self._thread.join()
        os.close(self._stop)
        if self._failure:
            raise self._failure

    def modes(self) -> dict[str, set[int]]:
        """Return for each path that has held the secret every mode that its file ever had."""
        found: dict[str, set[int]] = defaultdict(set)
        for key, names in self._holders.items():
            for name in names:
                found[name] |= self._modes[key]
        return dict(found)

    def wide(self, folder: str = "/") -> dict[str, set[int]]:
        """Return those below `folder` that anybody but the owner could use, with their modes."""
        return {
            name: modes
            for name, modes in self.modes().items()
            if name.startswith(folder) and any(mode & 0o177 for mode in modes)
        }

    def _watch(self) -> None:
        try:
            while True:
                ready, _, _ = select.select([self._queue, self._stop], [], [])
                if self._queue not in ready:
                    return
                for mask, file in _events(os.read(self._queue, 1 << 16)):
                    try:
                        self._look(mask, file)
                    finally:
                        if mask & _OPEN_PERM:
                            os.write(self._queue, struct.pack("=iI", file, _ALLOW))
                        os.close(file)
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            self._failure = error
        finally:
            os.close(self._queue)  # lets every open pass that still waits

    def _look(self, mask: int, file: int) -> None:
        for key in self._holders:
            self._look_again(key)
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode):
            return
        name = str(Path(f"/proc/self/fd/{file}").readlink()).removeprefix(str(self._root))
        key = (name.rpartition("/")[0], state.st_ino)
        self._modes[key].add(stat.S_IMODE(state.st_mode))
        if mask & _CLOSE_WRITE and self._secret in os.pread(file, _MOST, 0):
            self._holders[key].add(name)

    def _look_again(self, key: tuple[str, int]) -> None:
        for name in self._holders[key]:
            try:
                state = os.lstat(f"{self._root}{name}")
            except OSError:
                continue
            if state.st_ino == key[1]:
                self._modes[key].add(stat.S_IMODE(state.st_mode))


def _events(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield mask and descriptor of each event that was read."""
    offset = 0
    while offset < len(data):
        length, _, _, _, mask, file, _ = _EVENT.unpack_from(data, offset)
        offset += length
        yield mask, file


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
