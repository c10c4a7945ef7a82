from __future__ import annotations

import os
import random
import select
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import unprivileged
from openssl import DAY, NOW

from generator import __version__, authority, chain, identity, ledger
from generator.problem import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKOUT = Path(__file__).parents[1]


def row(number: int = 1, **other: str) -> ledger.Row:
    values = {
        "serial": f"{number:x}",
        "node": "n7",
        "fingerprint": f"{number:064x}",
        "not_before": "2026-01-01T00:00:00Z",
        "not_after": "2027-01-01T00:00:00Z",
        "issued_at": "2026-01-01T01:00:00Z",
        "issued_by": "somebody",
        "issued_from": "somewhere",
        "seed": "",
        "gen_seed": "0",
    }
    return ledger.Row(**values | other)


def rows(folder: Path) -> list[dict[str, str]]:
    """Read the ledger behind our back, and let SQLite look at the whole file."""
    with closing(sqlite3.connect(folder / "ledger.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.row_factory = sqlite3.Row
        found = connection.execute("SELECT * FROM certificate ORDER BY number")
        return [{name: row[name] for name in row.keys() if name != "number"} for row in found]  # noqa: SIM118


def refused(folder: Path, timeout: float = 5) -> str:
    """Return what opening says, before there is anything to record."""
    with pytest.raises(Refused) as caught, ledger.opened(folder, timeout):
        pass
    (problem,) = caught.value.problems
    return f"{problem.message}\n{problem.hint}"


def test_a_row_says_what_was_issued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = authority.create(tmp_path / "pki", NOW)
    issued, _ = authority.issue(made, "n7", 365, NOW)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    with ledger.opened(made.folder) as book:
        book.record([ledger.row(issued, NOW, "ab" * 32, {"SUDO_USER": "ilker"})])
    (found,) = rows(made.folder)
    assert found == {
        "serial": issued.serial,
        "node": "n7",
        "fingerprint": issued.fingerprint,
        "not_before": issued.not_before.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "not_after": (NOW + 365 * DAY).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "issued_at": NOW.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "issued_by": "ilker",
        "issued_from": os.uname().nodename,
        "seed": "ab" * 32,
        "gen_seed": __version__,
        "issuer": chain.key_id(made.certificate.public_key()),
        "imported_at": "",
        "revoked_at": "",
        "reason": "",
        "revoked_by": "",
    }


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999)
    made = ledger.row(identity.placeholder("n7"), NOW, "", {"SUDO_USER": "root"})
    assert made.issued_by == "3999999"


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_only_the_owner_reads_it(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        with ledger.opened(tmp_path) as book:
            book.record([row()])
    finally:
        os.umask(before)
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.db"]
    assert stat.S_IMODE((tmp_path / "ledger.db").stat().st_mode) == 0o600


def test_the_journal_is_closed_to_others_too(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with ledger.opened(tmp_path) as book:
            connection = book._connection  # noqa: SLF001 - to stop in the middle of a commit
            # What a power cut takes cannot be tried here; the setting can be read.
            assert tuple(connection.execute("PRAGMA synchronous").fetchone()) == (3,)
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("PRAGMA user_version = 1")
            mode = (tmp_path / "ledger.db-journal").stat().st_mode
            connection.execute("ROLLBACK")
    finally:
        os.umask(before)
    assert stat.S_IMODE(mode) == 0o600


def test_a_batch_is_recorded_whole_or_not_at_all(tmp_path: Path) -> None:
    with ledger.opened(tmp_path) as book:
        book.record([row(1)])
        with pytest.raises(Refused, match="has this serial number already"):
            book.record([row(2), row(1, fingerprint="f" * 64), row(3)])
        book.record([row(4)])
    assert [found["serial"] for found in rows(tmp_path)] == ["1", "4"]


def test_what_the_caller_raises_passes_through(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="mine"), ledger.opened(tmp_path):
        raise OSError("mine")


# What can be wrong with the file


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    with ledger.opened(tmp_path) as book:
        book.record([row()])
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection:
        connection.execute("PRAGMA user_version = 9")
    before = (tmp_path / "ledger.db").read_bytes()
    said = refused(tmp_path)
    assert "has format 9, made by a newer gen-seed; this one knows 2" in said
    assert (tmp_path / "ledger.db").read_bytes() == before


@pytest.mark.parametrize("keep", [0, 1, 50, 4096, 9000])
def test_a_truncated_ledger_is_refused_and_kept(keep: int, tmp_path: Path) -> None:
    with ledger.opened(tmp_path) as book:
        book.record(row(number) for number in range(1, 200))
    os.truncate(tmp_path / "ledger.db", keep)
    before = (tmp_path / "ledger.db").read_bytes()
    said = refused(tmp_path)
    assert "ledger" in said
    assert f"gen-seed ca restore BACKUP --pki {tmp_path}" in said
    assert (tmp_path / "ledger.db").read_bytes() == before


def test_garbage_and_another_database_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"hello\n" * 1000)
    assert "is damaged" in refused(tmp_path)
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE other (x)")
    assert "is none of gen-seed's" in refused(tmp_path)
    path.unlink()
    path.mkdir()
    assert "cannot be written" in refused(tmp_path)


def test_no_folder(tmp_path: Path) -> None:
    assert "no such file or directory" in refused(tmp_path / "pki")


def test_held_by_another_for_too_long(tmp_path: Path) -> None:
    with ledger.opened(tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        assert "is held by another process" in refused(tmp_path, timeout=0.2)
        assert time.monotonic() - began < 30  # by itself it would wait for a minute
        other.execute("ROLLBACK")


@pytest.mark.parametrize("mode", [0o500, 0o555])
def test_a_folder_that_cannot_be_written(mode: int) -> None:
    with unprivileged.folder() as reachable:
        os.chown(reachable, 65534, 65534)
        folder = reachable / "pki"
        with unprivileged.nobody():
            folder.mkdir()
            folder.chmod(mode)
            assert f"cannot write {folder}/ledger.db: permission denied" in refused(folder)
            # There, and itself writable, but SQLite cannot put its journal beside it.
            folder.chmod(0o700)
            with ledger.opened(folder):
                pass
            folder.chmod(mode)
            said = refused(folder)
        assert "cannot be written" in said
        assert "its folder must be writable too" in said


def test_a_folder_that_may_not_be_looked_into_is_not_one_without_a_ledger() -> None:
    with unprivileged.folder() as reachable:
        folder = reachable / "pki"
        folder.mkdir(mode=0o700)
        with ledger.opened(folder):
            pass
        for read in (ledger.reading, ledger.revoked):
            assert not read(folder)
            with unprivileged.nobody(), pytest.raises(Refused) as caught:
                read(folder)
            assert "run gen-seed as the user who owns it" in caught.value.problems[0].hint


def test_a_file_that_cannot_be_written() -> None:
    with unprivileged.folder() as folder:
        with ledger.opened(folder):
            pass
        (folder / "ledger.db").chmod(0o444)
        folder.chmod(0o777)
        with unprivileged.nobody():
            assert "cannot be written" in refused(folder)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KB with a ledger and no room."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("needs root and mount, for a file system that is full")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path) -> None:
    with (folder / "rest").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def test_a_full_disk_before_and_after_there_is_a_ledger(full: Path) -> None:
    fill(full)
    assert "the disk does not take" in refused(full)
    assert sorted(path.name for path in full.iterdir()) == ["rest"]
    (full / "rest").unlink()
    with ledger.opened(full) as book:
        book.record([row(1)])
        fill(full)
        with pytest.raises(Refused, match="the disk does not take a row"):
            book.record(row(number) for number in range(2, 100))
    assert "the disk does not take" in refused(full)
    assert [found["serial"] for found in rows(full)] == ["1"]
    (full / "rest").unlink()
    with ledger.opened(full) as book:
        book.record([row(2)])
    assert len(rows(full)) == 2


# Many processes, and kills

WRITER = """if True:
    import sys
    from pathlib import Path
    sys.path.insert(0, "tests")
    from generator import ledger
    from test_ledger import row
    folder, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(first, first + count):
        with ledger.opened(folder) as book:
            book.record([row(number)])
        print(number, flush=True)
"""


def together(program: str, *each: tuple[object, ...]) -> list[subprocess.Popen[str]]:
    """Start a process for each arguments; let them go at once, when all are ready."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
        )
        for arguments in each
    ]
    for process in started:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    return started


def kill(started: list[subprocess.Popen[str]], chance: random.Random) -> list[str]:
    """Kill processes one by one, once one has said something; return what all said."""
    assert select.select([process.stdout for process in started if process.stdout], [], [], 60)[0]
    for process in started:
        time.sleep(chance.random() / 20)
        process.kill()
    return [line for process in started for line in process.communicate(timeout=60)[0].split()]


def test_what_was_said_to_be_recorded_is_there_after_kills(tmp_path: Path) -> None:
    started = together(WRITER, *((tmp_path, 1000 * (n + 1), 500) for n in range(4)))
    told = kill(started, random.Random(7))  # noqa: S311 - where to kill
    assert told
    with ledger.opened(tmp_path) as book:
        book.record([row(1)])
    found = {int(row["serial"], 16) for row in rows(tmp_path)}
    assert {1, *map(int, told)} <= found
    assert len(found) <= len(told) + 1 + len(started)


def test_a_copy_of_the_file_at_rest_is_a_backup(tmp_path: Path) -> None:
    with ledger.opened(tmp_path) as book:
        book.record([row(1)])
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "ledger.db", tmp_path / "copy")
    assert len(rows(tmp_path / "copy")) == 1
