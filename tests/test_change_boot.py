"""A node lives for years: what another seed makes of a machine that is a node already.

The tests of one Debian share a machine and follow one another: what one leaves, the next finds.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import ssl
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from fleet import Fleet, gen_seed
from test_boot import BIN, KEY, STATUS, read_iso, secret_of

from generator import authority
from generator.prove.machine import SEED, Machine
from generator.prove.rootfs import SUITES, rootfs
from generator.prove.servers import ControlPlane, Join, ReleaseServer, agent_binary
from generator.resources import TEMPLATES

pytestmark = pytest.mark.boot

RELEASES = {version: agent_binary(version) for version in ("v1", "v2", "v3")}
RELEASES["v4-broken"] = b"#!/bin/sh\nexit 3\n"
ONBOARD = "/usr/local/lib/llmgw/onboard"
FULL = os.environ.get("HYPOTHESIS_PROFILE") == "full"  # make test-full
ENGINE = "/var/lib/llmgw-agent/engine.pid"
# What cloud-init makes once for an instance, and an operator would miss.
LEFT_ALONE = (
    *("/etc/machine-id", "/etc/passwd", "/etc/shadow", "/etc/hostname", "/root/runcmd"),
    *("/etc/network", "/etc/netplan", "/etc/ssh"),
)
WRITTEN = (
    *("/etc/llmgw", "/usr/local/lib/llmgw", "/usr/local/bin", "/etc/systemd/system"),
    "/usr/local/share/ca-certificates",
)


@dataclass(frozen=True)
class Node:
    """A machine, its fleet, a release server and two control planes."""

    machine: Machine
    fleet: Fleet
    release: ReleaseServer
    planes: tuple[ControlPlane, ControlPlane]

    def seed(
        self, release: str, plane: int, fabric: str, name: str = "n7", **spec: Any
    ) -> dict[str, bytes]:
        """Return a new seed, with a new certificate."""
        digest = hashlib.sha256(RELEASES[release]).hexdigest()
        values = {
            "server": self.planes[plane].url,
            "mgmt_addr": "127.0.0.1",
            "mgmt_interface": "lo",
            "fabrics": [{"name": fabric, "hcas": ["mlx5_0"]}],
            "cloud_config": {"runcmd": ["echo again >>/root/runcmd"]},
        }
        url = f"{self.release.url}/{release}"
        self.fleet.write(
            fleet=json.dumps(
                {"release": {"version": release, "url": url, "sha256": {"amd64": digest}}}
            ),
            **{name: json.dumps(values | spec)},
        )
        return read_iso(self.fleet(name).stdout)

    def joined(self, plane: int, before: int, deadline: float = 120) -> Join:
        return self.planes[plane].wait_for_join(deadline, after=before)

    def joins(self) -> tuple[int, int]:
        return len(self.planes[0].joins), len(self.planes[1].joins)

    def settled(self) -> None:
        """Wait until cloud-init and onboard have ended this boot."""
        assert self.machine.wait_for_cloud_init().clean
        self.machine.wait_for("onboard's end", self.at_rest, 120)

    def at_rest(self) -> bool:
        # Early in a boot nobody answers yet.
        asked = self.machine.run(
            *("systemctl", "show", "-p", "ActiveState", "llmgw-onboard"), check=False
        )
        return "=inactive" in asked.stdout and bool(self.machine.read(f"{VOLATILE}/verdict"))

    def apply(
        self, seed: Mapping[str, bytes] | bytes, *arguments: str, check: bool = True
    ) -> tuple[int, str]:
        text = seed if isinstance(seed, bytes) else seed["user-data"]
        done = self.machine.run(
            ONBOARD, "apply", "-", *arguments, stdin=text.decode(), check=False, timeout=120
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.returncode, done.stdout + done.stderr

    def status(self) -> dict[str, Any]:
        found = json.loads(self.machine.read(STATUS))
        assert isinstance(found, dict)
        return found

    def left_alone(self) -> dict[str, bytes]:
        return _contents(self.machine, LEFT_ALONE)


VOLATILE = "/run/llmgw-onboard"


def _files(machine: Machine, places: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    for place in places:
        start = machine.path(place)
        found = [start] if start.is_file() else sorted(start.rglob("*")) if start.is_dir() else []
        for path in found:
            if path.is_file() and not path.is_symlink():
                yield place + str(path).removeprefix(str(start)), path


def _contents(machine: Machine, places: tuple[str, ...]) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in _files(machine, places)}


def _states(machine: Machine) -> dict[str, tuple[int, int]]:
    """Return inode and time of change of everything that a seed may write."""
    states = {name: path.stat() for name, path in _files(machine, WRITTEN)}
    return {name: (state.st_ino, state.st_ctime_ns) for name, state in states.items()}


def is_whole(machine: Machine, seed: Mapping[str, bytes]) -> bool:
    """Whether every file on the machine is this seed's."""
    written = yaml.safe_load(seed["user-data"])["write_files"]
    return all(machine.read(file["path"]) == file["content"].encode() for file in written)


def serial_of(seed: Mapping[str, bytes]) -> int:
    written = yaml.safe_load(seed["user-data"])["write_files"]
    (pem,) = (file["content"] for file in written if file["path"] == "/etc/llmgw/agent.pem")
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def holders(machine: Machine, secret: bytes) -> set[str]:
    """Return every file of the machine that holds the secret, however it is wrapped.

    The seed's own folder is left out. What the image had is not looked at: the machine's writes
    are all in the upper layer of its overlay, and in /run and /tmp.
    """
    places = {"": machine.root.parent / "upper"}
    places |= {name: machine.path(name) for name in ("/run", "/tmp", "/dev/shm")}
    return {
        name + str(path).removeprefix(str(start))
        for name, start in places.items()
        for path in start.rglob("*")
        if path.is_file() and not path.is_symlink() and SEED not in str(path)
        if wraps(path.read_bytes(), secret)
    }


def wraps(data: bytes, secret: bytes) -> bool:
    """Whether the secret is in the data: plain, in base64, or in base64 of gzip."""
    if secret in data:
        return True
    if data[:2] == b"\x1f\x8b":
        return wraps(zlib.decompressobj(31).decompress(data), secret)
    for run in re.findall(rb"(?:[A-Za-z0-9+/]{16,}\s*)+=*", data):
        text = b"".join(run.split())
        for start in range(4):
            part = text[start:]
            decoded = base64.b64decode(part[: len(part) // 4 * 4] + b"", validate=False)
            if secret in decoded:
                return True
            if decoded[:2] == b"\x1f\x8b" and wraps(decoded, secret):
                return True
    return False


def as_nobody(machine: Machine, secret: bytes) -> str:
    """Return the files with the secret that an ordinary user can read."""
    return machine.run(
        *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
        *("grep", "-rlsF", "-e", secret.decode()),
        *("/etc", "/run", "/tmp", "/var/lib/cloud", "/var/log", "/var/lib/llmgw-onboard"),
        check=False,
    ).stdout


@pytest.fixture(scope="module", params=SUITES)
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    with node_of(request.param, tmp_path_factory.mktemp("site")) as made:
        yield made


@contextmanager
def node_of(suite: str, root: Path) -> Iterator[Node]:
    """A machine that its first seed has made a node."""
    fleet = Fleet(root)
    fleet("ca", "init")
    onboard = (TEMPLATES / "onboard").read_text()
    assert "stay_up=10" in onboard
    (root / "templates").mkdir()
    (root / "templates/onboard").write_text(onboard.replace("stay_up=10", "stay_up=3"))
    ca, _ = authority.load(fleet.pki, datetime.now(UTC))
    files = {f"/{name}": data for name, data in RELEASES.items()}
    with (
        ReleaseServer(ca, files) as release,
        ControlPlane(ca) as first,
        ControlPlane(ca) as second,
        Machine(rootfs(suite), {}) as machine,
    ):
        node = Node(machine, fleet, release, (first, second))
        machine.attach(node.seed("v1", 0, "ib-a"))
        machine.boot()
        node.joined(0, 0)
        node.settled()
        yield node


def test_x1_nothing_else_holds_the_key(node: Node) -> None:
    secret = secret_of({"user-data": node.machine.read(f"/{SEED}/user-data")})
    assert holders(node.machine, secret) == {KEY}
    assert as_nobody(node.machine, secret) == ""
    for command in (
        ["status"],
        ["query", "--all"],
        ["query", "v1.instance_id"],
        ["analyze", "show"],
    ):
        assert node.machine.run("cloud-init", *command).stdout


def test_p1_another_seed_and_a_reboot(node: Node) -> None:
    before, joins = node.left_alone(), node.joins()
    assert before["/root/runcmd"] == b"again\n"
    assert any("ssh_host_" in name for name in before)
    seed = node.seed("v2", 1, "ib-b")
    node.machine.attach(seed)
    node.machine.reboot()
    join = node.joined(1, joins[1])
    assert (join.serial, join.config["fabrics"][0]["name"]) == (serial_of(seed), "ib-b")
    node.settled()
    assert is_whole(node.machine, seed)
    assert node.machine.read(BIN) == RELEASES["v2"]
    assert node.left_alone() == before
    assert holders(node.machine, secret_of(seed)) == {KEY}


def test_p1_the_same_seed_and_a_reboot(node: Node) -> None:
    states, joins, fetched = _states(node.machine), node.joins(), list(node.release.requests)
    node.machine.reboot()
    node.joined(1, joins[1])
    node.settled()
    assert _states(node.machine) == states
    assert node.release.requests == fetched
    assert node.joins() == (joins[0], joins[1] + 1)  # it was started once
    secret = secret_of({"user-data": node.machine.read(f"/{SEED}/user-data")})
    assert holders(node.machine, secret) == {KEY}


def test_p1_another_seed_without_a_reboot(node: Node) -> None:
    before, joins, engine = node.left_alone(), node.joins(), node.machine.read(ENGINE)
    seed = node.seed("v3", 0, "ib-c")
    assert node.apply(seed) == (0, "onboard: ok\n")
    join = node.joined(0, joins[0])
    assert (join.serial, join.config["fabrics"][0]["name"]) == (serial_of(seed), "ib-c")
    assert is_whole(node.machine, seed)
    assert node.machine.read(BIN) == RELEASES["v3"]
    assert node.left_alone() == before
    # What the agent has started runs on, and the agent has found it again.
    assert node.machine.read(ENGINE) == engine
    assert node.machine.read(f"/proc/{engine.decode()}/comm") == b"sleep\n"
    assert holders(node.machine, secret_of(seed)) == {KEY}
    states, joins = _states(node.machine), node.joins()
    assert "nothing to do" in node.apply(seed)[1]
    assert (_states(node.machine), node.joins()) == (states, joins)


def test_a_release_that_exits_at_once_is_taken_back(node: Node) -> None:
    joins = node.joins()
    seed = node.seed("v4-broken", 0, "ib-d")
    code, said = node.apply(seed, check=False)
    assert code == 1
    # What systemd says of it (exit-code, success) depends on the moment.
    assert re.search(r"v4-broken: the agent does not stay up \(\S+, exit status 3\)", said)
    assert "went back to v3" in said
    assert node.joined(0, joins[0]).config["fabrics"][0]["name"] == "ib-d"
    assert node.machine.read(BIN) == RELEASES["v3"]
    status = node.status()
    assert status["release"] == "v3"
    assert "went back to v3" in status["notes"][0]


def test_p2_a_key_that_was_born_on_the_node(node: Node) -> None:
    """The old certificate is revoked and refused; with the old seed attached the new one stays."""
    old = secret_of({"user-data": node.machine.read(f"/{SEED}/user-data")})
    asked = node.machine.run(ONBOARD, "csr").stdout
    assert "PRIVATE" not in asked
    joins, replaced = node.joins(), node.planes[0].joins[-1].serial
    answer = gen_seed("ca", "sign", "n7", cwd=node.fleet.root, stdin=asked.encode()).stdout
    node.fleet("ca", "revoke", "--serial", f"{replaced:x}")
    context = node.planes[0].socket.context  # type: ignore[attr-defined]
    (node.fleet.root / "crl.pem").write_bytes(node.fleet("ca", "crl").stdout)
    context.load_verify_locations(node.fleet.root / "crl.pem")
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    node.machine.run("systemctl", "restart", "llmgw-agent")
    node.machine.wait_for("a refusal", lambda: "revoked" in str(node.planes[0].failures[-1:]), 120)
    node.apply(answer)
    serial = x509.load_pem_x509_certificate(answer).serial_number
    assert node.joined(0, joins[0]).serial == serial != replaced
    key = node.machine.read(KEY)
    born = key.splitlines()[2]
    assert holders(node.machine, born) == {KEY}
    assert holders(node.machine, old) == set()
    node.machine.reboot()
    assert node.joined(0, joins[0] + 1).serial == serial
    node.settled()
    assert node.machine.read(KEY) == key
    assert not any(
        born in path.read_bytes() for path in node.fleet.root.rglob("*") if path.is_file()
    )


def test_x1_after_a_boot_without_its_seed(node: Node) -> None:
    key, joins = node.machine.read(KEY), node.joins()
    shutil.rmtree(node.machine.root / SEED)
    node.machine.reboot()
    node.joined(0, joins[0])
    node.machine.wait_for("onboard's end", node.at_rest, 120)
    assert holders(node.machine, key.splitlines()[2]) == {KEY}
    assert node.machine.run("cloud-init", "status", check=False).stdout in (
        "status: disabled\n",
        "status: done\n",
    )


def test_l1_a_clone_with_another_nodes_seed(node: Node) -> None:
    key, joins, before = node.machine.read(KEY), node.joins(), node.left_alone()
    node.machine.power_off()
    seed = node.seed("v1", 1, "ib-a", name="n8")
    node.machine.attach(seed)
    node.machine.boot()
    assert node.joined(1, joins[1]).common_name == "n8"
    node.settled()
    assert is_whole(node.machine, seed)
    assert node.machine.hostname() == "n8"
    assert holders(node.machine, key.splitlines()[2]) == set()
    assert holders(node.machine, secret_of(seed)) == {KEY}
    keys = [name for name in before if "ssh_host_" in name]
    assert not any(node.left_alone().get(name) == before[name] for name in keys)
    assert node.status()["notes"] == ["this disk was the node n7"]


# As soon as one of these is there, or so many seconds later: ten moments of one apply.
MOMENTS: tuple[str | float, ...] = (
    "/var/lib/llmgw-onboard/incoming",
    "/etc/llmgw/.seed.sha256.next",
    "/etc/llmgw/.agent.yaml.next",
    "/usr/local/lib/llmgw/.seed.py.next",
    "/usr/local/bin/.llmgw.new",
    "/usr/local/bin/.llmgw.next",
    "/etc/llmgw/.commit",
    "/usr/local/bin/.llmgw.before",
    0.3,
    1.5,
)


@pytest.mark.parametrize("suite", SUITES if FULL else ["bookworm"])
def test_p1_power_lost_in_the_middle_of_an_apply(suite: str, tmp_path: Path) -> None:
    """What the agent of the next boot reads is the old seed's or the new one's, as a whole."""
    outcomes = []
    with node_of(suite, tmp_path) as node:
        machine = node.machine
        seed = {"user-data": machine.read(f"/{SEED}/user-data")}
        for number, moment in enumerate(MOMENTS):
            joins, release = node.joins(), f"v{2 + number % 2}"
            other = node.seed(release, 1, f"ib-{number}")
            machine.path("/root/seed").write_bytes(other["user-data"])
            machine.run("systemd-run", "--no-block", ONBOARD, "apply", "/root/seed")
            deadline = time.monotonic() + (moment if isinstance(moment, float) else 10)
            while time.monotonic() < deadline and not (
                isinstance(moment, str) and os.path.lexists(machine.root / moment[1:])
            ):
                pass
            machine.kill()
            machine.boot()
            first = machine.wait_for("a join", partial(new, node, joins), 120)[0]
            assert first.serial in (serial_of(seed), serial_of(other)), moment
            renewed = first.serial == serial_of(other)
            assert (first.config["fabrics"][0]["name"] == f"ib-{number}") == renewed
            outcomes.append(renewed)
            machine.wait_for("onboard's end", node.at_rest, 120)
            taken = node.status()["notes"] == [] and is_whole(machine, other)
            # Once it is in the slot, the next boot goes on with it.
            assert taken or is_whole(machine, seed)
            assert machine.read(BIN) == RELEASES[release] or not taken
            seed = other if taken else seed
    assert set(outcomes) == {False, True}


def new(node: Node, since: tuple[int, int]) -> list[Join]:
    """Return the joins after so many, wherever they were."""
    return [join for plane, n in zip(node.planes, since, strict=True) for join in plane.joins[n:]]
