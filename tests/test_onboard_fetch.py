"""How onboard gets the release: from where, with what, and what never gets onto the node."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from stand_in import BINARY, CURL, DASH, Authority, Node, archive, authority, node_in

from generator.prove import faults
from generator.prove.servers import ReleaseServer

# A stand-in that notes its arguments and the way out, and then fails.
NOTE = """\
{ echo "$*"; env | grep -i _proxy | sort; } >>"$LLMGW_ROOT/calls"
exit 7
"""


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return node_in(tmp_path, DASH)


@pytest.fixture(scope="module")
def ca() -> Authority:
    return authority()


@pytest.fixture
def server(ca: Authority, node: Node) -> Iterator[ReleaseServer]:
    """A real server; a node whose ca.pem is its authority's, and which has no other root."""
    with ReleaseServer(ca, {"/llmgw": BINARY}) as made:
        (node.root / "stand-ins/curl").unlink()
        node.write(ca.identity())
        node.configure(urls_amd64=f"{made.url}/llmgw", trust="agent")
        yield made


@pytest.mark.parametrize("missing", [(), ("curl",), ("curl", "wget")])
def test_it_fetches_with_what_the_image_has(
    node: Node, server: ReleaseServer, missing: tuple[str, ...]
) -> None:
    node.lacks(*missing)
    server.faults[:] = [
        faults.status(HTTPStatus.SERVICE_UNAVAILABLE),
        faults.status(HTTPStatus.NOT_FOUND),
        faults.cut,
        faults.loop,
        faults.html,
    ]
    said = node.onboard()
    reasons = [line for line in said.splitlines() if "release: " in line]
    assert len(reasons) == 5, said
    assert "503" in reasons[0]
    assert "404" in reasons[1]
    assert all("waiting: release: cannot fetch" in reason for reason in reasons[:4])
    assert "redirect" in reasons[3].lower()
    assert "failed: release: " in reasons[4]
    assert "has the digest" in reasons[4]
    assert node.binary.read_bytes() == BINARY
    assert node.bin() == ["llmgw"]


def test_d2_no_way_to_the_server_for_a_while_is_waited_for(node: Node) -> None:
    node.install("curl", 'echo "curl: (7) No route to host" >&2; exit 7')
    # The network is there after the third try.
    node.install("sleep", SLEEP_UNTIL_CURL.format(tries=3))
    said = node.onboard()
    assert said.count("waiting: release: cannot fetch") == 3
    assert [f"next try in {pause} s" in said for pause in (1, 2, 4, 8)] == [True, True, True, False]


SLEEP_UNTIL_CURL = """\
echo >>"$LLMGW_ROOT/sleeps"
if [ "$(wc -l <"$LLMGW_ROOT/sleeps")" -ge {tries} ]; then
  {{ printf '#!/bin/sh\\nwhile [ "$1" != --output ]; do shift; done\\n'
    printf 'cp "$LLMGW_ROOT/release" "$2"\\n'; }} >"$LLMGW_ROOT/late"
  chmod 755 "$LLMGW_ROOT/late"
  mv "$LLMGW_ROOT/late" "$LLMGW_ROOT/stand-ins/curl"
fi
"""


def test_waits_grow_and_are_bounded(node: Node) -> None:
    node.install("curl", "exit 7")
    node.install("sleep", "")
    node.onboard("next try in 60 s")
    said = node.onboard("next try in 60 s")
    pauses = [int(line.rpartition(" in ")[2][:-2]) for line in said.splitlines() if "next" in line]
    assert pauses == [1, 2, 4, 8, 16, 32, 60]


@pytest.mark.usefixtures("server")
def test_names_that_resolve_late_are_waited_for(node: Node) -> None:
    """sitecustomize is python3's own hook: here the first two look-ups fail."""
    node.lacks("curl", "wget")
    late = """\
import os, socket
real, noted = socket.getaddrinfo, os.environ["LLMGW_ROOT"] + "/lookups"
def getaddrinfo(*arguments, **names):
    with open(noted, "a+") as file:
        file.write(".")
        if file.tell() < 3:
            raise socket.gaierror(-3, "Temporary failure in name resolution")
    return real(*arguments, **names)
socket.getaddrinfo = getaddrinfo
"""
    (node.root / "late").mkdir()
    (node.root / "late/sitecustomize.py").write_text(late)
    node.install("python3", f'PYTHONPATH="{node.root}/late" exec /usr/bin/python3 "$@"')
    said = node.onboard()
    assert said.count("Temporary failure in name resolution") == 2
    assert node.binary.exists()


def test_a_slow_server_is_not_given_up(node: Node, server: ReleaseServer) -> None:
    server.faults[:] = [faults.slow(2)]
    assert "waiting" not in node.onboard()
    assert server.requests == ["/llmgw"]


def test_mirrors_are_tried_in_their_order(node: Node) -> None:
    node.configure(urls_amd64="'https://a.example/x?token=s3cret https://b.example/x'")
    node.install("curl", 'case "$*" in *a.example*) exit 7 ;; esac\n' + CURL)
    (node.root / "release").write_text("<html>")
    said = node.onboard("next try")
    reason = node.status()["reason"]
    assert said.index("fetching https://a.example/x\n") < said.index("fetching https://b.example")
    # One that is down may come back with the right file: that is no hopeless case.
    assert node.status()["state"] == "waiting"
    assert reason.startswith("cannot fetch https://a.example/x: ")
    assert "; https://b.example/x has the digest " in reason
    assert "s3cret" not in said + reason


def test_the_second_mirror_is_enough(node: Node, server: ReleaseServer) -> None:
    node.configure(urls_amd64=f"'{server.url}/gone {server.url}/llmgw'")
    assert "waiting" not in node.onboard()
    assert server.requests == ["/gone", "/llmgw"]
    assert node.bin() == ["llmgw"]


def serve(node: Node, kind: str, data: bytes, member: str) -> None:
    (node.root / "release").write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    node.configure(archive=kind, sha256_amd64=digest, member_amd64=member)


@pytest.mark.parametrize("member", ["v1/llmgw", "./v1/llmgw"])
@pytest.mark.parametrize("kind", ["tar.gz", "tar.xz", "zip"])
def test_the_binary_comes_out_of_an_archive(node: Node, kind: str, member: str) -> None:
    serve(node, kind, archive(kind, member), "v1/llmgw")
    node.onboard()
    assert node.binary.read_bytes() == BINARY
    assert node.binary.stat().st_mode & 0o777 == 0o755
    assert node.bin() == ["llmgw"]
    # Another setting, the same release: it is not fetched again.
    (node.root / "calls").unlink()
    node.configure(wait_limit="60")
    node.onboard()
    assert "--output" not in node.calls()
    # And a binary that somebody changed is.
    node.binary.write_text("another")
    node.configure(wait_limit="61")
    node.onboard()
    assert "--output" in node.calls()
    assert node.binary.read_bytes() == BINARY


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_an_archive_without_the_binary_has_a_reason(node: Node, kind: str) -> None:
    serve(node, kind, archive(kind, "other"), "v1/llmgw")
    node.onboard("next try")
    assert node.verdict().endswith("cannot unpack release v1: v1/llmgw is not in the archive")
    assert node.bin() == []


def test_something_else_than_an_archive_has_a_reason(node: Node) -> None:
    serve(node, "tar.gz", b"not one", "llmgw")
    node.onboard("next try")
    assert "cannot unpack release v1: " in node.verdict()
    assert node.bin() == []


HEADERS = "Private-Token: s3cret\nX-Other: a: b\n"


class _Heard(ReleaseServer):
    """Notes the headers that came, and sends the first request on to `then`."""

    def __init__(self, ca: Authority, then: str = "") -> None:
        super().__init__(ca, {"/llmgw": BINARY})
        self.heard: list[dict[str, str]] = []
        self.faults = [self._answer] * 9
        self._then = then

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        self.heard.append({k.lower(): v for k, v in handler.headers.items()})
        if self._then:
            handler.send_response(HTTPStatus.FOUND)
            handler.send_header("Location", self._then)
        else:
            handler.send_response(HTTPStatus.OK)
        handler.send_header("Content-Length", "0" if self._then else str(len(body)))
        handler.end_headers()
        handler.wfile.write(b"" if self._then else body)


def test_a_token_goes_to_its_server_and_to_no_other(node: Node, ca: Authority) -> None:
    for name in ("curl", "wget"):  # whatever the image has
        node.install(name, NOTE)
    node.install("python3", 'echo "$*" >>"$LLMGW_ROOT/calls"; exec /usr/bin/python3 "$@"')
    with _Heard(ca) as other, _Heard(ca, f"{other.url}/llmgw") as first:
        node.write({**ca.identity(), "etc/llmgw/release-headers": HEADERS})
        node.configure(urls_amd64=f"{first.url}/llmgw", trust="agent")
        said = node.onboard()
    assert node.binary.read_bytes() == BINARY
    assert [(h["private-token"], h["x-other"]) for h in first.heard] == [("s3cret", "a: b")]
    assert [h.keys() & {"private-token", "x-other"} for h in other.heard] == [set()]
    assert not (node.root / "etc/llmgw/release-headers").exists()
    assert node.calls()
    assert "s3cret" not in node.calls() + said + str(node.status())


def test_a_token_stays_until_the_seed_is_applied(node: Node, ca: Authority) -> None:
    with _Heard(ca) as server:
        server.files = {"/llmgw": b"<html>"}
        node.write({**ca.identity(), "etc/llmgw/release-headers": HEADERS})
        node.configure(urls_amd64=f"{server.url}/llmgw", trust="agent")
        node.onboard("next try")
    assert (node.root / "etc/llmgw/release-headers").read_text() == HEADERS


def test_all_roots_are_in_one_file(node: Node) -> None:
    node.write({"etc/llmgw/release-ca.pem": "the release server's\n"})
    (node.root / "etc/ssl/certs").mkdir(parents=True)
    (node.root / "etc/ssl/certs/ca-certificates.crt").write_text("the system's\n")
    node.onboard()
    roots = node.root / "run/llmgw-onboard/roots.pem"
    assert f"--cacert {roots} " in node.calls()
    ca_pem = (node.root / "etc/llmgw/ca.pem").read_text()
    assert roots.read_text() == f"the system's\nthe release server's\n{ca_pem}"


def test_a_private_server_is_believed_by_its_own_root(node: Node, ca: Authority) -> None:
    private = authority("of the release server")
    with ReleaseServer(private, {"/llmgw": BINARY}) as server:
        (node.root / "stand-ins/curl").unlink()
        node.write(ca.identity())
        node.configure(urls_amd64=f"{server.url}/llmgw")
        assert "certificate" in node.onboard("next try")
        node.write({"etc/llmgw/release-ca.pem": private.pem})
        node.onboard()
    assert node.bin() == ["llmgw"]


PROXY = "http_proxy='http://u:p w@proxy:3128'\nno_proxy='h.example,localhost'\n"


@pytest.mark.parametrize("tool", ["curl", "wget", "python3"])
def test_d6_the_way_out_is_told_to_what_fetches(node: Node, tool: str) -> None:
    node.lacks(*["curl", "wget"][: ["curl", "wget", "python3"].index(tool)])
    note = NOTE
    if tool == "python3":
        note = f'case "$*" in *SameHost*) ;; *) exec /usr/bin/python3 "$@" ;; esac\n{NOTE}'
    node.install(tool, note)
    node.write({"etc/llmgw/proxy.env": PROXY})
    node.onboard("next try")
    assert "http_proxy=http://u:p w@proxy:3128\nno_proxy=h.example,localhost\n" in node.calls()
    assert "u:p" not in str(node.status())


def test_a_release_on_the_seed_needs_no_network(node: Node) -> None:
    node.install("curl", NOTE)
    carried = node.root / "var/lib/cloud/seed/nocloud/llmgw-amd64"
    carried.parent.mkdir(parents=True)
    carried.write_bytes(BINARY)
    node.onboard()
    assert node.bin() == ["llmgw"]
    assert "--output" not in node.calls()


def test_a_release_on_the_seeds_drive_needs_no_network(node: Node) -> None:
    """Not even where an old seed's is still in its folder, or where it was mounted before."""
    node.install("curl", NOTE)
    folder = node.root / "var/lib/cloud/seed/nocloud"
    folder.mkdir(parents=True)
    (folder / "llmgw-amd64").write_text("an older one")
    node.install("blkid", '[ "$*" = "-L cidata" ] && echo /dev/sr0')
    node.install("mount", 'echo "mount $*" >>"$LLMGW_ROOT/calls"\nfor folder; do :; done\n'
                 'cp "$LLMGW_ROOT/release" "$folder/llmgw-amd64"')  # fmt: skip
    node.install("umount", 'echo "umount $*" >>"$LLMGW_ROOT/calls"')
    node.onboard()
    drive = node.root / "run/llmgw-onboard/drive"
    assert [line for line in node.calls().splitlines() if "mount" in line] == [
        f"umount {drive}",
        f"mount -o ro /dev/sr0 {drive}",
        f"umount {drive}",
    ]
    assert node.bin() == ["llmgw"]


def test_another_release_on_the_seed_is_not_installed_and_named(node: Node) -> None:
    carried = node.root / "var/lib/cloud/seed/nocloud/llmgw-amd64"
    carried.parent.mkdir(parents=True)
    carried.write_bytes(b"another")
    (node.root / "release").unlink()
    node.onboard("next try")
    reason = node.status()["reason"]
    assert reason.startswith("the release that came with the seed has another digest")
    assert "; cannot fetch https://h.example/v1/amd64: curl: (7)" in reason
    assert node.bin() == []


def test_d4_it_is_labelled_in_its_place_and_never_was_elsewhere(node: Node) -> None:
    node.install("restorecon", 'echo "restorecon $*" >>"$LLMGW_ROOT/calls"; exit 1')
    node.onboard()
    assert f"restorecon {node.binary}\n" in node.calls()
    assert f"--output {node.binary.parent}/" in node.calls()


@pytest.mark.parametrize("done", [False, True])
def test_what_a_power_cut_left_is_cleared_away(node: Node, *, done: bool) -> None:
    node.binary.parent.mkdir(parents=True)
    if done:
        node.binary.write_bytes(BINARY)
        node.binary.chmod(0o755)
    (node.binary.parent / ".llmgw.new").write_text("half")
    (node.binary.parent / ".llmgw.new.d").mkdir()
    node.onboard()
    assert node.bin() == ["llmgw"]


ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_each_architecture_has_its_release(node: Node, machine: str) -> None:
    node.install("uname", f"echo {machine}")
    assert f"fetching https://h.example/v1/{ARCHITECTURES[machine]}\n" in node.onboard()
    assert node.bin() == ["llmgw"]


def test_no_release_for_this_architecture_is_said_at_once(node: Node) -> None:
    node.install("uname", "echo riscv64")
    node.onboard("next try in 300 s")
    assert node.verdict().startswith("failed: release: release v1 has no digest for this machine")
    assert node.verdict().endswith("(riscv64)")
    assert not node.binary.parent.exists()
