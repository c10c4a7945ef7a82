"""Checks across the nodes of a fleet: what two nodes cannot both have, and what nobody uses."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from generator import source
from generator.located import path_text
from generator.network import KINDS, as_list
from generator.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from generator.located import Located

Place = tuple[str, "Located", str]
Node = tuple["Located", dict[str, Any]]


def contradictions(fleet: Located) -> Iterator[Problem]:
    """Yield what is wrong within a fleet.yaml that has passed its schema."""
    release, again = source.at(fleet, "release"), source.at(fleet, "defaults", "release")
    if release and again:
        mark = again.mark
        hint = f"keep one of them, the other is at {release.mark.file}:{release.mark.line}"
        yield Problem("release is given twice", hint, mark, "defaults.release")
    for name, group in source.entries(fleet, "groups").items():
        nested = source.at(group, "groups")
        if nested:
            hint = "list all groups in the nodes"
            path = path_text(["groups", name, "groups"])
            yield Problem("a group has no groups of its own", hint, nested.mark, path)


def check(fleet: Located, merged: Mapping[str, Node], *, complete: bool) -> Iterator[Problem]:
    """Yield what is wrong among nodes.

    `merged` are the merged specs by id, with and without positions; `complete` says that they
    are those of all nodes: only then can it be told that nobody uses a group.
    """
    places: dict[tuple[str, str], list[Place]] = {}
    for node_id, (spec, values) in merged.items():
        for what, value, steps in unique(values):
            located = source.at(spec, *steps)
            if located:
                place = (node_id, located, path_text(steps))
                places.setdefault((what, value), []).append(place)
    for (what, value), users in places.items():
        nodes = tuple(dict.fromkeys(node_id for node_id, _, _ in users))
        if len(nodes) > 1:
            yield _shared(what, value, users, nodes)
    if complete:
        yield from _unused_groups(fleet, merged)
        yield from _lonely_fabrics(merged)


def _shared(what: str, value: str, users: list[Place], nodes: tuple[str, ...]) -> Problem:
    _, last, path = users[-1]
    first = users[0][1].mark
    hint = f"first at {first.file}:{first.line}:{first.column}"
    if first == last.mark:
        hint = "write it for each node, not where they share it"
    message = f"{value} is the {what} of {len(nodes)} nodes"
    return Problem(message, hint, last.mark, path, nodes=nodes)


def unique(values: dict[str, Any]) -> Iterator[tuple[str, str, list[str | int]]]:
    """Yield what no other node may have: what it is, its normal form, its path."""
    if values.get("mgmt_addr", "auto") != "auto":
        yield "mgmt_addr", _address(values["mgmt_addr"]), ["mgmt_addr"]
    network = values.get("network", {})
    for index, address in enumerate(as_list(network.get("address"))):
        alone = isinstance(network["address"], str)
        steps: list[str | int] = ["network", "address"] if alone else ["network", "address", index]
        yield "network address", _address(address.partition("/")[0]), steps
    if "mac" in network:
        yield "MAC address", network["mac"].lower(), ["network", "mac"]
    for kind in KINDS:
        for name, device in network.get(kind, {}).items():
            yield from _unique_device(device, ["network", kind, name])


def _unique_device(
    device: dict[str, Any], steps: list[str | int]
) -> Iterator[tuple[str, str, list[str | int]]]:
    for index, address in enumerate(device.get("addresses", [])):
        plain = _address(address.partition("/")[0])
        yield "network address", plain, [*steps, "addresses", index]
    if "macaddress" in device.get("match", {}):
        yield "MAC address", device["match"]["macaddress"].lower(), [*steps, "match", "macaddress"]


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text.lower()


def _unused_groups(fleet: Located, merged: Mapping[str, Node]) -> Iterator[Problem]:
    groups = source.at(fleet, "groups")
    if groups is None:
        return
    used = {name for _, values in merged.values() for name in values.get("groups", [])}
    for name in sorted(groups.value.keys() - used):
        hint = f"groups: [{name}] in a node takes its settings"
        path = path_text(["groups", name])
        yield Problem("no node is in this group", hint, groups.keys[name], path, "warning")


def _lonely_fabrics(merged: Mapping[str, Node]) -> Iterator[Problem]:
    members: dict[str, list[tuple[str, Located, str]]] = {}
    for node_id, (spec, values) in merged.items():
        for index, fabric in enumerate(values.get("fabrics", [])):
            steps: list[str | int] = ["fabrics", index, "name"]
            located = source.at(spec, *steps)
            if located:
                members.setdefault(fabric["name"], []).append((node_id, located, path_text(steps)))
    for name, places in members.items():
        if len(places) == 1:
            node_id, located, path = places[0]
            message = f"{node_id} is the only node on the fabric {name!r}"
            hint = "no multi-node replica can run there; other nodes may spell its name differently"
            yield Problem(message, hint, located.mark, path, "warning", (node_id,))
