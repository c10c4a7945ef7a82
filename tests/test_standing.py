"""What the ledger's rows mean, and what is taken into it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import openssl
import pytest
from openssl import DAY, NOW
from test_ledger import row, rows

from generator import authority, chain, importing, ledger, standing
from generator.chain import when
from generator.problem import Refused

# The ledger as gen-seed made it before certificates could be revoked.
FORMAT_1 = """
CREATE TABLE certificate (
    serial TEXT NOT NULL PRIMARY KEY, node TEXT NOT NULL, fingerprint TEXT NOT NULL UNIQUE,
    not_before TEXT NOT NULL, not_after TEXT NOT NULL, issued_at TEXT NOT NULL,
    issued_by TEXT NOT NULL, issued_from TEXT NOT NULL, seed TEXT NOT NULL, gen_seed TEXT NOT NULL
);
PRAGMA user_version = 1;
"""


def issued(number: int, node: str, day: int, days: int = 30, **other: str) -> ledger.Row:
    moment = NOW + day * DAY
    dates = {"issued_at": when(moment), "not_after": when(moment + days * DAY)}
    return row(number, node=node, **dates | other)


def test_states() -> None:
    found = standing.standings(
        [
            issued(1, "n7", -60),
            issued(2, "n7", -20),
            issued(3, "n7", -10),
            issued(4, "n7", -5, revoked_at=when(NOW)),
            issued(5, "n8", -60, revoked_at=when(NOW - 50 * DAY)),
            issued(6, "n8", -20),
            issued(7, "n8", -10, days=5),
        ],
        NOW,
    )
    states = [(one.row.serial, one.state) for one in found]
    assert states == [
        ("1", "expired"),
        ("2", "superseded"),
        ("3", "good"),
        ("4", "revoked"),
        ("5", "revoked"),
        ("6", "good"),
        ("7", "expired"),
    ]
    assert [one.serial for one in standing.out_there((o.row for o in found), NOW)] == [
        "2",
        "3",
        "6",
    ]


def test_issued_in_the_same_second_the_later_row_supersedes() -> None:
    found = standing.standings([issued(1, "n7", 0), issued(2, "n7", 0)], NOW)
    assert [one.state for one in found] == ["superseded", "good"]


def test_the_last_second_is_good() -> None:
    one = issued(1, "n7", -30)
    assert standing.standings([one], NOW)[0].state == "good"
    assert standing.standings([one], NOW + timedelta(seconds=1))[0].state == "expired"


def test_ending_soon_and_without_a_successor() -> None:
    found = standing.standings(
        [
            issued(1, "n7", -20),  # ends in 10 days, but there is another
            issued(2, "n7", 0),
            issued(3, "n8", -20),
            issued(4, "n9", -20, revoked_at=when(NOW)),
        ],
        NOW,
    )
    assert [one.row.serial for one in standing.ending(found, NOW, 10)] == ["3"]
    assert standing.ending(found, NOW, 9) == []
    assert standing.days_left(found[0].row, NOW) == 10
    assert standing.days_left(found[0].row, NOW + 11 * DAY) == -1


# The older format


def old(folder: Path) -> Path:
    folder.mkdir(0o700)
    names = list(ledger.Row.__dataclass_fields__)[:10]
    with closing(sqlite3.connect(folder / "ledger.db")) as connection, connection:
        connection.executescript(FORMAT_1)
        for number in (2, 1):
            values = [getattr(row(number), name) for name in names]
            connection.execute("INSERT INTO certificate VALUES (?,?,?,?,?,?,?,?,?,?)", values)
    return folder


def test_a_ledger_in_the_older_format_is_upgraded_in_place(tmp_path: Path) -> None:
    folder = old(tmp_path / "pki")
    with ledger.opened(folder) as book:
        book.record([row(3, issuer="ab" * 32)])
    assert [(one["serial"], one["issuer"]) for one in rows(folder)] == [
        ("2", ""),
        ("1", ""),
        ("3", "ab" * 32),
    ]
    with ledger.opened(folder) as book:
        assert book.next_crl(NOW)[0] == int(NOW.timestamp() * 1000)


def test_reading_the_older_format_changes_nothing(tmp_path: Path) -> None:
    folder = old(tmp_path / "pki")
    before = (folder / "ledger.db").read_bytes()
    assert ledger.reading(folder) == [row(2), row(1)]
    assert ledger.look_up(folder, "1")
    assert (folder / "ledger.db").read_bytes() == before


def test_reading_where_there_is_none_makes_none(tmp_path: Path) -> None:
    assert ledger.reading(tmp_path) == []
    assert ledger.look_up(tmp_path, "1") is None
    assert list(tmp_path.iterdir()) == []


def test_two_issuers_may_use_one_serial_number(tmp_path: Path) -> None:
    with ledger.opened(tmp_path) as book:
        book.record([row(1, issuer="a"), row(1, issuer="b", fingerprint="f" * 64)])
        with pytest.raises(Refused, match="has this serial number already"):
            book.record([row(1, issuer="b", fingerprint="e" * 64)])
    assert len(rows(tmp_path)) == 2


def test_revoking_leaves_what_ended_or_is_revoked_or_is_kept(tmp_path: Path) -> None:
    first = ledger.Revocation(when(NOW), "superseded", "one")
    second = ledger.Revocation(when(NOW + DAY), "keyCompromise", "other")
    with ledger.opened(tmp_path) as book:
        book.record([issued(1, "n7", -60), issued(2, "n7", -9), issued(3, "n7", -8)])
        book.record([issued(4, "n8", -7)])
        book.revoke(first, "serial", "2")
        before = book.revoke(second, "node", "n7", keep=[row(3).fingerprint])
        assert [one.revoked_at for one in before] == ["", when(NOW), ""]
    assert [(one["serial"], one["reason"], one["revoked_by"]) for one in rows(tmp_path)] == [
        ("1", "", ""),
        ("2", "superseded", "one"),
        ("3", "", ""),
        ("4", "", ""),
    ]


def test_issuing_and_revoking_the_previous_is_one_step(tmp_path: Path) -> None:
    revocation = ledger.Revocation(when(NOW), "superseded", "one")
    with ledger.opened(tmp_path) as book:
        book.record([issued(1, "n7", -9), issued(2, "n8", -9)])
        with pytest.raises(Refused, match="already"):
            book.record([issued(3, "n7", 0), issued(1, "n7", 0)], revocation)
        assert not any(one["revoked_at"] for one in rows(tmp_path))
        book.record([issued(3, "n7", 0)], revocation)
    assert [one["revoked_at"] for one in rows(tmp_path)] == [when(NOW), "", ""]


# Import


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    """An authority as openssl made it, without a ledger."""
    return openssl.authority(tmp_path / "pki", openssl.key())


def made(pki: Path, target: Path, subject: str = "/CN=n7", serial: str = "0x0A5") -> Path:
    request = openssl.run("req", "-new", "-key", pki / "ca-key.pem", "-subj", subject)
    by: list[str | Path] = ["-CA", pki / "ca.pem", "-CAkey", pki / "ca-key.pem"]
    target.write_bytes(openssl.run("x509", "-req", *by, "-set_serial", serial, stdin=request))
    return target


def test_what_was_issued_before_is_taken_in(pki: Path, tmp_path: Path) -> None:
    certificate = made(pki, tmp_path / "n7.pem")
    certificate.write_bytes(certificate.read_bytes() + (pki / "ca.pem").read_bytes())
    (pki / "ca-key.pem").rename(tmp_path / "elsewhere")  # not needed
    (found,) = importing.rows([certificate], pki, NOW)
    assert (found.serial, found.node, found.imported_at) == ("a5", "n7", when(NOW))
    assert (found.issued_at, found.issued_by) == (found.not_before, "")
    with ledger.opened(pki) as book:
        assert book.add_new([found, found]) == [found]
        assert book.add_new([found]) == []
    assert len(rows(pki)) == 1
    said = openssl.run("x509", "-in", certificate, "-noout", "-fingerprint", "-sha256").decode()
    assert said.strip().split("=")[1].replace(":", "").lower() == found.fingerprint


def test_what_is_wrong_in_all_files_is_said_at_once(pki: Path, tmp_path: Path) -> None:
    other = openssl.authority(tmp_path / "other", openssl.key(), subject="/CN=another")
    paths = [
        made(pki, tmp_path / "good.pem"),
        made(other, tmp_path / "strange.pem"),
        made(pki, tmp_path / "nameless.pem", "/O=x"),
        made(pki, tmp_path / "escape.pem", "/CN=n\x1b[2J"),
        pki / "ca.pem",
        tmp_path / "none.pem",
    ]
    with pytest.raises(Refused) as caught:
        importing.rows(paths, pki, NOW)
    messages = [problem.message for problem in caught.value.problems]
    assert len(messages) == 5
    assert "strange.pem: CN=n7 was not issued by this authority, but by 'CN=another'" in messages[0]
    assert "nameless.pem: a certificate must have one common name, not none" in messages[1]
    assert "escape.pem" in messages[2]
    assert "\x1b" not in "".join(messages)
    assert "ca.pem holds authorities' certificates only" in messages[3]
    assert "none.pem" in messages[4]


def test_an_import_is_superseded_by_what_came_later(pki: Path, tmp_path: Path) -> None:
    now = NOW + timedelta(hours=6)
    by, _ = authority.load(pki, now)
    fresh, _ = authority.issue(by, "n7", 30, now + DAY)
    with ledger.opened(pki) as book:
        book.record([ledger.row(fresh, now + DAY, "", {})])
        book.add_new(importing.rows([made(pki, tmp_path / "n7.pem")], pki, now))
    found = standing.standings(ledger.reading(pki), now + DAY)
    assert [one.state for one in found] == ["superseded", "good"]
    assert found[1].row.issuer == found[0].row.issuer == chain.key_id(by.key.public_key())
