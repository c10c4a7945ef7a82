"""`gen-seed validate`: whether what the workspace says is right."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from generator.cli import RESERVED, pki_option, say, tell, workspace_option

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from generator.problem import Problem


@click.command()
@click.argument("nodes", metavar="[NODE]...", nargs=-1)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option("--strict", is_flag=True, help="Let warnings fail as errors do.")
@pki_option
@workspace_option
@click.pass_obj
def command(
    folder: Path, nodes: tuple[str, ...], form: str, pki: str | None, *, strict: bool
) -> None:
    """Check the specs of NODEs, of all by default, without making anything.

    All nodes together are also checked against each other. Exit status 1 means that there is an
    error, or a warning with --strict.
    """
    from generator import custody, expiry, resolve, selection, workspace

    place = workspace.open_workspace(folder)
    if nodes:
        outcome = resolve.examine_some(place, nodes, RESERVED)
    else:
        outcome = resolve.examine(place, RESERVED)
    where = custody.find(place.root, pki, os.environ, place.authority_dir)
    problems = (
        *outcome.problems,
        *(() if nodes else selection.empty(place)),
        *expiry.check(outcome.specs, where, datetime.now(UTC)),
    )
    errors = sum(problem.severity == "error" for problem in problems)
    warnings = len(problems) - errors
    if form == "json":
        click.echo(json.dumps(_json(problems), indent=2, ensure_ascii=False))
    else:
        tell(problems)
        counted = f"{_count(errors, 'error')}, {_count(warnings, 'warning')}"
        say(f"{_count(len(set(nodes) or place.node_ids), 'node')}: {counted}")
    if errors or (strict and warnings):
        raise click.exceptions.Exit(1)


def _count(number: int, thing: str) -> str:
    return f"{number or 'no'} {thing}{'' if number == 1 else 's'}"


def _json(problems: Sequence[Problem]) -> dict[str, Any]:
    return {
        "schema": 1,
        "problems": [
            {
                "severity": problem.severity,
                "file": problem.where and problem.where.file,
                "line": problem.where and problem.where.line,
                "column": problem.where and problem.where.column,
                "end_column": problem.where and problem.where.end_column,
                "path": problem.path,
                "message": problem.message,
                "hint": problem.hint,
                "nodes": list(problem.nodes),
            }
            for problem in problems
        ],
    }
