"""`gen-seed ca issue` and `gen-seed ca sign`: certificates without a seed."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from generator.options import (
    number_option,
    passphrase_option,
    pki_option,
    say,
    tell,
    workspace_option,
)

if TYPE_CHECKING:
    from generator.identity import Identity

_LIMIT = 1 << 16  # bytes of a request; one with an RSA key of 16384 bits takes 6 KB
_days_option = number_option("--days", "DAYS", 365, 36500, "Its life.")


@click.command("issue")
@click.argument("node")
@click.option("--out", metavar="DIR", required=True, help="Where they go; made where missing.")
@_days_option
@pki_option
@passphrase_option
@workspace_option
@click.pass_obj
def issue_(  # noqa: PLR0913, PLR0917 - an argument each option
    folder: Path, node: str, out: str, days: int, pki: str | None, passphrase_file: str | None
) -> None:
    """Issue a certificate for NODE into DIR: NODE.pem and NODE-key.pem, never over others.

    What `llmgw ctl cert issue-client` does; NODE needs no spec.
    """
    from generator import files, issue, ledger
    from generator.authority import check_node_id
    from generator.commands.ca import place
    from generator.problem import Problem, Refused

    check_node_id(node)
    now = datetime.now(UTC)
    target = Path(out)
    wanted = target / f"{node}-key.pem", target / f"{node}.pem"
    if there := [path for path in wanted if os.path.lexists(path)]:
        raise Refused(Problem(f"{path} is there already", "it was left as it is") for path in there)
    issuer = place.issuer(folder, pki, passphrase_file)
    with issue.certified(issuer, node, days, now) as (book, (made, origin, notes, _)):
        files.make_folder(target, 0o700)
        # The key first: that the disk takes files is known before the row is there.
        files.create(wanted[0], made.key or b"", 0o600)
        try:
            book.record([ledger.row(made, now, "", os.environ)])
            files.create(wanted[1], made.certificate_pem, 0o644)
        except BaseException:
            wanted[0].unlink()  # worth nothing without its certificate
            raise
    tell(notes)
    _told(made, origin)


@click.command("sign")
@click.argument("node")
@_days_option
@pki_option
@passphrase_option
@workspace_option
@click.pass_obj
def sign_(folder: Path, node: str, days: int, pki: str | None, passphrase_file: str | None) -> None:
    """Sign the certificate request on stdin (PKCS#10, PEM) for NODE; its chain goes to stdout.

    For hosts that have no authority: docs/authority.md has it as an SSH forced command. Of
    the request only the key counts; a common name in it must be NODE.
    """
    from generator import authority, files, ledger, passphrase, request
    from generator.commands.ca import place
    from generator.problem import refuse

    authority.check_node_id(node)
    now = datetime.now(UTC)
    if sys.stdin.isatty():
        raise refuse("a certificate request is expected on stdin", "add: < request.pem")
    data = sys.stdin.buffer.read(_LIMIT + 1)
    if len(data) > _LIMIT:
        raise refuse(f"the certificate request is larger than {_LIMIT} bytes")
    public = request.public_key(data, node)
    by, warnings = authority.load(
        place.folder(folder, pki), now, passphrase.asking(passphrase_file)
    )
    with ledger.opened(by.folder) as book:
        made, notes = authority.sign(by, public, node, days, now)
        book.record([ledger.row(made, now, "", os.environ)])
    files.put_stdout(made.certificate_pem, secret=False)
    tell((*warnings, *notes))
    _told(made, f"signed in {by.folder}")


def _told(made: Identity, origin: str) -> None:
    say(f"{made.node_id}: certificate {made.serial}, {origin}, ends on {made.not_after:%Y-%m-%d}")
