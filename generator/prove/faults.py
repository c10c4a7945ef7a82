"""What goes wrong between a node and its release server: bad answers, and a proxy in between."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from generator.prove.tls import FORWARDED

Fault = Callable[[BaseHTTPRequestHandler, bytes], None]
"""Answers one request, given the content that should have been the answer."""

LOOP = "/loop"


def status(code: HTTPStatus) -> Fault:
    """Answer with this status: a server that is being restarted, a file that is not there yet."""
    return lambda handler, _: handler.send_error(code)


def html(handler: BaseHTTPRequestHandler, _: bytes) -> None:
    """Answer 200 with a page for people, as a portal or a login does."""
    _answer(handler, b"<html>please log in</html>")


def cut(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    """Break off in the middle of the body."""
    _answer(handler, body[: len(body) // 2], length=len(body))
    handler.close_connection = True


def loop(handler: BaseHTTPRequestHandler, _: bytes) -> None:
    """Send the client to a place that sends it there again, whenever it follows."""
    handler.send_response(HTTPStatus.FOUND)
    handler.send_header("Location", LOOP)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def redirect(url: str) -> Fault:
    """Send the client to another place."""

    def answer(handler: BaseHTTPRequestHandler, _: bytes) -> None:
        handler.send_response(HTTPStatus.FOUND)
        handler.send_header("Location", url)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def needs(header: str, value: str) -> Fault:
    """Answer only a client that sends this header."""

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if handler.headers.get(header) == value:
            _answer(handler, body)
        else:
            handler.send_error(HTTPStatus.UNAUTHORIZED)

    return answer


def stall(seconds: float) -> Fault:
    """Send the half of the body, and then nothing for some seconds."""

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        _answer(handler, body[: len(body) // 2], length=len(body))
        time.sleep(seconds)
        handler.close_connection = True

    return answer


def slow(seconds: float) -> Fault:
    """Send the right body, spread over some seconds."""

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        _answer(handler, b"", length=len(body))
        step = len(body) // 10 + 1
        for start in range(0, len(body), step):
            time.sleep(seconds / 10)
            handler.wfile.write(body[start : start + step])

    return answer


def _answer(handler: BaseHTTPRequestHandler, body: bytes, length: int | None = None) -> None:
    handler.send_response(HTTPStatus.OK)
    handler.send_header("Content-Length", str(len(body) if length is None else length))
    handler.end_headers()
    handler.wfile.write(body)


class Proxy(ThreadingHTTPServer):
    """An HTTP proxy on loopback that tunnels (CONNECT) for the length of a `with` block.

    It alone knows the way to `tls.FORWARDED`, which is this host: who reaches that address
    outside of QEMU has come through it.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Tunnel)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.tunnels: list[str] = []
        """What was asked for (``host:port``), in order."""

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Tunnel(BaseHTTPRequestHandler):
    server: Proxy

    def do_CONNECT(self) -> None:
        self.server.tunnels.append(self.path)
        host, _, port = self.path.rpartition(":")
        place = "127.0.0.1" if host == FORWARDED else host.strip("[]")
        with socket.create_connection((place, int(port)), 10) as there:
            self.send_response(HTTPStatus.OK)
            self.end_headers()
            ends = {self.connection: there, there: self.connection}
            while ready := select.select(list(ends), [], [], 30)[0]:
                for end in ready:
                    data = end.recv(1 << 16)
                    if not data:
                        return
                    ends[end].sendall(data)

    def log_message(self, *_: object) -> None:
        """Say nothing: the proxy keeps what the tests ask for."""
