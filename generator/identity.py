"""A node's identity: its certificate, chain and key, from whichever hand it comes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from generator import certificate, chain, pem
from generator.problem import Problem, Refused, refuse

if TYPE_CHECKING:
    from pathlib import Path

    from generator.passphrase import Ask


@dataclass(frozen=True)
class Identity:
    """What makes a machine the node `node_id`.

    `chain` is the leaf and then the intermediates, never the root; `key` is unencrypted
    PKCS#8 in PEM, or None where it travels apart.
    """

    node_id: str
    chain: tuple[x509.Certificate, ...]
    roots: tuple[x509.Certificate, ...]
    key: bytes | None = field(repr=False)

    @property
    def certificate_pem(self) -> bytes:
        """The chain, as agent.pem holds it."""
        return pem.certificates_pem(self.chain)

    @property
    def roots_pem(self) -> bytes:
        """The roots, as ca.pem holds them."""
        return pem.certificates_pem(self.roots)

    @property
    def not_before(self) -> datetime:
        """When the certificate begins, in UTC."""
        return chain.not_before(self.chain[0])

    @property
    def not_after(self) -> datetime:
        """The certificate's last second, in UTC."""
        return chain.not_after(self.chain[0])

    @property
    def serial(self) -> str:
        """The serial number in lower-case hex, without leading zeros."""
        return f"{self.chain[0].serial_number:x}"

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the certificate's DER, 64 hex digits."""
        return self.chain[0].fingerprint(hashes.SHA256()).hex()


_PLACEHOLDER_LIFE = certificate.Period(
    datetime(2000, 1, 1, tzinfo=UTC), datetime(2000, 1, 8, tzinfo=UTC)
)


def placeholder(node_id: str) -> Identity:
    """Return the fixed stand-in for a node: the same bytes everywhere and at all times.

    Its key can be computed by anybody, so its certificate ended in 2000 and onboard
    refuses it. The signature is Ed25519's, which is the same at every signing; ECDSA's
    is not before cryptography 44.
    """
    key, root = _placeholder_root()
    seed = _seed(f"node {node_id}")
    node_key = ec.derive_private_key(int.from_bytes(seed, "big"), ec.SECP256R1())
    public = node_key.public_key()
    serial = int.from_bytes(seed[:8], "big") | 1
    leaf = certificate.leaf(public, node_id, serial, _PLACEHOLDER_LIFE, root, key)
    return Identity(node_id, (leaf,), (root,), pem.key_pem(node_key))


@cache
def _placeholder_root() -> tuple[ed25519.Ed25519PrivateKey, x509.Certificate]:
    key = ed25519.Ed25519PrivateKey.from_private_bytes(_seed("authority"))
    return key, certificate.root(key, "gen-seed placeholder", 1, _PLACEHOLDER_LIFE)


def _seed(what: str) -> bytes:
    return hashlib.sha256(f"gen-seed placeholder: {what}".encode()).digest()


def load(folder: Path, node_id: str, now: datetime, authority: Path) -> Identity:
    """Return the identity kept in `folder` as NODE.pem and NODE-key.pem, checked.

    So write them ``llmgw ctl cert issue-client`` and ``gen-seed ca issue``. The roots, and
    intermediates that NODE.pem lacks, come from ca.pem beside them, or else from the
    `authority` folder, of which only the certificates are read. Raises `Refused`.
    """
    if not folder.is_dir():
        raise refuse(
            f"no folder {folder}",
            "--identity takes one with NODE.pem and NODE-key.pem, or placeholder",
        )
    problems: list[Problem] = []
    files = folder / f"{node_id}.pem", folder / f"{node_id}-key.pem"
    contents = []
    for path in files:
        try:
            contents.append(pem.read(path))
        except Refused as refused:
            problems += refused.problems
    if problems:
        raise Refused(problems)
    trusted = folder if (folder / "ca.pem").exists() else authority
    certificate_file, key_file = zip(contents, map(str, files), strict=True)
    identity = assemble(node_id, certificate_file, key_file, trusted)
    if problems := check(identity, now, str(files[0])):
        raise Refused(problems)
    return identity


def assemble(
    node_id: str,
    certificates: tuple[bytes, str],
    key: tuple[bytes, str],
    trusted: Path,
    ask: Ask | None = None,
) -> Identity:
    """Return an identity from PEM, each part with the name of its source; not yet checked.

    The roots, and intermediates that are lacking, come from the folder `trusted`.
    """
    leaf, *others = pem.certificates(*certificates)
    opened = pem.private_key(*key, ask)
    intermediates, roots = pem.read_trust(trusted)
    sent, _ = chain.build(leaf, (*others, *intermediates), roots)
    return Identity(node_id, sent, roots, pem.key_pem(opened))


def check(identity: Identity, now: datetime, source: str = "the certificate") -> list[Problem]:
    """Return why a control plane would not believe this identity at `now`, each reason once.

    Whoever issued it: our own authority, somebody else's, or an operator's folder.
    """
    leaf = identity.chain[0]
    problems = chain.check_dates(leaf, source, now)
    if identity.key is not None:
        key = pem.private_key(identity.key, "of this identity")
        if not chain.same_key(key.public_key(), leaf.public_key()):
            problems.append(Problem(f"{source} and the private key do not belong together"))
    names = [str(name.value) for name in leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if names != [identity.node_id]:
        shown = ", ".join(map(repr, names)) or "none"
        problems.append(
            Problem(
                f"{source} has the common name {shown}, not {identity.node_id!r}",
                "the control plane refuses a node whose common name is not its node id",
            )
        )
    constraints = chain.extension(leaf, x509.BasicConstraints)
    if constraints and constraints.ca:
        problems.append(Problem(f"{source} is an authority's (CA:TRUE), not a node's"))
    if not chain.allows_clients(leaf):
        problems.append(Problem(f"{source} is not for TLS clients: it lacks clientAuth"))
    path, root = chain.build(leaf, identity.chain[1:], identity.roots)
    if root:
        return problems + chain.check_path(path, root, now)
    issuer = path[-1].issuer.rfc4514_string()
    known = ", ".join(map(chain.name_of, identity.roots))
    problems.append(
        Problem(
            f"{source} does not lead to a root: the signature of {issuer!r} fits none of {known}",
            "use the ca.pem of the authority that issued it, with its intermediates",
        )
    )
    return problems
