"""The schemas, and what they have to say about a document, in our own words.

jsonschema is the judge. Its texts are not used: they differ between versions, and they
print whole schemas and values. `conforms` spares a sound document, which is nearly every
one, the import of jsonschema: a third of the time that a seed takes.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from generator import source
from generator.conform import TYPES, conforms
from generator.formats import CHECKS
from generator.problem import Mark
from generator.resources import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from generator.located import Located
    from generator.problem import Problem

Name = Literal["node", "fleet", "agent"]


_WHOLE = ("$schema", "$id", "$defs", "$ref")  # what belongs to a whole document


@cache
def load(name: Name) -> dict[str, Any]:
    """Return a schema with every ``$ref`` replaced by what it refers to.

    So a problem can be told with the description and example of the very property, and no
    version of jsonschema has a reference to resolve.
    """
    return _referred(name, "")


@cache
def read(name: Name) -> dict[str, Any]:
    """Return a schema as it stands in schemas/."""
    schema: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text("utf-8"))
    return schema


def bundled(name: Name) -> dict[str, Any]:
    """Return a schema as one document, with what it takes from the node's schema inside."""
    text = json.dumps(read(name), ensure_ascii=False)
    if "node.schema.json" not in text:
        return read(name)
    node = {key: part for key, part in read("node").items() if key not in _WHOLE}
    text = text.replace('"node.schema.json"', '"#/$defs/node"')
    text = text.replace('"node.schema.json#/$defs/', '"#/$defs/')
    text = text.replace('"node.schema.json#/', '"#/$defs/node/')
    whole: dict[str, Any] = json.loads(text)
    return {**whole, "$defs": {"node": node, **read("node")["$defs"]}}


@cache
def _referred(name: Name, pointer: str) -> dict[str, Any]:
    target: Any = read(name)
    for step in pointer.split("/")[1:]:
        target = target[step]
    expanded: dict[str, Any] = _expand(target, name)
    return expanded


def _expand(part: Any, name: Name) -> Any:
    if isinstance(part, list):
        return [_expand(item, name) for item in part]
    if not isinstance(part, dict):
        return part
    # A part with a $schema of its own would be judged without our formats.
    own = {key: _expand(item, name) for key, item in part.items() if key not in _WHOLE}
    if not isinstance(part.get("$ref"), str):
        return own
    file, _, pointer = part["$ref"].partition("#")
    return _referred("node" if file else name, pointer) | own


def problems(document: Located, name: Name) -> list[Problem]:
    """Return all that a schema refuses in a document, in the order of the document."""
    value = source.plain(document)
    if conforms(load(name), value):
        return []
    from generator import wording

    found: dict[tuple[str, Mark | None], Problem] = {}
    # The type first: a value of the wrong type breaks other rules as well.
    for error in sorted(_judge(name).iter_errors(value), key=lambda e: e.validator != "type"):
        for problem in wording.tell(error, document, load(name)):
            found.setdefault((problem.path, problem.where), problem)
    return sorted(found.values(), key=lambda problem: problem.where or Mark("", 0, 0, 0))


@cache
def _judge(name: Name) -> Any:
    """Return jsonschema's validator for a schema, with our formats and whole numbers."""
    from jsonschema import Draft202012Validator, ValidationError, validators

    def check_format(_: Any, name: str, value: Any, __: Any) -> Iterator[ValidationError]:
        reason = CHECKS[name](value) if isinstance(value, str) else ""
        if reason:
            yield ValidationError(reason)

    # JSON Schema calls 4.0 an integer; who reads our output need not.
    types = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: TYPES["integer"](value)
    )
    judge = validators.extend(Draft202012Validator, {"format": check_format}, type_checker=types)  # type: ignore[no-untyped-call]
    return judge(load(name))
