"""Machines with a network of their own, set up from the spec by their Debian's own renderer."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from fleet import Fleet, write_fleet

from generator import authority
from generator.prove.machine import Machine
from generator.prove.rootfs import rootfs
from generator.prove.servers import ControlPlane, ReleaseServer, agent_binary

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.boot

BINARY = agent_binary("v0.9.1")
MAC = "52:54:00:5e:ed:07"
# Nobody's networks: RFC 2544's for benchmarks, and a unique local one.
HOST = {4: "198.18.7.1", 6: "fd00:5eed::1"}
NODE = {4: "198.18.7.7", 6: "fd00:5eed::7"}
FAR = {4: "203.0.113.9", 6: "2001:db8::9"}  # documentation's: behind the default route
PREFIX = {4: 24, 6: 64}
HERE, THERE = f"gs{os.getpid()}", f"gg{os.getpid()}"  # the cable's two ends
NOTES: list[Path] = []


def short(family: int) -> dict[str, Any]:
    return {
        "address": f"{NODE[family]}/{PREFIX[family]}",
        "gateway": HOST[family],
        "nameservers": [HOST[family]],
        "search": ["example.net"],
        "mtu": 1400,
    }


def long(family: int, **device: Any) -> dict[str, Any]:
    device |= {
        "addresses": [f"{NODE[family]}/{PREFIX[family]}"],
        "routes": [{"to": "default", "via": HOST[family]}],
        "nameservers": {"addresses": [HOST[family]], "search": ["example.net"]},
        "mtu": 1400,
    }
    # The second is a fabric's without a link: it must not hold the boot (N3).
    return {"version": 2, "ethernets": {THERE: device, "ib0": {"dhcp4": True, "optional": True}}}


@dataclass(frozen=True)
class Case:
    """A Debian, an IP family, and a spec; `interface` is the name that the guest's end gets."""

    suite: str
    family: int
    interface: str
    spec: dict[str, Any]


# On Debian 13 by name only: netplan matches a permanent address, and a virtual cable has none.
CASES = {
    "ifupdown-4": Case(
        "bullseye", 4, "mgmt0", {"mgmt_interface": "mgmt0", "network": short(4) | {"mac": MAC}}
    ),
    "ifupdown-6": Case(
        "bullseye",
        6,
        "mgmt0",
        {
            "mgmt_interface": "auto",
            "network": long(6, match={"macaddress": MAC.upper()}, **{"set-name": "mgmt0"}),
        },
    ),
    "netplan-4": Case("trixie", 4, THERE, {"mgmt_interface": "auto", "network": long(4)}),
    "netplan-6": Case("trixie", 6, THERE, {"mgmt_interface": THERE, "network": short(6)}),
}


def plug() -> None:
    """Lay a cable from this host to the next guest that boots; it goes when the guest does."""
    unplug()
    ip("link", "add", HERE, "type", "veth", "peer", "name", THERE, "address", MAC)
    for family, address in HOST.items():
        extra = ["nodad"] if family == 6 else []
        ip("address", "add", f"{address}/{PREFIX[family]}", "dev", HERE, *extra)
    ip("link", "set", HERE, "up")
    # nspawn waits for udev's note about an interface; a build machine may have no udev.
    if not Path("/run/udev/control").exists():
        note = Path(f"/run/udev/data/n{socket.if_nametoindex(THERE)}")
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text("I:1\n")
        NOTES.append(note)


def unplug() -> None:
    # A guest that is still dying may take it away in this very moment.
    subprocess.run(["ip", "link", "delete", HERE], check=False, stderr=subprocess.DEVNULL)
    for note in NOTES:
        note.unlink(missing_ok=True)
    NOTES.clear()


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@dataclass(frozen=True)
class Joined:
    case: Case
    machine: Machine
    plane: ControlPlane


@pytest.fixture(scope="module", params=CASES)
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Joined]:
    """A machine that has joined over the network that its spec asks for."""
    case = CASES[request.param]
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    fleet("ca", "init")
    ca, _ = authority.load(fleet.pki, datetime.now(UTC))
    host = HOST[case.family]
    plug()
    try:
        with (
            ReleaseServer(ca, {"/llmgw": BINARY}, address=host) as release,
            ControlPlane(ca, address=host) as plane,
        ):
            write_fleet(fleet, plane.url, f"{release.url}/llmgw", BINARY)
            fleet.write(n7=json.dumps({"mgmt_addr": "auto", **case.spec}))
            fleet("n7", "--as", "dir", "-o", "n7")
            seed = {path.name: path.read_bytes() for path in (fleet.root / "n7").iterdir()}
            cable = f"--network-interface={THERE}"
            with Machine(rootfs(case.suite, network=True), seed, arguments=[cable]) as machine:
                machine.boot()
                plane.wait_for_join(120)
                assert machine.wait_for_cloud_init().clean
                yield Joined(case, machine, plane)
    finally:
        unplug()


def test_n1_n3_n6_the_network_is_what_the_spec_asks_for(node: Joined) -> None:
    _is_as_asked(node)


def _is_as_asked(node: Joined) -> None:
    case, machine = node.case, node.machine
    (device,) = json.loads(machine.run("ip", "-json", "address", "show", case.interface).stdout)
    addresses = {(info["local"], info["prefixlen"]) for info in device["addr_info"]}
    assert (NODE[case.family], PREFIX[case.family]) in addresses
    if (case.suite, case.family) != ("bullseye", 6):  # whose ifupdown leaves it as it is
        assert device["mtu"] == 1400
    way = machine.run("ip", "-json", "route", "get", FAR[case.family]).stdout
    (route,) = json.loads(way)
    assert (route["gateway"], route["dev"]) == (HOST[case.family], case.interface)
    names = machine.read("/etc/resolv.conf").decode().splitlines()
    assert [line for line in names if line.startswith("nameserver")] == [
        f"nameserver {HOST[case.family]}"
    ]
    assert "search example.net" in names


def test_auto_is_the_address_and_the_interface_that_lead_to_the_server(node: Joined) -> None:
    told = node.plane.joins[-1].config
    assert told["mgmt_addr"] == NODE[node.case.family]
    assert told["mgmt_interface"] == node.case.interface
    kept = yaml.safe_load(node.machine.read("/etc/llmgw/agent.yaml"))
    assert (kept["mgmt_addr"], kept["mgmt_interface"]) == (told["mgmt_addr"], node.case.interface)


def test_netplan_takes_a_match_by_mac_address(node: Joined) -> None:
    """What a virtual cable cannot show: the files that netplan makes of it."""
    if node.case.suite == "bullseye":
        return  # it has no netplan
    from generator import emit
    from generator.network import netplan

    made = netplan(short(4) | {"mac": MAC.upper()}, "mgmt0")
    folder = node.machine.path("/root/by-mac/etc/netplan")
    folder.mkdir(parents=True)
    (folder / "50-cloud-init.yaml").touch(0o600)
    (folder / "50-cloud-init.yaml").write_text(emit.dump({"network": made}))
    node.machine.run("netplan", "generate", "--root-dir", "/root/by-mac")
    files = node.machine.path("/root/by-mac/run/systemd/network")
    link = (files / "10-netplan-mgmt.link").read_text().splitlines()
    network = (files / "10-netplan-mgmt.network").read_text().splitlines()
    assert {f"PermanentMACAddress={MAC}", "Name=mgmt0"} <= set(link)
    assert {f"Address={NODE[4]}/24", f"Gateway={HOST[4]}", f"DNS={HOST[4]}"} <= set(network)


# The last of those that share a machine: it goes on with another boot.
def test_after_a_reboot_the_network_is_the_same(node: Joined) -> None:
    before = len(node.plane.joins)
    node.machine.power_off()
    plug()
    node.machine.boot()
    node.plane.wait_for_join(120, after=before)
    assert node.machine.wait_for_cloud_init().clean
    _is_as_asked(node)
