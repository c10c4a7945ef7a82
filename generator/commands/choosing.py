"""The options by which the commands for fleets choose nodes, and what they are compared with."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from generator.cli import FORMATS, RESERVED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from generator.issue import Issuer
    from generator.manifest import Manifest
    from generator.plan import Basis
    from generator.selection import Shard
    from generator.workspace import Workspace

_FEW = 200  # nodes that are done before a bar is of use


def _shard(_: click.Context, __: click.Parameter, value: str | None) -> Shard | None:
    from generator import selection

    try:
        return None if value is None else selection.shard(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is no shard: {error}") from error


def options(command: Any) -> Any:
    """Let a command take nodes, groups, shards, a folder and a format."""
    for option in (
        click.option(
            "--jobs",
            type=click.IntRange(1, 256),
            metavar="N",
            help="Processes that work at once [default: one a processor].",
        ),
        click.option(
            "--as",
            "form",
            type=click.Choice(FORMATS),
            help="What a seed is [default: iso, dir with a placeholder; for diff what is there].",
        ),
        click.option(
            "-d",
            "out",
            metavar="DIR",
            help="The folder of the seeds and their manifest [default: out in the workspace].",
        ),
        click.option("--shard", callback=_shard, metavar="I/N", help="Only the I-th of N parts."),
        click.option("--group", metavar="GROUP", help="Only the nodes of this group."),
        click.option("--all", "every", is_flag=True, help="All nodes."),
        click.argument("nodes", metavar="[NODE]...", nargs=-1),
    ):
        command = option(command)
    return command


def check(nodes: Sequence[str], group: str | None, part: Shard | None, *, every: bool) -> None:
    """Refuse a choice that is none, or two."""
    if nodes and every:
        raise click.UsageError("name nodes, or say --all")
    if nodes and group:
        raise click.UsageError("name nodes, or a group")
    if nodes and part:
        raise click.UsageError("name nodes, or a shard")
    if not (nodes or every or group or part):
        raise click.UsageError("name nodes, or say --all, --group or --shard")


def processes(jobs: int | None) -> int:
    """Return how many processes are to work."""
    from generator.jobs import available

    return jobs or available()


def folder(place: Path, out: str | None) -> Path:
    """Return the folder of the seeds; raise `Refused` where it is something else."""
    from generator.problem import refuse

    found = Path(out) if out else place / "out"
    if os.path.lexists(found) and not found.is_dir():
        what = "a file" if found.exists() else "a link to nothing"
        raise refuse(f"{found} is {what}, and a folder is to be written", "name another with -d")
    return found


def issuer(place: Workspace, pki: str | None, passphrase_file: str | None) -> Issuer:
    """Return what issues for a workspace, whether or not anything is wrong with it."""
    from generator import custody, issue, passphrase, signer

    return issue.Issuer(
        custody.find(place.root, pki, os.environ, place.authority_dir),
        passphrase.asking(passphrase_file),
        None if place.problems else signer.configured(place),
    )


def basis(  # noqa: PLR0913 - what the options say
    place: Workspace,
    out: Path,
    manifest: Manifest,
    form: str,
    issuer: Issuer,
    *,
    placeholder: bool,
    reuse: bool = False,
    fresh: bool = False,
) -> Basis:
    """Return what the nodes are compared with.

    Raises `Refused` where the folder has seeds of another kind: one of them would be forgotten.
    """
    from generator import ledger, plan, store, template

    _check_kind(manifest, out, form, placeholder=placeholder)
    folder = issuer.folder
    return plan.Basis(
        place=place,
        folder=out,
        manifest=manifest,
        form=form,
        now=datetime.now(UTC),
        environ=os.environ,
        templates="" if placeholder else template.digest(place.root / "templates"),
        authority=None if placeholder else plan.roots(folder),
        ledger=ledger.revoked(folder) if len(manifest) and not placeholder else {},
        reserved=RESERVED,
        store=folder / store.NAME if reuse else None,
        fresh=fresh,
        compared=placeholder,
    )


def _check_kind(there: Manifest, out: Path, form: str, *, placeholder: bool) -> None:
    from generator import issue
    from generator.problem import refuse

    row = there.first()
    if row is None:
        return
    if row.form != form:
        raise refuse(
            f"{out} holds seeds as {row.form}, not as {form}",
            f"add --as {row.form}, or name another folder with -d",
        )
    if (row.identity == issue.PLACEHOLDER) != placeholder:
        kinds = ["certificates", "placeholders"]
        has, not_ = kinds if placeholder else kinds[::-1]
        raise refuse(f"{out} holds seeds with {has}, not {not_}", "name another folder with -d")


@contextmanager
def progress(label: str, length: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal, and yield what moves it on."""
    if not shown or length < _FEW or not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield bar.update
