"""Real machines: what a rendered file is worth is known when systemd and cloud-init have run it."""

from __future__ import annotations

import io
import json
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pycdlib
import pytest
import yaml
from fleet import Fleet, write_fleet

from generator import authority
from generator.prove.machine import Machine
from generator.prove.rootfs import SUITES, rootfs
from generator.prove.servers import ControlPlane, ReleaseServer, agent_binary
from generator.prove.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.boot

BINARY = agent_binary("v0.9.1")
KEY = "/etc/llmgw/agent-key.pem"
BIN = "/usr/local/bin/llmgw"
STATUS = "/var/lib/llmgw-onboard/status.json"
UNITS = [f"/etc/systemd/system/llmgw-{name}.service" for name in ("agent", "onboard")]
# DESIGN's table of what lands on the node; then what a seed needs for itself.
MODES = {
    "/etc/llmgw": 0o755,
    "/etc/llmgw/ca.pem": 0o644,
    "/etc/llmgw/agent.pem": 0o644,
    KEY: 0o600,
    "/etc/llmgw/agent.yaml": 0o644,
    **dict.fromkeys(UNITS, 0o644),
    "/usr/local/lib/llmgw/onboard": 0o755,
    "/usr/local/lib/llmgw/seed.py": 0o644,
    BIN: 0o755,
    STATUS: 0o644,
    "/etc/llmgw/onboard.conf": 0o600,
    "/etc/llmgw/seed.sha256": 0o644,
    "/etc/systemd/system/multi-user.target.d/llmgw-onboard.conf": 0o644,
}
SPEC = {
    "fabrics": [
        {"name": "ib-a", "hcas": ["mlx5_0", "mlx5_1"]},
        {"name": "ib-b", "hcas": ["mlx5_2"]},
    ],
    "engines": {"llamacpp": {"bin": "/opt/llama.cpp/llama-server"}},
}


def read_iso(data: bytes) -> dict[str, bytes]:
    image = pycdlib.PyCdlib()
    image.open_fp(io.BytesIO(data))
    found = {}
    for child in image.list_children(rr_path="/"):
        if child.is_file():
            name = child.rock_ridge.name().decode()
            with io.BytesIO() as content:
                image.get_file_from_iso_fp(content, rr_path=f"/{name}")
                found[name] = content.getvalue()
    image.close()
    return found


@dataclass(frozen=True)
class Site:
    """A fleet, its release server and its control plane."""

    fleet: Fleet
    release: ReleaseServer
    plane: ControlPlane

    def seed(self, spec: Mapping[str, Any] | None = None) -> dict[str, bytes]:
        """Return the artifacts of n7, out of the ISO that the command makes."""
        self.fleet.write(n7=json.dumps(spec or {}))
        return read_iso(self.fleet("n7").stdout)

    def joined(self, before: int, deadline: float = 120) -> None:
        assert self.plane.wait_for_join(deadline, after=before).common_name == "n7"


@contextmanager
def site_in(root: Path) -> Iterator[Site]:
    fleet = Fleet(root)
    fleet("ca", "init")
    ca, _ = authority.load(fleet.pki, datetime.now(UTC))
    with ReleaseServer(ca, {"/llmgw": BINARY}) as release, ControlPlane(ca) as plane:
        write_fleet(fleet, plane.url, f"{release.url}/llmgw", BINARY)
        yield Site(fleet, release, plane)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with site_in(tmp_path) as made:
        yield made


@dataclass(frozen=True)
class Joined:
    site: Site
    machine: Machine
    seed: dict[str, bytes]
    watch: Watch


@pytest.fixture(scope="module", params=SUITES)
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Joined]:
    """A machine of each Debian that has booted from its seed, joined, and finished its boot."""
    with site_in(tmp_path_factory.mktemp("site")) as site:
        seed = site.seed(SPEC)
        with Machine(rootfs(request.param), seed) as machine:
            with Watch(machine.root, secret_of(seed)) as watch:
                machine.boot()
                site.joined(0)
                machine.wait_for_cloud_init()
                accepted = b'"accepted": "yes"'
                machine.wait_for("acceptance", lambda: accepted in machine.read(STATUS), 120)
            yield Joined(site, machine, seed, watch)


def secret_of(seed: Mapping[str, bytes]) -> bytes:
    """Return the second line of the key: the first is the same in every P-256 key."""
    lines = [line.strip() for line in seed["user-data"].splitlines()]
    return lines[lines.index(b"-----BEGIN PRIVATE KEY-----") + 2]


def test_the_control_plane_saw_the_node_that_the_spec_asks_for(node: Joined) -> None:
    join = node.site.plane.joins[0]
    assert (join.common_name, join.node_id) == ("n7", "n7")
    assert join.config["server"] == node.site.plane.url
    assert join.config["fabrics"] == SPEC["fabrics"]
    assert join.config["engines"]["llamacpp"] == {
        "bin": "/opt/llama.cpp/llama-server",
        "parallel": 4,
    }


def test_w1_every_file_has_its_owner_and_mode(node: Joined) -> None:
    states = {path: node.machine.stat(path) for path in MODES}
    assert {path: state.st_mode & 0o7777 for path, state in states.items()} == MODES
    assert {(state.st_uid, state.st_gid) for state in states.values()} == {(0, 0)}
    strangers = node.machine.run("find", "/etc/llmgw", "!", "-user", "root").stdout
    assert strangers == ""


def test_every_file_has_its_content(node: Joined) -> None:
    _is_complete(node.machine, node.seed)


def _is_complete(machine: Machine, seed: Mapping[str, bytes]) -> None:
    written = yaml.safe_load(seed["user-data"])["write_files"]
    assert {f["path"] for f in written} == set(MODES) - {"/etc/llmgw", BIN, STATUS}
    for file in written:
        assert machine.read(file["path"]).decode() == file["content"], file["path"]
    assert machine.read(BIN) == BINARY


def test_the_hostname_is_the_node_id(node: Joined) -> None:
    assert node.machine.hostname() == "n7"
    assert node.machine.read("/etc/hostname") == b"n7\n"


def test_c3_the_system_trusts_the_root(node: Joined) -> None:
    url = node.site.release.url
    node.machine.run(
        "curl", "--silent", "--show-error", "--fail", "-o", "/dev/null", f"{url}/llmgw"
    )
    said = node.machine.run(
        "openssl", "s_client", "-verify_return_error", "-connect", url.removeprefix("https://")
    )
    assert "Verify return code: 0 (ok)" in said.stdout
    assert node.machine.exists("/usr/local/share/ca-certificates/llmgw-ca.crt")


def test_the_agent_is_enabled_and_active(node: Joined) -> None:
    assert node.machine.run("systemctl", "is-enabled", "llmgw-agent").stdout == "enabled\n"
    assert node.machine.run("systemctl", "is-active", "llmgw-agent").stdout == "active\n"


def test_q4_cloud_init_is_done_without_a_word_of_complaint(node: Joined) -> None:
    verdict = node.machine.cloud_init()
    assert verdict.clean, verdict


def test_cloud_init_accepts_the_user_data(node: Joined) -> None:
    node.machine.path("/root/user-data").write_bytes(node.seed["user-data"])
    said = node.machine.run("cloud-init", *_schema(node.machine), "-c", "/root/user-data")
    assert "Valid" in said.stdout + said.stderr


def _schema(machine: Machine) -> list[str]:
    version = machine.run("cloud-init", "--version")
    return ["devel", "schema"] if " 20." in version.stdout + version.stderr else ["schema"]


def test_systemd_accepts_the_units(node: Joined) -> None:
    done = node.machine.run("systemd-analyze", "verify", *UNITS)
    assert done.stdout + done.stderr == ""


def test_u3_u4_no_ordering_cycle(node: Joined) -> None:
    assert "Started" in node.machine.journal()
    assert "ordering cycle" not in node.machine.journal().lower()


def test_x1_the_key_is_in_no_log(node: Joined) -> None:
    # The journal is read as text: on the disk it may be compressed.
    found = node.machine.run("grep", "-rlF", secret_of(node.seed).decode(), "/var/log", check=False)
    assert (found.returncode, found.stdout) == (1, ""), found
    assert secret_of(node.seed).decode() not in node.machine.journal("-a")


def test_the_key_was_never_open_to_others(node: Joined) -> None:
    assert node.watch.modes()[KEY] == {0o600}


def test_the_status_says_what_happened(node: Joined) -> None:
    status = json.loads(node.machine.read(STATUS))
    assert (status["state"], status["step"], status["trust"]) == ("accepted", "agent", "ok")
    assert status["release"] == "v0.9.1"
    said = node.machine.run("/usr/local/lib/llmgw/onboard", "status").stdout
    assert "the control plane takes the certificate: yes" in said


# The last of those that share a machine: it goes on with another boot.
def test_p1_after_a_reboot_it_joins_again_and_nothing_is_done_again(node: Joined) -> None:
    before, fetched = len(node.site.plane.joins), list(node.site.release.requests)
    held = {path: _state(node.machine, path) for path in MODES}
    node.machine.reboot()
    node.site.joined(before)
    assert node.machine.wait_for_cloud_init().clean
    node.machine.wait_for("onboard", lambda: _verdict(node.machine), 120)
    assert {path: _state(node.machine, path) for path in MODES} == held
    assert node.site.release.requests == fetched
    said = "applied already"
    node.machine.wait_for(said, lambda: said in node.machine.journal("-u", "llmgw-onboard"), 60)


def _state(machine: Machine, path: str) -> tuple[int, int, int]:
    state = machine.stat(path)
    return state.st_ino, state.st_mtime_ns, state.st_ctime_ns


def _verdict(machine: Machine) -> bytes:
    return machine.read("/run/llmgw-onboard/verdict")


@pytest.mark.parametrize("suite", ["bullseye", "trixie"])
def test_w3_d1_a_wrong_binary_is_not_installed_and_everybody_hears_of_it(
    site: Site, suite: str
) -> None:
    seed = site.seed()
    site.release.files["/llmgw"] = b"<html>not found</html>"
    with Machine(rootfs(suite), seed) as machine:
        machine.boot()
        verdict = machine.wait_for_cloud_init()
        assert verdict.status == "error"
        assert verdict.errors
        assert not machine.exists(BIN)
        assert not list(machine.path("/usr/local/bin").iterdir())
        assert (
            machine.run("systemctl", "is-active", "llmgw-agent", check=False).stdout == "inactive\n"
        )
        status = json.loads(machine.read(STATUS))
        assert (status["state"], status["step"]) == ("failed", "release")
        line = f"failed: release: {status['reason']}"
        assert f"{site.release.url}/llmgw has the digest" in line
        assert line in machine.journal("-u", "llmgw-onboard")
        assert line in machine.console()
        assert not site.plane.joins


def test_without_its_bootcmd_the_key_would_have_been_open(site: Site) -> None:
    """A seed made wrong on purpose: it shows that the watch above sees what it is there for."""
    seed = site.seed()
    wrong = seed | {"user-data": seed["user-data"].replace(b"(umask 077;", b"(exit 0;")}
    assert wrong != seed
    with (
        Machine(rootfs("bookworm"), wrong) as machine,
        Watch(machine.root, secret_of(seed)) as watch,
    ):
        machine.boot()
        machine.wait_for_cloud_init()
        assert 0o644 in watch.modes()[KEY]


# Not the units: systemd itself would wait for them.
WRITTEN = [
    "/etc/llmgw/ca.pem",
    "/etc/llmgw/agent.pem",
    KEY,
    "/etc/llmgw/agent.yaml",
    "/usr/local/lib/llmgw/onboard",
    "/etc/llmgw/seed.sha256",
]


@pytest.mark.parametrize("path", WRITTEN)
def test_power_lost_while_cloud_init_writes_a_file(site: Site, path: str) -> None:
    """A FIFO in a file's place stops cloud-init there, for certain."""

    def block(root: Path) -> None:
        fifo = root / path.lstrip("/")
        fifo.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(fifo, 0o600)

    suite = SUITES[WRITTEN.index(path) % len(SUITES)]
    seed = site.seed()
    with Machine(rootfs(suite), seed, edit=block) as machine:
        machine.boot()
        semaphore = "/var/lib/cloud/instance/sem/config_write_files"
        machine.wait_for("write_files", lambda: machine.exists(semaphore), 120)
        time.sleep(0.5)
        assert not machine.exists("/etc/llmgw/seed.sha256") or path == "/etc/llmgw/seed.sha256"
        machine.kill()
        (machine.root / path.lstrip("/")).unlink()
        machine.boot()
        site.joined(0)
        _is_complete(machine, seed)


MOMENTS = [
    "/var/lib/cloud/instance/user-data.txt",
    "/var/lib/cloud/instance/cloud-config.txt",
    "/var/lib/cloud/instance/sem/config_set_hostname",
    "/var/lib/cloud/instance/scripts/runcmd",
    "/var/lib/cloud/instance/sem/config_scripts_user",
    "/usr/local/share/ca-certificates/llmgw-ca.crt",
    BIN,
    "/etc/systemd/system/multi-user.target.wants/llmgw-agent.service",
    "/var/lib/llmgw-onboard/applied",
]


@pytest.mark.parametrize("path", MOMENTS)
def test_power_lost_as_soon_as_a_file_is_there(site: Site, path: str) -> None:
    suite = SUITES[MOMENTS.index(path) % len(SUITES)]
    seed = site.seed()
    with Machine(rootfs(suite), seed) as machine:
        machine.boot()
        machine.wait_for(path, lambda: machine.exists(path), 120)
        machine.kill()
        before = len(site.plane.joins)
        machine.boot()
        site.joined(before)
        _is_complete(machine, seed)


@pytest.mark.parametrize("delay", [0.3, 0.9, 1.5, 2.5])
def test_power_lost_at_some_moment(site: Site, delay: float) -> None:
    with Machine(rootfs("bookworm"), site.seed()) as machine:
        machine.boot()
        time.sleep(delay)
        machine.kill()
        before = len(site.plane.joins)
        machine.boot()
        site.joined(before)
