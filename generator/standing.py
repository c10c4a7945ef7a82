"""What the ledger's rows mean at a moment: which certificates are good, and which are not.

Derived and not stored: a certificate expires, and is superseded, without anybody's doing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from generator.chain import when

if TYPE_CHECKING:
    from collections.abc import Iterable

    from generator.ledger import Row

State = Literal["good", "superseded", "revoked", "expired"]
_NEAR = timedelta(days=30)
STATES: tuple[State, ...] = ("good", "superseded", "revoked", "expired")


@dataclass(frozen=True)
class Standing:
    """A row and its state."""

    row: Row
    state: State


def standings(rows: Iterable[Row], now: datetime) -> list[Standing]:
    """Return the rows with their states, by node and then as they were issued.

    Revoked outweighs expired. Superseded: valid still, but the node has been given another
    that is good. `rows` must have all rows of a node, or none.
    """
    ordered = sorted(rows, key=lambda row: (row.node, row.issued_at))  # stable: then as recorded
    found = []
    served: set[str] = set()  # nodes that have a good one, seen from the newest on
    for row in reversed(ordered):
        state: State = "good"
        if row.revoked_at:
            state = "revoked"
        elif row.not_after < when(now):
            state = "expired"
        elif row.node in served:
            state = "superseded"
        else:
            served.add(row.node)
        found.append(Standing(row, state))
    return found[::-1]


def out_there(rows: Iterable[Row], now: datetime, but: str = "") -> list[Row]:
    """Return the rows that can still be used; not the one with the fingerprint `but`."""
    end = when(now)
    return [
        row
        for row in rows
        if not row.revoked_at and row.not_after >= end and row.fingerprint != but
    ]


def ending(found: Iterable[Standing], now: datetime, days: int) -> list[Standing]:
    """Return the good ones that end within `days`: their nodes have nothing newer."""
    until = when(now + timedelta(days=days))
    return [one for one in found if one.state == "good" and one.row.not_after <= until]


def ends_soon(not_before: datetime, not_after: datetime, now: datetime) -> bool:
    """Tell whether a certificate is in its last month, or third where that is less, or over."""
    return not_after - now < min(_NEAR, (not_after - not_before) / 3)


def fields(one: Standing) -> dict[str, str | None]:
    """Return a row as programs get it: what is not known, or has not happened, is None."""
    values = {name: value or None for name, value in asdict(one.row).items()}
    return {"serial": values.pop("serial"), "node": values.pop("node"), "state": one.state} | values


def days_left(row: Row, now: datetime) -> int:
    """Return the whole days until a certificate ends, negative once it has."""
    return (datetime.fromisoformat(row.not_after) - now).days
