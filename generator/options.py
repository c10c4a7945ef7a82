"""What commands have in common: options, and how they talk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from generator.problem import render as render_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from generator.problem import Problem


def workspace_option(command: Any) -> Any:
    """Let a command take ``-C DIR`` behind its name as well as before it."""

    def keep(context: click.Context, _: click.Parameter, folder: str | None) -> None:
        if folder is not None:
            context.obj = Path(folder)

    return click.option(
        "-C", metavar="DIR", callback=keep, expose_value=False, help="The workspace [default: .]."
    )(command)


pki_option = click.option(
    "--pki", metavar="DIR", help="The authority's folder [default: see docs/authority.md]."
)
passphrase_option = click.option(
    "--passphrase-file",
    metavar="FILE",
    help="Holds the passphrase of the authority's key [default: the terminal is asked].",
)
strict_option = click.option("--strict", is_flag=True, help="Let warnings fail as errors do.")


def format_option(*forms: str) -> Callable[[Any], Any]:
    """Let a command take ``--format``, as `report`: one of `forms`, the first by default.

    Not as `form`: what ``--as`` names is a form, of a seed.
    """
    return click.option(
        "--format", "report", type=click.Choice(forms), default=forms[0], show_default=True
    )


def number_option(name: str, unit: str, default: int, most: int, what: str) -> Callable[[Any], Any]:
    """Let a command take a whole number of `unit`, from 1 to `most`."""
    bounds = click.IntRange(1, most)
    return click.option(
        name, type=bounds, metavar=unit, default=default, show_default=True, help=what
    )


def tell(problems: Iterable[Problem]) -> None:
    """Print problems to stderr."""
    for problem in problems:
        say(render_problem(problem))


def say(text: str) -> None:
    """Print a line of talk to stderr."""
    click.echo(text, err=True)


def show_json(**whole: Any) -> None:
    """Print one JSON object with the number of its schema."""
    import json

    click.echo(json.dumps({"schema": 1, **whole}, indent=2, ensure_ascii=False))


def show_rows(name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Print such an object with one array, a row a line, and no more than one in memory."""
    import json

    click.echo(f'{{"schema": 1, "{name}": [', nl=False)
    for number, row in enumerate(rows):
        text = json.dumps(row, ensure_ascii=False)
        click.echo(f"{',' if number else ''}\n  {text}", nl=False)
    click.echo("\n]}")
