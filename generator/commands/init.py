"""`gen-seed init`: a workspace that is ready to use."""

from __future__ import annotations

import os
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from generator.options import say, tell, workspace_option
from generator.problem import Problem, Refused

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command()
@click.argument("named", metavar="[DIR]", required=False)
@click.option("--new-ca", "ca", flag_value="new", help="Make an authority even where one is found.")
@click.option("--no-ca", "ca", flag_value="none", help="Make none.")
@workspace_option
@click.pass_obj
def command(folder: Path, named: str | None, ca: str | None) -> None:
    """Make a workspace in DIR: fleet.yaml, a first node, and an authority where there is none.

    An authority that $GEN_SEED_PKI names, or else the one in /etc/llmgw/pki, is used. Nothing
    that is there is overwritten.
    """
    from generator import authority, custody, files

    root = folder / (named or "")
    wanted = _content()
    # What an init that was killed has made is no obstacle to the next.
    other = [root / name for name, data in wanted.items() if _is_other(root / name, data)]
    ignored = root / ".gitignore"
    own = root / "pki"
    there = [path for path in other if path != ignored]
    if there:
        raise Refused(
            Problem(f"{path} is there already", "gen-seed init makes a new workspace only")
            for path in there
        )
    if ca == "new" and (own / "ca.pem").exists():
        raise Refused([Problem(f"{own / 'ca.pem'} is there already", "it was left as it is")])
    for name, data in wanted.items():
        path = root / name
        if path in other:
            say(f"left {path} as it is; git should ignore pki/, out/, *.iso, *.pem and user-data")
        elif not path.exists():
            files.make_folder(path.parent, 0o755)
            files.create(path, data, 0o644)
            say(f"made {path}")
    found = custody.find(root, None, os.environ, None)
    if ca == "none":
        say("made no authority: gen-seed ca init makes one")
    elif ca is None and (found / "ca.pem").exists():
        say(f"uses the authority in {found}")
    else:
        made, warnings = authority.create(own, datetime.now(UTC))
        tell(warnings)
        say(f"made an authority in {made.folder}")
        say(f"the control plane must trust {made.folder / 'ca.pem'} before a node can join")
    at = "" if root == Path() else f"-C {shlex.quote(str(root))} "
    say(f"next: edit fleet.yaml and nodes/n7.yaml, then: gen-seed {at}n7 > n7.iso")


def _is_other(path: Path, data: bytes) -> bool:
    """Tell whether something else than `data` is at `path`."""
    from generator import files

    if not os.path.lexists(path):
        return False
    try:
        return files.read(path) != data
    except Refused:
        return True


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
