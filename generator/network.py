"""The short form of `network`, and netplan as it is, into what every cloud-init can read.

What holds for cloud-init 20.4 and later: routes instead of gateway4, which netplan has
deprecated (canonical/cloud-init#4031); a default route as 0.0.0.0/0, because its older renderers
know no `default`, and for IPv6 in three ways; MAC addresses in lower case; no `network:` around it.
"""

from __future__ import annotations

from typing import Any

_MATCH = "mgmt"  # the id of an interface that is found by its MAC address
# To 22.4 cloud-init loses a prefix length of 0 and makes ::/64 of ::/0 wherever it does not
# leave the file to netplan (network_state.py, _normalize_net_keys): the halves are there for it.
_DEFAULT = {4: ("0.0.0.0/0",), 6: ("::/0", "::/1", "8000::/1")}
KINDS = ("ethernets", "bonds", "bridges", "vlans")


def netplan(network: dict[str, Any], interface: str) -> dict[str, Any]:
    """Return netplan version 2, without ``network:``, for a network that passed its checks.

    `interface` is the management interface; all others become optional, so that a fabric
    without a link does not hold the boot (systemd#14496).
    """
    if "version" in network:
        return _normal(network, interface)
    return {"version": 2, "ethernets": _management(network, interface)}


def _management(short: dict[str, Any], interface: str) -> dict[str, Any]:
    device: dict[str, Any] = {}
    if "mac" in short:
        device["match"] = {"macaddress": short["mac"].lower()}
        device["set-name"] = interface
    device["dhcp4"] = short.get("dhcp", False)
    if "address" in short:
        device["addresses"] = as_list(short["address"])
    gateways = [{"to": "default", "via": via} for via in as_list(short.get("gateway"))]
    routes = _routes([*gateways, *short.get("routes", [])])
    if routes:
        device["routes"] = routes
    nameservers = {
        ours: short[theirs]
        for ours, theirs in (("addresses", "nameservers"), ("search", "search"))
        if short.get(theirs)
    }
    if nameservers:
        device["nameservers"] = nameservers
    if "mtu" in short:
        device["mtu"] = short["mtu"]
    return {_MATCH if "mac" in short else interface: device}


def _normal(network: dict[str, Any], interface: str) -> dict[str, Any]:
    result = dict(network)
    for kind in KINDS:
        if kind in network:
            result[kind] = {name: _device(device) for name, device in network[kind].items()}
    devices = {name: device for kind in KINDS for name, device in result.get(kind, {}).items()}
    if any(_is(name, device, interface) for name, device in devices.items()):
        for name, device in devices.items():
            if not _is(name, device, interface):
                device.setdefault("optional", True)
    return result


def _is(name: str, device: dict[str, Any], interface: str) -> bool:
    return bool(device.get("set-name", name) == interface)


def _device(device: dict[str, Any]) -> dict[str, Any]:
    result = dict(device)
    if "macaddress" in result:
        result["macaddress"] = result["macaddress"].lower()
    if "macaddress" in result.get("match", {}):
        result["match"] = {**result["match"], "macaddress": result["match"]["macaddress"].lower()}
    if "routes" in result:
        result["routes"] = _routes(result["routes"])
    return result


def _routes(routes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return routes, the default ones as every renderer understands them."""
    return [{**route, "to": to} for route in routes for to in _destinations(route)]


def _destinations(route: dict[str, Any]) -> tuple[str, ...]:
    if route["to"] != "default" and not route["to"].endswith("/0"):
        return (route["to"],)
    return _DEFAULT[6 if ":" in route["via"] else 4]


def as_list(value: str | list[str] | None) -> list[str]:
    """Return a value that may be given alone or as a list, as a list."""
    return [value] if isinstance(value, str) else value or []
