from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from generator import emit, schema, source
from generator.network import netplan


def test_a_static_address() -> None:
    short = {"address": "10.0.0.107/24", "gateway": "10.0.0.1", "nameservers": ["10.0.0.1"]}
    assert netplan(short, "eth0") == {
        "version": 2,
        "ethernets": {
            "eth0": {
                "dhcp4": False,
                "addresses": ["10.0.0.107/24"],
                "routes": [{"to": "0.0.0.0/0", "via": "10.0.0.1"}],
                "nameservers": {"addresses": ["10.0.0.1"]},
            }
        },
    }


def test_n6_a_default_route_is_written_as_every_renderer_reads_it() -> None:
    short = {"address": ["10.0.0.7/24", "fd00::7/64"], "gateway": ["10.0.0.1", "fe80::1"]}
    device = netplan(short, "eth0")["ethernets"]["eth0"]
    assert device["routes"] == [
        {"to": "0.0.0.0/0", "via": "10.0.0.1"},
        *({"to": to, "via": "fe80::1"} for to in ("::/0", "::/1", "8000::/1")),
    ]
    assert device["addresses"] == ["10.0.0.7/24", "fd00::7/64"]
    assert not [key for key in device if key.startswith("gateway")]


def test_an_interface_that_is_found_by_its_mac_address() -> None:
    short = {"dhcp": True, "mac": "52:54:00:AA:BB:CC", "mtu": 9000, "search": ["example.net"]}
    assert netplan(short, "mgmt0")["ethernets"] == {
        "mgmt": {
            "match": {"macaddress": "52:54:00:aa:bb:cc"},
            "set-name": "mgmt0",
            "dhcp4": True,
            "nameservers": {"search": ["example.net"]},
            "mtu": 9000,
        }
    }


def test_routes_of_the_short_form() -> None:
    routes = [
        {"to": "default", "via": "10.0.0.9", "metric": 5},
        {"to": "10.1.0.0/16", "via": "10.0.0.2"},
    ]
    device = netplan({"address": "10.0.0.7/24", "routes": routes}, "eth0")["ethernets"]["eth0"]
    assert device["routes"] == [{"to": "0.0.0.0/0", "via": "10.0.0.9", "metric": 5}, routes[1]]


@pytest.mark.parametrize("interface", ["eth0", "mgmt0"])
def test_n3_all_but_the_management_interface_is_optional(interface: str) -> None:
    given = {
        "version": 2,
        "ethernets": {
            "a": {"match": {"macaddress": "52:54:00:AA:BB:CC"}, "set-name": interface},
            "ib0": {"dhcp4": True},
            "ib1": {"optional": False},
        },
        "vlans": {"v": {"id": 1, "link": "ib0", "macaddress": "52:54:00:AA:BB:CD"}},
    }
    made = netplan(given, interface)
    assert "optional" not in made["ethernets"]["a"]
    assert made["ethernets"]["a"]["match"]["macaddress"] == "52:54:00:aa:bb:cc"
    assert made["ethernets"]["ib0"] == {"dhcp4": True, "optional": True}
    assert made["ethernets"]["ib1"] == {"optional": False}
    assert made["vlans"]["v"]["optional"] is True
    assert made["vlans"]["v"]["macaddress"] == "52:54:00:aa:bb:cd"
    assert "optional" not in given["ethernets"]["ib0"]  # type: ignore[index]


def test_nothing_is_optional_where_the_management_interface_is_unknown() -> None:
    given = {"version": 2, "ethernets": {"all": {"match": {"name": "en*"}, "dhcp4": True}}}
    assert netplan(given, "auto") == given


def test_n1_there_is_no_network_around_it() -> None:
    for network in ({"dhcp": True}, {"version": 2, "ethernets": {}}):
        assert netplan(network, "eth0")["version"] == 2
        assert "network" not in netplan(network, "eth0")


def test_y1_every_mac_address_is_written_in_quotes() -> None:
    """All of digits, PyYAML would read it as a number to the base 60 (ubicloud#4819)."""
    mac = "12:40:37:27:57:41"
    assert isinstance(yaml.safe_load(f"mac: {mac}")["mac"], int)
    device = {"match": {"macaddress": mac}, "macaddress": mac}
    for network in ({"dhcp": True, "mac": mac}, {"version": 2, "ethernets": {"a": device}}):
        text = emit.dump(netplan(network, "eth0"))
        assert re.findall(r"macaddress: (.*)", text)
        assert set(re.findall(r"macaddress: (.*)", text)) == {f'"{mac}"'}


def test_n1_the_version_is_a_number_in_the_file() -> None:
    for network in ({"dhcp": True}, {"version": 2, "ethernets": {}}):
        text = emit.dump(netplan(network, "eth0"))
        assert text.startswith("version: 2\n")
        assert yaml.safe_load(text)["version"] == 2


INFINIBAND = "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:1b:2c"


@pytest.mark.parametrize(
    "network",
    [
        {"dhcp": True, "mac": INFINIBAND},
        {"version": 2, "ethernets": {"ib0": {"match": {"macaddress": INFINIBAND}}}},
        {"version": 2, "ethernets": {"ib0": {"macaddress": INFINIBAND}}},
        {"version": 2, "bonds": {"b": {"macaddress": INFINIBAND}}},
    ],
)
def test_n4_a_20_byte_address_is_refused_and_another_way_is_named(network: dict[str, Any]) -> None:
    document = source.parse(json.dumps({"network": network}).encode(), "n7.yaml")
    (problem,) = schema.problems(document, "node")
    assert "its name or driver can" in problem.message
    assert problem.where


@pytest.mark.parametrize("match", [{"name": "ib*"}, {"driver": "ib_ipoib"}])
def test_n4_an_infiniband_interface_is_matched_by_name_or_driver(match: dict[str, str]) -> None:
    device = {"match": match, "addresses": ["10.9.0.7/24"]}
    network = {"version": 2, "ethernets": {"eth0": {"dhcp4": True}, "ib": device}}
    document = source.parse(json.dumps({"network": network}).encode(), "n7.yaml")
    assert schema.problems(document, "node") == []
    made = yaml.safe_load(emit.dump(netplan(network, "eth0")))
    assert made["ethernets"]["ib"] == {**device, "optional": True}


@pytest.mark.parametrize("key", ["gateway4", "gateway6"])
def test_n6_what_netplan_has_deprecated_is_refused_with_what_to_write(key: str) -> None:
    network = {"version": 2, "ethernets": {"eth0": {key: "10.0.0.1"}}}
    document = source.parse(json.dumps({"network": network}).encode(), "n7.yaml")
    (problem,) = schema.problems(document, "node")
    assert "write routes" in problem.hint


@pytest.mark.parametrize("to", ["default", "::/0"])
def test_n6_a_default_route_of_ipv6_has_halves_for_old_renderers(to: str) -> None:
    """They make ::/64 of ::/0, which is no way anywhere."""
    route = {"to": to, "via": "fe80::1", "metric": 5, "on-link": True}
    network = {"version": 2, "ethernets": {"eth0": {"routes": [route]}}}
    made = netplan(network, "eth0")["ethernets"]["eth0"]["routes"]
    assert made == [{**route, "to": to} for to in ("::/0", "::/1", "8000::/1")]
