"""Checks of one node's network: its addresses, gateways and devices."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from generator.located import problem_at
from generator.network import KINDS, as_list

if TYPE_CHECKING:
    from collections.abc import Iterator

    from generator.located import Located
    from generator.problem import Problem

Interfaces = list["ipaddress.IPv4Interface | ipaddress.IPv6Interface"]
Steps = list[str | int]


def check(merged: Located, values: dict[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong with `network`, which has passed the schema."""
    network = values.get("network")
    if network is None:
        return
    if "version" in network:
        yield from _netplan(merged, network)
    else:
        yield from _short(merged, network, values)


def _short(merged: Located, network: dict[str, Any], values: dict[str, Any]) -> Iterator[Problem]:
    addresses, gateways = as_list(network.get("address")), as_list(network.get("gateway"))
    dhcp = network.get("dhcp", False)
    if values.get("mgmt_interface") == "auto":
        message = "network needs to know the interface's name, and mgmt_interface is auto"
        hint = "give mgmt_interface, such as eth0; with network.mac the interface is renamed to it"
        yield problem_at(merged, ["mgmt_interface"], message, hint)
    if not addresses and not dhcp:
        message = "neither an address nor dhcp"
        yield problem_at(
            merged, ["network"], message, "such as {address: 10.0.0.107/24} or {dhcp: true}"
        )
    subnets = list(_interfaces(addresses))
    yield from _own_addresses(merged, _places("address", network), subnets)
    families = [":" in gateway for gateway in gateways]
    for steps, gateway in zip(_places("gateway", network), gateways, strict=True):
        if families.count(":" in gateway) > 1:
            message = f"{gateway} is one of two gateways of one family"
            yield problem_at(merged, steps, message, "one for IPv4 and one for IPv6")
        else:
            yield from _way(merged, steps, gateway, subnets, dhcp=False)
    for index, route in enumerate(network.get("routes", [])):
        yield from _route(merged, ["network", "routes", index], route, subnets, dhcp=dhcp)
    if not dhcp:
        yield from _mgmt_addr(merged, values.get("mgmt_addr", ""), subnets)


def _mgmt_addr(merged: Located, mgmt_addr: str, subnets: Interfaces) -> Iterator[Problem]:
    try:
        address = ipaddress.ip_address(mgmt_addr)
    except ValueError:
        return
    if subnets and address not in [subnet.ip for subnet in subnets]:
        message = f"{mgmt_addr} is not an address that network gives the node"
        hint = "right only where that address is translated to the node's own"
        yield problem_at(merged, ["mgmt_addr"], message, hint, "warning")


def _places(name: str, network: dict[str, Any]) -> list[Steps]:
    value = network.get(name, [])
    if isinstance(value, str):
        return [["network", name]]
    return [["network", name, index] for index in range(len(value))]


def _interfaces(addresses: list[str]) -> Iterator[Any]:
    return (ipaddress.ip_interface(address) for address in addresses)


def _own_addresses(merged: Located, places: list[Steps], subnets: Interfaces) -> Iterator[Problem]:
    for steps, subnet in zip(places, subnets, strict=True):
        network = subnet.network
        if network.prefixlen >= network.max_prefixlen - 1:
            continue  # both addresses of a pair are usable (RFC 3021, RFC 6164)
        if subnet.ip == network.network_address:
            message = f"{subnet} is the network itself, not an address in it"
        elif isinstance(network, ipaddress.IPv4Network) and subnet.ip == network.broadcast_address:
            message = f"{subnet} is the network's broadcast address"
        else:
            continue
        yield problem_at(merged, steps, message, f"one of {_range(network)}")


def _range(network: Any) -> str:
    last = -2 if isinstance(network, ipaddress.IPv4Network) else -1
    return f"{network[1]} to {network[last]}"


def _way(
    merged: Located, steps: Steps, via: str, subnets: Interfaces, *, dhcp: bool
) -> Iterator[Problem]:
    """Check that a gateway can be reached: it is in a subnet of the interface, and not its own."""
    address = ipaddress.ip_address(via)
    family = [subnet for subnet in subnets if subnet.version == address.version]
    if address in [subnet.ip for subnet in family]:
        yield problem_at(
            merged, steps, f"{via} is the node's own address", "a gateway is another machine"
        )
    elif address.is_link_local or dhcp or any(address in subnet.network for subnet in family):
        return
    elif family:
        subnet_names = " or ".join(str(subnet.network) for subnet in family)
        message = f"{via} is not in {subnet_names}, so the node cannot reach it"
        yield problem_at(merged, steps, message, "check the address, its prefix length and this")
    else:
        message = f"{via} without an IPv{address.version} address"
        hint = "give the interface an address of that family; with DHCP leave the gateway out"
        yield problem_at(merged, steps, message, hint)


def _route(
    merged: Located, steps: Steps, route: dict[str, Any], subnets: Interfaces, *, dhcp: bool
) -> Iterator[Problem]:
    to, via = route["to"], route["via"]
    if to != "default" and (":" in to) != (":" in via):
        message = f"{via} is of another family than {to}"
        yield problem_at(merged, [*steps, "via"], message, "IPv4 via IPv4, IPv6 via IPv6")
    elif not route.get("on-link"):
        yield from _way(merged, [*steps, "via"], via, subnets, dhcp=dhcp)


def _netplan(merged: Located, network: dict[str, Any]) -> Iterator[Problem]:
    kind_of: dict[str, str] = {}
    for kind in KINDS:
        for name, device in network.get(kind, {}).items():
            steps: Steps = ["network", kind, name]
            if kind_of.setdefault(name, kind) != kind:
                message = f"{name!r} is also the name of one of the {kind_of[name]}"
                yield problem_at(merged, steps, message, "each device has its own name")
            yield from _device(merged, steps, device)
    for kind in KINDS:
        for name, device in network.get(kind, {}).items():
            yield from _references(merged, ["network", kind, name], device, kind_of)


def _device(merged: Located, steps: Steps, device: dict[str, Any]) -> Iterator[Problem]:
    addresses = device.get("addresses", [])
    subnets = list(_interfaces(addresses))
    places: list[Steps] = [[*steps, "addresses", index] for index in range(len(addresses))]
    yield from _own_addresses(merged, places, subnets)
    if "set-name" in device and "match" not in device:
        message = "set-name without match: netplan would not know which device to rename"
        hint = "such as match: {macaddress: 52:54:00:12:34:56}"
        yield problem_at(merged, [*steps, "set-name"], message, hint)
    dhcp = any(device.get(key) for key in ("dhcp4", "dhcp6"))
    for index, route in enumerate(device.get("routes", [])):
        yield from _route(merged, [*steps, "routes", index], route, subnets, dhcp=dhcp)


def _references(
    merged: Located, steps: Steps, device: dict[str, Any], known: dict[str, str]
) -> Iterator[Problem]:
    uses: list[tuple[Steps, str]] = [
        ([*steps, "interfaces", index], name)
        for index, name in enumerate(device.get("interfaces", []))
    ]
    if "link" in device:
        uses.append(([*steps, "link"], device["link"]))
    for place, name in uses:
        if name not in known:
            message = f"there is no device {name!r}"
            yield problem_at(
                merged, place, message, f"write it under ethernets, such as {name}: {{}}"
            )
