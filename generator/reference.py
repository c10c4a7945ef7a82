"""The spec's fields in words, out of the schemas: for `explain`, `schema` and docs/spec.md."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

from generator import schema
from generator.problem import refuse
from generator.wording import TYPES, flow

if TYPE_CHECKING:
    from collections.abc import Iterator

Part = dict[str, Any]


def explain(path: str) -> str:
    """Return what a field is, by its path as errors write it: ``fabrics[].hcas``.

    An empty path is the whole spec; ``fleet`` is fleet.yaml. Raises `Refused` for no field.
    """
    steps = [step for step in re.split(r"\.|(?=\[)", path) if step]
    fleet = (
        bool(steps)
        and steps[0] in schema.load("fleet")["properties"]
        and (steps[0] not in schema.load("node")["properties"])
    )
    part = schema.load("fleet" if fleet or path == "fleet" else "node")
    done = ""
    for step in steps if path != "fleet" else []:
        children = dict(_children(part))
        name = "[]" if re.fullmatch(r"\[\d*\]", step) else step
        if name not in children and "*" in children and re.fullmatch(r"[\w-]+", step):
            name = "*"
        if name not in children:
            raise _no_field(f"{done}.{step}".lstrip("."), step, list(children))
        part = children[name]
        done += step if step.startswith("[") else f".{step}"
    return "\n".join(_told(path or "a node's spec", part)) + "\n"


def _no_field(path: str, step: str, known: list[str]) -> Exception:
    near = difflib.get_close_matches(step, known, n=1)
    fields = ", ".join(known) or "none"
    hint = f"did you mean {near[0]!r}?" if near else f"the fields there are {fields}"
    return refuse(f"no field {path!r} in a spec", hint)


def _told(path: str, part: Part) -> Iterator[str]:
    yield f"{path}: {kind(part)}"
    yield f"  {part['description']}"
    if "default" in part:
        yield f"  default: {flow(part['default'])}"
    for example in part.get("examples", []):
        yield f"  example: {flow(example)}"
    children = dict(_children(part))
    width = max(map(len, children), default=0)
    if children:
        yield "  fields:"
    for name, child in children.items():
        yield f"    {name:{width}}  {child['description']}"


def kind(part: Part) -> str:
    """Return what values a part takes.

    >>> kind({"type": "integer", "minimum": 1, "maximum": 9})
    'a whole number from 1 to 9'
    """
    if "enum" in part:
        return "one of " + ", ".join(map(str, part["enum"]))
    if "const" in part:
        return f"always {part['const']}"
    if part.get("title") and part["type"] in ("string", ["string", "object"]):
        return str(part["title"])
    types = [part["type"]] if isinstance(part["type"], str) else part["type"]
    text = " or ".join(TYPES[name] for name in types)
    if "items" in part:
        inner = kind(part["items"])
        text = f"{part['title']}, or a list" if "title" in part else f"a list, each {inner}"
    if "maximum" in part:
        text += f" from {part['minimum']} to {part['maximum']}"
    return text


def _children(part: Part) -> Iterator[tuple[str, Part]]:
    """Yield the parts under a part by the step that leads to each; `*` is any name."""
    yield from part.get("properties", {}).items()
    if isinstance(part.get("additionalProperties"), dict):
        yield "*", part["additionalProperties"]
    if "items" in part:
        yield "[]", part["items"]
    for branch in ("else", "then"):
        if branch in part:
            yield from _children(part[branch])


def markdown() -> str:
    """Return the reference of all fields, as docs/spec.md has it."""
    node, fleet = schema.load("node"), schema.load("fleet")
    network = node["properties"]["network"]
    others = {**node, "properties": {k: p for k, p in node["properties"].items() if p != network}}
    top = {
        **fleet,
        "properties": {k: {**p, "properties": {}} for k, p in fleet["properties"].items()},
    }
    top["properties"]["authority"] = fleet["properties"]["authority"]
    tables = (
        ("fleet.yaml", fleet["description"], _flat(top, "", inside=False)),
        ("A node", node["description"], _flat(others, "")),
        ("network in short", network["description"], _flat(network["else"], "network")),
        ("network as netplan", network["then"]["description"], _flat(network["then"], "network")),
    )
    return "\n".join(
        line
        for title, text, rows in tables
        for line in (f"## {title}", "", f"{text}.", "", *_table(rows), "")
    )


def _flat(part: Part, path: str, *, inside: bool = True) -> Iterator[tuple[str, Part]]:
    """Yield all fields under a part; `inside` says whether to look into maps by any name."""
    for name, child in _children(part):
        inner = path + name if name == "[]" else f"{path}.{name}".lstrip(".")
        # All kinds of netplan devices have the fields that ethernets have, and more.
        if re.fullmatch(r"network\.(bonds|bridges|vlans)\.\*\..*", inner) and _common(name):
            continue
        if name not in ("[]", "*"):
            yield inner, child
        if inside or name == "authority":
            yield from _flat(child, inner)


def _common(name: str) -> bool:
    return (
        name
        in schema.load("node")["properties"]["network"]["then"]["properties"]["ethernets"][
            "additionalProperties"
        ]["properties"]
    )


def _table(rows: Any) -> Iterator[str]:
    yield "| field | what | value | default | example |"
    yield "|---|---|---|---|---|"
    for path, part in rows:
        default = f"`{flow(part['default'])}`" if "default" in part else ""
        example = f"`{flow(part['examples'][0])}`"
        cells = (f"`{path}`", part["description"], kind(part), default, example)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
