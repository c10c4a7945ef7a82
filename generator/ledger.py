"""The ledger: what the authority has issued, one row each, in ledger.db beside its key."""

from __future__ import annotations

import os
import pwd
from contextlib import closing, contextmanager, suppress
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING

from generator import __version__, chain, custody, ledger_file
from generator.chain import when
from generator.ledger_file import NAME, explained, transaction
from generator.problem import Refused

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from generator.identity import Identity

__all__ = ["NAME", "Ledger", "Revocation", "Row", "look_up", "opened", "reading", "row", "user"]


@dataclass(frozen=True)
class Row:
    """A certificate that was issued; a text that is empty is not known, or has not happened.

    `serial` in lower-case hex, `fingerprint` the SHA-256 of its DER; moments are RFC 3339
    in UTC; `seed` the digest of the spec that it was issued for; `gen_seed` the version
    that issued it; `issuer` the SHA-256 of the issuer's public key (`chain.key_id`), empty
    in rows of the first format: this folder's authority. `reason` as in RFC 5280.
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
    issuer: str = ""
    imported_at: str = ""
    revoked_at: str = ""
    reason: str = ""
    revoked_by: str = ""


_NAMES = [field.name for field in fields(Row)]
_INSERT = (
    f"INSERT INTO certificate ({', '.join(_NAMES)})"  # noqa: S608 - our own names
    f" VALUES ({', '.join('?' * len(_NAMES))})"
)


@dataclass(frozen=True)
class Revocation:
    """When (RFC 3339), why (a reason of RFC 5280, or "unspecified") and by whom."""

    at: str
    reason: str
    by: str


def row(identity: Identity, now: datetime, seed: str, environ: Mapping[str, str]) -> Row:
    """Return the row of an identity that was issued `now`, for the spec with digest `seed`."""
    # Whoever made it has checked that it leads to a root.
    issuers = identity.chain[1:2] or identity.roots
    if len(issuers) > 1:
        issuers = tuple(c for c in issuers if chain.signed_by(identity.chain[0], c))
    return Row(
        serial=identity.serial,
        node=identity.node_id,
        fingerprint=identity.fingerprint,
        not_before=when(identity.not_before),
        not_after=when(identity.not_after),
        issued_at=when(now),
        issued_by=user(environ),
        issued_from=os.uname().nodename,
        seed=seed,
        gen_seed=__version__,
        issuer=chain.key_id(issuers[0].public_key()) if issuers else "",
    )


def user(environ: Mapping[str, str]) -> str:
    """Return who runs this process; behind sudo the person, not root."""
    uid = os.getuid()
    name = str(uid)
    with suppress(KeyError):
        name = pwd.getpwuid(uid).pw_name
    if uid == 0:
        name = environ.get("SUDO_USER") or name
    return name


class Ledger:
    """An open ledger, known to be writable; made by `opened`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection

    def record(self, rows: Iterable[Row], revoking: Revocation | None = None) -> None:
        """Add `rows`, all or none; when this returns, they are on the disk.

        With `revoking`, what their nodes had before is revoked in the same step. Raises
        `Refused`.
        """
        new = list(rows)
        with explained(self._path), transaction(self._connection):
            self._connection.executemany(_INSERT, [astuple(row) for row in new])
            if revoking:
                kept = [row.fingerprint for row in new]
                for node in {row.node for row in new}:
                    self._revoke(_select(self._connection, "node", node), revoking, kept)

    def revoke(
        self, revocation: Revocation, column: str, value: str, keep: Sequence[str] = ()
    ) -> list[Row]:
        """Revoke the certificates whose `column` ("node", "serial") is `value`.

        Those that have ended, are revoked already, or whose fingerprint is in `keep` stay as
        they are. Returns all of them as they were. Raises `Refused`.
        """
        with explained(self._path), transaction(self._connection):
            found = _select(self._connection, column, value)
            self._revoke(found, revocation, keep)
            return found

    def _revoke(self, rows: list[Row], revocation: Revocation, keep: Sequence[str]) -> None:
        self._connection.executemany(
            "UPDATE certificate SET revoked_at = ?, reason = ?, revoked_by = ?"
            " WHERE fingerprint = ?",
            [
                (revocation.at, revocation.reason, revocation.by, row.fingerprint)
                for row in rows
                if not row.revoked_at
                and row.not_after >= revocation.at
                and row.fingerprint not in keep
            ],
        )

    def add_new(self, rows: Iterable[Row]) -> list[Row]:
        """Add those of `rows` that are not there yet, all or none, and return them."""
        with explained(self._path), transaction(self._connection):
            known = "SELECT 1 FROM certificate WHERE fingerprint = ?"
            new = {
                row.fingerprint: row
                for row in rows
                if not self._connection.execute(known, [row.fingerprint]).fetchone()
            }
            self._connection.executemany(_INSERT, [astuple(row) for row in new.values()])
            return list(new.values())

    def next_crl(self, now: datetime) -> tuple[int, list[Row]]:
        """Take the number of a revocation list, and return what is revoked and has not ended.

        The number is the time in milliseconds, or else the last one and 1. So it does not go
        back where the ledger does: a backup that is restored holds an earlier number.
        """
        with explained(self._path), transaction(self._connection):
            last = self._connection.execute("SELECT max(number) FROM crl").fetchone()[0] or 0
            number = max(last + 1, int(now.timestamp() * 1000))
            self._connection.execute("INSERT INTO crl VALUES (?, ?)", [number, when(now)])
            revoked = [
                row
                for row in _select(self._connection)
                if row.revoked_at and row.not_after >= when(now)
            ]
        return number, revoked

    def merge(self, other: Path) -> int:
        """Take in the ledger at `other`, of our own format; return how many rows it brought.

        What either has is kept: rows, revocations, numbers of revocation lists.
        """
        with explained(self._path):
            ledger_file.check_whole(self._path, self._connection)
            self._connection.execute("ATTACH ? AS other", [str(other)])
            with transaction(self._connection):
                before = self._connection.total_changes
                names = ", ".join(_NAMES)
                self._connection.execute(
                    f"INSERT INTO main.certificate ({names})"  # noqa: S608 - our own names
                    f" SELECT {names} FROM other.certificate AS o WHERE NOT EXISTS (SELECT 1 FROM"
                    " main.certificate AS m WHERE m.fingerprint = o.fingerprint) ORDER BY number"
                )
                added = self._connection.total_changes - before
                self._connection.execute(
                    "UPDATE main.certificate SET (revoked_at, reason, revoked_by) ="
                    " (SELECT revoked_at, reason, revoked_by FROM other.certificate AS o"
                    " WHERE o.fingerprint = certificate.fingerprint)"
                    " WHERE revoked_at = '' AND fingerprint IN"
                    " (SELECT fingerprint FROM other.certificate)"
                )
                self._connection.execute("INSERT OR IGNORE INTO crl SELECT * FROM other.crl")
            self._connection.execute("DETACH other")
        return added


@contextmanager
def opened(folder: Path, timeout: float = 60.0) -> Iterator[Ledger]:
    """Open the ledger of an authority's folder, and make it where there is none.

    Open it before signing: that it can be written is tried here. `timeout` is how many
    seconds to wait for other processes. Raises `Refused`; the file stays as it was.
    """
    path = folder / NAME
    with explained(path):
        if not os.path.lexists(path):
            ledger_file.make(path)
        connection = ledger_file.connect(path, timeout)
    with closing(connection):
        with explained(path):
            ledger_file.check_writable(path, connection)
        yield Ledger(path, connection)


def reading(folder: Path, column: str = "", value: str = "") -> list[Row]:
    """Return the ledger's rows in the order of their issue, or those with `value`.

    No row where there is no ledger. Changes nothing, not even a ledger in an older format.
    Raises `Refused`.
    """
    path = folder / NAME
    with explained(path):
        if custody.missing(path):
            return []
        with closing(ledger_file.connect(path, 60.0)) as connection:
            ledger_file.check(path, connection)
            return _select(connection, column, value)


def revoked(folder: Path) -> dict[tuple[str, str], bool]:
    """Return whether each certificate was revoked, by its node and serial number.

    Changes nothing, as `reading`. Raises `Refused`.
    """
    path = folder / NAME
    with explained(path):
        if custody.missing(path):
            return {}
        with closing(ledger_file.connect(path, 60.0)) as connection:
            # The first format knows no revocation.
            known = ledger_file.check(path, connection) > 1
            column = "revoked_at != ''" if known else "0"
            rows = connection.execute(f"SELECT node, serial, {column} FROM certificate")  # noqa: S608
            return {(node, serial): bool(is_revoked) for node, serial, is_revoked in rows}


def look_up(folder: Path, serial: str) -> dict[str, str] | None:
    """Return the row of a certificate; None where there is no ledger, or none that we read."""
    try:
        found = reading(folder, "serial", serial)
    except Refused:
        return None
    return dict(zip(_NAMES, astuple(found[0]), strict=True)) if found else None


def _select(connection: sqlite3.Connection, column: str = "", value: str = "") -> list[Row]:
    where = f" WHERE {column} = ?" if column else ""
    rows = connection.execute(
        f"SELECT * FROM certificate{where} ORDER BY rowid",  # noqa: S608 - our own names
        [value] if column else [],
    )
    # An older format lacks what then was not known.
    return [Row(**{n: row[n] for n in row.keys() if n in _NAMES}) for row in rows]  # noqa: SIM118
