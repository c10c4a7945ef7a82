"""Files are whole or not there, and closed to others from their first moment."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

import pytest

from generator import files
from generator.problem import Refused

if TYPE_CHECKING:
    from pathlib import Path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def _wide_umask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_new_file_is_closed_under_any_umask(tmp_path: Path) -> None:
    files.write_atomic(tmp_path / "key", b"secret")
    assert mode(tmp_path / "key") == 0o600


def test_a_wide_file_is_replaced_by_a_closed_one(tmp_path: Path) -> None:
    path = tmp_path / "n7.iso"
    path.write_bytes(b"old")
    path.chmod(0o644)
    files.write_atomic(path, b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", 0o600)


def test_a_full_disk_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "n7.iso"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Refused, match="no space left on device"):
        files.write_atomic(path, b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("n7.iso", b"old")]


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    files.write_atomic(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_create_never_replaces(tmp_path: Path) -> None:
    files.create(tmp_path / "a", b"1")
    with pytest.raises(Refused, match="is there already"):
        files.create(tmp_path / "a", b"2")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a", b"1")]


def test_a_folder_loses_what_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "n7"
    files.put_folder(folder, {"user-data": b"1", "network-config": b"2"})
    files.put_folder(folder, {"user-data": b"3", "network-config": None})
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {"user-data": b"3"}
    assert (mode(folder), mode(folder / "user-data")) == (0o700, 0o600)


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(Refused, match="fifo is not a regular file"):
        files.read(tmp_path / "fifo")
    with pytest.raises(Refused, match="is a directory"):
        files.read(tmp_path)
    with pytest.raises(Refused, match="no such file"):
        files.read(tmp_path / "none")
    (tmp_path / "large").write_bytes(b"12345")
    with pytest.raises(Refused, match="larger than 4 bytes"):
        files.read(tmp_path / "large", limit=4)


@pytest.mark.parametrize("kind", ["fifo", "link to a device"])
def test_what_is_no_file_is_not_replaced(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "n7.iso"
    if kind == "fifo":
        os.mkfifo(target)
    else:
        target.symlink_to("/dev/null")
    with pytest.raises(Refused, match="is not a regular file"):
        files.check_target(str(target), binary=True, secret=True, folder=False)
    with pytest.raises(Refused, match="is not a regular file"):
        files.write_atomic(target, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["n7.iso"]


@pytest.mark.parametrize("name", ["", "/", "x" * 300])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(Refused, match=r"names no file|file name too long"):
        files.check_target(name, binary=True, secret=True, folder=False)


def test_a_full_disk_is_known_before_anything_is_issued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    issued: list[str] = []
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Refused, match="no space left"):
        files.put(b"new", str(tmp_path / "n7.iso"), lambda: issued.append("row"))
    assert issued == []
    assert list(tmp_path.iterdir()) == []
