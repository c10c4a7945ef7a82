"""`gen-seed ca backup` and `gen-seed ca restore`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from generator.options import pki_option, say, tell, workspace_option


@click.command("backup")
@click.argument("file")
@pki_option
@workspace_option
@click.pass_obj
def backup_(folder: Path, file: str, pki: str | None) -> None:
    """Copy the ledger to FILE, whole, while others go on issuing.

    Not the authority's key: keep a copy of ca.pem and ca-key.pem apart, once.
    """
    from generator import backup
    from generator.commands.ca import place

    where = place.folder(folder, pki)
    rows = backup.backup(where, Path(file))
    say(f"{file} has the {rows} rows of the ledger in {where}; the authority's key is not in it")


@click.command("restore")
@click.argument("file")
@pki_option
@workspace_option
@click.pass_obj
def restore_(folder: Path, file: str, pki: str | None) -> None:
    """Bring back the ledger of a backup.

    What only the present ledger has is kept: the two are joined. One that is damaged is
    replaced, and kept beside.
    """
    from generator import backup
    from generator.commands.ca import place
    from generator.problem import Problem

    where = place.folder(folder, pki)
    done = backup.restore(where, Path(file), datetime.now(UTC))
    if done.aside:
        text = f"the damaged ledger is kept as {done.aside}; what was issued after the backup"
        hint = "gen-seed ca import takes in the certificates of those seeds"
        tell([Problem(f"{text} is not known any more", hint, severity="warning")])
    say(f"brought {done.brought} rows from {file}; {done.there} were in {where} and are kept")
