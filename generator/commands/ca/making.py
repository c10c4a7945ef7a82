"""`gen-seed ca init` and `gen-seed ca show`."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from generator.options import (
    format_option,
    number_option,
    pki_option,
    say,
    show_json,
    tell,
    workspace_option,
)

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography import x509

_KINDS = ("P-256", "P-384", "Ed25519", "RSA")


@click.command("init")
@click.option(
    "--name", metavar="NAME", default="llmgw CA", show_default=True, help="Its common name."
)
@number_option("--days", "DAYS", 3650, 36500, "Its life.")
@click.option(
    "--key-type",
    type=click.Choice(_KINDS, case_sensitive=False),
    default="P-256",
    show_default=True,
    help="The kind of its key.",
)
@click.option("--passphrase", is_flag=True, help="Encrypt its key; the terminal is asked for it.")
@click.option(
    "--passphrase-file", metavar="FILE", help="Encrypt its key with the passphrase in FILE."
)
@pki_option
@workspace_option
@click.pass_obj
def init_(  # noqa: PLR0913, PLR0917 - an argument each option
    folder: Path,
    name: str,
    days: int,
    key_type: str,
    passphrase: bool,  # noqa: FBT001
    passphrase_file: str | None,
    pki: str | None,
) -> None:
    """Make an authority: ca.pem and ca-key.pem in its folder. Never over another.

    gen-seed and openssl read an encrypted key; Go's own library does not, so what is written
    in Go may need it plain.
    """
    from generator import authority, custody, workspace
    from generator.passphrase import choose

    place = workspace.open_workspace(folder)
    named = custody.named(place.root, pki, os.environ, place.authority_dir)
    target = named or place.root / "pki"
    authority.check_free(target)
    secret = choose(passphrase_file) if passphrase or passphrase_file else None
    made, warnings = authority.create(target, datetime.now(UTC), name, days, key_type, secret)
    tell(warnings)
    say(f"made the authority {name!r} in {made.folder}")
    say(f"the control plane must trust {made.folder / 'ca.pem'} before a node can join")


@click.command("show")
@format_option("text", "json")
@pki_option
@workspace_option
@click.pass_obj
def show_(folder: Path, report: str, pki: str | None) -> None:
    """Show the authority: its certificates, how its key is kept, what it has issued.

    Asks for no passphrase.
    """
    from generator import chain, custody, ledger, pem, standing
    from generator.commands.ca import place

    now = datetime.now(UTC)
    where = place.folder(folder, pki)
    intermediates, roots = pem.read_trust(where)
    key = where / custody.KEY
    kept = "none here" if not key.exists() else _kept(key)
    rows = [_fields("root", one) for one in roots]
    rows += [_fields("intermediate", one) for one in intermediates]
    found = standing.standings(ledger.reading(where), now)
    counts = {state: sum(one.state == state for one in found) for state in standing.STATES}
    if report == "json":
        show_json(folder=str(where), key=kept, issued=counts, certificates=rows)
    else:
        click.echo(f"folder  {where}\nkey     {kept}")
        for row in rows:
            click.echo(f"{row['role']}\n" + _lines(row))
        click.echo("issued  " + ", ".join(f"{n} {state}" for state, n in counts.items()))
    if key.exists():
        tell([*custody.exposed(where), *custody.tracked(where)])
    for one in (*roots, *intermediates):
        for problem in chain.check_dates(one, f"the authority {chain.name_of(one)}", now):
            tell([replace(problem, severity="warning")])


def _kept(key: Path) -> str:
    from generator import pem

    data = pem.read(key)
    if pem.is_encrypted(data):
        return f"{key}, encrypted"
    return f"{key}, {pem.kind(pem.private_key(data, str(key)).public_key())}"


def _fields(role: str, one: x509.Certificate) -> dict[str, Any]:
    from cryptography.hazmat.primitives import hashes

    from generator import chain, pem

    return {
        "role": role,
        "subject": chain.name_of(one),
        "key": pem.kind(one.public_key()),
        "serial": f"{one.serial_number:x}",
        "fingerprint": one.fingerprint(hashes.SHA256()).hex(),
        "not_before": chain.when(chain.not_before(one)),
        "not_after": chain.when(chain.not_after(one)),
    }


def _lines(row: dict[str, Any]) -> str:
    names = ("subject", "key", "serial", "fingerprint", "not_before", "not_after")
    return "\n".join(f"  {name.replace('_', ' '):<12}{row[name]}" for name in names)
