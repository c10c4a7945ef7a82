"""`gen-seed ca revoke` and `gen-seed ca crl`."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from generator.options import (
    format_option,
    number_option,
    passphrase_option,
    pki_option,
    say,
    tell,
    workspace_option,
)

if TYPE_CHECKING:
    from pathlib import Path

    from generator.ledger import Row

# Not certificateHold and removeFromCRL, which take a revocation back: a node that is out
# comes back with a new certificate. Not cACompromise and aACompromise: a node is neither.
_REASONS = (
    *("unspecified", "keyCompromise", "affiliationChanged", "superseded"),
    *("cessationOfOperation", "privilegeWithdrawn"),
)
_SERIAL = re.compile(r"[0-9a-f]{1,40}\Z")  # 20 octets, RFC 5280, section 4.1.2.2
_ENFORCED = """\
this is a note in the ledger; what turns the node away is who reads the revocation list:
    gen-seed ca crl > crl.pem          make it, and again before it ends
    openssl, nginx, HAProxy, Envoy     refuse the certificate once they are given that file
    a Go program                       does not read one unless its authors made it do so
    llmgw's control plane              not known: ask it, or try, before you rely on it
until then, and where nothing reads it, the certificate works until it ends"""


@click.command("revoke")
@click.argument("node", required=False)
@click.option("--serial", metavar="HEX", help="This certificate, instead of all of NODE's.")
@click.option(
    "--reason",
    type=click.Choice(_REASONS, case_sensitive=False),
    default="unspecified",
    show_default=True,
    help="As in RFC 5280.",
)
@pki_option
@workspace_option
@click.pass_obj
def revoke_(
    folder: Path, node: str | None, serial: str | None, reason: str, pki: str | None
) -> None:
    """Revoke the certificates of NODE that have not ended, or the one with a serial number.

    Says what will enforce that, and what will not.
    """
    from generator import issue, ledger, standing
    from generator.commands.ca import place

    if (node is None) == (serial is None):
        raise click.UsageError("say which: NODE, or --serial HEX")
    column, value = ("node", node) if node else ("serial", _serial(serial or ""))
    now = datetime.now(UTC)
    where = place.folder(folder, pki)
    before = ledger.reading(where, column, value or "")
    _check(before, standing.out_there(before, now), column, value or "", where)
    with ledger.opened(where) as book:
        found = book.revoke(issue.revocation(now, reason), column, value or "")
    for row in standing.out_there(found, now):
        say(f"revoked {row.serial} of {row.node}, which ends on {row.not_after[:10]}")
    for row in found:
        if row.revoked_at:
            say(f"{row.serial} of {row.node} was revoked on {row.revoked_at} already")
    say(_ENFORCED)


def _serial(text: str) -> str:
    """Return a serial number as the ledger has it; openssl writes it upper-case, or with colons."""
    plain = text.lower().removeprefix("0x").replace(":", "").lstrip("0") or "0"
    if not _SERIAL.match(plain):
        raise click.UsageError(f"--serial {text!r} is not a serial number in hex")
    return plain


def _check(found: list[Row], usable: list[Row], column: str, value: str, where: Path) -> None:
    from generator.problem import refuse

    if not found:
        name = "serial number" if column == "serial" else column
        raise refuse(
            f"the ledger of {where} knows no certificate of {name} {value!r}",
            "gen-seed ca list shows what it knows; gen-seed ca import takes in others",
        )
    if not usable and not any(row.revoked_at for row in found):
        last = max(row.not_after for row in found)
        raise refuse(f"there is nothing to revoke: the last one ended on {last}")


@click.command("crl")
@format_option("pem", "der")
@number_option("--days", "DAYS", 30, 3650, "For how long it is good.")
@pki_option
@passphrase_option
@workspace_option
@click.pass_obj
def crl_(
    folder: Path, report: str, days: int, pki: str | None, passphrase_file: str | None
) -> None:
    """Print the revocation list: every revoked certificate that has not ended.

    Each list has a number, higher than that of any before.
    """
    from cryptography.hazmat.primitives.serialization import Encoding

    from generator import authority, files, ledger, passphrase, revocation
    from generator.commands.ca import place
    from generator.problem import Problem, refuse

    if report == "der" and sys.stdout.isatty():
        raise refuse("DER is not written to a terminal", "redirect it, > FILE, or --format pem")
    now = datetime.now(UTC)
    where = place.folder(folder, pki)
    by, warnings = authority.load(where, now, passphrase.asking(passphrase_file))
    revocation.check_signer(by)
    with ledger.opened(where) as book:
        number, revoked = book.next_crl(now)
    own = [row for row in revoked if revocation.concerns(by, row)]
    made = revocation.build(by, number, own, now, days)
    data = made.public_bytes(Encoding.PEM if report == "pem" else Encoding.DER)
    files.put_stdout(data, secret=False)
    tell(warnings)
    if others := len(revoked) - len(own):
        text = f"{others} revoked certificates were issued by another key, and are not in this list"
        tell([Problem(text, "who has that key must list them", severity="warning")])
    say(f"list {number} of {len(own)} revoked certificates, good for {days} days")
