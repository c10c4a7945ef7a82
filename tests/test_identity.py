from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import openssl
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID
from openssl import DAY, NOW

from generator import authority, certificate, chain, identity, pem
from generator.problem import Refused

if TYPE_CHECKING:
    from pathlib import Path

LEAF = "basicConstraints=critical,CA:FALSE\nextendedKeyUsage=clientAuth"
SOON = NOW + timedelta(hours=6)


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    """An authority; of its folder only the certificate is ever needed here."""
    authority.create(tmp_path / "pki", NOW)
    return tmp_path / "pki"


@pytest.fixture
def store(tmp_path: Path, pki: Path) -> Path:
    """A folder with n7's identity, as `llmgw ctl cert issue-client` leaves it."""
    folder = tmp_path / "n7"
    folder.mkdir()
    issued, _ = authority.issue(authority.load(pki, NOW)[0], "n7", 30, NOW)
    assert issued.key
    (folder / "n7.pem").write_bytes(issued.certificate_pem)
    openssl.write_key(folder / "n7-key.pem", issued.key)
    return folder


def sign(
    folder: Path,
    pki: Path,
    extensions: str = LEAF,
    subject: str = "/CN=n7",
    days: int = 30,
    key: bytes = b"",
) -> None:
    """Put NODE.pem and NODE-key.pem into `folder`, made by openssl."""
    folder.mkdir(exist_ok=True)
    openssl.write_key(folder / "n7-key.pem", key or openssl.key())
    settings = folder / "ext.cnf"
    settings.write_text(f"{extensions}\nauthorityKeyIdentifier=keyid\n")
    request = openssl.run("req", "-new", "-key", folder / "n7-key.pem", "-subj", subject)
    by: list[str | Path] = ["-CA", pki / "ca.pem", "-CAkey", pki / "ca-key.pem", "-set_serial", "9"]
    ends: list[str | Path] = ["-days", str(days), "-extfile", settings]
    (folder / "n7.pem").write_bytes(openssl.run("x509", "-req", *by, *ends, stdin=request))


def refused(folder: Path, pki: Path, now: datetime = SOON) -> str:
    with pytest.raises(Refused) as caught:
        identity.load(folder, "n7", now, pki)
    return "\n".join(f"{problem.message}\n{problem.hint}" for problem in caught.value.problems)


# The placeholder


def test_placeholder_is_the_same_bytes_everywhere() -> None:
    # Recorded once: whoever commits rendered seeds compares them with these bytes.
    made = identity.placeholder("n7")
    assert made.key
    digest = hashlib.sha256(made.certificate_pem + made.roots_pem + made.key).hexdigest()
    assert digest == "c3ba5fd24c848c576212b99a252955e98801da7d634566b64dc2c5d1b5d92dfa"


def test_placeholder_of_another_node_is_another() -> None:
    one, other = identity.placeholder("n7"), identity.placeholder("n8")
    assert one.roots == other.roots
    assert one.key != other.key
    assert one.serial != other.serial


@pytest.mark.parametrize("node", ["n7", "a", "n" * 63])
def test_placeholder_is_well_formed_but_ended_in_2000(node: str, tmp_path: Path) -> None:
    made = identity.placeholder(node)
    assert (made.not_before, made.not_after) == (
        datetime(2000, 1, 1, tzinfo=UTC),
        datetime(2000, 1, 8, tzinfo=UTC),
    )
    assert "placeholder" in chain.name_of(made.roots[0])
    sent, roots = made.certificate_pem, made.roots_pem
    then = str(int(datetime(2000, 1, 4, tzinfo=UTC).timestamp()))
    assert openssl.verify(tmp_path, sent, roots, "sslclient", "-attime", then) == ""
    assert "certificate has expired" in openssl.verify(tmp_path, sent, roots, "sslclient")
    said = [problem.message for problem in identity.check(made, NOW)]
    assert said == [
        "the certificate ended on 2000-01-08T00:00:00Z",
        "the authority CN=gen-seed placeholder ended on 2000-01-08T00:00:00Z",
    ]
    assert identity.check(made, datetime(2000, 1, 4, tzinfo=UTC)) == []


# What an identity tells


def test_serial_and_fingerprint_as_openssl_tells_them(store: Path, pki: Path) -> None:
    made = identity.load(store, "n7", NOW, pki)
    said = openssl.run(
        "x509", "-in", store / "n7.pem", "-noout", "-serial", "-fingerprint", "-sha256"
    ).decode()
    serial, fingerprint = (line.split("=")[1] for line in said.splitlines())
    assert serial.lower().lstrip("0") == made.serial
    assert fingerprint.replace(":", "").lower() == made.fingerprint
    assert (made.not_before, made.not_after) == (NOW - timedelta(hours=1), NOW + 30 * DAY)


# Loading


def test_load_gives_back_what_was_issued(store: Path, pki: Path) -> None:
    (pki / "ca-key.pem").unlink()  # not needed, and perhaps on another host
    made = identity.load(store, "n7", NOW, pki)
    assert made.certificate_pem == (store / "n7.pem").read_bytes()
    assert made.key == (store / "n7-key.pem").read_bytes()
    assert made.roots_pem == (pki / "ca.pem").read_bytes()
    assert identity.check(made, NOW) == []


def test_ca_pem_beside_it_comes_first(store: Path, pki: Path, tmp_path: Path) -> None:
    (store / "ca.pem").write_bytes((pki / "ca.pem").read_bytes())
    assert identity.load(store, "n7", NOW, tmp_path / "nothing").roots_pem
    other = openssl.authority(tmp_path / "other", openssl.key())
    (store / "ca.pem").write_bytes((other / "ca.pem").read_bytes())
    said = refused(store, pki)
    assert "does not lead to a root: the signature of 'CN=llmgw CA' fits none of" in said
    assert "CN=made by openssl" in said


@pytest.mark.parametrize("kind", ["ec", "P-384", "ed25519", "rsa"])
def test_any_key_comes_out_as_pkcs8(kind: str, pki: Path, tmp_path: Path) -> None:
    sign(tmp_path / "own", pki, key=openssl.key(kind))
    made = identity.load(tmp_path / "own", "n7", SOON, pki)
    assert made.key
    assert made.key.startswith(b"-----BEGIN PRIVATE KEY-----\n")


@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_traditional_keys_come_out_as_pkcs8(kind: str, pki: Path, tmp_path: Path) -> None:
    form = ["ec"] if kind == "ec" else ["rsa", "-traditional"]
    key = openssl.run(*form, stdin=openssl.key(kind))
    assert key.startswith((b"-----BEGIN EC PRIVATE", b"-----BEGIN RSA PRIVATE"))
    sign(tmp_path / "own", pki, key=key)
    made = identity.load(tmp_path / "own", "n7", SOON, pki)
    assert made.key == openssl.run("pkcs8", "-topk8", "-nocrypt", stdin=key)


def test_a_certificate_without_extensions_is_taken(pki: Path, tmp_path: Path) -> None:
    # No EKU and no basic constraints: Go's verifier lets such a leaf pass as a client.
    sign(tmp_path / "own", pki, extensions="subjectKeyIdentifier=hash")
    assert identity.load(tmp_path / "own", "n7", SOON, pki)


@pytest.mark.parametrize(
    ("extensions", "subject", "said"),
    [
        (LEAF, "/CN=n8", "has the common name 'n8', not 'n7'"),
        (LEAF, "/O=none", "has the common name none, not 'n7'"),
        (LEAF, "/CN=n7/CN=n8", "has the common name 'n7', 'n8', not 'n7'"),
        ("extendedKeyUsage=serverAuth", "/CN=n7", "it lacks clientAuth"),
        ("basicConstraints=critical,CA:TRUE", "/CN=n7", "an authority's (CA:TRUE)"),
    ],
)
def test_not_a_nodes_certificate(
    extensions: str, subject: str, said: str, pki: Path, tmp_path: Path
) -> None:
    sign(tmp_path / "own", pki, extensions, subject)
    assert said in refused(tmp_path / "own", pki)


def test_everything_wrong_is_said_at_once(pki: Path, tmp_path: Path) -> None:
    sign(tmp_path / "own", pki, "extendedKeyUsage=serverAuth", "/CN=n8")
    openssl.write_key(tmp_path / "own/n7-key.pem", openssl.key())
    said = refused(tmp_path / "own", pki, SOON + 60 * DAY)
    for part in ("do not belong together", "'n8', not 'n7'", "lacks clientAuth", "ended on"):
        assert part in said


def test_p3_ended_or_not_begun(store: Path, pki: Path) -> None:
    end = NOW + 30 * DAY
    assert identity.load(store, "n7", end, pki)
    assert "n7.pem ended on" in refused(store, pki, end + timedelta(seconds=1))
    assert "n7.pem begins on" in refused(store, pki, NOW - DAY)


def test_files_that_are_missing_are_both_named(store: Path, pki: Path) -> None:
    for path in store.iterdir():
        path.unlink()
    said = refused(store, pki)
    assert f"{store}/n7.pem" in said
    assert f"{store}/n7-key.pem" in said


def test_an_encrypted_node_key(store: Path, pki: Path) -> None:
    key = store / "n7-key.pem"
    command = ["pkcs8", "-topk8", "-passout", "pass:secret"]
    openssl.write_key(key, openssl.run(*command, stdin=key.read_bytes()))
    assert "n7-key.pem is encrypted" in refused(store, pki)


def test_intermediates_come_from_the_authority(tmp_path: Path) -> None:
    """NODE.pem may hold the leaf alone: what lies between stands in ca.pem."""
    root = openssl.authority(tmp_path / "root", openssl.key())
    pki = openssl.below(root, tmp_path / "between")
    (pki / "root.pem").write_bytes((root / "ca.pem").read_bytes())
    issued, _ = authority.issue(authority.load(pki, SOON)[0], "n7", 10, SOON)
    assert issued.key
    store = tmp_path / "n7"
    store.mkdir()
    (store / "n7.pem").write_bytes(pem.certificates_pem(issued.chain[:1]))
    openssl.write_key(store / "n7-key.pem", issued.key)
    assert identity.load(store, "n7", SOON, pki) == issued
    # And where the root is sent as well, the node gets it once, as its trust.
    (store / "n7.pem").write_bytes(issued.certificate_pem + issued.roots_pem)
    assert identity.load(store, "n7", SOON, pki) == issued


def test_the_same_key_under_another_name_is_another_issuer(
    store: Path, pki: Path, tmp_path: Path
) -> None:
    """Verifiers look for the issuer by its name."""
    renamed = openssl.authority(tmp_path / "renamed", (pki / "ca-key.pem").read_bytes())
    assert "does not lead to a root" in refused(store, renamed)


def test_a_signature_that_was_altered_is_refused(store: Path, pki: Path) -> None:
    der = bytearray(
        x509.load_pem_x509_certificate((store / "n7.pem").read_bytes()).public_bytes(Encoding.DER)
    )
    at = bytes(der).index(b"\x0c\x02n7")
    der[at + 3] = ord("8")
    pem_form = openssl.run("x509", "-inform", "DER", stdin=bytes(der))
    (store / "n8.pem").write_bytes(pem_form)
    openssl.write_key(store / "n8-key.pem", (store / "n7-key.pem").read_bytes())
    with pytest.raises(Refused, match="does not lead to a root"):
        identity.load(store, "n8", NOW, pki)


def test_a_nodes_certificate_cannot_vouch_for_another(store: Path, pki: Path) -> None:
    """The chain is followed through authorities only."""
    node_key = pem.private_key((store / "n7-key.pem").read_bytes(), "key")
    node = identity.load(store, "n7", NOW, pki)
    key = ec.generate_private_key(ec.SECP256R1())
    leaf = certificate.leaf(
        key.public_key(),
        "n8",
        5,
        certificate.period(NOW, 1),
        node.chain[0],
        node_key,
        purpose=ExtendedKeyUsageOID.CLIENT_AUTH,
    )
    forged = identity.Identity("n8", (leaf, *node.chain), node.roots, pem.key_pem(key))
    said = [problem.message for problem in identity.check(forged, NOW)]
    assert "CN=n7 is not an authority: its certificate lacks CA:TRUE" in said
