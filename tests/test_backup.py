"""Backups of the ledger, and what comes back."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from openssl import DAY, NOW
from test_ledger import WRITER, fill, full, refused, row, rows, together
from test_standing import old

from generator import backup, ledger
from generator.problem import Refused

__all__ = ["full"]


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    folder = tmp_path / "pki"
    folder.mkdir(0o700)
    with ledger.opened(folder) as book:
        book.record([row(1), row(2)])
    return folder


def serials(folder: Path) -> list[str]:
    return [one["serial"] for one in rows(folder)]


def revoke(folder: Path, serial: str, reason: str = "superseded") -> None:
    with ledger.opened(folder) as book:
        book.revoke(ledger.Revocation("2026-06-01T00:00:00Z", reason, "x"), "serial", serial)


def test_a_backup_is_a_ledger_that_only_its_owner_reads(pki: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    target.write_bytes(b"the one of yesterday")
    before = os.umask(0)
    try:
        assert backup.backup(pki, target) == 2
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"backup.db", "pki"}
    (tmp_path / "new").mkdir()
    target.rename(tmp_path / "new/ledger.db")
    assert rows(tmp_path / "new") == rows(pki)


def test_a_backup_while_others_issue_is_whole(pki: Path, tmp_path: Path) -> None:
    started = together(WRITER, *((pki, 1000 * (n + 1), 25) for n in range(3)))
    counts = [backup.backup(pki, tmp_path / f"{n}.db") for n in range(6)]
    for process in started:
        process.communicate(timeout=60)
    assert len(rows(pki)) == 77
    for n, count in enumerate(counts):
        with closing(sqlite3.connect(tmp_path / f"{n}.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert connection.execute("SELECT count(*) FROM certificate").fetchone() == (count,)
    assert counts == sorted(counts)


@pytest.mark.parametrize("target", ["pki/ledger.db", "pki", "no/b.db"])
def test_where_a_backup_cannot_go(target: str, pki: Path, tmp_path: Path) -> None:
    before = rows(pki)
    with pytest.raises(Refused):
        backup.backup(pki, tmp_path / target)
    assert rows(pki) == before


def test_no_ledger_no_backup(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no ledger in"):
        backup.backup(tmp_path, tmp_path / "b.db")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_backup(pki: Path, full: Path) -> None:
    backup.backup(pki, full / "b.db")
    before = (full / "b.db").read_bytes()
    fill(full)
    with pytest.raises(Refused, match="disk"):
        backup.backup(pki, full / "b.db")
    assert (full / "b.db").read_bytes() == before
    assert {path.name for path in full.iterdir()} == {"b.db", "rest"}


# Restore


def test_restored_where_there_is_nothing(pki: Path, tmp_path: Path) -> None:
    backup.backup(pki, tmp_path / "b.db")
    assert backup.restore(tmp_path / "new", tmp_path / "b.db", NOW) == backup.Restored(2, 0)
    assert rows(tmp_path / "new") == rows(pki)
    modes = [stat.S_IMODE((tmp_path / "new" / n).stat().st_mode) for n in (".", "ledger.db")]
    assert modes == [0o700, 0o600]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["ledger.db"]


def test_a_restore_joins_what_both_have(pki: Path, tmp_path: Path) -> None:
    revoke(pki, "1", "keyCompromise")
    with ledger.opened(pki) as book:
        last, _ = book.next_crl(NOW + 400 * DAY)  # by a clock that was wrong
    backup.backup(pki, tmp_path / "b.db")
    present = tmp_path / "present"
    present.mkdir(0o700)
    with ledger.opened(present) as book:
        book.record([row(2), row(1), row(3)])
    revoke(present, "2")
    with ledger.opened(pki) as book:
        book.record([row(4)])
    backup.backup(pki, tmp_path / "b.db")
    assert backup.restore(present, tmp_path / "b.db", NOW) == backup.Restored(1, 3)
    assert {one["serial"]: one["reason"] for one in rows(present)} == {
        "1": "keyCompromise",
        "2": "superseded",
        "3": "",
        "4": "",
    }
    with ledger.opened(present) as book:
        assert book.next_crl(NOW)[0] == last + 1
    assert backup.restore(present, tmp_path / "b.db", NOW) == backup.Restored(0, 4)


def test_the_number_of_a_list_never_goes_back_with_a_restore(pki: Path, tmp_path: Path) -> None:
    backup.backup(pki, tmp_path / "b.db")
    with ledger.opened(pki) as book:
        last = [book.next_crl(NOW)[0] for _ in range(3)][-1]
    (pki / "ledger.db").unlink()  # the disk is gone, with the numbers since the backup
    backup.restore(pki, tmp_path / "b.db", NOW)
    with ledger.opened(pki) as book:
        assert book.next_crl(NOW + DAY)[0] > last


def test_a_damaged_ledger_is_replaced_and_kept(pki: Path, tmp_path: Path) -> None:
    backup.backup(pki, tmp_path / "b.db")
    broken = b"not a database" * 999
    (pki / "ledger.db").write_bytes(broken)
    hint = refused(pki).splitlines()[1]
    assert hint.startswith("gen-seed ca restore BACKUP --pki")
    done = backup.restore(pki, tmp_path / "b.db", NOW)
    assert done.aside
    assert done.aside.read_bytes() == broken
    assert serials(pki) == ["1", "2"]
    assert len(list(pki.iterdir())) == 2


def test_the_journal_of_a_damaged_ledger_is_not_played_into_the_new(pki: Path) -> None:
    (pki / "ledger.db-journal").write_bytes(b"of the damaged one")
    (pki / "new").write_bytes(b"new")
    aside = backup._replace(pki / "ledger.db", pki / "new", NOW)
    assert aside.with_name(f"{aside.name}-journal").read_bytes() == b"of the damaged one"
    assert not (pki / "ledger.db-journal").exists()
    assert (pki / "ledger.db").read_bytes() == b"new"


def test_damage_anywhere_in_the_present_ledger_is_found(pki: Path, tmp_path: Path) -> None:
    with ledger.opened(pki) as book:
        book.record(row(n) for n in range(10, 60))
    backup.backup(pki, tmp_path / "b.db")
    whole = (pki / "ledger.db").read_bytes()
    for start in range(4096, len(whole), 4096):
        data = bytearray(whole)
        data[start + 2000 : start + 3900] = bytes(1900)
        (pki / "ledger.db").write_bytes(data)
        backup.restore(pki, tmp_path / "b.db", NOW + start * DAY)
        assert len(rows(pki)) == 52, start  # which also looks at the whole file


def test_backups_that_are_refused(pki: Path, tmp_path: Path) -> None:
    before = rows(pki)
    source = tmp_path / "b.db"
    for data in (b"", b"hello" * 999, (pki / "ledger.db").read_bytes()[:9000]):
        source.write_bytes(data)
        with pytest.raises(Refused, match=r"damaged|cut off") as refused:
            backup.restore(pki, source, NOW)
        assert refused.value.problems[0].hint == "take another backup"
    source.unlink()
    with pytest.raises(Refused, match="no file"):
        backup.restore(pki, source, NOW)
    backup.backup(pki, source)
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("PRAGMA user_version = 9")
    with pytest.raises(Refused, match="made by a newer gen-seed"):
        backup.restore(pki, source, NOW)
    assert rows(pki) == before
    assert [path.name for path in pki.iterdir()] == ["ledger.db"]


def test_a_newer_ledger_is_not_replaced(pki: Path, tmp_path: Path) -> None:
    backup.backup(pki, tmp_path / "b.db")
    with closing(sqlite3.connect(pki / "ledger.db")) as connection:
        connection.execute("PRAGMA user_version = 9")
    before = (pki / "ledger.db").read_bytes()
    with pytest.raises(Refused, match="made by a newer gen-seed"):
        backup.restore(pki, tmp_path / "b.db", NOW)
    assert (pki / "ledger.db").read_bytes() == before


def test_a_backup_in_the_older_format_comes_back(pki: Path, tmp_path: Path) -> None:
    older = old(tmp_path / "older") / "ledger.db"
    older.chmod(0o400)
    before = older.read_bytes()
    assert backup.restore(pki, older, NOW) == backup.Restored(0, 2)
    (pki / "ledger.db").unlink()
    assert backup.restore(pki, older, NOW) == backup.Restored(2, 0)
    assert serials(pki) == ["2", "1"]
    assert older.read_bytes() == before


def test_a_restore_while_others_issue_loses_nothing(pki: Path, tmp_path: Path) -> None:
    backup.backup(pki, tmp_path / "b.db")
    started = together(WRITER, *((pki, 1000 * (n + 1), 20) for n in range(3)))
    for _ in range(4):
        backup.restore(pki, tmp_path / "b.db", NOW)
    for process in started:
        assert process.wait(60) == 0
        process.communicate()
    assert len(rows(pki)) == 62
