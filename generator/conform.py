"""A quick yes to a sound document, without jsonschema."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from generator.formats import CHECKS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
ANNOTATIONS = {
    "$schema",
    "$id",
    "$comment",
    "title",
    "description",
    "examples",
    "default",
    "then",
    "else",
}


def conforms(schema: Mapping[str, Any], value: Any) -> bool:
    """Return whether a value surely fits a schema; False also when that cannot be told here.

    It knows the keywords that our schemas use. tests/test_conform.py holds it against
    jsonschema, which decides whenever this says no.
    """
    for keyword, argument in schema.items():
        if keyword in ANNOTATIONS:
            continue
        check = KEYWORDS.get(keyword)
        if check is None or not check(schema, argument, value):
            return False
    return True


def _type(_: Mapping[str, Any], types: Any, value: Any) -> bool:
    if isinstance(types, str):
        return TYPES[types](value)
    return any(TYPES[name](value) for name in types)


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and bool(left == right)


def _additional(schema: Mapping[str, Any], rest: Any, value: Any) -> bool:
    if not isinstance(value, dict):
        return True
    known = schema.get("properties", {})
    extra = [item for key, item in value.items() if key not in known]
    return not extra if rest is False else all(conforms(rest, item) for item in extra)


def _properties(_: Mapping[str, Any], known: Any, value: Any) -> bool:
    return not isinstance(value, dict) or all(
        conforms(known[key], item) for key, item in value.items() if key in known
    )


def _condition(schema: Mapping[str, Any], condition: Any, value: Any) -> bool:
    return conforms(schema["then" if conforms(condition, value) else "else"], value)


def _of(kind: type, check: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    """Return a keyword's check that lets values of other types pass, as JSON Schema wants."""
    return lambda _, argument, value: not isinstance(value, kind) or check(argument, value)


KEYWORDS: Mapping[str, Callable[..., bool]] = {
    "type": _type,
    "const": lambda _, wanted, value: _same(wanted, value),
    "enum": lambda _, allowed, value: any(_same(item, value) for item in allowed),
    "if": _condition,
    "anyOf": lambda _, parts, value: any(conforms(part, value) for part in parts),
    "properties": _properties,
    "additionalProperties": _additional,
    "propertyNames": _of(dict, lambda part, value: all(conforms(part, key) for key in value)),
    "required": _of(dict, lambda names, value: all(name in value for name in names)),
    "minProperties": _of(dict, lambda least, value: len(value) >= least),
    "items": _of(list, lambda part, value: all(conforms(part, item) for item in value)),
    "minItems": _of(list, lambda least, value: len(value) >= least),
    "maxItems": _of(list, lambda most, value: len(value) <= most),
    "uniqueItems": _of(list, lambda _, value: all(i not in value[:n] for n, i in enumerate(value))),
    "minLength": _of(str, lambda least, value: len(value) >= least),
    "maxLength": _of(str, lambda most, value: len(value) <= most),
    "pattern": _of(str, lambda pattern, value: re.search(pattern, value) is not None),
    "format": _of(str, lambda name, value: not CHECKS[name](value)),
    "minimum": _of(int, lambda least, value: value >= least),
    "maximum": _of(int, lambda most, value: value <= most),
}
