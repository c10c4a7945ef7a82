"""Taking certificates into the ledger that it does not know: made before, or elsewhere, or lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID

from generator import chain, pem
from generator.ledger import Row
from generator.problem import Problem, Refused, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from pathlib import Path


def rows(paths: Iterable[Path], folder: Path, now: datetime) -> list[Row]:
    """Return a row for each certificate in the files that an authority of `folder` has issued.

    Certificates of authorities among them, such as a chain's, are passed over; a file that
    has no other is refused. Raises `Refused` with what is wrong in all of the files.
    """
    intermediates, roots = pem.read_trust(folder)
    issuers = (*intermediates, *roots)
    found: list[Row] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            leaves = [
                one for one in pem.certificates(pem.read(path), str(path)) if not _is_authority(one)
            ]
            if not leaves:
                raise refuse(f"{path} holds authorities' certificates only")
            found += [_row(leaf, path, issuers, now) for leaf in leaves]
        except Refused as refused:
            problems += refused.problems
    if problems:
        raise Refused(problems)
    return found


def _is_authority(one: x509.Certificate) -> bool:
    constraints = chain.extension(one, x509.BasicConstraints)
    return bool(constraints and constraints.ca)


def _row(
    leaf: x509.Certificate, path: Path, issuers: Sequence[x509.Certificate], now: datetime
) -> Row:
    issuer = next((one for one in issuers if chain.signed_by(leaf, one)), None)
    if issuer is None:
        raise refuse(
            f"{path}: {chain.name_of(leaf)} was not issued by this authority, but by"
            f" {leaf.issuer.rfc4514_string()!r}",
            "name the authority's folder with --pki",
        )
    names = [str(name.value) for name in leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if len(names) != 1 or not names[0].isprintable():
        shown = ", ".join(map(repr, names)) or "none"
        raise refuse(f"{path}: a certificate must have one common name, not {shown}")
    return Row(
        serial=f"{leaf.serial_number:x}",
        node=names[0],
        fingerprint=leaf.fingerprint(hashes.SHA256()).hex(),
        not_before=chain.when(chain.not_before(leaf)),
        not_after=chain.when(chain.not_after(leaf)),
        # Nobody knows better; and it puts the rows of a node into their order.
        issued_at=chain.when(chain.not_before(leaf)),
        issued_by="",
        issued_from="",
        seed="",
        gen_seed="",
        issuer=chain.key_id(issuer.public_key()),
        imported_at=chain.when(now),
    )
