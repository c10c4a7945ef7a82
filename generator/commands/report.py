"""`gen-seed report`: the fleet as one HTML page."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from generator.cli import RESERVED
from generator.options import pki_option, say, tell, workspace_option

if TYPE_CHECKING:
    from generator.problem import Problem
    from generator.standing import Standing


@click.command()
@click.option("-o", "--output", metavar="FILE", help="Write to FILE, atomically [default: stdout].")
@pki_option
@workspace_option
@click.pass_obj
def command(folder: Path, output: str | None, pki: str | None) -> None:
    """Write the fleet as one HTML page: nodes, fabrics, releases, certificates, warnings.

    The page is one file that loads nothing and holds no secret. It has the nodes whose specs are
    right, and names the others among the warnings. When the certificates end it takes from the
    ledger, where there is one.
    """
    from generator import custody, expiry, files, pack, page, report, resolve, selection, workspace
    from generator.problem import Refused

    files.check_target(output, binary=False, secret=False, folder=False)
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.now(UTC) if epoch is None else pack.moment(epoch)
    place = workspace.open_workspace(folder)
    outcome = resolve.examine(place, RESERVED)
    errors = [problem for problem in outcome.problems if problem.severity == "error"]
    errors += selection.empty(place)
    if errors and not outcome.specs:
        raise Refused(errors)  # a page about nothing must not replace the last that was right
    where = custody.find(place.root, pki, os.environ, place.authority_dir)
    issued, unknown = _issued(where, now)
    problems = (*outcome.problems, *expiry.check(outcome.specs, where, now), *unknown)
    whole = replace(outcome, problems=problems)
    made = report.make(place.node_ids, whole, issued, expiry.end(where), now)
    data = page.render(made)
    if output in (None, "-"):
        files.put_stdout(data, secret=False)
    else:
        files.write_atomic(Path(output or ""), data, 0o644)
    say(f"nodes in the report: {len(made.nodes)}; left out, because wrong: {len(made.wrong)}")
    tell(unknown)
    if unknown:
        say(f"certificates: the ledger in {where} cannot be read")
    else:
        say(f"certificates: {'by the' if issued is not None else 'no'} ledger in {where}")
    if problems:
        say(f"problems that it names: {len(problems)}; gen-seed validate shows where they are")


def _issued(where: Path, now: datetime) -> tuple[list[Standing] | None, list[Problem]]:
    """Return the ledger, None where none can be read, and why as a warning."""
    from generator import custody, ledger, standing
    from generator.problem import Refused

    if custody.missing(where / ledger.NAME):
        return None, []
    try:
        return standing.standings(ledger.reading(where), now), []
    except Refused as refused:
        return None, [replace(problem, severity="warning") for problem in refused.problems]
