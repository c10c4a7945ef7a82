"""`gen-seed ca list`, `import` and `export`: what the ledger knows."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from generator.options import format_option, pki_option, say, show_json, workspace_option

if TYPE_CHECKING:
    from generator.standing import Standing


@click.command("list")
@click.option("--node", metavar="NODE", help="Those of this node only.")
@click.option(
    "--expiring",
    type=click.IntRange(0, 36500),
    metavar="DAYS",
    help="Those that end within DAYS and have no successor.",
)
@format_option("text", "json", "csv")
@pki_option
@workspace_option
@click.pass_obj
def list_(
    folder: Path, node: str | None, expiring: int | None, report: str, pki: str | None
) -> None:
    """List the certificates that were issued: good, superseded, revoked or expired.

    A superseded one still works: its node has a newer one, which may not have reached it.
    """
    from generator import ledger, standing
    from generator.commands.ca import place

    now = datetime.now(UTC)
    where = place.folder(folder, pki)
    rows = ledger.reading(where, "node", node) if node else ledger.reading(where)
    found = standing.standings(rows, now)
    if expiring is not None:
        found = standing.ending(found, now, expiring)
    if report == "json":
        show_json(certificates=[standing.fields(one) for one in found])
    elif report == "csv":
        click.echo(_csv(found), nl=False)
    elif found:
        click.echo(_table(found, now))
    else:
        say(f"no such certificate in the ledger of {where}")


def _csv(found: list[Standing]) -> str:
    from dataclasses import fields

    from generator import standing
    from generator.ledger import Row

    names = ["serial", "node", "state"]
    names += [field.name for field in fields(Row) if field.name not in names]
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(standing.fields(one) for one in found)
    return text.getvalue()


def _table(found: list[Standing], now: datetime) -> str:
    from generator import standing

    lines = [("NODE", "STATE", "ENDS", "DAYS", "ISSUED", "BY", "SERIAL")]
    for one in found:
        row = one.row
        state = f"{one.state} ({row.reason})" if row.reason else one.state
        by = "@".join(part for part in (row.issued_by, row.issued_from) if part) or "-"
        left = str(standing.days_left(row, now))
        lines.append(
            (row.node, state, row.not_after[:10], left, row.issued_at[:10], by, row.serial)
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


@click.command("import")
@click.argument("certificates", metavar="CERT...", nargs=-1, required=True)
@pki_option
@workspace_option
@click.pass_obj
def import_(folder: Path, certificates: tuple[str, ...], pki: str | None) -> None:
    """Take certificates into the ledger that it does not know: all of them, or none.

    CERT is a file in PEM form, such as llmgw's NODE.pem. They must be of this authority.
    """
    from generator import importing, ledger
    from generator.commands.ca import place

    where = place.folder(folder, pki)
    rows = importing.rows(map(Path, certificates), where, datetime.now(UTC))
    with ledger.opened(where) as book:
        new = book.add_new(rows)
    for row in new:
        say(f"{row.node}: certificate {row.serial}, ends on {row.not_after[:10]}")
    known = len(rows) - len(new)
    say(f"took in {len(new)}" + (f"; {known} were known already" if known else ""))


@click.command("export")
@pki_option
@workspace_option
@click.pass_obj
def export_(folder: Path, pki: str | None) -> None:
    """Print the ledger for an audit: a JSON object a line, in the order of issue."""
    from generator import ledger, standing
    from generator.commands.ca import place

    rows = ledger.reading(place.folder(folder, pki))
    states = {one.row: one for one in standing.standings(rows, datetime.now(UTC))}
    for row in rows:
        click.echo(json.dumps({"schema": 1, **standing.fields(states[row])}))
