"""Which authority a command works on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from generator import custody, workspace
from generator.commands import choosing
from generator.problem import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from generator.issue import Issuer


def folder(root: Path, pki: str | None) -> Path:
    """Return the authority's folder; raise `Refused` where fleet.yaml leaves it open.

    What is wrong in fleet.yaml may be where the authority is: only who names the folder
    gets past it.
    """
    place = workspace.open_workspace(root)
    if place.problems and not custody.named(root, pki, os.environ, None):
        raise Refused(place.problems)
    return custody.find(root, pki, os.environ, place.authority_dir)


def issuer(root: Path, pki: str | None, passphrase_file: str | None) -> Issuer:
    """Return what issues for this workspace: its authority, or the command that it names."""
    place = workspace.open_workspace(root)
    if place.problems:
        raise Refused(place.problems)
    return choosing.issuer(place, pki, passphrase_file)
