"""Which nodes of a fleet are meant: by name, all, a group's, a shard's."""

from __future__ import annotations

import difflib
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from generator import jobs, resolve, source
from generator.problem import Problem, Refused, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from generator.workspace import Workspace

CHUNK = 100
"""Nodes that are worked on, and counted as issued, together."""
_MOST = 1_000_000  # shards


@dataclass(frozen=True)
class Shard:
    """One part of `count`, by `number` from 1."""

    number: int
    count: int

    def has(self, node: str) -> bool:
        """Tell whether a node is in this shard: the same on every machine, for ever.

        The first 8 bytes of the node id's SHA-256 as a number, most significant first; the
        remainder by `count` is the shard's number less one.
        """
        number = int.from_bytes(hashlib.sha256(node.encode()).digest()[:8], "big")
        return number % self.count == self.number - 1


def shard(text: str) -> Shard:
    """Return the shard that ``3/8`` names; raise ValueError with what is wrong."""
    found = re.fullmatch(r"([0-9]{1,7})/([0-9]{1,7})", text)
    if not found:
        raise ValueError("such as 3/8: the third of eight")
    number, count = int(found[1]), int(found[2])
    if not 1 <= number <= count <= _MOST:
        raise ValueError(f"shards are counted from 1/N to N/N, and N is at most {_MOST}")
    return Shard(number, count)


def select(
    place: Workspace,
    nodes: Sequence[str],
    group: str | None,
    part: Shard | None,
    processes: int,
) -> list[str]:
    """Return the ids of the nodes that are meant, all where `nodes` is empty, each once.

    A node whose file cannot be read is in every group. Raises `Refused` for a group that there
    is not, and where there are no nodes at all.
    """
    if not nodes and (nothing := empty(place)):
        raise Refused(nothing)
    found = list(dict.fromkeys(nodes)) or list(place.node_ids)
    if part:
        found = [node for node in found if part.has(node)]
    if group is not None:
        _check_group(place, group)
        chosen = jobs.run(
            lambda chunk: resolve.members(place, found[chunk[0] : chunk[1]], group),
            chunks(len(found)),
            processes,
        )
        found = [node for each in chosen for node in each]
    return found


def empty(place: Workspace) -> list[Problem]:
    """Return an error where there are no nodes: all of them are right then, and none is meant.

    Not where something is wrong with fleet.yaml: they may be in what could not be read.
    """
    if place.node_ids or place.problems:
        return []
    hint = "gen-seed init makes a workspace; -C names one"
    return [Problem(f"there are no nodes in {place.root}", hint)]


def chunks(count: int) -> Iterator[tuple[int, int]]:
    """Give the bounds of the parts in which `count` nodes are worked on."""
    for start in range(0, count, CHUNK):
        yield start, min(start + CHUNK, count)


def _check_group(place: Workspace, group: str) -> None:
    known = source.entries(place.fleet, "groups")
    if group in known or not place.fleet_read:
        return
    near = difflib.get_close_matches(group, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known) or 'none'}"
    raise refuse(f"no group {group!r} in fleet.yaml", hint)
