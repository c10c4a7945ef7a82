"""Baked images that boot: the release server is off, and the node joins."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet, write_fleet
from images import disk_of, mounted, needs_disks
from test_boot import BIN, KEY, STATUS, read_iso, secret_of

from generator import authority
from generator.prove.machine import Machine
from generator.prove.qemu import VirtualMachine
from generator.prove.rootfs import rootfs
from generator.prove.servers import ControlPlane, agent_binary

pytestmark = pytest.mark.boot

BINARY = agent_binary("v0.9.1")
NOWHERE = "https://127.0.0.1:9/llmgw"  # nothing listens there: the release server is off
EMPTY = {
    "meta-data": b"instance-id: i-1\nlocal-hostname: i1\n",
    "user-data": b"#cloud-config\ntimezone: UTC\n",
}
SUITES = ("bookworm", "trixie")
SIZE = "2G"
DEADLINE = 360  # seconds for a virtual machine


@dataclass(frozen=True)
class Site:
    """A fleet whose release is at hand and is served nowhere, and its control plane."""

    fleet: Fleet
    plane: ControlPlane

    def bake(self, *arguments: str) -> str:
        return self.fleet("bake", "--binary", "llmgw", *arguments).stderr.decode()

    def seed(self, node: str = "n7", fetch: str = "if-needed") -> dict[str, bytes]:
        self.fleet.write(**{node: json.dumps({"release": {"fetch": fetch}})})
        return read_iso(self.fleet(node).stdout)

    def joined(self, node: str = "n7", after: int = 0) -> None:
        assert self.plane.wait_for_join(120, after=after).common_name == node


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    fleet = Fleet(tmp_path)
    fleet("ca", "init")
    (tmp_path / "llmgw").write_bytes(BINARY)
    ca, _ = authority.load(fleet.pki, datetime.now(UTC))
    with ControlPlane(ca) as plane:
        write_fleet(fleet, plane.url, NOWHERE, BINARY)
        yield Site(fleet, plane)


@contextmanager
def baked(site: Site, kind: str, tree: Path) -> Iterator[dict[str, Any]]:
    """Yield how a machine is made from a tree that was baked so."""
    if kind == "tar":
        tar = site.fleet.root / "baked.tar"
        site.bake("--tar", str(tar))
        yield {
            "tree": tree,
            "edit": lambda root: subprocess.run(["tar", "-xpf", tar, "-C", root], check=True),
        }
    elif kind == "root":
        yield {"tree": tree, "edit": lambda root: site.bake("--rootfs", str(root))}
    else:
        disk = disk_of(tree, site.fleet.root / "disk.raw", SIZE)
        site.bake("--image", str(disk))
        with mounted(disk, how="ro") as root:
            yield {"tree": root}


@needs_disks
@pytest.mark.parametrize(
    ("suite", "kind"),
    # bookworm's raw image is the one of which two nodes are made, below.
    [*((suite, kind) for suite in SUITES for kind in ("tar", "root")), ("trixie", "raw")],
)
def test_a_baked_image_joins_with_the_release_server_off(site: Site, suite: str, kind: str) -> None:
    """And the seed leaves out what the image has (from a tar, from a disk)."""
    seed = site.seed(fetch="if-needed" if kind == "root" else "never")
    assert (b"#!/bin/sh" in seed["user-data"]) == (kind == "root")
    # An image with a seed in it is refused: it is baked before it gets this one.
    with baked(site, kind, rootfs(suite)) as made, Machine(seed=EMPTY, **made) as machine:
        machine.attach(seed)
        machine.boot()
        site.joined()
        assert machine.read(BIN) == BINARY
        assert "fetching" not in machine.journal("-u", "llmgw-onboard")
        assert machine.run("systemctl", "is-enabled", "llmgw-agent").stdout == "enabled\n"
        if kind == "tar":  # to the end, which takes longer
            assert machine.wait_for_cloud_init().clean
            assert json.loads(machine.read(STATUS))["trust"] == "ok"
            assert "ordering cycle" not in machine.journal().lower()


@pytest.mark.parametrize("suite", SUITES)
def test_a_baked_image_without_a_seed_is_quiet_and_takes_one_later(site: Site, suite: str) -> None:
    with (
        baked(site, "root", rootfs(suite)) as made,
        Machine(seed=EMPTY, **made) as machine,
    ):
        machine.boot()
        assert machine.wait_for_cloud_init().clean
        units = machine.run("systemctl", "list-units", "--all", "--plain", "llmgw-*").stdout
        assert " active " not in units
        assert "llmgw" not in machine.run("systemctl", "--failed", "--plain").stdout
        assert machine.run("systemctl", "is-enabled", "llmgw-agent", check=False).returncode == 1
        assert not machine.exists("/var/lib/llmgw-onboard/status.json")
        machine.power_off()
        machine.attach(site.seed())
        machine.boot()
        site.joined()


def test_a_release_that_the_image_has_not_is_an_error_at_once(site: Site) -> None:
    newer = agent_binary("v0.9.2")
    with baked(site, "root", rootfs("bookworm")) as made:
        made["edit"], bake = None, made["edit"]
        with Machine(seed=EMPTY, **made) as machine:
            bake(machine.root)
            write_fleet(site.fleet, site.plane.url, NOWHERE, newer)
            machine.attach(site.seed(fetch="never"))
            machine.boot()
            verdict = machine.wait_for_cloud_init()
            status = json.loads(machine.read(STATUS))
    assert (verdict.status, verdict.exit_code) == ("error", 1)
    assert (status["state"], status["step"]) == ("failed", "release")
    assert "release.fetch is never, and the digest of /usr/local/bin/llmgw is" in status["reason"]
    assert site.plane.joins == []


def found_in(disk: Path, texts: list[bytes]) -> list[bytes]:
    """Return which of the texts are anywhere in a disk, what is free of it included."""
    left, kept = list(texts), b""
    with disk.open("rb") as file:
        while piece := file.read(16 << 20):
            left = [text for text in left if text not in kept + piece]
            kept = piece[-100:]
    return [text for text in texts if text not in left]


@needs_disks
def test_an_onboarded_disk_becomes_an_image_for_two_nodes(site: Site, tmp_path: Path) -> None:
    disk = disk_of(rootfs("bookworm"), tmp_path / "disk.raw", SIZE)
    first = site.seed()
    site.fleet("bake", "--image", str(disk), "--binary", "llmgw")
    with mounted(disk) as root:
        with Machine(root, first, in_place=True) as machine:
            machine.boot()
            site.joined()  # with the release server off
            machine.wait_for_cloud_init()
            machine.power_off()
        old = unique(root)
    # The lines of the key but its first, which is the same in every P-256 key.
    lines = [line.strip() for line in first["user-data"].splitlines()]
    start = lines.index(b"-----BEGIN PRIVATE KEY-----") + 2
    key = lines[start : start + 2]
    assert key[0] == secret_of(first)
    assert found_in(disk, key) == key
    said = site.bake("--image", str(disk), "--generalize")
    assert f"{disk}: took away the node's identity and settings: /etc/llmgw/agent" in said
    assert found_in(disk, key) == []
    assert "identity     none\n" in site.fleet("inspect", str(disk)).stdout.decode()
    seen = [old]
    with mounted(disk, how="ro") as root:
        for node in ("n8", "n9"):
            joins = len(site.plane.joins)
            with Machine(root, site.seed(node)) as machine:
                machine.boot()
                site.joined(node, after=joins)
                assert machine.wait_for_cloud_init().clean
                assert machine.hostname() == node
                seen.append(unique(machine.root))
    assert len({join.serial for join in site.plane.joins}) == 3
    for thing in zip(*seen, strict=True):
        assert len(set(thing)) == 3, thing


def unique(root: Path) -> tuple[bytes, bytes, bytes]:
    """Return a machine's key, its machine-id, and its host keys."""
    keys = sorted((root / "etc/ssh").glob("ssh_host_*_key"))
    assert keys
    return (
        (root / KEY[1:]).read_bytes(),
        (root / "etc/machine-id").read_bytes(),
        b"".join(key.read_bytes() for key in keys),
    )


@pytest.mark.qemu
@needs_disks
def test_a_baked_disk_boots_under_a_kernel_of_its_own(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet("ca", "init")
    (tmp_path / "llmgw").write_bytes(BINARY)
    ca, _ = authority.load(fleet.pki, datetime.now(UTC))
    with ControlPlane(ca) as plane:
        write_fleet(fleet, plane.forwarded_url, NOWHERE, BINARY)
        config = {"ssh_genkeytypes": ["ed25519"]}
        fleet.write(n7=json.dumps({"release": {"fetch": "never"}, "cloud_config": config}))
        iso = tmp_path / "n7.iso"
        iso.write_bytes(fleet("n7").stdout)
        tree = rootfs("bookworm", kernel=True)
        with VirtualMachine(tree, iso, forward=[plane.server_port]) as machine:
            fleet("bake", "--image", str(machine.image), "--binary", "llmgw")
            machine.boot()
            machine.wait_for("the join", lambda: plane.joins[:1], DEADLINE)
            machine.power_off()
            with machine.disk() as root:
                assert (root / BIN[1:]).read_bytes() == BINARY
                assert (root / "etc/llmgw/baked.json").exists()


OLD_HELP = """\
usage: llama-server [options]

-m, --model FNAME   model path
-h, --help          print usage and exit
--host HOST         ip address to listen on
"""


def test_the_engines_of_an_image_are_asked(site: Site) -> None:
    with Machine(rootfs("bookworm"), EMPTY) as machine:
        engine = machine.root / "usr/bin/llama-server"
        engine.write_text(f"#!/bin/sh\ncat <<'END'\n{OLD_HELP}END\n")
        engine.chmod(0o755)
        shutil.rmtree(machine.root / "var/lib/cloud/seed")
        root = str(machine.root)
        done = site.fleet("bake", "--binary", "llmgw", "--rootfs", root, "--strict", check=False)
        assert done.returncode == 1
        assert b"error: /usr/bin/llama-server --help: llama.cpp does not know --" in done.stderr
        assert not (machine.root / "etc/llmgw").exists()
        said = site.bake("--rootfs", root)
        assert "warning: /usr/bin/llama-server --help: llama.cpp does not know --" in said
        assert "llamacpp: /usr/bin/llama-server --help: missing" in said
        assert (machine.root / "etc/llmgw/baked.json").exists()
