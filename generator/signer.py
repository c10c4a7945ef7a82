"""Somebody else's authority: `authority.command` of fleet.yaml signs what we request.

The private key is made here and stays here. What comes back is believed no more than an
identity that an operator hands in: it is checked against the root that this host knows.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import ExtendedKeyUsage
from cryptography.x509.oid import ExtendedKeyUsageOID

from generator import chain, external, formats, located, pem, request
from generator.authority import check_node_id
from generator.identity import Identity, check
from generator.problem import Problem, Refused, printable, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    from cryptography import x509

    from generator.workspace import Workspace

_TIMEOUT = "60s"
_AHEAD = timedelta(minutes=5)
_LINES = 12  # of its stderr that an error shows, the last
_ANSWER = "the answer of authority.command"


@dataclass(frozen=True)
class Command:
    """What signs: a program with its arguments, run in the workspace; `timeout` in seconds."""

    arguments: tuple[str, ...]
    timeout: float
    folder: Path

    @property
    def name(self) -> str:
        """What to call it: its arguments may hold what is nobody's business."""
        return self.arguments[0]


def configured(place: Workspace) -> Command | None:
    """Return the command of a workspace whose fleet.yaml has passed its checks, if it has one."""
    found = located.at(place.fleet, "authority", "command")
    if found is None:
        return None
    limit = located.at(place.fleet, "authority", "timeout")
    return Command(
        tuple(item.value for item in found.value),
        formats.seconds(str(limit.value) if limit else _TIMEOUT),
        place.root,
    )


def issue(
    command: Command, trust: Path, node_id: str, days: int, now: datetime
) -> tuple[Identity, tuple[Problem, ...]]:
    """Return an identity that `command` has signed and that leads to a root in `trust`.

    `trust` is a folder with ca.pem, and root.pem where that holds intermediates only.
    Raises `Refused`.
    """
    check_node_id(node_id)
    intermediates, roots = pem.read_trust(trust)
    key = ec.generate_private_key(ec.SECP256R1())
    environ = {**os.environ, "NODE": node_id, "DAYS": str(days)}
    answer = _ask(command, request.make(key, node_id), environ)
    found = pem.certificates(answer, _ANSWER)
    # By its key, not its place: some put the leaf last, or the root first.
    own = [c for c in found if chain.same_key(c.public_key(), key.public_key())]
    if not own:
        raise refuse(
            f"{_ANSWER} holds no certificate for the key of the request",
            "it must sign the request that it gets on its standard input",
        )
    others = [c for c in found if c not in own]
    sent, _ = chain.build(own[0], (*others, *intermediates), roots)
    identity = Identity(node_id, sent, roots, pem.key_pem(key))
    # It begins when it was signed, by a clock that may be a little ahead of ours.
    moment = max(now, min(identity.not_before, now + _AHEAD))
    problems = check(identity, moment, f"the certificate from {command.name}")
    if sent[0].serial_number <= 0:
        problems.append(Problem(f"{_ANSWER} has a serial number that is not positive"))
    if problems:
        raise Refused(problems)
    return identity, tuple(_remarks(sent[0], days, now))


def _ask(command: Command, data: bytes, environ: Mapping[str, str]) -> bytes:
    try:
        outcome = external.run(command.arguments, data, environ, command.folder, command.timeout)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise refuse(
            f"authority.command cannot run {command.name}: {reason}",
            "the first of the list is a program, run from the workspace's folder, without a shell",
        ) from error
    if not outcome.failure:
        return outcome.output
    talk = [line for line in map(printable, outcome.talk.splitlines()) if line.strip()]
    told = "".join(f"\n    {line}" for line in talk[-_LINES:])
    said = f"; it said:{told}" if told else ", and it said nothing"
    hint = f"run it by hand: NODE={environ['NODE']} DAYS={environ['DAYS']}"
    hint += f" {shlex.quote(command.name)} … < request.pem"
    raise refuse(f"authority.command failed: {outcome.failure}{said}", hint)


def _remarks(leaf: x509.Certificate, days: int, now: datetime) -> list[Problem]:
    """Return warnings on what is not as it was asked for, and no reason to refuse it."""
    texts = []
    given = round((chain.not_after(leaf) - now).total_seconds() / 86_400)
    if given != days:
        end = chain.when(chain.not_after(leaf))
        texts.append(f"{_ANSWER} ends on {end}: {given} days, not {days}")
    usages = chain.extension(leaf, ExtendedKeyUsage)
    if usages is None or list(usages) != [ExtendedKeyUsageOID.CLIENT_AUTH]:
        texts.append(
            f"{_ANSWER} is good for more than TLS clients: the node could pose as a server"
        )
    return [Problem(text, severity="warning") for text in texts]
