"""`gen-seed validate`: whether what the workspace says is right."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from generator.cli import RESERVED
from generator.options import (
    format_option,
    pki_option,
    say,
    show_json,
    strict_option,
    tell,
    workspace_option,
)
from generator.problem import count

if TYPE_CHECKING:
    from pathlib import Path

    from generator.problem import Problem


@click.command()
@click.argument("nodes", metavar="[NODE]...", nargs=-1)
@format_option("text", "json")
@strict_option
@pki_option
@workspace_option
@click.pass_obj
def command(
    folder: Path, nodes: tuple[str, ...], report: str, pki: str | None, *, strict: bool
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
    if report == "json":
        show_json(problems=[_row(problem) for problem in problems])
    else:
        tell(problems)
        counted = f"{count(errors, 'error')}, {count(warnings, 'warning')}"
        say(f"{count(len(set(nodes) or place.node_ids), 'node')}: {counted}")
    if errors or (strict and warnings):
        raise click.exceptions.Exit(1)


def _row(problem: Problem) -> dict[str, Any]:
    return {
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
