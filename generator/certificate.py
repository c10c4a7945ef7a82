"""X.509: an authority's own certificate, and the certificate of a node.

Pure: keys, serial numbers and the time are arguments. Sources: RFC 5280, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from generator import chain
from generator.problem import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from generator.pem import PrivateKey, PublicKey

# A node's clock may be behind ours when it boots (reports.md, K1).
_BACKDATED = timedelta(hours=1)
_MOST_DAYS = 36_500
_LONGEST_NAME = 64  # characters, ub-common-name in RFC 5280, appendix A.1

KINDS: dict[str, Callable[[], PrivateKey]] = {
    "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "P-384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
    "RSA": lambda: rsa.generate_private_key(public_exponent=65537, key_size=3072),
}


@dataclass(frozen=True)
class Period:
    """From when to when, whole seconds in UTC; `cut`: an issuer ends before what was asked."""

    not_before: datetime
    not_after: datetime
    cut: bool = False


def period(now: datetime, days: int, issuers: Iterable[x509.Certificate] = ()) -> Period:
    """Return `days` from `now`, backdated, and within the life of every issuer.

    Verifiers look at each certificate of a path by itself, so a longer life would be a
    promise that the path does not keep. Raises `Refused` for no day and more than a century.
    """
    if not 1 <= days <= _MOST_DAYS:
        raise refuse(f"a certificate cannot live {days} days", f"1 to {_MOST_DAYS} days")
    now = now.astimezone(UTC).replace(microsecond=0)
    issuers = tuple(issuers)
    begin = max([now - _BACKDATED, *map(chain.not_before, issuers)])
    end = now + timedelta(days=days)
    last = min([end, *map(chain.not_after, issuers)])
    return Period(begin, last, cut=last < end)


def root(key: PrivateKey, name: str, serial: int, life: Period) -> x509.Certificate:
    """Return a self-signed authority that issues for nodes only (path length 0).

    It lists no extended key usage: those nest, and a listed one would bind every leaf.
    """
    subject = _name(name)
    public = key.public_key()
    return (
        _builder(subject, public, serial, life)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .sign(key, digest(key))
    )


def leaf(  # noqa: PLR0913, PLR0917 - what a certificate says is what it takes
    public: PublicKey,
    name: str,
    serial: int,
    life: Period,
    issuer: x509.Certificate,
    key: PrivateKey,
    *,
    purpose: x509.ObjectIdentifier = ExtendedKeyUsageOID.CLIENT_AUTH,
    names: Iterable[x509.GeneralName] | None = None,
) -> x509.Certificate:
    """Return the certificate for `public`, signed by `issuer` with its `key`.

    `name` is the common name and, where `names` does not say otherwise, the DNS name.
    Raises ValueError where `name` is no common name (more than 64 characters).
    """
    return (
        _builder(_name(name), public, serial, life)
        .issuer_name(issuer.subject)
        .add_extension(authority_identifier(issuer, key), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name)] if names is None else names),
            critical=False,
        )
        .sign(key, digest(key))
    )


def authority_identifier(issuer: x509.Certificate, key: PrivateKey) -> x509.AuthorityKeyIdentifier:
    """Return the identifier of the key of `issuer`, for what it signs.

    Taken from the issuer, not computed: Go and OpenSSL build the identifier in more than
    one way, and strict verification compares the two.
    """
    identifier = chain.extension(issuer, x509.SubjectKeyIdentifier)
    if identifier:
        return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _builder(
    subject: x509.Name,
    public: PublicKey,
    serial: int,
    life: Period,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(public)
        .serial_number(serial)
        .not_valid_before(life.not_before)
        .not_valid_after(life.not_after)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    if not 1 <= len(common_name) <= _LONGEST_NAME:  # cryptography 38 does not look
        raise ValueError(f"a common name has 1 to {_LONGEST_NAME} characters")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def digest(key: PrivateKey) -> hashes.SHA256 | hashes.SHA384 | hashes.SHA512 | None:
    """Return the hash that fits the key's strength; Ed25519 has its own (RFC 8410)."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return None
    if isinstance(key, ec.EllipticCurvePrivateKey):
        if key.key_size > 384:  # noqa: PLR2004 - bits, P-521
            return hashes.SHA512()
        if key.key_size > 256:  # noqa: PLR2004 - bits, P-384
            return hashes.SHA384()
    return hashes.SHA256()
