"""A value that knows where it stands: merging such values, and telling what is wrong with one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from generator.problem import Mark, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from generator.problem import Severity

_LONGEST = 60  # characters of a value that a message shows
_NO_KEYS: Mapping[str, Mark] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Located:
    """A value and where it stands.

    `value` is a dict of `Located` by key, a list of `Located`, or a scalar: text, number,
    boolean or None.

    `keys` are the marks of a map's keys; `plain` is a scalar's text as written, when it is
    written without quotes (so that a message can show `1.10`), else empty.
    """

    value: Any
    mark: Mark
    keys: Mapping[str, Mark] = field(default_factory=lambda: _NO_KEYS)
    plain: str = ""


def merge(base: Located, over: Located) -> Located:
    """Return `base` with `over` laid on it: maps merge, lists and scalars replace."""
    if not (isinstance(base.value, dict) and isinstance(over.value, dict)):
        return over
    value = base.value | {
        key: merge(base.value[key], item) if key in base.value else item
        for key, item in over.value.items()
    }
    return Located(value, over.mark, {**base.keys, **over.keys})


def plain(located: Located) -> Any:
    """Return the value without its positions."""
    match located.value:
        case dict() as items:
            return {key: plain(item) for key, item in items.items()}
        case list() as items:
            return [plain(item) for item in items]
        case scalar:
            return scalar


def at(located: Located, *path: str | int) -> Located | None:
    """Return what stands at a path, or None when there is nothing."""
    for step in path:
        value = located.value
        if isinstance(value, dict):
            found = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            found = value[step]
        else:
            return None
        if found is None:
            return None
        located = found
    return located


def entries(located: Located, *path: str | int) -> dict[str, Located]:
    """Return the map at a path, an empty one when there is none."""
    found = at(located, *path)
    return found.value if found and isinstance(found.value, dict) else {}


def problem_at(
    root: Located, steps: list[str | int], message: str, hint: str, severity: Severity = "error"
) -> Problem:
    """Return a problem about what stands at a path, or about what is nearest to it."""
    return Problem(message, hint, nearest(root, steps).mark, path_text(steps), severity)


def nearest(document: Located, steps: list[str | int]) -> Located:
    """Return what stands at a path, or what is nearest to it."""
    found = at(document, *steps)
    return found or nearest(document, steps[:-1])


def path_text(steps: Sequence[str | int]) -> str:
    """Return a path as an operator writes it.

    >>> path_text(["fabrics", 0, "hcas", 1])
    'fabrics[0].hcas[1]'
    """
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif re.fullmatch(r"[\w-]+", step):
            text += f".{step}"
        else:
            text += f"[{quoted(step)}]"
    return text.removeprefix(".")


def quoted(text: str) -> str:
    """Return a text in quotes, shortened, with escapes for what cannot be seen."""
    return repr(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")
