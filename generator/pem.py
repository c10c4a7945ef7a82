"""PEM as Go's and OpenSSL's tools write it: certificates, private keys, an authority's folder."""

from __future__ import annotations

import base64
import binascii
import re
import shlex
import warnings
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from generator import custody, files
from generator.chain import signed_by
from generator.problem import Refused, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from generator.passphrase import Ask

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey

# What stands before, between and after the blocks (openssl x509 -text, EC PARAMETERS,
# a byte order mark) is not ours to judge.
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_KEY = re.compile(rb"-----BEGIN ([A-Z0-9 ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)

_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_RSA_BITS = 2048  # what TLS libraries ask for: OpenSSL's security level 2
_KINDS = "RSA of 2048 bits or more, P-256, P-384, P-521 and Ed25519"


def certificates(data: bytes, source: str) -> tuple[x509.Certificate, ...]:
    """Return the certificates in `data`, in their order; `source` names it in errors.

    load_pem_x509_certificates came with cryptography 39. Raises `Refused`.
    """
    found: list[x509.Certificate] = []
    for block in _CERTIFICATE.findall(data):
        try:
            certificate = _parse(base64.b64decode(block))
        except (binascii.Error, ValueError, TypeError, UnsupportedAlgorithm) as error:
            number = len(found) + 1
            hint = f"openssl x509 -in {shlex.quote(source)} -noout -text"
            raise refuse(
                f"{source}: certificate {number} is damaged or of an unknown form", hint
            ) from error
        found.append(certificate)
    if not found:
        raise refuse(
            f"{source} holds no certificate in PEM form",
            "it should hold a line -----BEGIN CERTIFICATE-----",
        )
    return tuple(found)


def _parse(der: bytes) -> x509.Certificate:
    with warnings.catch_warnings():
        # An old root with the serial number 0 works, and is not the reader's to change.
        warnings.simplefilter("ignore")
        certificate = x509.load_der_x509_certificate(der)
        # These are parsed when they are asked for: better here than in a later step.
        _ = certificate.extensions, certificate.subject, certificate.issuer
        _ = certificate.public_key()
    return certificate


def private_key(data: bytes, source: str, passphrase: Ask | None = None) -> PrivateKey:
    """Return the first private key in `data`: SEC1, PKCS#1 or PKCS#8, encrypted or not.

    `passphrase` is asked where it is encrypted, and only there. Raises `Refused`; what the
    library says is not passed on, it may quote the content.
    """
    name = shlex.quote(source)
    match = _KEY.search(data)
    if not match:
        raise refuse(
            f"{source} holds no private key in PEM form",
            "it should hold a line -----BEGIN PRIVATE KEY-----",
        )
    block, encrypted = match.group(), is_encrypted(data)
    if encrypted and passphrase is None:
        raise refuse(
            f"the private key {source} is encrypted",
            f"decrypt it: (umask 077; openssl pkey -in {name} -out {name}.new"
            f" && mv {name}.new {name})",
        )
    try:
        key = load_pem_private_key(block, passphrase() if encrypted and passphrase else None)
    except UnsupportedAlgorithm:
        raise refuse(f"the private key {source} is of an unknown kind", _supported()) from None
    except (ValueError, TypeError):
        if encrypted:
            raise refuse(f"the passphrase does not open the private key {source}") from None
        raise refuse(
            f"the private key {source} is damaged or of an unknown kind",
            f"see what it is: openssl pkey -in {name} -noout -text_pub",
        ) from None
    if isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey):
        usable_public(key.public_key(), f"the private key {source}")
        return key
    raise _unusable(key, f"the private key {source}")


def usable_public(key: object, what: str) -> PublicKey:
    """Return a public key that TLS libraries take; raise `Refused` for the others."""
    if isinstance(key, rsa.RSAPublicKey) and key.key_size >= _RSA_BITS:
        return key
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, _CURVES):
        return key
    if isinstance(key, ed25519.Ed25519PublicKey):
        return key
    raise _unusable(key, what)


def kind(key: object) -> str:
    """Return what a key is, in words: "RSA of 3072 bits", "P-256", "Ed25519"."""
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA of {key.key_size} bits"
    if isinstance(key, ec.EllipticCurvePublicKey):
        names = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}
        return names.get(key.curve.name, f"on the curve {key.curve.name}")
    name = type(key).__name__.strip("_")
    return name.removesuffix("PrivateKey").removesuffix("PublicKey") or "of another kind"


def _unusable(key: object, what: str) -> Refused:
    return refuse(f"{what} is {kind(key)}", _supported())


def _supported() -> str:
    return f"keys that work are {_KINDS}"


def is_encrypted(data: bytes) -> bool:
    """Tell whether the first private key in `data` needs a passphrase."""
    match = _KEY.search(data)
    return bool(
        match
        and (match[1].startswith(b"ENCRYPTED") or b"\nProc-Type: 4,ENCRYPTED" in match.group())
    )


def key_pem(key: PrivateKey, passphrase: bytes | None = None) -> bytes:
    """Return a key as PKCS#8, the one form that Go reads of every kind.

    Encrypted where there is a `passphrase`: AES-256, which openssl reads and Go's own
    library does not.
    """
    how = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)


def certificates_pem(chain: Iterable[x509.Certificate]) -> bytes:
    """Return certificates as PEM, one after the other."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in chain)


def read(path: Path) -> bytes:
    """Return a file's content; where it is there but closed to us, the hint says so."""
    try:
        return files.read(path)
    except Refused as refused:
        if isinstance(refused.__cause__, PermissionError):
            raise refuse(
                refused.problems[0].message,
                "run gen-seed as the user who owns it, or with sudo",
            ) from refused
        raise


def read_trust(
    folder: Path,
) -> tuple[tuple[x509.Certificate, ...], tuple[x509.Certificate, ...]]:
    """Return the intermediates and the roots that an authority's folder declares.

    The roots are what ``root.pem`` holds, or else what is self-signed in ``ca.pem``
    (several during a rollover); whatever else ``ca.pem`` holds is an intermediate.
    Needs no private key. Raises `Refused`.
    """
    custody.check_there(folder, key=False)
    path = folder / "ca.pem"
    found = dict.fromkeys(certificates(read(path), str(path)))
    apart = folder / "root.pem"
    if apart.exists():
        roots = tuple(dict.fromkeys(certificates(read(apart), str(apart))))
    else:
        roots = tuple(c for c in found if signed_by(c, c))
    if not roots:
        raise refuse(
            f"{path} is an intermediate, and its root is missing",
            f"put the root's certificate into {apart}",
        )
    return tuple(c for c in found if c not in roots), roots
