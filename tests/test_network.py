from __future__ import annotations

import pytest

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
        {"to": "::/0", "via": "fe80::1"},
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
