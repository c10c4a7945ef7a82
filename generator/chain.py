"""Who signed whom: from a certificate up to a root, and whether each step may be taken.

By hand, because x509.verification came with cryptography 42 and Debian 12 has 38.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from generator.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Extension = TypeVar("Extension", bound=x509.ExtensionType)


def not_before(certificate: x509.Certificate) -> datetime:
    """Return when a certificate begins, aware and in UTC."""
    return _moment(certificate, "not_valid_before")


def not_after(certificate: x509.Certificate) -> datetime:
    """Return the last second of a certificate, aware and in UTC."""
    return _moment(certificate, "not_valid_after")


def _moment(certificate: x509.Certificate, name: str) -> datetime:
    # cryptography 42 deprecated the naive properties for aware ones, which 38 lacks.
    aware: datetime | None = getattr(certificate, f"{name}_utc", None)
    if aware is not None:
        return aware
    naive: datetime = getattr(certificate, name)
    return naive.replace(tzinfo=UTC)


def extension(certificate: x509.Certificate, kind: type[Extension]) -> Extension | None:
    """Return an extension's value, or None where the certificate has none of this kind."""
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def same_key(one: Any, other: Any) -> bool:
    """Tell whether two public keys are one; they learned to compare in cryptography 40 only."""
    return bool(_spki(one) == _spki(other))


def _spki(key: Any) -> Any:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def key_id(key: Any) -> str:
    """Return what tells a public key from others: the SHA-256 of its DER, 64 hex digits."""
    return hashlib.sha256(_spki(key)).hexdigest()


def name_of(certificate: x509.Certificate) -> str:
    """Return the subject as people write it, such as ``CN=llmgw CA``, in one line."""
    return " ".join(certificate.subject.rfc4514_string().split())


def signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Tell whether `issuer` signed `certificate`: RSA (PKCS#1 v1.5), ECDSA or Ed25519."""
    if certificate.issuer != issuer.subject:
        return False
    key = issuer.public_key()
    signature, signed = certificate.signature, certificate.tbs_certificate_bytes
    try:
        digest = certificate.signature_hash_algorithm
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, signed)
        elif isinstance(key, ec.EllipticCurvePublicKey) and digest:
            key.verify(signature, signed, ec.ECDSA(digest))
        elif isinstance(key, rsa.RSAPublicKey) and digest:
            key.verify(signature, signed, padding.PKCS1v15(), digest)
        else:
            return False
    except (InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def build(
    certificate: x509.Certificate,
    pool: Sequence[x509.Certificate],
    roots: Sequence[x509.Certificate],
) -> tuple[tuple[x509.Certificate, ...], x509.Certificate | None]:
    """Follow the signatures from `certificate` through `pool` to one of `roots`.

    Returns the path, `certificate` first and without the root, and the root; None for the
    root where the path ends before one. A root given as `certificate` is its own path.
    """
    path = [certificate]
    while True:
        # The longest of several: one key may have an old and a renewed certificate.
        top = [root for root in roots if signed_by(path[-1], root)]
        if top:
            return tuple(path), max(top, key=not_after)
        above = [c for c in pool if c not in path and signed_by(path[-1], c)]
        if not above:
            return tuple(path), None
        path.append(max(above, key=not_after))


def check_path(
    path: Sequence[x509.Certificate], root: x509.Certificate, now: datetime
) -> list[Problem]:
    """Return what forbids the issuers above ``path[0]`` to vouch for it at `now`."""
    problems: list[Problem] = []
    for below, issuer in enumerate([*path[1:], root]):
        problems += check_issuer(issuer, below, now)
    return problems


@lru_cache(maxsize=64)  # a fleet's nodes have the same issuers
def check_issuer(issuer: x509.Certificate, below: int, now: datetime) -> tuple[Problem, ...]:
    """Return why `issuer` may not stand above `below` intermediates and a client's leaf.

    RFC 5280, sections 4.2.1.3, 4.2.1.9 and 6.1.4. Key purposes nest in Go's verifier:
    an authority that lists only serverAuth breaks the clients below it.
    """
    name = name_of(issuer)
    constraints = extension(issuer, x509.BasicConstraints)
    usage = extension(issuer, x509.KeyUsage)
    problems = check_dates(issuer, f"the authority {name}", now)
    if not (constraints and constraints.ca):
        problems.append(Problem(f"{name} is not an authority: its certificate lacks CA:TRUE"))
    elif constraints.path_length is not None and constraints.path_length < below:
        problems.append(
            Problem(
                f"{name} allows {constraints.path_length} intermediates below it, not {below}",
                "its own authority must issue it again with a larger pathlen",
            )
        )
    if usage and not usage.key_cert_sign:
        problems.append(Problem(f"{name} may not sign certificates: it lacks keyCertSign"))
    if not allows_clients(issuer):
        problems.append(Problem(f"{name} may not issue for clients: it lacks clientAuth"))
    return tuple(problems)


def check_dates(certificate: x509.Certificate, what: str, now: datetime) -> list[Problem]:
    """Return whether `certificate`, called `what`, has ended or not begun at `now`."""
    if now > not_after(certificate):
        return [Problem(f"{what} ended on {when(not_after(certificate))}")]
    if now < not_before(certificate):
        begins = when(not_before(certificate))
        return [Problem(f"{what} begins on {begins}", "check this host's clock: date -u")]
    return []


def allows_clients(certificate: x509.Certificate) -> bool:
    """Tell whether the extended key usage, if there is one, covers TLS clients."""
    usages: Iterable[x509.ObjectIdentifier] | None = extension(certificate, x509.ExtendedKeyUsage)
    allowed = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
    return usages is None or any(usage in allowed for usage in usages)


def when(moment: datetime) -> str:
    """Return a moment as RFC 3339 in UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
