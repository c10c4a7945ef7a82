"""A fleet in one view: what its nodes share, and when their certificates end.

Takes what other steps have found, and says nothing that may be a secret: of a release's URLs
only the hosts (a query may hold a token), of a proxy nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from generator import standing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from generator.problem import Problem
    from generator.resolve import Outcome
    from generator.spec import Fabric, Release, Spec
    from generator.standing import Standing

STATES = ("good", "soon", "expired", "revoked", "none")
"""How a node's certificate stands: as the ledger says, or ``soon`` where a good one ends soon."""
_ENDING = ("expired", "soon", "good")  # those whose end matters, in its order


@dataclass(frozen=True)
class Certificate:
    """A node's certificate: one of `STATES`, its end (RFC 3339), the whole days until then."""

    state: str
    end: str = ""
    days: int = 0


@dataclass(frozen=True)
class Node:
    """A node's row; `words` is what a search finds it by, beside what the row shows.

    `certificate` is None where there is no ledger to ask.
    """

    node_id: str
    address: str
    groups: tuple[str, ...]
    fabrics: tuple[Fabric, ...]
    release: str
    certificate: Certificate | None
    words: tuple[str, ...]


@dataclass(frozen=True)
class Share:
    """What some nodes have in common; `word` finds exactly these."""

    name: str
    detail: tuple[str, ...]
    word: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Month:
    """A month (``2027-03``) of the time line: the nodes whose certificates end in it, by state.

    `gap` counts the months since the one before, which nothing happens in. `now` says that the
    report was made in it, `authority` that the authority ends in it.
    """

    name: str
    gap: int
    ends: Mapping[str, tuple[str, ...]]
    now: bool
    authority: bool

    @property
    def count(self) -> int:
        """How many certificates end in it."""
        return sum(map(len, self.ends.values()))


@dataclass(frozen=True)
class Report:
    """All that the page shows. `wrong` are the ids of the nodes that have no sound spec.

    `problems` are told each with the nodes that it concerns. `superseded` counts certificates
    that still work beside newer ones; `strangers` are nodes of the ledger, not of the fleet,
    whose certificates still work.
    """

    now: datetime
    nodes: tuple[Node, ...]
    wrong: tuple[str, ...]
    problems: tuple[tuple[Problem, tuple[str, ...]], ...]
    servers: tuple[Share, ...]
    groups: tuple[Share, ...]
    fabrics: tuple[Share, ...]
    releases: tuple[Share, ...]
    states: Mapping[str, int]
    months: tuple[Month, ...]
    superseded: int
    strangers: tuple[str, ...]


def make(
    node_ids: Iterable[str],
    outcome: Outcome,
    issued: Sequence[Standing] | None,
    authority_end: datetime | None,
    now: datetime,
) -> Report:
    """Return the report of a fleet with these nodes, of which `outcome` has the sound ones.

    `issued` is the whole ledger as `standing.standings` gives it, None where there is none.
    """
    ids = sorted(node_ids, key=_natural)
    specs = outcome.specs
    sound = [specs[node_id] for node_id in ids if node_id in specs]
    held = None if issued is None else _held(issued, now)
    nodes = tuple(_node(spec, held) for spec in sound)
    working = [one for one in issued or () if one.state in ("good", "superseded")]
    return Report(
        now=now,
        nodes=nodes,
        wrong=tuple(node_id for node_id in ids if node_id not in specs),
        problems=tuple((problem, _concerned(problem)) for problem in outcome.problems),
        servers=_shares((_server(spec), spec) for spec in sound),
        groups=_shares((_group(name), spec) for spec in sound for name in spec.groups),
        fabrics=_shares((_fabric(fabric), spec) for spec in sound for fabric in spec.fabrics),
        releases=_shares((_release(spec.release), spec) for spec in sound),
        states={state: len(ids) for state, ids in _by_state(nodes, STATES).items()},
        months=_months(nodes, authority_end, now) if held is not None else (),
        superseded=sum(one.state == "superseded" for one in working),
        strangers=tuple(sorted({one.row.node for one in working}.difference(ids), key=_natural)),
    )


def _natural(text: str) -> tuple[list[str | int], str]:
    """Return what puts n10 behind n9; texts and numbers take turns in it."""
    parts = re.split("([0-9]+)", text)
    return [int(part) if number % 2 else part for number, part in enumerate(parts)], text


def _concerned(problem: Problem) -> tuple[str, ...]:
    if problem.nodes or not problem.where:
        return problem.nodes
    file = PurePath(problem.where.file)
    return (file.stem,) if file.parent.name == "nodes" else ()


def _node(spec: Spec, held: Mapping[str, Certificate] | None) -> Node:
    certificate = None if held is None else held.get(spec.node_id, Certificate("none"))
    shares = [_server(spec), _release(spec.release), *map(_group, spec.groups)]
    shares += map(_fabric, spec.fabrics)
    words = [f"node:{spec.node_id}", f"release:{spec.release.version}"]
    words += [share[2] for share in shares]
    words += [f"fabric:{fabric.name}" for fabric in spec.fabrics]
    words += [f"hca:{hca}" for fabric in spec.fabrics for hca in fabric.hcas]
    if certificate:
        words += [f"certificate:{certificate.state}", *_ends(certificate)]
    return Node(
        node_id=spec.node_id,
        address=spec.mgmt_addr,
        groups=spec.groups,
        fabrics=spec.fabrics,
        release=spec.release.version,
        certificate=certificate,
        words=tuple(words),
    )


# ---- what nodes have in common: a name, what else there is to it, and the word that finds it ----

_Common = tuple[str, tuple[str, ...], str]


def _server(spec: Spec) -> _Common:
    return spec.server, (), f"server:{spec.server}"


def _group(name: str) -> _Common:
    return name, (), f"group:{name}"


def _fabric(fabric: Fabric) -> _Common:
    return fabric.name, fabric.hcas, f"fabric:{fabric.name}={','.join(fabric.hcas)}"


def _release(release: Release) -> _Common:
    digests = [(arch, digest[:12]) for arch, digest in sorted(release.sha256.items())]
    hosts = list(dict.fromkeys(urlsplit(url).hostname or "" for url in release.urls))
    where = "in the image" if release.baked else f"from {', '.join(hosts)}"
    told = ",".join([*(digest for _, digest in digests), *(["image"] if release.baked else hosts)])
    detail = (*(f"{arch} {digest}…" for arch, digest in digests), where)
    return release.version, detail, f"release:{release.version}={told}"


def _shares(found: Iterable[tuple[_Common, Spec]]) -> tuple[Share, ...]:
    nodes: dict[_Common, list[str]] = {}
    for common, spec in found:
        nodes.setdefault(common, []).append(spec.node_id)
    ordered = sorted(nodes, key=lambda common: (_natural(common[0]), common[1]))
    return tuple(Share(*common, tuple(nodes[common])) for common in ordered)


# ---- certificates ----


def _held(issued: Iterable[Standing], now: datetime) -> dict[str, Certificate]:
    """Return each node's certificate: the good one, or else the last that it had."""
    last: dict[str, Standing] = {}
    for one in issued:  # as they were issued
        if one.row.node not in last or last[one.row.node].state != "good":
            last[one.row.node] = one
    return {node_id: _certificate(one, now) for node_id, one in last.items()}


def _certificate(one: Standing, now: datetime) -> Certificate:
    start, end = map(datetime.fromisoformat, (one.row.not_before, one.row.not_after))
    soon = one.state == "good" and standing.ends_soon(start, end, now)
    return Certificate("soon" if soon else one.state, one.row.not_after, (end - now).days)


def _ends(certificate: Certificate) -> list[str]:
    return [f"ends:{certificate.end[:7]}"] if certificate.state in _ENDING else []


def _by_state(nodes: Iterable[Node], states: Iterable[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {state: [] for state in states}
    for node in nodes:
        if node.certificate and node.certificate.state in found:
            found[node.certificate.state].append(node.node_id)
    return {state: tuple(ids) for state, ids in found.items() if ids}


def _months(nodes: Iterable[Node], authority: datetime | None, now: datetime) -> tuple[Month, ...]:
    this, last = f"{now:%Y-%m}", f"{authority:%Y-%m}" if authority else ""
    ending: dict[str, list[Node]] = {month: [] for month in (this, last) if month}
    for node in nodes:
        if node.certificate and node.certificate.state in _ENDING:
            ending.setdefault(node.certificate.end[:7], []).append(node)
    months: list[Month] = []
    for name in sorted(ending):
        gap = _count(name) - _count(months[-1].name) - 1 if months else 0
        ends = _by_state(ending[name], _ENDING)
        months.append(Month(name, gap, ends, name == this, name == last))
    return tuple(months)


def _count(month: str) -> int:
    year, _, number = month.partition("-")
    return int(year) * 12 + int(number)
