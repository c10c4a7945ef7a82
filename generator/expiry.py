"""When an authority ends, read without the library that `validate` has no other need of.

Loading cryptography takes as long as validating a hundred nodes, and a certificate's end is easy
to find: the second time of the first sequence that holds two (RFC 5280, 4.1.2.5).
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from generator import files
from generator.problem import Problem, Refused

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from generator.spec import Spec

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
# Validity: a sequence (0x30) of two times, each UTCTime (0x17) or GeneralizedTime (0x18).
_VALIDITY = re.compile(
    rb"\x30[\x1e-\x22](?:\x17\x0d\d{12}Z|\x18\x0f\d{14}Z)(\x17\x0d|\x18\x0f)(\d{12,14})Z"
)


def latest(pem: bytes) -> datetime | None:
    """Return the latest end of the certificates in `pem`, None where none can be read."""
    ends = []
    for block in _PEM.findall(pem):
        try:
            found = _VALIDITY.search(base64.b64decode(b"".join(block.split()), validate=True))
        except binascii.Error:
            continue
        if found:
            text = found[2].decode()
            if found[1] == b"\x17\x0d":  # two digits of the year: 1950 to 2049
                text = f"{'19' if text >= '50' else '20'}{text}"
            ends.append(datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=UTC))
    return max(ends, default=None)


def end(folder: Path) -> datetime | None:
    """Return when the authority in `folder` ends, None where there is none that can be read."""
    try:
        return latest(files.read(folder / "ca.pem"))
    except Refused:
        return None


def check(specs: Mapping[str, Spec], folder: Path, now: datetime) -> list[Problem]:
    """Return warnings for nodes whose certificate the authority in `folder` would cut short.

    Silent where there is no authority that can be read: issuing says what is wrong with it.
    """
    last = end(folder)
    if last is None:
        return []
    short: dict[int, list[str]] = {}
    for node_id, spec in specs.items():
        if now + timedelta(days=spec.identity.days) > last:
            short.setdefault(spec.identity.days, []).append(node_id)
    return [
        Problem(
            f"a certificate of {days} days would be cut short: the authority in {folder} ends on"
            f" {last:%Y-%m-%d}",
            "renew the authority, or ask for fewer days in identity.days",
            path="identity.days",
            severity="warning",
            nodes=tuple(nodes),
        )
        for days, nodes in sorted(short.items())
    ]
