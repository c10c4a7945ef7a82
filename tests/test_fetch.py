"""Fetching: what is taken, what is refused, and what is said of it."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from stand_in import Authority, authority

from generator import fetch
from generator.fetch import Access, Failed
from generator.prove import faults
from generator.prove.servers import ReleaseServer

DATA = os.urandom(300_000)
HEADERS = "Authorization: Bearer s3cr3t-t0ken\n"


@pytest.fixture(scope="module")
def ca() -> Authority:
    return authority()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server(ca: Authority) -> Iterator[ReleaseServer]:
    with ReleaseServer(ca, {"/llmgw": DATA}) as made:
        yield made


@pytest.fixture
def access(ca: Authority) -> Access:
    return Access(roots=pem(ca), stall=2)


def pem(ca: Authority) -> str:
    return ca.certificate.public_bytes(serialization.Encoding.PEM).decode()


def fetched(url: str, access: Access, **bounds: int) -> tuple[bytes, fetch.Fetched]:
    data = bytearray()
    found = fetch.fetch(url, access, data.extend, **bounds)
    return bytes(data), found


def refused(url: str, access: Access, **bounds: int) -> tuple[str, str, int]:
    with pytest.raises(Failed) as caught:
        fetched(url, access, **bounds)
    (problem,) = caught.value.problems
    assert "s3cr3t" not in repr(caught.value) + problem.message + problem.hint
    assert caught.value.__cause__ is None
    return problem.message, problem.hint, caught.value.status


def test_a_file_comes_with_its_digest(server: ReleaseServer, access: Access) -> None:
    data, found = fetched(f"{server.url}/llmgw", access)
    assert data == DATA
    assert found == fetch.Fetched(
        hashlib.sha256(DATA).hexdigest(), len(DATA), f"{server.url}/llmgw"
    )


def test_the_roots_of_ssl_cert_file_are_the_systems(
    server: ReleaseServer, ca: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root.pem").write_text(pem(ca))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "root.pem"))
    assert fetched(f"{server.url}/llmgw", Access())[0] == DATA
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    message, _, _ = refused(f"{server.url}/llmgw", Access())
    assert message == f"$SSL_CERT_FILE is {tmp_path}/none.pem, which cannot be read"


def test_a_proxy_of_the_environment_is_used(
    server: ReleaseServer, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with faults.Proxy() as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        with_token = Access(HEADERS, access.roots, stall=5)
        assert fetched(f"{server.forwarded_url}/llmgw", with_token)[0] == DATA
    assert proxy.tunnels == [server.forwarded_url.removeprefix("https://")]
    message, hint, _ = refused(f"{server.url}/llmgw", access)  # the proxy is gone now
    assert message == f"cannot fetch {server.url}/llmgw: connection refused"
    assert "by the proxy of $https_proxy" in hint
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert fetched(f"{server.url}/llmgw", access)[0] == DATA


def test_a_password_in_a_url_is_not_sent_and_not_told(access: Access) -> None:
    message, hint, _ = refused("https://me:s3cr3t@h.invalid/llmgw", access)
    assert message == "https://h.invalid/llmgw has a user or a password before its host"
    assert "--header-file FILE" in hint


def test_a_root_that_is_not_known(server: ReleaseServer) -> None:
    message, hint, _ = refused(f"{server.url}/llmgw?sig=s3cr3t", Access())
    assert message.startswith(f"cannot fetch {server.url}/llmgw: ")
    assert "certificate" in message
    assert "--ca FILE" in hint


def test_a_certificate_that_has_ended(ca: Authority, access: Access) -> None:
    with ReleaseServer(ca, {"/llmgw": DATA}, life=timedelta(days=-1)) as server:
        message, hint, _ = refused(f"{server.url}/llmgw", access)
    assert message.endswith(": certificate has expired")
    assert "renew" in hint


def test_a_certificate_for_another_name(ca: Authority, access: Access) -> None:
    with ReleaseServer(ca, {}, address="127.0.0.2") as server:
        message, _, _ = refused(server.url.replace("127.0.0.2", "127.0.0.3"), access)
    assert "127.0.0.3" in message


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (HTTPStatus.NOT_FOUND, "see whether the release is there"),
        (HTTPStatus.FORBIDDEN, "if it wants a token: --header-file FILE"),
        (HTTPStatus.SERVICE_UNAVAILABLE, "try again later"),
    ],
)
def test_an_answer_that_is_no_file(
    server: ReleaseServer, access: Access, code: HTTPStatus, hint: str
) -> None:
    server.faults[:] = [faults.status(code)]
    message, told, status = refused(f"{server.url}/llmgw?sig=s3cr3t", access)
    assert message == f"the server answers {code.value} for {server.url}/llmgw"
    assert (hint in told, status) == (True, code)


def test_a_token_is_sent_and_a_wrong_one_told(server: ReleaseServer, access: Access) -> None:
    need = faults.needs("Authorization", "Bearer s3cr3t-t0ken")
    with_token = Access(HEADERS, access.roots)
    server.faults[:] = [need]
    assert fetched(f"{server.url}/llmgw", with_token)[0] == DATA
    server.faults[:] = [faults.needs("Authorization", "another")]
    message, hint, _ = refused(f"{server.url}/llmgw", with_token)
    assert "401" in message
    assert "does not take what is in the header file" in hint
    assert "s3cr3t" not in repr(with_token)


def test_a_token_stays_with_its_host(ca: Authority, server: ReleaseServer, access: Access) -> None:
    with ReleaseServer(ca, {"/llmgw?sig=s3cr3t": DATA}) as other:
        server.faults[:] = [
            faults.redirect(f"{server.url}/again"),
            faults.redirect(f"{other.url}/llmgw?sig=s3cr3t"),
        ]
        data, found = fetched(f"{server.url}/llmgw", Access(HEADERS, access.roots))
    assert data == DATA
    assert found.place == f"{other.url}/llmgw"
    assert [seen.get("Authorization") for seen in server.headers] == ["Bearer s3cr3t-t0ken"] * 2
    assert other.requests == ["/llmgw?sig=s3cr3t"]
    assert all("s3cr3t-t0ken" not in str(seen) for seen in other.headers)


def test_a_token_does_not_come_back_by_a_detour(
    ca: Authority, server: ReleaseServer, access: Access
) -> None:
    with ReleaseServer(ca, {}) as other:
        server.faults[:] = [faults.redirect(f"{other.url}/x")]
        other.faults[:] = [faults.redirect(f"{server.url}/llmgw")]
        assert fetched(f"{server.url}/start", Access(HEADERS, access.roots))[0] == DATA
    assert "Authorization" not in server.headers[1]


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("http://127.0.0.1:1/llmgw?sig=s3cr3t", "to http://127.0.0.1:1/llmgw, which is not https"),
        ("ftp://h/x", "to ftp://h/x, which is not https"),
        ("file:///etc/passwd", "on and on, or nowhere"),
    ],
)
@pytest.mark.parametrize("plain", [True, False])
def test_it_is_sent_to_https_only(
    server: ReleaseServer, access: Access, target: str, told: str, *, plain: bool
) -> None:
    server.faults[:] = [faults.redirect(target)]
    message, _, _ = refused(f"{server.url}/llmgw", Access(roots=access.roots, plain=plain))
    assert message.startswith(f"{server.url}/llmgw sends on ")
    assert message.endswith(told)


def test_http_is_for_what_a_digest_protects(access: Access) -> None:
    message, _, _ = refused("http://127.0.0.1:1/llmgw?sig=s3cr3t", access)
    assert message == "http://127.0.0.1:1/llmgw is not fetched over http"
    message, _, _ = refused("http://127.0.0.1:1/llmgw", Access(plain=True))
    assert message == "cannot fetch http://127.0.0.1:1/llmgw: connection refused"
    assert "not fetched over file" in refused("file:///etc/passwd", Access(plain=True))[0]


def test_where_it_is_sent_on_to_is_told(
    ca: Authority, server: ReleaseServer, access: Access
) -> None:
    with ReleaseServer(ca, {}) as other:
        server.faults[:] = [faults.redirect(f"{other.url}/x?sig=s3cr3t")]
        message, _, _ = refused(f"{server.url}/llmgw", access)
        told = f"{server.url}/llmgw, which sent on to {other.url}/x"
        assert message == f"the server answers 404 for {told}"
    server.faults[:] = [faults.redirect(f"{other.url}/x?sig=s3cr3t")]
    message, _, _ = refused(f"{server.url}/llmgw", access)
    assert message == f"cannot fetch {told}: connection refused"


def test_it_is_sent_on_for_ever(server: ReleaseServer, access: Access) -> None:
    server.faults[:] = [faults.loop]
    message, _, _ = refused(f"{server.url}/llmgw", access)
    assert "sends on and on" in message


def test_a_server_that_stands_still_and_one_that_is_slow(
    server: ReleaseServer, access: Access
) -> None:
    server.faults[:] = [faults.stall(20)]
    message, _, _ = refused(f"{server.url}/llmgw", access)
    assert message.endswith("the server said nothing for 2 seconds")
    server.faults[:] = [faults.slow(3)]
    assert fetched(f"{server.url}/llmgw", access)[0] == DATA
    server.faults[:] = [faults.slow(2)]
    message, _, _ = refused(f"{server.url}/llmgw", access, within=1)
    assert message == f"{server.url}/llmgw is not here after 1 seconds"


def test_what_is_cut_off_and_what_is_too_large(server: ReleaseServer, access: Access) -> None:
    server.faults[:] = [faults.cut]
    message, _, _ = refused(f"{server.url}/llmgw", access)
    assert message == f"{server.url}/llmgw was cut off after 150000 of 300000 bytes"
    message, _, _ = refused(f"{server.url}/llmgw", access, most=299_999)
    assert message == f"{server.url}/llmgw is larger than 299999 bytes"


@pytest.mark.parametrize(
    ("said", "reason"),
    [(b"", "the server hung up"), (b"\x1b[2Js3cr3t\r\n\r\n", "its answer is no HTTP")],
)
def test_what_is_no_answer(said: bytes, reason: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, args=(listener, said), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/llmgw"
        assert refused(url, Access(plain=True, stall=5))[0] == f"cannot fetch {url}: {reason}"


def answer(listener: socket.socket, said: bytes) -> None:
    with listener.accept()[0] as client:
        client.recv(1 << 16)
        client.sendall(said)


def test_no_tls_and_no_name(access: Access) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(
            target=answer, args=(listener, b"HTTP/1.1 400 x\r\n\r\n"), daemon=True
        ).start()
        message, _, _ = refused(f"https://127.0.0.1:{listener.getsockname()[1]}/", access)
    assert "no TLS with it (" in message
    assert "cannot fetch https://none.invalid/x: " in refused("https://none.invalid/x", access)[0]
