"""`gen-seed build`: the seeds of many nodes, into a folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from generator.commands import building, choosing
from generator.options import format_option, passphrase_option, pki_option, workspace_option

if TYPE_CHECKING:
    from pathlib import Path

    from generator.selection import Shard


@dataclass(frozen=True)
class Wanted:
    """What was asked for on the command line."""

    nodes: tuple[str, ...]
    every: bool
    group: str | None
    shard: Shard | None
    out: str | None
    form: str | None
    jobs: int | None
    fresh: bool
    reuse: bool
    identity: str | None
    check_only: bool
    keep_going: bool
    verbose: bool
    report: str
    pki: str | None
    passphrase_file: str | None

    @property
    def placeholder(self) -> bool:
        """Whether no identity is to be issued: none is asked for, or none would be inside."""
        return self.identity is not None or self.form in ("meta-data", "network-config")

    @property
    def format(self) -> str:
        """What a seed is to be."""
        return self.form or ("dir" if self.identity else "iso")

    @property
    def whole(self) -> bool:
        """Whether all are meant, or a shard: who asks for some nodes is not told of others."""
        return (self.every or self.shard is not None) and self.group is None

    def check(self) -> None:
        """Refuse options that contradict each other."""
        choosing.check(self.nodes, self.group, self.shard, every=self.every)
        if self.placeholder and (self.fresh or self.reuse):
            raise click.UsageError("a placeholder is neither fresh nor stored")
        if self.fresh and self.reuse:
            raise click.UsageError("--fresh issues certificates, --reuse takes stored ones")
        if self.check_only and not self.identity:
            raise click.UsageError("--check compares snapshots: add --identity placeholder")
        if self.check_only and (self.verbose or self.report != "text"):
            raise click.UsageError("--check prints a diff: neither --format json nor -v")


@click.command()
@choosing.options
@click.option("--fresh", is_flag=True, help="Make every seed, with a new certificate.")
@click.option("--reuse", is_flag=True, help="The stored identities; stores those there are not.")
@click.option(
    "--identity",
    type=click.Choice(["placeholder"]),
    help="A fixed stand-in that no cluster accepts: for review, and for comparison in CI.",
)
@click.option(
    "--check",
    "check_only",
    is_flag=True,
    help="With placeholder: write nothing, show what is not up to date.",
)
@click.option("--keep-going", is_flag=True, help="Leave out the nodes that are wrong.")
@click.option("-v", "--verbose", is_flag=True, help="A line for each node, and all warnings.")
@format_option("text", "json")
@pki_option
@passphrase_option
@workspace_option
@click.pass_obj
def command(folder: Path, /, **options: Any) -> None:
    """Write the seeds of NODEs, or of all, into a folder, and a manifest of what was made.

    Made is what is new, changed or missing, or has a certificate that ends soon or was revoked;
    the rest is left as it is. Nothing is written or issued if any node is wrong. After an
    interruption the next run goes on where this one stopped.
    """
    wanted = Wanted(**options)
    wanted.check()
    if wanted.check_only:
        building.check(folder, wanted)
    else:
        building.build(folder, wanted)
