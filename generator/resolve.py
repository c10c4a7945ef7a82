"""Nodes' specs out of a workspace: merged, validated, checked, and built."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from generator import check_fleet, checks, schema, source
from generator.located import Located, problem_at
from generator.network import netplan
from generator.problem import Mark, Problem, Refused
from generator.spec import Spec, build

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from generator.workspace import Workspace


@dataclass(frozen=True)
class Outcome:
    """What became of some nodes: the specs of the sound ones by id, and all problems.

    `claims` are what no other node may have, with the node that has it.
    """

    specs: Mapping[str, Spec]
    problems: tuple[Problem, ...]
    claims: tuple[tuple[str, str, str], ...] = ()


def resolve(
    workspace: Workspace, node_id: str, reserved: frozenset[str] = frozenset()
) -> tuple[Spec, tuple[Problem, ...]]:
    """Return a node's spec and the warnings about it; raise `Refused` with all its errors.

    Reads no other node's file. What is wrong in fleet.yaml is refused for every node.
    `reserved` are the names of commands, which a node should not have.
    """
    outcome = _examine(workspace, [node_id], reserved)
    errors = [problem for problem in outcome.problems if problem.severity == "error"]
    if errors:
        raise Refused(errors)
    return outcome.specs[node_id], outcome.problems


def shared(workspace: Workspace) -> tuple[Spec, tuple[Problem, ...]]:
    """Return what fleet.yaml says of all nodes, as a spec of no node, and the warnings about it.

    Only what needs no address is checked and may be used: the release, `trust` and the engines.
    Raises `Refused` with everything that is wrong with fleet.yaml or with its release.
    """
    merged = Located({}, workspace.fleet.mark)
    for layer in layers(workspace.fleet, ()):
        merged = source.merge(merged, layer)
    values = source.plain(merged)
    found = [p for p in workspace.problems if p.where and p.where.file == workspace.fleet.mark.file]
    if not found and workspace.fleet_read:
        found = checks.release(merged, values)
    errors = [problem for problem in found if problem.severity == "error"]
    if errors or not workspace.fleet_read:
        raise Refused(errors or workspace.problems)
    nowhere = {"server": "", "mgmt_addr": "", "release": values["release"]}
    kept = {name: values[name] for name in ("trust", "engines") if name in values}
    return build("", nowhere | kept, None), tuple(found)


def examine(workspace: Workspace, reserved: frozenset[str] = frozenset()) -> Outcome:
    """Return the specs of all nodes and all problems, those among nodes included."""
    return _examine(workspace, workspace.node_ids, reserved, together=True)


def examine_some(
    workspace: Workspace, node_ids: Iterable[str], reserved: frozenset[str] = frozenset()
) -> Outcome:
    """Return the specs of some nodes and the problems of each, but not those among nodes."""
    return _examine(workspace, dict.fromkeys(node_ids), reserved)


def conflicts(workspace: Workspace, node_ids: Iterable[str]) -> list[Problem]:
    """Return the errors among some nodes, which are known to claim the same."""
    outcome = _examine(workspace, dict.fromkeys(node_ids), frozenset(), together=True)
    return [problem for problem in outcome.problems if problem.severity == "error"]


def members(workspace: Workspace, node_ids: Iterable[str], group: str) -> list[str]:
    """Return those of some nodes that are in a group, and those of which it cannot be told."""
    run = _Run(workspace, frozenset())
    return [node_id for node_id in node_ids if run.is_member(node_id, group)]


def _examine(
    workspace: Workspace,
    node_ids: Iterable[str],
    reserved: frozenset[str],
    *,
    together: bool = False,
) -> Outcome:
    run = _Run(workspace, reserved)
    for node_id in node_ids:
        run.node(node_id)
    if together and run.sound:
        run.add(check_fleet.check(workspace.fleet, run.merged, complete=not run.failed))
    return Outcome(run.specs, run.problems(), tuple(run.claims()))


class _Run:
    """Takes nodes one by one; keeps what they share, and tells a shared problem once."""

    def __init__(self, workspace: Workspace, reserved: frozenset[str]) -> None:
        self.workspace = workspace
        self.reserved = reserved
        self.fleet_file = workspace.fleet.mark.file
        # Nothing can be said of the merged specs while fleet.yaml itself is wrong.
        self.sound = workspace.fleet_read and not any(
            problem.where and problem.where.file == self.fleet_file
            for problem in workspace.problems
        )
        self.failed = False
        self.specs: dict[str, Spec] = {}
        self.merged: dict[str, tuple[Located, dict[str, Any]]] = {}
        self.members: dict[str, list[str]] = {}
        self._bases: dict[tuple[str, ...], Located] = {}
        self._found: dict[Problem, dict[str, None]] = {}

    def is_member(self, node_id: str, group: str) -> bool:
        try:
            return group in self._groups(self.workspace.node(node_id))
        except Refused:
            return True

    def claims(self) -> Iterator[tuple[str, str, str]]:
        for node_id, (_, values) in self.merged.items():
            for what, value, _ in check_fleet.unique(values):
                yield what, value, node_id

    def node(self, node_id: str) -> None:
        try:
            own = self.workspace.node(node_id)
        except Refused as refused:
            self.add(refused.problems)
            return
        if node_id in self.workspace.files:
            wrong = schema.problems(own, "node")
            if wrong:
                self.add(wrong)
                return
        groups = self._groups(own)
        for group in groups:
            self.members.setdefault(group, []).append(node_id)
        if self.sound:
            self._merge(node_id, own, groups)

    def _merge(self, node_id: str, own: Located, groups: tuple[str, ...]) -> None:
        merged = source.merge(self._base(groups, own), own)
        wrong = [*self._unknown_groups(merged), *_mixed_network(merged)]
        values = source.plain(merged)
        if not wrong:
            self.merged[node_id] = (merged, values)
            stack = [*layers(self.workspace.fleet, groups), own]
            wrong = [*_stale_digests(stack), *checks.check(node_id, merged, values, self.reserved)]
        self.add(wrong, node_id)
        if any(problem.severity == "error" for problem in wrong):
            return
        interface = values.get("mgmt_interface", Spec.mgmt_interface)
        network = netplan(values["network"], interface) if "network" in values else None
        self.specs[node_id] = build(node_id, values, network)

    def add(self, problems: Iterable[Problem], node_id: str = "") -> None:
        for problem in problems:
            nodes = problem.nodes
            if problem.severity == "error":
                self.failed = True
            if node_id and problem.where and problem.where.file == self.fleet_file:
                nodes = (node_id,)
            known = self._found.setdefault(replace(problem, nodes=()), {})
            known.update(dict.fromkeys(nodes))

    def problems(self) -> tuple[Problem, ...]:
        """Return all problems in the order of their files, those about whole nodes last."""
        found = [replace(p, nodes=self._concerned(p)) for p in self.workspace.problems]
        found += [replace(p, nodes=tuple(nodes)) for p, nodes in self._found.items()]
        return tuple(sorted(found, key=_order))

    def _concerned(self, problem: Problem) -> tuple[str, ...]:
        """Return the nodes that a problem in fleet.yaml concerns, by its path."""
        part, _, rest = problem.path.partition(".")
        name = rest.partition(".")[0]
        if part in ("defaults", "release"):
            return self.workspace.node_ids
        if part == "groups":
            return tuple(self.members.get(name, ()))
        return (name,) if part == "nodes" and name in self.workspace.inline else ()

    def _groups(self, own: Located) -> tuple[str, ...]:
        located = source.at(own, "groups") or source.at(self.workspace.fleet, "defaults", "groups")
        names = source.plain(located) if located else []
        return (
            tuple(name for name in names if isinstance(name, str))
            if isinstance(names, list)
            else ()
        )

    def _base(self, groups: tuple[str, ...], own: Located) -> Located:
        if groups not in self._bases:
            base = Located({}, own.mark)
            for layer in layers(self.workspace.fleet, groups):
                base = source.merge(base, layer)
            self._bases[groups] = base
        return self._bases[groups]

    def _unknown_groups(self, merged: Located) -> list[Problem]:
        known = source.entries(self.workspace.fleet, "groups")
        given = source.at(merged, "groups")
        found = []
        for index, name in enumerate(source.plain(given) if given else ()):
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = (
                    f"did you mean {near[0]!r}?"
                    if near
                    else f"there are: {', '.join(known) or 'none'}"
                )
                message = f"no group {name!r} in fleet.yaml"
                found.append(problem_at(merged, ["groups", index], message, hint))
        return found


def _order(problem: Problem) -> tuple[bool, Mark]:
    return problem.where is None, problem.where or Mark("", 0, 0, 0)


def layers(fleet: Located, groups: Iterable[str]) -> list[Located]:
    """Return the parts of fleet.yaml that make a spec, the weakest first."""
    release = source.at(fleet, "release")
    parts = [Located({"release": release}, release.mark) if release else None]
    parts += [source.at(fleet, "defaults"), *(source.at(fleet, "groups", name) for name in groups)]
    return [part for part in parts if part]


def _mixed_network(merged: Located) -> list[Problem]:
    """Return what is wrong with a network that two files made together."""
    network = source.at(merged, "network")
    return schema.problems(Located({"network": network}, merged.mark), "node") if network else []


def _stale_digests(layers: list[Located]) -> Iterable[Problem]:
    """Tell a version that one layer sets anew from the digests that an earlier one left.

    Merging maps would install nothing, hours later: the digest is another binary's.
    """
    version, changed, digests = None, -1, {}
    for number, layer in enumerate(layers):
        given = source.at(layer, "release", "version")
        if given and version and given.value != version.value:
            changed = number
        version = given or version
        for arch, digest in source.entries(layer, "release", "sha256").items():
            digests[arch] = (number, digest.mark)
    for arch, (number, mark) in digests.items():
        if version and number < changed:
            place = f"{mark.file}:{mark.line}:{mark.column}"
            message = f"{version.value} with another version's {arch} digest, from {place}"
            hint = "give release.sha256 beside release.version"
            yield Problem(message, hint, version.mark, "release.version")
