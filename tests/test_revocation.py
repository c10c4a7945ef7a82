"""Revoking, and the list that says so."""

from __future__ import annotations

import socket
import ssl
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import openssl
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID
from openssl import DAY, NOW

from generator import authority, certificate, chain, ledger, pem, revocation
from generator.identity import Identity
from generator.problem import Refused


@pytest.fixture(params=["P-256", "Ed25519", "RSA"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> authority.Authority:
    return authority.create(tmp_path / "pki", NOW, kind=request.param)[0]


@pytest.fixture
def plain(tmp_path: Path) -> authority.Authority:
    return authority.create(tmp_path / "pki", NOW)[0]


def issue(by: authority.Authority, node: str, now: datetime = NOW, days: int = 30) -> Identity:
    identity, _ = authority.issue(by, node, days, now)
    with ledger.opened(by.folder) as book:
        book.record([ledger.row(identity, now, "", {})])
    return identity


def revoke(by: authority.Authority, node: str, reason: str = "unspecified") -> None:
    with ledger.opened(by.folder) as book:
        book.revoke(ledger.Revocation(chain.when(NOW), reason, "somebody"), "node", node)


def crl(by: authority.Authority, now: datetime = NOW) -> x509.CertificateRevocationList:
    with ledger.opened(by.folder) as book:
        number, rows = book.next_crl(now)
    return revocation.build(by, number, rows, now, 30)


def number(of: x509.CertificateRevocationList) -> int:
    return of.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number


def moments(of: x509.CertificateRevocationList) -> tuple[datetime, datetime]:
    """Return from when to when a list is good; cryptography 42 has them aware."""
    names = [
        f"{name}_utc" if hasattr(of, f"{name}_utc") else name
        for name in ("last_update", "next_update")
    ]
    one, other = (getattr(of, name).replace(tzinfo=UTC) for name in names)
    return one, other


def verify(folder: Path, identity: Identity, made: x509.CertificateRevocationList) -> str:
    (folder / "crl.pem").write_bytes(made.public_bytes(Encoding.PEM))
    more = ["-crl_check", "-CRLfile", str(folder / "crl.pem")]
    return openssl.verify(folder, identity.certificate_pem, identity.roots_pem, "sslclient", *more)


def test_openssl_refuses_the_revoked_node_and_accepts_the_others(
    made: authority.Authority, tmp_path: Path
) -> None:
    revoked, other = issue(made, "n7"), issue(made, "n8")
    empty = crl(made)
    assert list(empty) == []
    assert verify(tmp_path, revoked, empty) == ""
    revoke(made, "n7", "keyCompromise")
    again = issue(made, "n7")  # the node's next certificate is good
    now_revoked = crl(made)
    assert "certificate revoked" in verify(tmp_path, revoked, now_revoked)
    assert verify(tmp_path, other, now_revoked) == ""
    assert verify(tmp_path, again, now_revoked) == ""


def test_what_a_list_says(plain: authority.Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    one, other = issue(plain, "n7"), issue(plain, "n8")
    revoke(plain, "n7", "keyCompromise")
    revoke(plain, "n8")
    found = crl(plain, NOW + timedelta(milliseconds=1500))
    assert found.issuer == plain.certificate.subject
    above = found.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    identifier = chain.extension(plain.certificate, x509.SubjectKeyIdentifier)
    assert identifier
    assert above.key_identifier == identifier.digest
    begin = NOW + timedelta(seconds=1)
    assert moments(found) == (begin, begin + 30 * DAY)
    text = openssl.run("crl", "-noout", "-text", stdin=found.public_bytes(Encoding.PEM)).decode()
    listed = {int(line.split(": ")[1], 16) for line in text.splitlines() if "Serial Number" in line}
    assert listed == {int(one.serial, 16), int(other.serial, 16)}
    assert f"Revocation Date: {NOW:%b} {NOW.day:2} {NOW:%H:%M:%S} {NOW.year} GMT" in text
    assert text.count("Key Compromise") == 1
    assert "Unspecified" not in text  # left out, RFC 5280, section 5.3.1
    assert found.is_signature_valid(plain.certificate.public_key())  # type: ignore[arg-type]


def test_a_list_has_the_revoked_until_they_end(plain: authority.Authority) -> None:
    short, long = issue(plain, "n7", days=1), issue(plain, "n7", days=30)
    revoke(plain, "n7")
    serials = [{entry.serial_number for entry in crl(plain, NOW + n * DAY)} for n in (1, 2, 30, 31)]
    both = {int(short.serial, 16), int(long.serial, 16)}
    assert serials == [both, both - {int(short.serial, 16)}, both - {int(short.serial, 16)}, set()]


def test_the_number_grows_even_when_the_clock_goes_back(plain: authority.Authority) -> None:
    numbers = [number(crl(plain, NOW + shift)) for shift in (DAY, timedelta(0), -DAY, DAY, 2 * DAY)]
    assert numbers == sorted(set(numbers))
    assert numbers[1:4] == [numbers[0] + 1, numbers[0] + 2, numbers[0] + 3]


def test_another_keys_certificates_are_not_in_our_list(plain: authority.Authority) -> None:
    row = ledger.row(issue(plain, "n7"), NOW, "", {})
    assert revocation.concerns(plain, row)
    assert revocation.concerns(plain, replace(row, issuer=""))
    assert not revocation.concerns(plain, replace(row, issuer="ab" * 32))


def test_an_authority_without_crl_sign_is_refused(tmp_path: Path) -> None:
    extensions = openssl.EXTENSIONS.replace(",cRLSign", "")
    folder = openssl.authority(tmp_path / "pki", openssl.key(), extensions)
    made, _ = authority.load(folder, NOW + timedelta(hours=6))
    with pytest.raises(Refused, match="lacks cRLSign"):
        revocation.check_signer(made)


# A server that looks


def listen(made: authority.Authority, folder: Path, clients: int = 2) -> tuple[int, list[str]]:
    """Serve TLS on loopback; note of each client its common name, or why it was turned away."""
    key = ec.generate_private_key(ec.SECP256R1())
    life = certificate.period(NOW, 30, [made.certificate])
    leaf = certificate.leaf(
        key.public_key(),
        "control-plane",
        1,
        life,
        made.certificate,
        made.key,
        purpose=ExtendedKeyUsageOID.SERVER_AUTH,
    )
    (folder / "server.pem").write_bytes(pem.certificates_pem([leaf]) + pem.key_pem(key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF | ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=pem.certificates_pem(made.roots).decode())
    context.load_verify_locations(folder / "crl.pem")
    said: list[str] = []
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(20)

    def serve() -> None:
        with server:
            for _ in range(clients):
                client = server.accept()[0]
                client.settimeout(20)
                try:
                    with context.wrap_socket(client, server_side=True) as talk:
                        peer = talk.getpeercert()
                        said.append(str(peer["subject"][0][0][1]) if peer else "nobody")
                        talk.sendall(b"hello")
                except ssl.SSLError as error:
                    said.append(
                        error.verify_message
                        if isinstance(error, ssl.SSLCertVerificationError)
                        else str(error)
                    )

    threading.Thread(target=serve, daemon=True).start()
    return server.getsockname()[1], said


def call(port: int, identity: Identity, folder: Path) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=identity.roots_pem.decode())
    (folder / "client.pem").write_bytes(identity.certificate_pem + (identity.key or b""))
    context.load_cert_chain(folder / "client.pem")
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as connection,
        context.wrap_socket(connection, server_hostname="control-plane") as talk,
    ):
        return talk.recv(5)


def test_a_tls_server_that_checks_turns_the_revoked_node_away(
    plain: authority.Authority, tmp_path: Path
) -> None:
    revoked, other = issue(plain, "n7"), issue(plain, "n8")
    revoke(plain, "n7")
    (tmp_path / "crl.pem").write_bytes(crl(plain).public_bytes(Encoding.PEM))
    port, said = listen(plain, tmp_path)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        call(port, revoked, tmp_path)
    assert call(port, other, tmp_path) == b"hello"
    assert said == ["certificate revoked", "n8"]


def test_t4_a_server_named_by_address_needs_the_address_in_its_certificate(
    plain: authority.Authority, tmp_path: Path
) -> None:
    """So docs/authority.md tells: the common name alone is no name for a TLS client."""
    (tmp_path / "crl.pem").write_bytes(crl(plain).public_bytes(Encoding.PEM))
    port, _ = listen(plain, tmp_path, clients=1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=pem.certificates_pem(plain.roots).decode())
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as connection,
        pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"),
    ):
        context.wrap_socket(connection, server_hostname="127.0.0.1")


def test_an_intermediate_signs_its_own_list(tmp_path: Path) -> None:
    root = openssl.authority(tmp_path / "root", openssl.key())
    pki = openssl.below(root, tmp_path / "between")
    (pki / "root.pem").write_bytes((root / "ca.pem").read_bytes())
    now = NOW + timedelta(hours=6)
    made, _ = authority.load(pki, now)
    issued, _ = authority.issue(made, "n7", 10, now)
    with ledger.opened(pki) as book:
        book.record([ledger.row(issued, now, "", {})])
    assert ledger.reading(pki)[0].issuer == chain.key_id(made.key.public_key())
    revoke(made, "n7")
    found = crl(made, now)
    assert found.issuer == made.certificate.subject
    later = ["-attime", str(int(now.timestamp()))]
    (tmp_path / "crl.pem").write_bytes(found.public_bytes(Encoding.PEM))
    more = ["-crl_check", "-CRLfile", str(tmp_path / "crl.pem"), *later]
    said = openssl.verify(tmp_path, issued.certificate_pem, issued.roots_pem, "sslclient", *more)
    assert "certificate revoked" in said
