"""An authority's end is read right without cryptography, and said before anything is issued."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from fleet import Fleet

from generator import certificate, chain, expiry, pem

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 9, 1, 12, 30, 15, tzinfo=UTC)


def root(end: datetime, kind: str = "P-256") -> x509.Certificate:
    key = certificate.KINDS[kind]()
    return certificate.root(key, "a", x509.random_serial_number(), certificate.Period(NOW, end))


@pytest.mark.parametrize("kind", ["P-256", "RSA", "Ed25519"])
@pytest.mark.parametrize("year", [2026, 2049, 2050, 3122])
def test_every_form_of_time_is_read(kind: str, year: int) -> None:
    made = root(datetime(year, 12, 31, 23, 59, 58, tzinfo=UTC), kind)
    assert expiry.latest(pem.certificates_pem([made])) == chain.not_after(made)


def test_the_latest_of_several_counts() -> None:
    ends = [NOW + timedelta(days=days) for days in (10, 30, 20)]
    text = b"a comment\r\n" + pem.certificates_pem([root(end) for end in ends])
    assert expiry.latest(text.replace(b"\n", b"\r\n")) == ends[1]


@pytest.mark.parametrize(
    "text", [b"", b"x", b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----"]
)
def test_what_is_no_certificate_has_no_end(text: bytes) -> None:
    assert expiry.latest(text) is None


def test_validate_names_the_nodes_that_would_be_cut_short(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet("init", ".", "--no-ca")
    fleet("ca", "init", "--days", "100")
    fleet.write(n8="mgmt_addr: 10.0.0.108\nidentity: {days: 30}\n")
    said = fleet("validate").stderr.decode()
    line = (
        "identity.days: a certificate of 365 days would be cut short: the authority in pki ends on"
    )
    assert f"warning: {line}" in said
    assert "  nodes: n7\n" in said
    assert fleet("validate", "--strict", check=False).returncode == 1
