"""`gen-seed ca`: the authority."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from generator.cli import pki_option, say, tell, workspace_option

if TYPE_CHECKING:
    from pathlib import Path


@click.group()
def command() -> None:
    """Make and keep the authority that issues the nodes' certificates."""


@command.command()
@click.option("--name", default="llmgw CA", show_default=True, help="Its common name.")
@click.option(
    "--days", type=click.IntRange(1, 36500), default=3650, show_default=True, help="Its life."
)
@pki_option
@workspace_option
@click.pass_obj
def init(folder: Path, name: str, days: int, pki: str | None) -> None:
    """Make an authority: ca.pem and ca-key.pem in its folder. Never over another."""
    from generator import authority, workspace

    place = workspace.open_workspace(folder)
    named = authority.named(place.root, pki, os.environ, place.authority_dir)
    made, warnings = authority.create(named or place.root / "pki", datetime.now(UTC), name, days)
    tell(warnings)
    say(f"made the authority {name!r} in {made.folder}")
    say(f"the control plane must trust {made.folder / 'ca.pem'} before a node can join")
