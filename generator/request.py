"""A request for a certificate (PKCS#10, RFC 2986): making one, and reading somebody else's."""

from __future__ import annotations

import base64
import binascii
import re
import warnings
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from generator import pem
from generator.problem import Problem, Refused, refuse

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

_REQUEST = re.compile(
    rb"-----BEGIN (NEW |)CERTIFICATE REQUEST-----(.*?)-----END \1CERTIFICATE REQUEST-----",
    re.DOTALL,
)
_MAKE = "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj /CN={}"


def make(key: ec.EllipticCurvePrivateKey, node_id: str) -> bytes:
    """Return a request for a node in PEM: the node id as common name and as DNS name."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node_id)])
    names = x509.SubjectAlternativeName([x509.DNSName(node_id)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    signed = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    return signed.public_bytes(Encoding.PEM)


def public_key(data: bytes, node_id: str) -> pem.PublicKey:
    """Return the key of a request in PEM, after it has shown that its private half is there.

    Of the subject only the common name is looked at, and where there is one, it must be the
    node id: a request that was sent for another node is a mistake. Whatever else it asks
    for (names, purposes, CA:TRUE) is not granted: the certificate says what `certificate.leaf`
    says. Raises `Refused`.
    """
    match = _REQUEST.search(data)
    if not match:
        raise refuse(
            "no certificate request on standard input",
            f"PKCS#10 in PEM, as made by: {_MAKE.format(node_id)}",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            request = x509.load_der_x509_csr(base64.b64decode(match[2]))
            names = [str(n.value) for n in request.subject if n.oid == NameOID.COMMON_NAME]
            key, valid = request.public_key(), request.is_signature_valid
    except (binascii.Error, ValueError, TypeError, UnsupportedAlgorithm):
        hint = f"make a new one: {_MAKE.format(node_id)}"
        raise refuse("the certificate request is damaged or of an unknown kind", hint) from None
    problems = []
    if not valid:
        problems.append(Problem("the signature of the certificate request does not fit its key"))
    if names not in ([], [node_id]):
        shown = ", ".join(map(repr, names))
        problems.append(
            Problem(
                f"the certificate request is for {shown}, not {node_id!r}",
                "its common name must be the node id, or be left out",
            )
        )
    try:
        usable = pem.usable_public(key, "the key of the certificate request")
    except Refused as refused:
        problems += refused.problems
    if problems:
        raise Refused(problems)
    return usable
