"""The servers that a node talks to: the one that has the release, and the control plane."""

from __future__ import annotations

import json
import socket
import ssl
import sys
import threading
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from generator.prove import faults
from generator.prove.tls import FORWARDED, server_context

if TYPE_CHECKING:
    from collections.abc import Mapping

    from generator.prove.tls import Authority

_AGENT = Path(__file__).with_name("agent.py")


def agent_binary(version: str = "v0.0.0") -> bytes:
    """Return the stand-in for a release's llmgw binary; each version has its own bytes."""
    return _AGENT.read_bytes().replace(b'"v0.0.0"', json.dumps(version).encode())


class _Server(ThreadingHTTPServer):
    """HTTPS on loopback, served for the length of a `with` block; port 0 takes a free one.

    Until the block begins it has its port and refuses everybody, as a server that is down.
    `address` may be another of this host, IPv4 or IPv6: one that a guest's own network reaches.
    """

    daemon_threads = True

    def __init__(
        self,
        context: ssl.SSLContext,
        handler: type[BaseHTTPRequestHandler],
        port: int,
        address: str,
    ) -> None:
        if ":" in address:
            self.address_family = socket.AF_INET6
        super().__init__((address, port), handler, bind_and_activate=False)
        self.server_bind()
        host = f"[{address}]" if ":" in address else address
        self.url = f"https://{host}:{self.server_port}"
        self.forwarded_url = f"https://{FORWARDED}:{self.server_port}"
        """The same for a guest in QEMU, when it forwards the port."""
        self.failures: list[str] = []
        """What went wrong in connections, e.g. a client without a certificate."""
        # A client that is slow to shake hands must hold up its own thread only.
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )

    def handle_error(self, request: object, client_address: object) -> None:
        del request, client_address
        self.failures.append(repr(sys.exception()))

    def __enter__(self) -> Self:
        self.server_activate()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    timeout = 30  # seconds; a client that says nothing is dropped

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing: the servers keep what the tests ask for."""


class ReleaseServer(_Server):
    """Serves `files` (path with its slash → content, may be changed) and notes each request.

    Each of `faults` (see faults.py; may be added to) is the answer to one request.
    """

    def __init__(
        self,
        authority: Authority,
        files: Mapping[str, bytes],
        port: int = 0,
        address: str = "127.0.0.1",
        life: timedelta = timedelta(days=1),
    ) -> None:
        context = server_context(authority, address=address, life=life)
        super().__init__(context, _ReleaseHandler, port, address)
        self.files = dict(files)
        self.faults: list[faults.Fault] = []
        self.requests: list[str] = []
        """The paths that were asked for, in order."""
        self.headers: list[Mapping[str, str]] = []
        """What each request said of itself, in order."""


class _ReleaseHandler(_Handler):
    server: ReleaseServer

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        self.server.headers.append(dict(self.headers))
        body = self.server.files.get(self.path)
        if self.path == faults.LOOP:
            faults.loop(self, b"")
        elif self.server.faults:
            self.server.faults.pop(0)(self, body or b"")
        elif body is None:
            self.answer(HTTPStatus.NOT_FOUND, b"no such file\n")
        else:
            self.answer(HTTPStatus.OK, body)


@dataclass(frozen=True)
class Join:
    """A node that joined: who its certificate says it is, and what its agent had read.

    `config` is agent.yaml as the agent's YAML reader returned it.
    """

    common_name: str
    serial: int
    node_id: str
    config: Mapping[str, Any]


class ControlPlane(_Server):
    """Takes joins over mTLS and refuses a common name that is not the claimed node id."""

    def __init__(self, authority: Authority, port: int = 0, address: str = "127.0.0.1") -> None:
        context = server_context(authority, clients=True, address=address)
        super().__init__(context, _ControlHandler, port, address)
        self.joins: list[Join] = []
        self.refusals: list[str] = []
        self.heartbeats: list[str] = []
        """The node id of each heartbeat, in order."""
        self.changed = threading.Condition()

    def wait_for_join(self, deadline: float, *, after: int = 0) -> Join:
        """Return the join number `after` (from 0), waiting for it up to `deadline` seconds.

        So `after=len(plane.joins)` waits for a new one. Raises TimeoutError.
        """
        with self.changed:
            if self.changed.wait_for(lambda: len(self.joins) > after, deadline):
                return self.joins[after]
        raise TimeoutError(
            f"no join within {deadline} s; joins {self.joins[-3:]}, "
            f"refusals {self.refusals[-3:]}, failures {self.failures[-3:]}"
        )


class _ControlHandler(_Handler):
    server: ControlPlane

    def do_POST(self) -> None:
        assert isinstance(self.connection, ssl.SSLSocket)  # noqa: S101 - for the type checker
        certificate = self.connection.getpeercert() or {}
        subject: Any = certificate["subject"]  # as ssl gives it: a tuple of tuples of pairs
        name = dict(pair for rdn in subject for pair in rdn).get("commonName")
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        node = message["node_id"]
        with self.server.changed:
            if name is None or name != node:
                reason = f"certificate of {name!r} claims to be {node!r}"
                self.server.refusals.append(reason)
                self.answer(HTTPStatus.FORBIDDEN, reason.encode())
            elif self.path == "/join":
                serial = int(str(certificate["serialNumber"]), 16)
                self.server.joins.append(Join(name, serial, node, message["config"]))
                self.server.changed.notify_all()
                self.answer(HTTPStatus.OK, b"joined")
            elif all(join.node_id != node for join in self.server.joins):
                self.answer(HTTPStatus.NOT_FOUND, b"not joined")  # and it joins again
            else:
                self.server.heartbeats.append(node)
                self.answer(HTTPStatus.OK, b"alive")
