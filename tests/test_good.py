"""Sound workspaces: nothing is said of them, and together they have every property."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from generator import schema, source
from generator.resolve import examine
from generator.workspace import open_workspace

if TYPE_CHECKING:
    from collections.abc import Iterator

GOOD = Path(__file__).parent / "good"


@pytest.mark.parametrize("case", sorted(path.name for path in GOOD.iterdir()))
def test_sound(case: str) -> None:
    workspace = open_workspace(GOOD / case)
    outcome = examine(workspace)
    assert [problem for problem in outcome.problems if problem.severity == "error"] == []
    assert outcome.specs.keys() == set(workspace.node_ids) != set()


def test_nothing_is_said_of_a_whole_spec() -> None:
    assert examine(open_workspace(GOOD / "every-property")).problems == ()


def test_every_property_is_used() -> None:
    used: set[str] = set()
    node, fleet = schema.load("node"), schema.load("fleet")
    for case in GOOD.iterdir():
        workspace = open_workspace(case)
        used |= {plain(path) for path in given(fleet, source.plain(workspace.fleet), "")}
        for node_id in workspace.files:
            used |= {plain(p) for p in given(node, source.plain(workspace.node(node_id)), "")}
    wanted = {plain(path) for schema_ in (node, fleet) for path in declared(schema_, "")}
    assert wanted - used == set()


def plain(path: str) -> str:
    """Return the path of a property, the same wherever the same thing is declared."""
    path = re.sub(r"^\.(?:defaults|groups\.\*|nodes\.\*)(?=\.)", "", path)
    path = re.sub(r"dhcp[46]-overrides(?=\.)", "overrides", path)
    own = r"match|set-name|wakeonlan|interfaces|parameters|id|link"
    return re.sub(rf"network\.\w+\.\*\.(?!(?:{own})(?:\.|$))", "network.device.", path)


def parts(part: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the parts under a part of a schema, with the step that leads to each."""
    for name, child in part.get("properties", {}).items():
        yield f".{name}", child
    if isinstance(part.get("additionalProperties"), dict):
        yield ".*", part["additionalProperties"]
    if "items" in part:
        yield "[]", part["items"]
    for branch in ("then", "else"):
        if branch in part:
            yield "", part[branch]


def declared(part: dict[str, Any], path: str) -> Iterator[str]:
    for step, child in parts(part):
        if step.startswith(".") and step != ".*":
            yield path + step
        yield from declared(child, path + step)


def given(part: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    for step, child in parts(part):
        if step == "":
            yield from given(child, value, path)
        elif step == "[]" and isinstance(value, list):
            for item in value:
                yield from given(child, item, path + step)
        elif step == ".*" and isinstance(value, dict):
            for item in value.values():
                yield from given(child, item, path + step)
        elif isinstance(value, dict) and step[1:] in value:
            yield path + step
            yield from given(child, value[step[1:]], path + step)
