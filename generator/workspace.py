"""The operator's folder: fleet.yaml, and nodes/ with a file for each node."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from generator import check_fleet, files, schema, source
from generator.located import Located
from generator.problem import Mark, Problem, Refused, refuse, some

if TYPE_CHECKING:
    from collections.abc import Iterator

_NODE_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
_FLEET_LIMIT = 16 << 20  # bytes; 10,000 nodes in it take 5 MB
_NODE_LIMIT = 1 << 20


@dataclass(frozen=True)
class Workspace:
    """What is known of a workspace without reading the nodes' files.

    `fleet` is fleet.yaml, an empty map where there is none or where it could not be read.
    `files` maps the ids of the nodes in nodes/ to their files. `problems` is what is wrong
    with fleet.yaml and with the names in nodes/; a seed is refused when there is any.
    `fleet_read` is false where there is a fleet.yaml that could not be read: then nothing more
    can be said of the nodes.
    """

    root: Path
    fleet: Located
    files: Mapping[str, Path]
    problems: tuple[Problem, ...]
    fleet_read: bool = True

    @property
    def inline(self) -> Mapping[str, Located]:
        """The nodes that stand in fleet.yaml itself, by id."""
        return source.entries(self.fleet, "nodes")

    @property
    def node_ids(self) -> tuple[str, ...]:
        """The ids of all nodes, sorted."""
        return tuple(sorted({*self.files, *self.inline}))

    @property
    def authority_dir(self) -> str | None:
        """The authority's folder, relative to the workspace, where fleet.yaml gives one."""
        located = source.at(self.fleet, "authority", "dir")
        return located.value if located and isinstance(located.value, str) else None

    def node(self, node_id: str) -> Located:
        """Read a node's own part of the spec; raise `Refused` when there is none."""
        if node_id in self.files:
            return _read(self.files[node_id], _NODE_LIMIT)
        if node_id in self.inline:
            return self.inline[node_id]
        raise self._unknown(node_id)

    def with_node(self, node_id: str, own: Located) -> Workspace:
        """Return the workspace as it will be with one node more, whose file is not there yet."""
        nodes = Located({**self.inline, node_id: own}, own.mark)
        fleet = self.fleet.value if isinstance(self.fleet.value, dict) else {}
        return replace(self, fleet=replace(self.fleet, value={**fleet, "nodes": nodes}))

    def _unknown(self, node_id: str) -> Refused:
        if not _NODE_ID.match(node_id):
            return _bad_name(node_id, f"{node_id!r}")
        known = self.node_ids
        if not known:
            hint = f"write {self.root / 'nodes' / node_id}.yaml; gen-seed init makes a workspace"
            return refuse(f"no node {node_id!r}: there are no nodes in {self.root}", hint)
        near = difflib.get_close_matches(node_id, known, n=3)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        return refuse(f"no node {node_id!r}", f"{hint}there are {some(known)}")


class _Files(Mapping[str, Path]):
    """The nodes' files by node id; of a hundred thousand paths none is kept."""

    def __init__(self, folder: Path, nodes: list[str]) -> None:
        self._folder = folder
        self._nodes = dict.fromkeys(nodes)

    def __getitem__(self, node_id: str) -> Path:
        if node_id not in self._nodes:
            raise KeyError(node_id)
        return self._folder / f"{node_id}.yaml"

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def is_node_id(name: str) -> bool:
    """Tell whether `name` is a lower-case DNS label (RFC 1123), as every node id is."""
    return bool(_NODE_ID.match(name))


def open_workspace(root: Path) -> Workspace:
    """Read a workspace's fleet.yaml and the names in its nodes/; raise `Refused` when it is none.

    A position names a file as the operator would from where they stand: nodes/n7.yaml, and
    ws/nodes/n7.yaml with ``-C ws``.
    """
    if not root.is_dir():
        raise refuse(f"no folder {root}", f"gen-seed init {root} makes a workspace there")
    fleet, problems = _fleet(root)
    read = all(problem.where for problem in problems)
    found = _Files(root / "nodes", sorted(_files(root, problems)))
    workspace = Workspace(root, fleet, found, ())
    for node_id in sorted(found.keys() & workspace.inline.keys()):
        mark = _key_mark(fleet, node_id)
        message = f"{node_id} is here and in {found[node_id]}"
        problems.append(Problem(message, "keep one of them", mark, f"nodes.{node_id}"))
    return Workspace(root, fleet, found, tuple(problems), read)


def _fleet(root: Path) -> tuple[Located, list[Problem]]:
    path = root / "fleet.yaml"
    if not os.path.lexists(path):
        for other in (root / "fleet.yml", root / "fleet.json"):
            if os.path.lexists(other):
                mark = Mark(str(other), 1, 1, 1)
                return Located({}, mark), [Problem("not read", f"its name must be {path}", mark)]
    nothing = Located({}, Mark(str(path), 1, 1, 1))
    if not os.path.lexists(path):
        return nothing, []
    try:
        fleet = _read(path, _FLEET_LIMIT)
    except Refused as refused:
        return nothing, list(refused.problems)
    return fleet, schema.problems(fleet, "fleet") or list(check_fleet.contradictions(fleet))


def _files(root: Path, problems: list[Problem]) -> Iterator[str]:
    folder = root / "nodes"
    try:
        names = sorted(os.listdir(folder)) if os.path.lexists(folder) else []  # noqa: PTH208
    except OSError as error:
        problems.extend(files.cannot("list", folder, error).problems)
        return
    for name in names:
        stem, dot, suffix = name.rpartition(".")
        if not dot or not stem or suffix.lower() not in ("yaml", "yml"):
            continue  # an editor's backup, a README
        shown = f"{str(folder / name)!r}"[1:-1]
        if suffix != "yaml":
            problems.append(Problem(f"{shown} is not read", "its name must end in .yaml"))
        elif not _NODE_ID.match(stem):
            problems.extend(_bad_name(stem, shown).problems)
        else:
            yield stem


def _bad_name(name: str, shown: str) -> Refused:
    hint = "letters a-z, digits and '-', at most 63, no '-' at either end, such as n7"
    return (
        refuse(f"{shown}: {name!r} is not a node id", hint)
        if shown != repr(name)
        else refuse(f"{name!r} is not a node id", hint)
    )


def _key_mark(fleet: Located, node_id: str) -> Mark | None:
    nodes = source.at(fleet, "nodes")
    return nodes.keys.get(node_id) if nodes else None


def _read(path: Path, limit: int) -> Located:
    return source.parse(files.read(path, limit=limit), str(path))
