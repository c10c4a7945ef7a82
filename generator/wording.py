"""What a schema refuses, told to an operator: what was found, what is allowed, what to do."""

from __future__ import annotations

import difflib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from generator.conform import conforms
from generator.located import nearest, path_text, plain, quoted
from generator.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from generator.located import Located

_LONGEST = 60  # characters of a value that a message shows
TYPES = {
    "object": "a map",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


_DEPRECATED = {
    "gateway4": "deprecated in netplan: write routes: [{to: 0.0.0.0/0, via: ADDRESS}]",
    "gateway6": "deprecated in netplan: write routes: [{to: '::/0', via: ADDRESS}]",
}


def tell(error: Any, document: Located, schema: Mapping[str, Any]) -> Iterator[Problem]:
    """Turn one of jsonschema's errors about a document into problems.

    Most errors are one problem; unknown keys and repeated values are one each.
    """
    steps = list(error.absolute_path)
    located = nearest(document, steps)
    if error.validator == "additionalProperties":
        yield from _unknown_keys(error, located, steps, schema)
    elif "propertyNames" in error.absolute_schema_path:
        yield _bad_name(error, located, steps)
    elif error.validator == "uniqueItems":
        yield from _repeated(located, steps)
    else:
        located = _without_password(located)
        message, hint = _about_value(error, located)
        yield Problem(message, hint, located.mark, path_text(steps))


def _without_password(located: Located) -> Located:
    """Return the value so that it is not shown where it is a URL with a password in it."""
    if isinstance(located.value, str) and re.search(r"://[^/]*@", located.value):
        return replace(located, mark=replace(located.mark, text=""))
    return located


def show(located: Located) -> str:
    """Return a scalar as it is written, shortened; not where it is private."""
    if not located.mark.text:
        return "the value"
    return quoted(located.value) if isinstance(located.value, str) else located.plain


def hint_of(schema: Mapping[str, Any]) -> str:
    """Return what a property is for and an example of it, or its own hint (``$comment``).

    >>> hint_of({"description": "The name; it is long", "examples": ["mlx5_0"]})
    'the name, such as mlx5_0'
    """
    if "$comment" in schema:
        return str(schema["$comment"])
    first = re.split(r"[.;:] ", schema.get("description", ""), maxsplit=1)[0]
    if not first[1:2].isupper():
        first = first[:1].lower() + first[1:]
    example = flow(schema["examples"][0]) if schema.get("examples") else ""
    return f"{first}, such as {example}" if 0 < len(example) <= _LONGEST else first


def flow(value: Any, *, inside: bool = False) -> str:
    """Return an example as YAML on one line."""
    match value:
        case dict():
            return "{" + ", ".join(f"{k}: {flow(v, inside=True)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(flow(v, inside=True) for v in value) + "]"
        case bool():
            return str(value).lower()
        case str() if not value or (inside and re.search(r"[{},\[\]]|: ", value)):
            return f'"{value}"'
        case _:
            return str(value)


def _about_value(error: Any, located: Located) -> tuple[str, str]:
    if located.value is None:
        return "no value", f"leave the key out, or give it one: {hint_of(error.schema)}"
    return TELL[error.validator](error.schema, located, error)


def _type(schema: Mapping[str, Any], located: Located, _: Any) -> tuple[str, str]:
    types = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    value, wanted = located.value, " or ".join(TYPES[name] for name in types)
    match value:
        case dict() | list():
            found = "a map" if isinstance(value, dict) else "a list"
            return f"{found}, not {wanted}", hint_of(schema)
        case str():
            hint = "write true or false" if types == ["boolean"] else hint_of(schema)
            return f"{show(located)} is text, not {wanted}", hint
        case _:
            kind = "a boolean" if isinstance(value, bool) else "a number"
            quote = "string" in types and located.mark.text and conforms(schema, located.plain)
            hint = f'put it in quotes: "{located.plain}"' if quote else hint_of(schema)
            return f"{show(located)} is {kind}, not {wanted}", hint


def _enum(schema: Mapping[str, Any], located: Located, _: Any) -> tuple[str, str]:
    allowed = [str(item) for item in schema["enum"]]
    return f"{show(located)} is not one of {', '.join(allowed)}", hint_of(schema)


def _const(schema: Mapping[str, Any], located: Located, _: Any) -> tuple[str, str]:
    found = show(located) if not isinstance(located.value, dict | list) else "this"
    return f"{found} is not allowed, only {schema['const']} is", hint_of(schema)


def _pattern(schema: Mapping[str, Any], located: Located, _: Any) -> tuple[str, str]:
    return f"{show(located)} is not {schema['title']}", hint_of(schema)


def _format(schema: Mapping[str, Any], located: Located, error: Any) -> tuple[str, str]:
    return f"{show(located)} is not {schema['title']}: {error.message}", hint_of(schema)


def _bounds(schema: Mapping[str, Any], located: Located, _: Any) -> tuple[str, str]:
    allowed = f"from {schema['minimum']} to {schema['maximum']}"
    return f"{show(located)} is out of range, {allowed}", hint_of(schema)


def _length(schema: Mapping[str, Any], located: Located, error: Any) -> tuple[str, str]:
    size = len(located.value) if isinstance(located.value, str | list | dict) else 0
    if not size:
        return "empty", hint_of(schema)
    unit = "characters" if isinstance(located.value, str) else "items"
    return f"{size} {unit}, at most {error.validator_value}", hint_of(schema)


def _required(schema: Mapping[str, Any], located: Located, error: Any) -> tuple[str, str]:
    missing = [name for name in error.validator_value if name not in located.value]
    verb = "is" if len(missing) == 1 else "are"
    hint = f"{missing[0]}: {hint_of(schema['properties'][missing[0]])}"
    return f"{' and '.join(map(quoted, missing))} {verb} missing", hint


TELL: Mapping[str, Callable[[Mapping[str, Any], Located, Any], tuple[str, str]]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "pattern": _pattern,
    "format": _format,
    "minimum": _bounds,
    "maximum": _bounds,
    "minItems": _length,
    "maxItems": _length,
    "minLength": _length,
    "maxLength": _length,
    "minProperties": _length,
    "required": _required,
}


def _bad_name(error: Any, located: Located, steps: list[str | int]) -> Problem:
    name = error.instance
    message = f"{quoted(name)} is not {error.schema['title']}"
    return Problem(message, hint_of(error.schema), located.keys[name], path_text([*steps, name]))


def _repeated(located: Located, steps: list[str | int]) -> Iterator[Problem]:
    values = plain(located)
    for index, item in enumerate(located.value):
        if values[index] in values[:index]:
            path = path_text([*steps, index])
            found = "the same" if isinstance(item.value, dict | list) else show(item)
            yield Problem(f"{found} twice in the list", "keep one of them", item.mark, path)


def _unknown_keys(
    error: Any, located: Located, steps: list[str | int], schema: Mapping[str, Any]
) -> Iterator[Problem]:
    known = error.schema["properties"]
    for key, mark in located.keys.items():
        if key not in known:
            hint = _place_of(key, known, steps, schema)
            yield Problem(f"unknown key {quoted(key)}", hint, mark, path_text([*steps, key]))


def _place_of(
    key: str, known: Mapping[str, Any], steps: list[str | int], schema: Mapping[str, Any]
) -> str:
    """Return where an unknown key belongs, or which one may be meant."""
    if key in _DEPRECATED:
        return _DEPRECATED[key]
    if steps and steps[-1] == key:
        return f"take the inner {quoted(key)} away: what is under it belongs here"
    for name, part in known.items():
        if key in part.get("properties", {}):
            return f"it belongs under {quoted(name)}"
    near = difflib.get_close_matches(key, known, n=1)
    if near:
        return f"did you mean {quoted(near[0])}?"
    root = schema["properties"].get("defaults", schema)["properties"]
    if steps and key in root:
        return "it belongs at the top level"
    return f"known here: {', '.join(known)}"
