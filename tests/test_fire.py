"""First boots under fire: the node joins, or says in one place why it does not.

The release server and the control plane misbehave as real ones do; each boot meets as much of it
as does not get in each other's way. A clock that is wrong is test_qemu.py's, since a container
has its host's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet
from stand_in import archive
from test_boot import read_iso

from generator import authority
from generator.prove import faults, tls
from generator.prove.machine import Machine
from generator.prove.rootfs import rootfs
from generator.prove.servers import ControlPlane, ReleaseServer, agent_binary
from generator.resources import TEMPLATES

pytestmark = pytest.mark.boot

BINARY = agent_binary("v0.9.1")
BIN = "/usr/local/bin"
STATUS = "/var/lib/llmgw-onboard/status.json"
# The pace of a test: the same waits, of other lengths.
PACE = {"stay_up=10": "stay_up=3", "retry_most=60": "retry_most=2", "hopeless=300": "hopeless=3"}


@dataclass(frozen=True)
class Site:
    """A fleet whose templates/ sets another pace, and its servers, which are down at first."""

    fleet: Fleet
    release: ReleaseServer
    plane: ControlPlane
    up: contextlib.ExitStack

    def seed(self, data: bytes, *arguments: str, **spec: Any) -> dict[str, bytes]:
        """Return the seed of n7, whose release is `data`."""
        self.release.files["/llmgw"] = data
        release = {
            "version": "v0.9.1",
            "url": f"{self.release.url}/llmgw",
            "sha256": {"amd64": hashlib.sha256(data).hexdigest().upper()},
        } | spec.pop("release", {})
        node: dict[str, Any] = {
            "server": self.plane.url,
            "mgmt_addr": "127.0.0.1",
            "mgmt_interface": "lo",
        }
        node["discovery"] = {"skip_gpus": True, "ib_root": "/srv/infiniband"}
        self.fleet.write(
            fleet=json.dumps({"schema": 1, "release": release}), n7=json.dumps(node | spec)
        )
        return read_iso(self.fleet("n7", *arguments).stdout)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    fleet = Fleet(tmp_path)
    fleet("ca", "init")
    onboard = (TEMPLATES / "onboard").read_text()
    for shipped, shorter in PACE.items():
        assert shipped in onboard
        onboard = onboard.replace(shipped, shorter)
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates/onboard").write_text(onboard)
    ca, _ = authority.load(fleet.pki, datetime.now(UTC))
    release, plane = ReleaseServer(ca, {}), ControlPlane(ca)
    with contextlib.ExitStack() as up:
        yield Site(fleet, release, plane, up)
    release.server_close()
    plane.server_close()


def status(machine: Machine, file: str = STATUS) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(machine.read(file))
    return found


def until(machine: Machine, *states: str, file: str = STATUS, deadline: float = 120) -> Any:
    """Wait until the node has one of these states, and return its status."""
    machine.wait_for(states[0], lambda: status(machine, file)["state"] in states, deadline)
    return status(machine, file)


def said(machine: Machine, what: str, deadline: float = 120) -> None:
    """Wait until onboard has said it in the journal."""
    machine.wait_for(
        what, lambda: re.search(what, machine.journal("-u", "llmgw-onboard")), deadline
    )


def installed(machine: Machine) -> list[str]:
    return sorted(path.name for path in machine.path(BIN).iterdir())


def hcas(root: Path, *names: str) -> None:
    for name in names:
        port = root / "srv/infiniband" / name / "ports/1"
        (port / "gids").mkdir(parents=True)
        (port / "link_layer").write_text("InfiniBand\n")
        (port / "state").write_text("4: ACTIVE\n")
        (port / "gids/0").write_text("fe80:0000:0000:0000:0002:c903:000a:1b2c\n")


# What the image lacks, and the form of the release: each pair on each Debian.
UNDER_FIRE = [((), "tar.gz"), (("curl",), "tar.xz"), (("curl", "wget"), "zip")]


@pytest.mark.parametrize(("lacking", "kind"), UNDER_FIRE)
@pytest.mark.parametrize("suite", ["bullseye", "trixie"])
def test_d1_d2_it_joins_under_fire(
    site: Site, suite: str, lacking: Sequence[str], kind: str
) -> None:
    """Down, then 503, 404, a page, a cut body, a loop; no trust; no exec in /tmp; no plane."""

    def edit(root: Path) -> None:
        for name in lacking:
            (root / "usr/bin" / name).unlink()
        trust = root / "usr/sbin/update-ca-certificates"
        trust.unlink()
        trust.write_text("#!/bin/sh\necho 'the store is locked' >&2\nexit 1\n")
        trust.chmod(0o755)
        hcas(root, "mlx5_0", "ibp1s0")

    seed = site.seed(
        archive(kind, "v0.9.1/llmgw", BINARY),
        release={"archive": kind, "member": "{version}/llmgw"},
        fabrics=[{"name": "ib-a", "hcas": ["mlx5_0", "mlx5_1"]}],
        onboard={"wait": "6s"},
    )
    site.release.faults[:] = [
        faults.status(HTTPStatus.SERVICE_UNAVAILABLE),
        faults.status(HTTPStatus.NOT_FOUND),
        faults.html,
        faults.cut,
        faults.loop,
    ]
    with Machine(rootfs(suite), seed, edit=edit, arguments=["--tmpfs=/tmp:noexec"]) as machine:
        machine.boot()
        # The boot is not held up for longer than the spec has it, and the verdict is no success.
        verdict = machine.wait_for_cloud_init()
        assert verdict.status == "error"
        assert "no verdict after 6 s" in machine.read("/var/log/cloud-init-output.log").decode()
        told = until(machine, "waiting")
        assert "cannot fetch" in told["reason"]
        assert re.search("refused|Could not connect", told["reason"])
        assert told["next_try_s"] in (1, 2)
        assert not machine.exists(f"{BIN}/llmgw")

        site.up.enter_context(site.release)
        said(machine, r"waiting: release: cannot fetch .* 503")
        said(machine, r"waiting: release: cannot fetch .* 404")
        said(machine, r"failed: release: .* has the digest .*; next try in 3 s")
        said(machine, r"waiting: release: cannot fetch .*redirect")
        assert site.release.faults == []

        # The agent runs, and who should take it is not there.
        told = until(machine, "started")
        said(machine, "started: agent: not yet: .*Connection refused")
        assert installed(machine) == ["llmgw"]
        assert machine.read(f"{BIN}/llmgw") == BINARY
        assert told["trust"] == "update-ca-certificates failed: the store is locked"
        assert told["reality"] == [
            "ok: lo carries 127.0.0.1",
            "ok: mlx5_0 of ib-a, port 1: InfiniBand, 4: ACTIVE, GID prefix fe80:0000:0000:0000",
            "wrong: mlx5_1 of ib-a is not under /srv/infiniband; there are: ibp1s0, mlx5_0",
        ]

        site.up.enter_context(site.plane)
        assert until(machine, "accepted")["accepted"] == "yes"
        assert site.plane.wait_for_join(60).common_name == "n7"
        shown = machine.run("/usr/local/lib/llmgw/onboard", "status").stdout
        assert shown.startswith("accepted: agent: the control plane took")
        machine.wait_for("a word", lambda: "accepted: agent: " in machine.console(), 60)


@pytest.mark.parametrize("suite", ["bullseye", "trixie"])
def test_d6_by_the_proxy_alone(site: Site, suite: str) -> None:
    """Its address is known to the proxy only, so a fetch that went another way would fail."""
    site.up.enter_context(site.release)
    site.up.enter_context(site.plane)
    with faults.Proxy() as proxy:
        url = f"{site.release.forwarded_url}/llmgw"
        seed = site.seed(BINARY, release={"url": url}, proxy={"https": proxy.url})
        with Machine(rootfs(suite), seed) as machine:
            machine.boot()
            assert site.plane.wait_for_join(120).common_name == "n7"
            assert until(machine, "accepted")["trust"] == "ok"
            assert machine.wait_for_cloud_init().clean
            host = site.release.forwarded_url.removeprefix("https://")
            # The control plane was reached without it, by the agent and by onboard.
            assert proxy.tunnels == [host]
            process = machine.run("systemctl", "show", "-p", "MainPID", "llmgw-agent").stdout
            environ = machine.read(f"/proc/{process.strip().partition('=')[2]}/environ")
            assert f"https_proxy={proxy.url}".encode() in environ.split(b"\0")
            assert b"no_proxy=127.0.0.1,localhost,::1" in environ.split(b"\0")
            assert installed(machine) == ["llmgw"]


@pytest.mark.parametrize("suite", ["bullseye", "trixie"])
def test_d2_a_name_that_resolves_late(site: Site, suite: str) -> None:
    site.up.enter_context(site.release)
    site.up.enter_context(site.plane)
    url = f"https://{tls.NAME}:{site.release.server_port}/llmgw"
    with Machine(rootfs(suite), site.seed(BINARY, release={"url": url})) as machine:
        machine.boot()
        said(machine, rf"waiting: release: cannot fetch {url}: .*[Rr]esolve host")
        assert installed(machine) == []
        with machine.path("/etc/hosts").open("a") as hosts:
            hosts.write(f"127.0.0.1 {tls.NAME}\n")
        assert site.plane.wait_for_join(120).common_name == "n7"
        assert machine.wait_for_cloud_init().clean
        assert installed(machine) == ["llmgw"]


@pytest.mark.parametrize("suite", ["bullseye", "trixie"])
def test_the_release_on_the_seed_needs_no_server(site: Site, suite: str) -> None:
    """The air-gapped site's way; and a disk on which onboard cannot keep its state."""
    site.up.enter_context(site.plane)
    (site.fleet.root / "llmgw").write_bytes(BINARY)
    seed = site.seed(BINARY, "--with-binary", "llmgw")
    arguments = ["--tmpfs=/var/lib/llmgw-onboard:ro"]
    with Machine(rootfs(suite), seed, arguments=arguments) as machine:
        machine.boot()
        assert site.plane.wait_for_join(120).common_name == "n7"
        assert machine.wait_for_cloud_init().status == "done"
        until(machine, "accepted", file="/run/llmgw-onboard/status.json")
        assert not machine.exists(STATUS)
        assert "cannot write to /var/lib/llmgw-onboard" in machine.journal("-u", "llmgw-onboard")
        assert site.release.requests == []
        assert machine.read(f"{BIN}/llmgw") == BINARY
        assert installed(machine) == ["llmgw"]
        assert machine.run("/usr/local/lib/llmgw/onboard", "status").stdout.startswith("accepted")


@pytest.mark.parametrize("suite", ["bullseye", "trixie"])
def test_w3_no_digest_for_this_architecture(site: Site, suite: str) -> None:
    """Waiting does not mend it: cloud-init hears of it at once."""
    site.up.enter_context(site.plane)
    seed = site.seed(BINARY, release={"sha256": {"arm64": "0" * 64}})
    with Machine(rootfs(suite), seed) as machine:
        machine.boot()
        assert machine.wait_for_cloud_init().status == "error"
        told = until(machine, "failed")
        reason = "release v0.9.1 has no digest for this machine's architecture (x86_64)"
        assert (told["step"], told["reason"], told["next_try_s"]) == ("release", reason, 3)
        assert f"failed: release: {reason}" in machine.console()
        assert installed(machine) == []
        state = machine.run("systemctl", "is-active", "llmgw-agent", check=False).stdout
        assert state == "inactive\n"
        shown = machine.run("/usr/local/lib/llmgw/onboard", "status", check=False)
        assert shown.returncode == 1
        assert shown.stdout.startswith(f"failed: release: {reason}\n")
        assert site.plane.joins == []
