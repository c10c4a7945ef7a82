"""`gen-seed init`: a workspace that is ready to use."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from generator.cli import say, tell
from generator.problem import Problem, Refused

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command()
@click.argument("folder", metavar="[DIR]", default=".")
@click.option("--new-ca", "ca", flag_value="new", help="Make an authority even where one is found.")
@click.option("--no-ca", "ca", flag_value="none", help="Make none.")
def command(folder: str, ca: str | None) -> None:
    """Make a workspace in DIR: fleet.yaml, a first node, and an authority where there is none.

    An authority that $GEN_SEED_PKI names, or else the one in /etc/llmgw/pki, is used. Nothing
    that is there is overwritten.
    """
    from generator import authority, files

    root = Path(folder)
    wanted = _content()
    there = [
        root / name
        for name, data in wanted.items()
        # What an init that was killed has made is no obstacle to the next.
        if (root / name).exists() and (root / name).read_bytes() != data and name != ".gitignore"
    ]
    own = root / "pki"
    if there:
        raise Refused(
            Problem(f"{path} is there already", "gen-seed init makes a new workspace only")
            for path in there
        )
    if ca == "new" and (own / "ca.pem").exists():
        raise Refused([Problem(f"{own / 'ca.pem'} is there already", "it was left as it is")])
    for name, data in wanted.items():
        path = root / name
        if path.exists() and path.read_bytes() == data:
            continue
        if path.exists():
            say(f"left {path} as it is; git should ignore pki/, out/, *.iso and *.pem")
            continue
        files.make_folder(path.parent, 0o755)
        files.create(path, data, 0o644)
        say(f"made {path}")
    found = authority.find(root, None, os.environ, None)
    if ca == "none":
        say("made no authority: gen-seed ca init makes one")
    elif ca is None and (found / "ca.pem").exists():
        say(f"uses the authority in {found}")
    else:
        made, warnings = authority.create(own, datetime.now(UTC))
        tell(warnings)
        say(f"made an authority in {made.folder}")
        say(f"the control plane must trust {made.folder / 'ca.pem'} before a node can join")
    say("next: edit fleet.yaml and nodes/n7.yaml, then: gen-seed n7 > n7.iso")


def _content() -> Mapping[str, bytes]:
    from generator.resources import SCHEMAS, TEMPLATES

    samples = TEMPLATES / "workspace"
    return {
        ".gitignore": (samples / "gitignore").read_bytes(),
        "fleet.yaml": (samples / "fleet.yaml").read_bytes(),
        "nodes/n7.yaml": (samples / "n7.yaml").read_bytes(),
        # For the editor: the first line of each YAML file names its schema.
        "schemas/fleet.schema.json": (SCHEMAS / "fleet.schema.json").read_bytes(),
        "schemas/node.schema.json": (SCHEMAS / "node.schema.json").read_bytes(),
    }
