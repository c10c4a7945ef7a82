"""The authority: where it is, loading it, making one, and issuing a node's identity.

The key is in memory only while a command runs; it never goes into an argument, the
environment, a temporary file or a message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from generator import certificate, chain, custody, files, pem
from generator.identity import Identity, check
from generator.problem import Problem, Refused, refuse

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from generator.passphrase import Ask

_INIT = "make an authority with 'gen-seed ca init', or name one with --pki"
_NODE_ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class Authority:
    """Who signs: `certificate` and its `key`, the `chain` that a node sends, the `roots`.

    `chain` holds the intermediates, the signing one first; it is empty where the
    authority is a root itself. `anchor` is the root that `certificate` leads to.
    """

    folder: Path
    certificate: x509.Certificate
    chain: tuple[x509.Certificate, ...]
    anchor: x509.Certificate
    roots: tuple[x509.Certificate, ...]
    key: pem.PrivateKey = field(repr=False)
    passphrase: bytes | None = field(default=None, repr=False)
    """What its key is encrypted with, where it is."""


def load(
    folder: Path, now: datetime, passphrase: Ask | None = None
) -> tuple[Authority, tuple[Problem, ...]]:
    """Return the authority of a folder with ca.pem and ca-key.pem, and warnings.

    The files are as gen-seed, ``llmgw ctl cert init-ca`` or openssl write them. Raises
    `Refused` with everything that keeps this authority from issuing at `now`.
    """
    for name in ("ca.pem", custody.KEY):
        if custody.missing(folder / name):
            raise refuse(f"no authority in {folder}: {name} is missing", _INIT)
    key_path = folder / custody.KEY
    problems = custody.tracked(folder)
    key, secret = None, None
    try:
        data = pem.read(key_path)
        key = pem.private_key(data, str(key_path), passphrase)
        secret = passphrase() if passphrase and pem.is_encrypted(data) else None
    except Refused as refused:
        problems += refused.problems
    try:
        intermediates, roots = pem.read_trust(folder)
    except Refused as refused:
        problems += refused.problems
    if problems or key is None:
        raise Refused(problems)
    # A renewed certificate stands beside the old one during a rollover: the longer counts.
    own = [c for c in (*intermediates, *roots) if chain.same_key(c.public_key(), key.public_key())]
    if not own:
        raise refuse(
            f"{key_path} does not belong to any certificate in {folder / 'ca.pem'}",
            "both files must come from the same authority",
        )
    signer = max(own, key=chain.not_after)
    path, anchor = chain.build(signer, intermediates, roots)
    if anchor is None:
        raise refuse(
            f"{folder / 'ca.pem'} does not lead to a root: {chain.name_of(path[-1])} was signed"
            f" by {path[-1].issuer.rfc4514_string()!r}",
            f"add the certificates up to the root to {folder / 'ca.pem'}",
        )
    above = () if signer in roots else path
    # The leaf that is to come stands below the signer, so every issuer is looked at.
    if problems := chain.check_path((signer, *above), anchor, now):
        raise Refused(problems)
    made = Authority(folder, signer, above, anchor, roots, key, secret)
    return made, tuple(custody.exposed(folder))


def check_free(folder: Path) -> None:
    """Refuse a folder that has an authority."""
    if not custody.missing(folder / "ca.pem"):
        raise refuse(f"{folder / 'ca.pem'} is there already", "it was left as it is")


def create(  # noqa: PLR0913, PLR0917 - what `ca init` asks for
    folder: Path,
    now: datetime,
    name: str = "llmgw CA",
    days: int = 3650,
    kind: str = "P-256",
    passphrase: bytes | None = None,
) -> tuple[Authority, tuple[Problem, ...]]:
    """Make an authority in `folder`: a self-signed root and its key; never over another.

    `kind` is one of `certificate.KINDS`. The key is written before the certificate, so
    that a certificate that somebody trusts always has its key. A lone key, left by a kill
    between the two, is used by the next try, which a warning says. With `passphrase` the
    key is written encrypted, and a lone key is expected to be. Raises `Refused`.
    """
    ask = (lambda: passphrase) if passphrase else None
    check_free(folder)
    key_path = folder / custody.KEY
    fresh = custody.missing(key_path)
    key = (
        certificate.KINDS[kind]()
        if fresh
        else pem.private_key(pem.read(key_path), str(key_path), ask)
    )
    try:
        root = certificate.root(
            key, name, x509.random_serial_number(), certificate.period(now, days)
        )
    except ValueError as error:
        raise refuse(f"{name!r} cannot be an authority's name", str(error)) from error
    if fresh:
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise files.cannot("make", folder, error) from error
        files.create(key_path, pem.key_pem(key, passphrase), 0o600)
        custody.hand_over(key_path)
    files.create(folder / "ca.pem", pem.certificates_pem([root]), 0o644)
    custody.hand_over(folder / "ca.pem")
    made, warnings = load(folder, now, ask)
    used = Problem(f"used the private key that was there: {key_path}", severity="warning")
    return made, warnings if fresh else (used, *warnings)


def issue(
    authority: Authority, node_id: str, days: int, now: datetime
) -> tuple[Identity, tuple[Problem, ...]]:
    """Return a fresh identity for a node, its key as well, signed in memory, and warnings.

    Nothing is written: it is issued once its row is in the ledger. Raises `Refused`.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    identity, warnings = sign(authority, key.public_key(), node_id, days, now)
    return replace(identity, key=pem.key_pem(key)), warnings


def sign(
    authority: Authority, public: pem.PublicKey, node_id: str, days: int, now: datetime
) -> tuple[Identity, tuple[Problem, ...]]:
    """Return an identity for a node whose private key is elsewhere; the rest is as in `issue`."""
    check_node_id(node_id)
    issuers = (authority.certificate, *authority.chain, authority.anchor)
    life = certificate.period(now, days, issuers)
    leaf = certificate.leaf(
        public,
        node_id,
        x509.random_serial_number(),
        life,
        authority.certificate,
        authority.key,
    )
    identity = Identity(node_id, (leaf, *authority.chain), authority.roots, None)
    if problems := check(identity, now):
        raise Refused(problems)
    if not life.cut:
        return identity, ()
    whole = (life.not_after - now).days
    return identity, (
        Problem(
            f"the certificate of {node_id} ends with its authority on"
            f" {chain.when(life.not_after)}: {whole} days, not {days}",
            "the authority must be renewed before then",
            severity="warning",
        ),
    )


def check_node_id(node_id: str) -> None:
    """Refuse what is no node id, in the last place before a signature.

    A name such as "../n7", or one with a line feed, is a legal common name for the library
    (reports.md, Y3).
    """
    if not _NODE_ID.fullmatch(node_id):
        raise refuse(f"{node_id!r} is not a node id", "a lower-case DNS label, such as n7")
