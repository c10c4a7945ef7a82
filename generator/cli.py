"""The command line. `seed` below is the whole data flow, in order; read on from there."""

from __future__ import annotations

import importlib
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from generator import __version__
from generator.options import passphrase_option, pki_option, say, tell, workspace_option

if TYPE_CHECKING:
    from generator.problem import Problem

# Each stands in generator/commands/, and is imported when it is called.
_COMMANDS = (
    *("add", "bake", "build", "ca", "diff", "engine-check", "explain", "init"),
    *("inspect", "pin", "report", "schema", "seed", "validate"),
)
FORMATS = ("iso", "user-data", "meta-data", "network-config", "dir")
RESERVED = frozenset(
    (
        *("seed", "init", "add", "validate", "explain", "schema", "inspect", "build", "diff"),
        *("report", "platforms", "terraform", "pin", "bake", "engine-check", "prove", "doctor"),
        *("ca", "help", "version", "completion"),
    )
)
"""Names that are, or will be, commands: a node with one of them needs ``gen-seed seed NODE``."""


class _Commands(click.Group):
    """Commands that are imported when called; a first word that is none is a node."""

    def list_commands(self, _: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        if name == "seed":
            return seed
        module = importlib.import_module(f"generator.commands.{name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = arguments[0]
        if name in _COMMANDS or name.startswith("-"):
            return super().resolve_command(context, arguments)
        if name in RESERVED:
            context.fail(
                f"{name!r} is the name of a command that this version does not have; "
                f"the seed of a node with this name: gen-seed seed {name}"
            )
        return "seed", seed, arguments


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-C", "folder", metavar="DIR", default=".", help="The workspace [default: .].")
@click.version_option(__version__, message="gen-seed %(version)s")
@click.pass_context
def gen_seed(context: click.Context, folder: str) -> None:
    """Turn a node's spec into the seed with which its machine boots already onboarded.

    `gen-seed NODE` is short for `gen-seed seed NODE`:

    \b
        gen-seed init                  make a workspace
        gen-seed n7 > n7.iso           the seed of node n7, to attach to its VM
        gen-seed n7 --as user-data     the same, to paste into a hypervisor

    Data goes to stdout and talk to stderr. Exit status: 0 done, 1 refused or failed, 2 wrong usage.
    """
    context.obj = Path(folder)


@click.command()
@click.argument("node")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE, 0600 and atomically.")
@click.option(
    "--as",
    "form",
    type=click.Choice(FORMATS),
    default="iso",
    show_default=True,
    help="What to write; `dir` makes the folder that -o names.",
)
@click.option(
    "--identity",
    "given",
    metavar="placeholder|DIR",
    help="A fixed stand-in that no cluster accepts, or NODE.pem and NODE-key.pem from DIR.",
)
@click.option(
    "--with-binary", metavar="FILE", help="Let the seed carry the release: no network is needed."
)
@click.option("--reuse", is_flag=True, help="The stored identity; stores one if there is none.")
@click.option("--renew", is_flag=True, help="A new identity in the place of the stored one.")
@click.option(
    "--identities", metavar="DIR", help="Where they are stored [default: identities/ in --pki]."
)
@click.option(
    "--revoke-previous", is_flag=True, help="Revoke the node's other certificates as well."
)
@pki_option
@passphrase_option
@workspace_option
@click.pass_obj
def seed(  # noqa: PLR0913, PLR0917 - an argument each option
    folder: Path,
    node: str,
    output: str | None,
    form: str,
    given: str | None,
    with_binary: str | None,
    reuse: bool,  # noqa: FBT001
    renew: bool,  # noqa: FBT001
    identities: str | None,
    revoke_previous: bool,  # noqa: FBT001
    pki: str | None,
    passphrase_file: str | None,
) -> None:
    """Write the seed of NODE: a NoCloud ISO, or one of its parts.

    The node's certificate is issued anew, unless --identity or --reuse brings one; what an
    earlier seed of this node holds keeps working until it ends or is revoked.
    """
    from generator import files, workspace

    if given and (reuse or renew or identities or revoke_previous):
        raise click.UsageError(
            "--identity says which identity: not with --reuse, --renew, --identities or"
            " --revoke-previous"
        )
    if identities and not (reuse or renew):
        raise click.UsageError("--identities says where stored ones are: add --reuse or --renew")
    if with_binary and form not in ("iso", "dir"):
        raise click.UsageError(f"--with-binary needs room for a file: --as iso or dir, not {form}")
    if form in ("meta-data", "network-config"):
        if reuse or renew or revoke_previous:
            raise click.UsageError(f"{form} holds no identity to be stored, renewed or revoked")
        given = "placeholder"  # nothing of the identity is in them: none is issued
    stand_in = given == "placeholder"
    files.check_target(output, binary=form == "iso", secret=not stand_in, folder=form == "dir")
    now = datetime.now(UTC)
    place = workspace.open_workspace(folder)

    from generator import resolve

    spec, warnings = resolve.resolve(place, node, RESERVED)

    from generator import attachments

    whole = attachments.fill(spec, place.root, os.environ, stand_in=stand_in)
    carried = attachments.binary(Path(with_binary), spec.release) if with_binary else {}

    from generator import issue
    from generator.commands import choosing

    issuer = choosing.issuer(place, pki, passphrase_file)
    store = Path(identities) if identities else None
    wanted = issue.Wanted(given, reuse, renew, store, revoke_previous)
    with issue.obtain(spec, wanted, issuer, now) as obtained:
        from generator import make, template

        templates, epoch = template.environment(folder / "templates"), os.environ.get(make.EPOCH)
        made = make.make(whole, obtained.identity, templates, form, epoch, carried)
        files.put(made.packed, output, obtained.commit)
    tell((*warnings, *obtained.notes))
    if not stand_in:
        if form == "user-data":
            tell([_pasted()])
        end = f"{obtained.identity.not_after:%Y-%m-%d}"
        say(f"{node}: certificate {obtained.identity.serial}, {obtained.origin}")
        for line in obtained.talk:
            say(line)
        say(f"{node}: it ends on {end}; before then the node needs a new seed")
        say(f"{node}: a few seconds after its first boot 'llmgw ctl nodes' should list it;")
        say("    if it does not, the control plane's log says why")


def _pasted() -> Problem:
    from generator.problem import Problem

    return Problem(
        "this user-data holds the node's private key: who can read it where it is pasted"
        " (Terraform's state, a hypervisor's API) has it",
        "keep its life short (identity.days), and let the node make a key of its own once it has"
        " joined: docs/node.md has it under onboard csr",
        severity="warning",
    )
