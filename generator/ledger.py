"""The ledger: what the authority has issued, one row each, in ledger.db beside its key.

SQLite with a rollback journal and not the write-ahead log: at rest it is one file, which
a plain copy backs up; it needs no shared memory, so it also works where the folder is on a
network share; and the writes are too few for the log to pay. `synchronous=EXTRA` makes a
row that was committed outlast a power cut, because what it records is about to be handed out.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shlex
import socket
import sqlite3
from contextlib import closing, contextmanager, suppress
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING
from urllib.parse import quote

from generator import __version__, files
from generator.chain import when
from generator.problem import Refused, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from generator.identity import Identity

NAME = "ledger.db"

# One entry for each format, which leads there from the one before; PRAGMA user_version
# holds the format of a file. Moments are RFC 3339 in UTC, so text sorts as time does.
_FORMATS = (
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
)


@dataclass(frozen=True)
class Row:
    """A certificate that was issued.

    `serial` in lower-case hex, `fingerprint` the SHA-256 of its DER; `not_before`,
    `not_after` and `issued_at` RFC 3339 in UTC; `seed` the digest of the spec that it was
    issued for, empty where there was none; `gen_seed` the version that issued it.
    """

    serial: str
    node: str
    fingerprint: str
    not_before: str
    not_after: str
    issued_at: str
    issued_by: str
    issued_from: str
    seed: str
    gen_seed: str


def row(identity: Identity, now: datetime, seed: str, environ: Mapping[str, str]) -> Row:
    """Return the row of an identity that was issued `now`, for the spec with digest `seed`.

    The user is the one of the process; behind sudo the person, not root.
    """
    uid = os.getuid()
    user = str(uid)
    with suppress(KeyError):
        user = pwd.getpwuid(uid).pw_name
    if uid == 0:
        user = environ.get("SUDO_USER") or user
    return Row(
        serial=identity.serial,
        node=identity.node_id,
        fingerprint=identity.fingerprint,
        not_before=when(identity.not_before),
        not_after=when(identity.not_after),
        issued_at=when(now),
        issued_by=user,
        issued_from=socket.gethostname(),
        seed=seed,
        gen_seed=__version__,
    )


class Ledger:
    """An open ledger, known to be writable; made by `opened`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection

    def record(self, rows: Iterable[Row]) -> None:
        """Add `rows`, all or none; when this returns, they are on the disk. Raises `Refused`."""
        names = [field.name for field in fields(Row)]
        columns, holes = ", ".join(names), ", ".join("?" * len(names))
        statement = f"INSERT INTO certificate ({columns}) VALUES ({holes})"  # noqa: S608 - our names
        with _explained(self._path), _transaction(self._connection):
            self._connection.executemany(statement, [astuple(row) for row in rows])


@contextmanager
def opened(folder: Path, timeout: float = 60.0) -> Iterator[Ledger]:
    """Open the ledger of an authority's folder, and make it where there is none.

    Open it before signing: that it can be written is tried here. `timeout` is how many
    seconds to wait for other processes. Raises `Refused`; the file stays as it was.
    """
    path = folder / NAME
    with _explained(path):
        if not os.path.lexists(path):
            _make(path)
        connection = _connect(path, timeout)
    with closing(connection):
        with _explained(path):
            _check(path, connection)
        yield Ledger(path, connection)


def _make(path: Path) -> None:
    """Put an empty ledger at `path` whole, so that a file cut short can be told from a new one.

    SQLite would create it readable by others; it gives its journal the mode of the file.
    """
    temporary = path.with_name(f".{NAME}.{secrets.token_hex(6)}.tmp")
    try:
        os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(_connect(temporary, 0)) as connection:
            _upgrade(connection)
        with suppress(FileExistsError):  # another process was first, and its ledger is as good
            os.link(temporary, path)
    except OSError as error:
        raise files.cannot("write", path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def _connect(path: Path, timeout: float) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.resolve()))}?mode=rw"
    connection = sqlite3.connect(uri, timeout, isolation_level=None, uri=True)
    connection.execute("PRAGMA synchronous = EXTRA")
    return connection


def _check(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a file that is not a ledger, is newer than we are, or cannot be written."""
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if not found:
        # An empty file as well: ours are never that, see _make.
        raise refuse(f"{path} is not a ledger of gen-seed, or was cut off", _restore(path))
    if found > len(_FORMATS):
        raise refuse(
            f"the ledger {path} has format {found}, made by a newer gen-seed; this one knows"
            f" {len(_FORMATS)}",
            "use that gen-seed; the ledger was left as it is",
        )
    if found < len(_FORMATS):
        _upgrade(connection)
    # BEGIN IMMEDIATE alone succeeds on a file that is read-only; only a change finds out,
    # and finds out as well whether the folder takes a journal.
    with _transaction(connection, end="ROLLBACK"):
        connection.execute(f"PRAGMA user_version = {len(_FORMATS)}")
        connection.execute("SELECT 1 FROM certificate LIMIT 1")


def _upgrade(connection: sqlite3.Connection) -> None:
    with _transaction(connection):
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        for statement in _FORMATS[found:]:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(_FORMATS)}")


@contextmanager
def _transaction(connection: sqlite3.Connection, end: str = "COMMIT") -> Iterator[None]:
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
def _explained(path: Path) -> Iterator[None]:
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
    if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return refuse(f"the ledger {path} is damaged", _restore(path))
    if code == "SQLITE_CONSTRAINT_PRIMARYKEY":
        return refuse(f"the ledger {path} has this serial number already", "issue again")
    return refuse(f"the ledger {path} cannot be used: {error}")


def _restore(path: Path) -> str:
    return f"put a backup in its place; keep this one and its journal for a rescue: {path.name}*"
