"""What building would change, told to a person, the most important first, and to programs."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from generator.chain import when
from generator.problem import count, some

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from generator.fields import Field
    from generator.plan import Plan

_LONGEST = 64  # characters of a value: a digest is shown whole
_LEAD = 20  # characters of it before the first that differs
_RELEASE = ("release.version", "release.sha256.")  # not whence and how it is fetched


def summary(counts: Counter[str]) -> str:
    """Return the counts of the nodes by state, in one line."""
    parts = [
        f"{counts[state]} {state.replace('ends_soon', 'with a certificate at its end')}"
        for state in ("changed", "new", "gone", "ends_soon", "unchanged")
        if counts[state]
    ]
    return ", ".join(parts) or "no nodes"


def text(plans: Sequence[Plan], now: datetime, *, verbose: bool) -> Iterator[str]:
    """Give lines that tell what differs `now`: by what it is, then with `verbose` by node."""
    if again := [plan.node for plan in plans if plan.again]:
        yield f"cloud-init starts over{_on(again)}"
    yield from _grouped((_release_line(plan.fields), plan.node) for plan in plans)
    yield from _grouped((reason, plan.node) for plan in plans for reason in plan.reasons)
    differing = [(field, plan.node) for plan in plans for field in plan.fields]
    fields = [(field, node) for field, node in differing if not _is_release(field)]
    yield from _by_path(fields)
    for state, words in (("new", "new"), ("gone", "no node any more, but a seed of it is there")):
        if nodes := [plan.node for plan in plans if plan.state == state]:
            yield f"{words}: {some(nodes)}"
    ending = [(plan.before.not_after, plan.node) for plan in plans if plan.soon and plan.before]
    if ended := [node for end, node in ending if end < when(now)]:
        yield f"the certificate has ended{_on(ended)}"
    if soon := [node for end, node in ending if end >= when(now)]:
        yield f"the certificate ends soon{_on(soon)}"
    if verbose:
        for plan in plans:
            if plan.state in ("changed", "ends_soon"):
                yield f"{plan.node}: {plan.state.replace('_', ' ')}"
                yield from (f"    {field_text(field)}" for field in plan.fields)
                yield from (f"    {reason}" for reason in plan.reasons)


def row(plan: Plan) -> dict[str, Any]:
    """Return a node's plan as programs get it; what is secret is None, as is what is default."""
    before = plan.before
    return {
        "node": plan.node,
        "state": plan.state,
        "fields": [vars(field) for field in plan.fields],
        "new_release": any(map(_is_release, plan.fields)),
        "cloud_init_starts_over": plan.again,
        "reasons": list(plan.reasons),
        "certificate_ends_soon": plan.soon,
        "not_after": before and before.not_after,
    }


def field_text(field: Field) -> str:
    """Return a field and what becomes of it."""
    if field.secret:
        return f"{field.path}: another value, which is not shown"
    before, after = _value(field.before), _value(field.after)
    # Of long ones that begin alike, such as URLs, what they differ in.
    alike = len(os.path.commonprefix([before, after]))  # noqa: RUF071 - no paths
    start = alike - _LEAD if max(len(before), len(after)) > _LONGEST and alike > _LEAD else 0
    return f"{field.path}: {_cut(before, start)} → {_cut(after, start)}"


def _by_path(fields: Sequence[tuple[Field, str]]) -> Iterator[str]:
    """Give a line for each change; where each node has its own, a line for the field."""
    kinds: dict[str, set[str]] = {}
    for field, _ in fields:
        kinds.setdefault(field.path, set()).add(field_text(field))
    yield from _grouped(
        (
            field_text(field)
            if len(kinds[field.path]) <= 3  # noqa: PLR2004
            else f"{field.path}: {len(kinds[field.path])} different values",
            node,
        )
        for field, node in fields
    )


def _is_release(field: Field) -> bool:
    return field.path.startswith(_RELEASE)


def _release_line(fields: Iterable[Field]) -> str:
    told = [field for field in fields if _is_release(field)]
    version = [field for field in told if field.path == "release.version"]
    rest = [field.path.replace("release.", "", 1) for field in told if field not in version]
    if not told:
        return ""
    if version:
        return f"release {version[0].before} → {version[0].after}"
    return f"release of the same version, with another {', '.join(rest)}"


def _grouped(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Give a line for each text with its nodes, that of the most nodes first."""
    found: dict[str, list[str]] = {}
    for words, node in pairs:
        if words:
            found.setdefault(words, []).append(node)
    for words, nodes in sorted(found.items(), key=lambda item: -len(item[1])):
        yield f"{words}{_on(nodes)}"


def _on(nodes: Sequence[str]) -> str:
    return f", on {count(len(nodes), 'node')}: {some(nodes)}"


def _value(value: Any) -> str:
    if value is None:
        return "the default"
    words = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else " " for c in words)


def _cut(words: str, start: int) -> str:
    shown = f"…{words[start:]}" if start else words
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"
