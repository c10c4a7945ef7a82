"""Reading and writing files: whole or not at all, and a secret is never readable by others."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from generator.problem import Refused, refuse

_LIMIT = 4 << 20  # bytes; no spec, certificate or key comes near it


def read(path: Path, *, limit: int = _LIMIT) -> bytes:
    """Return the content of a regular file of at most `limit` bytes; raise `Refused` else.

    Opened without blocking, so that a FIFO in a workspace cannot hang the reader.
    """
    with _opened(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise refuse(f"{path} is larger than {limit} bytes")
    return data


def lines(path: Path, opened: list[int]) -> Iterator[bytes]:
    """Give the lines of a regular file, each with its end; raise `Refused` as `read` does.

    To `opened` a descriptor of the file is added, which stays open.
    """
    with _opened(path) as file:
        opened.append(os.dup(file.fileno()))
        yield from file


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise refuse(f"{path} is not a regular file")
            yield file
    except OSError as error:
        raise cannot("read", path, error) from error


def write_atomic(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Put `data` at `path` so that a reader, a kill or a full disk sees the old file or the new.

    The file has `mode` (less the umask) from its first moment: it is made under another
    name beside the target and renamed. A symbolic link is followed. Raises `Refused`.
    """
    with staged(path, data, mode) as publish:
        publish()


@contextlib.contextmanager
def staged(path: Path, data: bytes, mode: int = 0o600) -> Iterator[Callable[[], None]]:
    """Write `data` beside `path`, and yield what moves it there; unmoved, it goes away.

    So that a full disk is known before something is done that cannot be taken back.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:200]}.{os.urandom(6).hex()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield lambda: _publish(temporary, target, path)
    except OSError as error:
        raise cannot("write", path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _publish(temporary: Path, target: Path, path: Path) -> None:
    if target.exists() and not target.is_file():
        raise refuse(f"{path} is not a regular file", "to write there, redirect: > FILE")
    temporary.replace(target)


def create(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Like `write_atomic`, but never over a file that is there: `Refused` then.

    link(2) fails where the name is taken, which rename(2) does not.
    """
    temporary = path.with_name(f".{path.name[:200]}.{os.urandom(6).hex()}.tmp")
    write_atomic(temporary, data, mode)
    try:
        os.link(temporary, path)
    except FileExistsError as error:
        raise refuse(f"{path} is there already", "it was left as it is") from error
    except OSError as error:
        raise cannot("write", path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def writing() -> Iterator[Callable[[Path, bytes], None]]:
    """Yield what writes files that are not there yet, 0600; all are on the disk at the end.

    Raises `Refused`. That the disk is waited for once, and not for each file, takes a third of
    the time.
    """
    opened: list[int] = []

    def write(path: Path, data: bytes) -> None:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            opened.append(os.open(path, flags, 0o600))
            with os.fdopen(opened[-1], "wb", closefd=False) as file:
                file.write(data)
            if hasattr(os, "posix_fadvise"):  # Linux starts to write it, and does not wait
                os.posix_fadvise(opened[-1], 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise cannot("write", path, error) from error

    try:
        yield write
        for descriptor in opened:
            os.fsync(descriptor)
    except OSError as error:
        raise cannot("write", "to the disk", error) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)


def cannot(verb: str, path: Path | str, error: OSError) -> Refused:
    """Return the refusal that tells why the system would not `verb` a path."""
    reason = (error.strerror or str(error)).lower()
    return refuse(f"cannot {verb} {path}: {reason}")


def check_target(
    output: str | None, *, binary: bool, secret: bool, folder: bool, option: str = "-o"
) -> None:
    """Refuse a target that must not take what is to be written, before anything is made.

    `output` is a path, or None or ``-`` for stdout, as `option` has it. Raises `Refused`.
    """
    if output in (None, "-"):
        if folder:
            raise refuse("a folder cannot be written to stdout", "say where it goes: -o DIR")
        _check_stdout(binary=binary, secret=secret, option=option)
        return
    try:
        _check_path(Path(output or ""), folder=folder, option=option)
    except OSError as error:
        raise cannot("write", output or "", error) from error


def _check_stdout(*, binary: bool, secret: bool, option: str) -> None:
    instead = f"redirect it, > FILE, or write it with {option} FILE"
    if sys.stdout is None:
        raise refuse("standard output is closed", instead)
    if sys.stdout.isatty() and (binary or secret):
        what = "binary data" if binary else "a private key"
        raise refuse(f"{what} is not written to a terminal", instead)
    state = os.fstat(sys.stdout.fileno())
    if not stat.S_ISREG(state.st_mode):
        return
    if binary and os.lseek(sys.stdout.fileno(), 0, os.SEEK_END):
        raise refuse("standard output has content already", "write > FILE, not >> FILE")
    if state.st_uid != os.geteuid() and os.geteuid():
        raise refuse("standard output is a file of somebody else's", f"write it with {option} FILE")


def _check_path(path: Path, *, folder: bool, option: str) -> None:
    if path in (Path(), Path("/")) or not path.name:
        raise refuse(f"{option} names no file", f"it takes a path: {option} FILE")
    if path.is_dir() and not folder:
        raise refuse(f"{path} is a folder", "name a file in it")
    if folder and path.exists() and not path.is_dir():
        raise refuse(f"{path} is a file, and a folder is to be written")
    # Renaming over a device or a FIFO would take it away.
    if not folder and path.exists() and not path.is_file():
        raise refuse(f"{path} is not a regular file", "to write there, redirect: > FILE")
    if not path.parent.is_dir():
        raise refuse(f"there is no folder {path.parent}", f"make it: mkdir -p {path.parent}")


def put(
    data: bytes | Mapping[str, bytes | None], output: str | None, commit: Callable[[], None]
) -> None:
    """Write bytes to stdout or to a file, or the files of a folder. Raises `Refused`.

    `commit` is called when all is written that can be written unseen, just before it shows.
    """
    if isinstance(data, Mapping):
        commit()
        put_folder(Path(output or ""), data)
    elif output in (None, "-"):
        commit()
        put_stdout(data)
    else:
        with staged(Path(output or ""), data) as publish:
            commit()
            publish()


def put_stdout(data: bytes, *, secret: bool = True) -> None:
    """Write to stdout; a regular file that gets a secret is closed to others before that."""
    if sys.stdout is None:
        raise refuse("standard output is closed")
    descriptor = sys.stdout.fileno()
    try:
        if secret and stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, 0o600)
        with os.fdopen(descriptor, "wb", closefd=False) as stream:
            stream.write(data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise cannot("write", "standard output", error) from error


def put_folder(folder: Path, artifacts: Mapping[str, bytes | None]) -> None:
    """Write files into a folder, 0700 where it is new, each of them whole or not at all.

    A file that is None is taken away: left there by an earlier run, it would be read.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for name, data in artifacts.items():
            if data is None:
                (folder / name).unlink(missing_ok=True)
            else:
                write_atomic(folder / name, data)
    except OSError as error:
        raise cannot("write", folder, error) from error


def make_folder(folder: Path, mode: int) -> None:
    """Make a folder, and those above it, where it is missing. Raises `Refused`."""
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
    except OSError as error:
        raise cannot("make", folder, error) from error
