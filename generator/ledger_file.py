"""The file of the ledger: SQLite, its formats, and what can be wrong with it.

A rollback journal and not the write-ahead log: at rest it is one file, which a plain copy
backs up; it needs no shared memory, so it also works where the folder is on a network
share; and the writes are too few for the log to pay. `synchronous=EXTRA` makes a row that
was committed outlast a power cut, because what it records is about to be handed out.
"""

from __future__ import annotations

import os
import secrets
import shlex
import sqlite3
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

from generator import custody, files
from generator.problem import Problem, Refused, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "ledger.db"

# One entry for each format, which leads there from the one before; PRAGMA user_version
# holds the format of a file. Moments are RFC 3339 in UTC, so text sorts as time does.
_FORMATS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE certificate (
            serial TEXT NOT NULL PRIMARY KEY,
            node TEXT NOT NULL,
            fingerprint TEXT NOT NULL UNIQUE,
            not_before TEXT NOT NULL,
            not_after TEXT NOT NULL,
            issued_at TEXT NOT NULL,
            issued_by TEXT NOT NULL,
            issued_from TEXT NOT NULL,
            seed TEXT NOT NULL,
            gen_seed TEXT NOT NULL
        )
        """,
    ),
    (
        # A serial number is unique to its issuer only (RFC 5280, section 4.1.2.2), and more
        # than one issues into a ledger: after a rollover, and with authority.command.
        """
        CREATE TABLE certificate_2 (
            number INTEGER PRIMARY KEY,
            serial TEXT NOT NULL,
            node TEXT NOT NULL,
            fingerprint TEXT NOT NULL UNIQUE,
            not_before TEXT NOT NULL,
            not_after TEXT NOT NULL,
            issued_at TEXT NOT NULL,
            issued_by TEXT NOT NULL,
            issued_from TEXT NOT NULL,
            seed TEXT NOT NULL,
            gen_seed TEXT NOT NULL,
            issuer TEXT NOT NULL DEFAULT '',
            imported_at TEXT NOT NULL DEFAULT '',
            revoked_at TEXT NOT NULL DEFAULT '',
            reason TEXT NOT NULL DEFAULT '',
            revoked_by TEXT NOT NULL DEFAULT '',
            UNIQUE (issuer, serial)
        )
        """,
        """
        INSERT INTO certificate_2 (serial, node, fingerprint, not_before, not_after, issued_at,
            issued_by, issued_from, seed, gen_seed)
        SELECT serial, node, fingerprint, not_before, not_after, issued_at,
            issued_by, issued_from, seed, gen_seed FROM certificate ORDER BY rowid
        """,
        "DROP TABLE certificate",
        "ALTER TABLE certificate_2 RENAME TO certificate",
        "CREATE INDEX certificate_node ON certificate (node)",
        "CREATE TABLE crl (number INTEGER PRIMARY KEY, issued_at TEXT NOT NULL)",
    ),
)


class Damaged(Refused):
    """The file is no ledger, or one no longer."""


def make(path: Path) -> None:
    """Put an empty ledger at `path` whole, so that a file cut short can be told from a new one.

    SQLite would create it readable by others; it gives its journal the mode of the file.
    """
    with temporary(path) as beside:
        with closing(connect(beside, 0)) as connection:
            _upgrade(connection)
        with suppress(FileExistsError):  # another process was first, and its ledger is as good
            os.link(beside, path)


@contextmanager
def temporary(path: Path) -> Iterator[Path]:
    """Give an empty file beside `path`, 0600, which is gone afterwards unless it was renamed."""
    beside = path.with_name(f".{path.name[:200]}.{secrets.token_hex(6)}.tmp")
    try:
        os.close(os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        custody.hand_over(beside)
        yield beside
    except OSError as error:
        raise files.cannot("write", path, error) from error
    finally:
        beside.unlink(missing_ok=True)


def connect(path: Path, timeout: float) -> sqlite3.Connection:
    """Open the SQLite file at `path`, which must be there; `timeout` in seconds."""
    uri = f"file:{quote(str(path.resolve()))}?mode=rw"
    connection = sqlite3.connect(uri, timeout, isolation_level=None, uri=True)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA synchronous = EXTRA")
    return connection


def check(path: Path, connection: sqlite3.Connection) -> int:
    """Refuse a file that is not a ledger or newer than we are; return its format."""
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if not found:
        # An empty file as well: ours are never that, see `make`.
        raise _damaged(path, "is none of gen-seed's, or was cut off")
    if found > len(_FORMATS):
        raise refuse(
            f"the ledger {path} has format {found}, made by a newer gen-seed; this one knows"
            f" {len(_FORMATS)}",
            "use that gen-seed; the ledger was left as it is",
        )
    connection.execute("SELECT 1 FROM certificate LIMIT 1")
    return found


def check_whole(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a ledger in which anything is broken; reads all of it."""
    check(path, connection)
    if connection.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
        raise _damaged(path)


def check_writable(path: Path, connection: sqlite3.Connection) -> None:
    """Bring a ledger to our format; refuse one that cannot be written."""
    if check(path, connection) < len(_FORMATS):
        _upgrade(connection)
    # BEGIN IMMEDIATE alone succeeds on a file that is read-only; only a change finds out,
    # and finds out as well whether the folder takes a journal.
    with transaction(connection, end="ROLLBACK"):
        connection.execute(f"PRAGMA user_version = {len(_FORMATS)}")


def _upgrade(connection: sqlite3.Connection) -> None:
    with transaction(connection):
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        for statements in _FORMATS[found:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(_FORMATS)}")


@contextmanager
def transaction(connection: sqlite3.Connection, end: str = "COMMIT") -> Iterator[None]:
    """Make changes all or none."""
    # IMMEDIATE takes the write lock first: a reader that becomes a writer can be refused
    # without waiting, whatever the timeout.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute(end)
    except BaseException:
        if connection.in_transaction:  # SQLite ends it by itself when the disk is full
            connection.execute("ROLLBACK")
        raise


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what SQLite says into a refusal that tells what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise _refusal(path, error) from error
    except OSError as error:
        raise files.cannot("open", path, error) from error


def _refusal(path: Path, error: sqlite3.Error) -> Refused:
    code = getattr(error, "sqlite_errorname", "")
    name = shlex.quote(str(path))
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        hint = f"see who holds it: fuser -v {name}"
        return refuse(f"the ledger {path} is held by another process", hint)
    if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        hint = "run gen-seed as the user who owns it, or with sudo; its folder must be writable too"
        return refuse(f"the ledger {path} cannot be written", hint)
    if code.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        hint = f"make room: df -h {shlex.quote(str(path.parent))}"
        return refuse(f"the disk does not take a row of the ledger {path}", hint)
    # A table that is gone is an SQLITE_ERROR like any other.
    if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or "no such table" in str(error):
        return _damaged(path)
    if code == "SQLITE_CONSTRAINT_UNIQUE":
        return refuse(f"the ledger {path} has this serial number already", "issue again")
    return refuse(f"the ledger {path} cannot be used: {error}")


def _damaged(path: Path, what: str = "is damaged") -> Damaged:
    name = shlex.quote(str(path.parent))
    hint = f"gen-seed ca restore BACKUP --pki {name}; it keeps this one beside, for a rescue"
    return Damaged([Problem(f"the ledger {path} {what}", hint)])
