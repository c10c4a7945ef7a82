"""Backups of the ledger: taken while others issue, and restored without losing anything."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from generator import custody, files, ledger, ledger_file
from generator.problem import refuse

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path


@dataclass(frozen=True)
class Restored:
    """What a restore did: rows it brought, rows that were there, the damaged ledger's new name."""

    brought: int
    there: int
    aside: Path | None = None


def backup(folder: Path, target: Path) -> int:
    """Copy the ledger of `folder` to `target`, 0600, whole or not at all; return its rows.

    SQLite's own copy: a plain one could catch a ledger in the middle of a change. Raises
    `Refused`.
    """
    path = folder / ledger_file.NAME
    if not os.path.lexists(path):
        raise refuse(f"no ledger in {folder}", "nothing was issued there yet")
    if target.is_dir() or (target.exists() and target.samefile(path)):
        raise refuse(f"{target} cannot take a backup", "name another file")
    if not target.parent.is_dir():
        raise refuse(f"there is no folder {target.parent}")
    with ledger_file.temporary(target) as beside:
        _copy(path, beside)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        rows = _count(beside)
        beside.replace(target)
    return rows


def restore(folder: Path, source: Path, now: datetime) -> Restored:
    """Bring back what the backup `source` has, and keep what only the present ledger has.

    Rows, revocations and the numbers of revocation lists are joined. Only a ledger that is
    damaged is replaced, and kept beside under another name. Raises `Refused`.
    """
    path = folder / ledger_file.NAME
    if not source.is_file():
        raise refuse(f"no file {source}")
    files.make_folder(folder, 0o700)
    with ledger_file.temporary(path) as beside:
        try:
            _copy(source, beside)
            with ledger_file.explained(source), closing(ledger_file.connect(beside, 0)) as copy:
                ledger_file.check_whole(source, copy)
                ledger_file.check_writable(source, copy)
        except ledger_file.Damaged as damaged:  # its hint is about a ledger that is in use
            raise refuse(damaged.problems[0].message, "take another backup") from damaged
        brought = _count(beside)
        if not os.path.lexists(path):
            try:
                os.link(beside, path)
            except FileExistsError:
                pass  # somebody issues again already: joined below
            else:
                return Restored(brought, 0)
        try:
            there = len(ledger.reading(folder))
            with ledger.opened(folder) as book:
                return Restored(book.merge(beside), there)
        except ledger_file.Damaged:
            return Restored(brought, 0, _replace(path, beside, now))


def _replace(path: Path, beside: Path, now: datetime) -> Path:
    aside = path.with_name(f"{path.name}.damaged-{now:%Y%m%dT%H%M%SZ}")
    # First: a journal that is left would be played into the new ledger.
    journal = path.with_name(f"{path.name}-journal")
    if os.path.lexists(journal):
        journal.rename(aside.with_name(f"{aside.name}-journal"))
    os.link(path, aside)
    beside.replace(path)
    custody.hand_over(path)
    return aside


def _copy(source: Path, target: Path) -> None:
    with (
        ledger_file.explained(source),
        closing(ledger_file.connect(source, 60.0)) as here,
        closing(ledger_file.connect(target, 0)) as there,
    ):
        ledger_file.check(source, here)
        try:
            here.backup(there)
        except sqlite3.OperationalError as error:
            # Which of the two files it is about, SQLite does not say; a full disk is the copy's.
            if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_FULL", "SQLITE_IOERR")):
                raise refuse(f"the disk does not take {target.parent}'s copy of it") from error
            raise


def _count(path: Path) -> int:
    with ledger_file.explained(path), closing(ledger_file.connect(path, 0)) as connection:
        number: int = connection.execute("SELECT count(*) FROM certificate").fetchone()[0]
        return number
