"""TLS for a server on this machine, its certificate signed by the authority under test."""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes


FORWARDED = "10.0.2.100"
"""Where a guest in QEMU finds the servers of this host (qemu.py)."""
NAME = "release.example"
"""A name that resolves nowhere until a guest's hosts file has it."""


class Authority(Protocol):
    """What a server needs of an authority: its root, and the key that belongs to it."""

    @property
    def certificate(self) -> x509.Certificate:
        """The root."""

    @property
    def key(self) -> CertificateIssuerPrivateKeyTypes:
        """The root's private key."""


def server_context(
    authority: Authority,
    *,
    clients: bool = False,
    address: str = "127.0.0.1",
    life: timedelta = timedelta(days=1),
) -> ssl.SSLContext:
    """Return the TLS settings of a server for `address`, localhost and `FORWARDED`.

    With `clients`, a client has to show a certificate of the same authority. The server's own
    ends after `life`, which may be less than nothing.
    """
    chain, key = _identity(authority, address, life)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:  # 0700; OpenSSL takes files only
        file = Path(folder, "server.pem")
        file.write_bytes(chain + key)
        context.load_cert_chain(file)
    if clients:
        root = authority.certificate.public_bytes(serialization.Encoding.PEM)
        context.load_verify_locations(cadata=root.decode())
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _identity(authority: Authority, address: str, life: timedelta) -> tuple[bytes, bytes]:
    """Return certificate and key, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC).replace(tzinfo=None)  # cryptography 38 takes naive UTC only
    root = authority.certificate
    addresses = [x509.IPAddress(ipaddress.ip_address(a)) for a in (address, FORWARDED)]
    names = [*addresses, x509.DNSName("localhost"), x509.DNSName(NAME)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]))
        .issuer_name(root.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1) + min(life, timedelta()))
        .not_valid_after(now + life)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(_key_id(root)),
            critical=False,
        )
        .sign(
            authority.key,
            None if isinstance(authority.key, ed25519.Ed25519PrivateKey) else hashes.SHA256(),
        )
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def _key_id(root: x509.Certificate) -> x509.SubjectKeyIdentifier:
    try:
        return root.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.SubjectKeyIdentifier.from_public_key(root.public_key())
