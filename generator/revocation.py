"""The certificate revocation list (RFC 5280, section 5). Pure: number and time are arguments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509

from generator import certificate, chain
from generator.problem import refuse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from generator.authority import Authority
    from generator.ledger import Row


def check_signer(authority: Authority) -> None:
    """Refuse an authority whose lists nobody would accept (RFC 5280, section 6.3.3 (f))."""
    usage = chain.extension(authority.certificate, x509.KeyUsage)
    if usage and not usage.crl_sign:
        raise refuse(
            f"{chain.name_of(authority.certificate)} may not sign revocation lists: it lacks"
            " cRLSign",
            "its certificate must be issued again, for the same key, with this key usage",
        )


def concerns(authority: Authority, row: Row) -> bool:
    """Tell whether a certificate was issued by this authority's key: a list has only those."""
    return row.issuer in ("", chain.key_id(authority.key.public_key()))


def build(
    authority: Authority, number: int, rows: Iterable[Row], now: datetime, days: int
) -> x509.CertificateRevocationList:
    """Return the list of the revoked `rows`, good until `days` from `now`.

    With the list's number and the authority key identifier, as section 5.2 demands. The
    reason "unspecified" is left out, as section 5.3.1 asks.
    """
    now = now.astimezone(UTC).replace(microsecond=0)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.certificate.subject)
        .last_update(now)
        .next_update(now + timedelta(days=days))
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(
            certificate.authority_identifier(authority.certificate, authority.key), critical=False
        )
    )
    for row in rows:
        revoked = (
            x509.RevokedCertificateBuilder()
            .serial_number(int(row.serial, 16))
            .revocation_date(datetime.strptime(row.revoked_at, "%Y-%m-%dT%H:%M:%S%z"))
        )
        if row.reason not in ("", "unspecified"):
            reason = x509.CRLReason(x509.ReasonFlags(row.reason))
            revoked = revoked.add_extension(reason, critical=False)
        builder = builder.add_revoked_certificate(revoked.build())
    return builder.sign(authority.key, certificate.digest(authority.key))
