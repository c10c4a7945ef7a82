from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import openssl
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from openssl import DAY, NOW

from generator import authority, certificate, chain, pem
from generator.identity import Identity
from generator.problem import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.x509 import Certificate


@pytest.fixture(scope="module", params=sorted(certificate.KINDS))
def ours(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("ours") / "pki"
    made, warnings = authority.create(folder, NOW, kind=request.param)
    identity, more = authority.issue(made, "n7", 365, NOW)
    assert not [*warnings, *more]
    return Made(made, identity)


@dataclass(frozen=True)
class Made:
    authority: authority.Authority
    identity: Identity


def value(of: Certificate, kind: type[chain.Extension]) -> tuple[chain.Extension, bool]:
    found = of.extensions.get_extension_for_class(kind)
    return found.value, found.critical


def usages(of: Certificate) -> set[str]:
    usage, critical = value(of, x509.KeyUsage)
    assert critical
    names = ["digital_signature", "content_commitment", "key_encipherment", "data_encipherment"]
    names += ["key_agreement", "key_cert_sign", "crl_sign"]
    return {name for name in names if getattr(usage, name)}


def test_t2_root_is_an_authority_for_leaves_only(ours: Made) -> None:
    root = ours.authority.certificate
    constraints, critical = value(root, x509.BasicConstraints)
    assert (constraints.ca, constraints.path_length, critical) == (True, 0, True)
    assert usages(root) == {"key_cert_sign", "crl_sign"}
    identifier, critical = value(root, x509.SubjectKeyIdentifier)
    assert identifier == x509.SubjectKeyIdentifier.from_public_key(ours.authority.key.public_key())
    assert not critical
    # A key purpose on an authority would bind every leaf below it.
    assert chain.extension(root, x509.ExtendedKeyUsage) is None
    assert root.subject == root.issuer
    assert root.subject.rfc4514_string() == "CN=llmgw CA"
    assert chain.not_after(root) == NOW + 3650 * DAY


def test_t3_leaf_is_a_client_and_nothing_else(ours: Made) -> None:
    leaf = ours.identity.chain[0]
    assert leaf.subject.rfc4514_string() == "CN=n7"
    assert value(leaf, x509.SubjectAlternativeName) == (
        x509.SubjectAlternativeName([x509.DNSName("n7")]),
        False,
    )
    constraints, critical = value(leaf, x509.BasicConstraints)
    assert (constraints.ca, constraints.path_length, critical) == (False, None, True)
    assert usages(leaf) == {"digital_signature"}
    assert list(value(leaf, x509.ExtendedKeyUsage)[0]) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    public = leaf.public_key()
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert isinstance(public.curve, ec.SECP256R1)
    assert leaf.version is x509.Version.v3


def test_t2_identifiers_link_leaf_and_root(ours: Made) -> None:
    leaf, root = ours.identity.chain[0], ours.authority.certificate
    above = value(leaf, x509.AuthorityKeyIdentifier)[0]
    assert above.key_identifier == value(root, x509.SubjectKeyIdentifier)[0].digest
    own = value(leaf, x509.SubjectKeyIdentifier)[0]
    public = leaf.public_key()
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert own == x509.SubjectKeyIdentifier.from_public_key(public)


def test_openssl_accepts_the_chain_for_clients_only(ours: Made, tmp_path: Path) -> None:
    sent, roots = ours.identity.certificate_pem, ours.identity.roots_pem
    assert openssl.verify(tmp_path, sent, roots, "sslclient") == ""
    assert "unsuitable certificate purpose" in openssl.verify(tmp_path, sent, roots, "sslserver")


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> ssl.SSLObject:
    """Let two contexts talk in memory; return the server's side after the handshake."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(6):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert sides[1].version()
    return sides[1]


def context(
    side: ssl._SSLMethod, identity: Identity, folder: Path, *, names: bool = True
) -> ssl.SSLContext:
    made = ssl.SSLContext(side)
    made.check_hostname = side is ssl.PROTOCOL_TLS_CLIENT and names
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    made.load_verify_locations(cadata=identity.roots_pem.decode())
    assert identity.key
    (folder / "cert.pem").write_bytes(identity.certificate_pem)
    openssl.write_key(folder / "key.pem", identity.key)
    made.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return made


def server_identity(made: authority.Authority) -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    leaf = certificate.leaf(
        key.public_key(),
        "control-plane",
        x509.random_serial_number(),
        certificate.period(NOW, 30, [made.certificate]),
        made.certificate,
        made.key,
        purpose=ExtendedKeyUsageOID.SERVER_AUTH,
    )
    return Identity("control-plane", (leaf,), made.roots, pem.key_pem(key))


def test_a_strict_tls_server_sees_the_node_id(ours: Made, tmp_path: Path) -> None:
    server = context(ssl.PROTOCOL_TLS_SERVER, server_identity(ours.authority), tmp_path)
    client = context(ssl.PROTOCOL_TLS_CLIENT, ours.identity, tmp_path)
    seen = handshake(client, server, "control-plane").getpeercert()
    assert seen
    assert seen["subject"] == ((("commonName", "n7"),),)


def test_t3_a_node_cannot_pose_as_the_server(ours: Made, tmp_path: Path) -> None:
    server = context(ssl.PROTOCOL_TLS_SERVER, ours.identity, tmp_path)
    client = context(ssl.PROTOCOL_TLS_CLIENT, ours.identity, tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="unsuitable certificate purpose"):
        handshake(client, server, "n7")


@pytest.mark.parametrize("line", ["subjectKeyIdentifier=DE:AD:BE:EF", "subjectKeyIdentifier=none"])
def test_t2_identifier_follows_an_issuer_that_has_another_or_none(
    line: str, tmp_path: Path
) -> None:
    extensions = f"basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n{line}"
    folder = openssl.authority(tmp_path / "pki", openssl.key(), extensions)
    made, _ = authority.load(folder, NOW + DAY)
    identity, _ = authority.issue(made, "n7", 30, NOW + DAY)
    found = value(identity.chain[0], x509.AuthorityKeyIdentifier)[0].key_identifier
    if line.endswith("none"):
        computed = x509.SubjectKeyIdentifier.from_public_key(made.certificate.public_key())
        assert found == computed.digest
    else:
        assert found == bytes.fromhex("deadbeef")
        later = str(int((NOW + DAY).timestamp()))
        said = openssl.verify(
            tmp_path, identity.certificate_pem, identity.roots_pem, "sslclient", "-attime", later
        )
        assert said == ""


@pytest.mark.parametrize(
    ("mask", "organization"), [("nombstr", "Mueller"), ("pkix", "Müller"), ("utf8only", "Müller")]
)
def test_issuer_is_the_subject_byte_for_byte(mask: str, organization: str, tmp_path: Path) -> None:
    # Go's verifier compares the encoded names, not the text in them (crypto/x509, verify.go).
    config = f"[openssl_init]\n[req]\nstring_mask={mask}"
    subject = f"/C=DE/O={organization}/OU=a+OU=b/CN=llmgw CA"
    folder = openssl.authority(tmp_path / "pki", openssl.key(), subject=subject, config=config)
    made, _ = authority.load(folder, NOW + DAY)
    identity, _ = authority.issue(made, "n7", 30, NOW + DAY)
    assert issuer_der(identity.chain[0]) == issuer_der(made.certificate)


def issuer_der(of: Certificate) -> bytes:
    """Return the issuer as it is encoded: the fourth field of a version 3 certificate."""
    data = of.tbs_certificate_bytes
    position = body(data, 0)[0]
    for _ in range(3):  # version, serial number, signature algorithm
        position = body(data, position)[1]
    return data[position : body(data, position)[1]]


def body(data: bytes, position: int) -> tuple[int, int]:
    """Return where the content of the DER element at `position` begins and ends."""
    length, start = data[position + 1], position + 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[position + 2 : start], "big")
    return start, start + length


def root_that_lives(begin: datetime, end: datetime) -> tuple[Certificate, pem.PrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    return certificate.root(key, "ca", 1, certificate.Period(begin, end)), key


def test_k1_backdated_one_hour() -> None:
    life = certificate.period(NOW, 365)
    assert life == certificate.Period(NOW - timedelta(hours=1), NOW + 365 * DAY, cut=False)


def test_k1_never_before_the_issuer() -> None:
    begin = NOW - timedelta(minutes=10)
    root, _ = root_that_lives(begin, NOW + 999 * DAY)
    assert certificate.period(NOW, 365, [root]).not_before == begin


def test_never_past_any_issuer() -> None:
    long, _ = root_that_lives(NOW - DAY, NOW + 999 * DAY)
    short, _ = root_that_lives(NOW - DAY, NOW + 30 * DAY)
    life = certificate.period(NOW, 365, [long, short])
    assert life.not_after == NOW + 30 * DAY
    assert life.cut
    assert not certificate.period(NOW, 30, [long, short]).cut


def test_utc_and_whole_seconds_whatever_the_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    local = datetime(2027, 3, 1, 5, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=14)))
    life = certificate.period(local, 1)
    begin, end = datetime(2027, 2, 28, 14, tzinfo=UTC), datetime(2027, 3, 1, 15, tzinfo=UTC)
    assert life == certificate.Period(begin, end)
    assert life.not_after.tzinfo is UTC
    root, _ = root_that_lives(life.not_before, life.not_after)
    assert chain.not_before(root) == begin
    assert chain.not_after(root) == end
    assert root.public_bytes(Encoding.DER).count(b"\x17\x0d270228140000Z") == 1


@pytest.mark.parametrize("days", [0, -1, 36_501, 10**12])
def test_days_out_of_range(days: int) -> None:
    with pytest.raises(Refused, match=f"cannot live {days} days"):
        certificate.period(NOW, days)


def test_dates_after_2049(tmp_path: Path) -> None:
    # UTCTime ends there; what follows is GeneralizedTime (RFC 5280, 4.1.2.5).
    made, _ = authority.create(tmp_path / "pki", NOW, days=36_500)
    identity, _ = authority.issue(made, "n7", 30_000, NOW)
    assert identity.not_after == NOW + 30_000 * DAY
    assert openssl.verify(tmp_path, identity.certificate_pem, identity.roots_pem, "sslclient") == ""


def test_t1_common_name_over_64() -> None:
    root, key = root_that_lives(NOW - DAY, NOW + DAY)
    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    with pytest.raises(ValueError, match="has 1 to 64 characters"):
        certificate.leaf(public, "x" * 65, 1, certificate.period(NOW, 1), root, key)


def test_serials_are_positive_and_differ(ours: Made) -> None:
    serials = [
        authority.issue(ours.authority, "n7", 1, NOW)[0].chain[0].serial_number for _ in range(50)
    ]
    assert len(set(serials)) == 50
    assert all(0 < serial < 1 << 159 for serial in serials)


def test_subject_has_nothing_but_the_common_name(ours: Made) -> None:
    assert [a.oid for a in ours.identity.chain[0].subject] == [NameOID.COMMON_NAME]
