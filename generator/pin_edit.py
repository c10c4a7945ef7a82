"""A release's new values put into fleet.yaml, and not a byte of the rest changed."""

from __future__ import annotations

import codecs
import copy
import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import yaml

from generator import emit, schema, source
from generator.problem import Refused, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping

    Path = tuple[str | int, ...]
    Edit = tuple[int, int, str]

_BREAK = re.compile(r"\r\n|\r|\n")
_FLOW = re.compile(r"[\[\]{},]")


def edit(data: bytes, file: str, document: Mapping[str, Any], changes: Mapping[Path, str]) -> bytes:
    """Return fleet.yaml, which says `document`, with other values under ``release``.

    `changes` are by their paths there. What is there keeps its place and its quotes; what is not
    is added at the top of ``release``, and ``release`` itself at the end. Raises `Refused` where
    the result would not be the old document with these changes and no other, as when an anchor
    shares the values.
    """
    release = copy.deepcopy(document.get("release", {}))
    for path, value in changes.items():
        _set(release, path, value)
    wanted = {**document, "release": release}
    bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    text = data[len(bom) :].decode("utf-8")
    left = [*changes.items()][::-1]  # what is added comes before what was
    found = None
    with suppress(Refused, yaml.YAMLError):  # as when a value that others refer to is gone
        while left:
            text, left = _round(text, left, release)
        found = source.parse(bom + text.encode(), file)
    if found is None or source.plain(found) != wanted:
        raise refuse(
            f"{file} is not changed: its release is written in a way that cannot be edited",
            f"write it yourself:\n\n{emit.dump({'release': release}).rstrip()}",
        )
    if wrong := schema.problems(found, "fleet"):
        raise Refused(wrong)
    return bom + text.encode()


def _round(
    text: str, changes: list[tuple[Path, str]], release: Mapping[str, Any]
) -> tuple[str, list[tuple[Path, str]]]:
    """Return the text with changes in different places, and those that are left."""
    page = _Text(text)
    edits: dict[int, Edit] = {}
    left = []
    for path, value in changes:
        start, end, new = page.edit(path, value, release)
        if start in edits:
            left.append((path, value))
        elif start >= 0:
            edits[start] = start, end, new
    for start, end, new in sorted(edits.values(), reverse=True):
        text = f"{text[:start]}{new}{text[end:]}"
    return text, left


def _set(values: Any, path: Path, value: str) -> None:
    *steps, last = path
    for step in steps:
        values = values.setdefault(step, {}) if isinstance(values, dict) else values[step]
    values[last] = value


class _Text:
    """A file's text, with PyYAML's nodes and where they are in it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(found.end() for found in _BREAK.finditer(text))]
        self._newline = found[0] if (found := _BREAK.search(text)) else "\n"
        self._root: Any = yaml.compose(text, Loader=source.loader(text))

    def edit(self, path: Path, value: str, release: Mapping[str, Any]) -> Edit:
        """Return from where to where, less than 0 for nowhere, what goes there for one change.

        `release` is what stands there in the end.
        """
        node, whole = self._root, cast("Any", {"release": release})
        for step in ("release", *path):
            child = _child(node, step)
            if child is None:
                return self._added(node, str(step), whole[step])
            node, whole = child, whole[step]
        if node.value == value:
            return -1, -1, ""
        return self._put(node.start_mark, node.end_mark, self._scalar(node, value))

    def _put(self, start: Any, end: Any, new: str) -> Edit:
        # PyYAML's two parsers agree on lines and columns.
        first, last = (self._starts[mark.line] + mark.column for mark in (start, end))
        return first, last, new

    def _scalar(self, node: Any, value: str) -> str:
        quoted = getattr(node, "style", None)
        if quoted == "'" and "'" not in value:
            return f"'{value}'"
        if quoted:
            return json.dumps(value)
        plain = emit.inline(value)
        # A URL with braces is plain in block style, and a reader of it sees no need for quotes.
        if not plain.startswith('"') or not re.fullmatch(r"https?://[^\s#]*[^\s#:]", value):
            return plain
        return plain if _FLOW.search(value) and self._in_flow(node) else value

    def _in_flow(self, node: Any) -> bool:
        release = _child(self._root, "release")
        around = [self._root, release, _child(release, "urls")]
        return any(part is not None and part is not node and part.flow_style for part in around)

    def _added(self, node: Any, key: str, value: Any) -> Edit:
        """Return the edit that adds a key, at the top of a map; of the root, at its end."""
        if node is None or (node is self._root and not node.flow_style):
            lines = emit.dump({key: value}, node.start_mark.column if node else 0)
            end = self._end(node)
            if end and not _BREAK.search(self._text[end - 1]):
                lines = f"\n{lines}"
            return end, end, lines.replace("\n", self._newline)
        if not isinstance(node, yaml.MappingNode) or not node.value:
            return self._put(node.start_mark, node.end_mark, f"{{{key}: {json.dumps(value)}}}")
        first = node.value[0][0]
        at = first.start_mark
        if node.flow_style:
            name = json.dumps(key) if first.style == '"' else key
            return self._put(at, at, f"{name}: {json.dumps(value)}, ")
        rest = json.dumps(value) if isinstance(value, dict) else self._scalar(first, value)
        return self._put(at, at, f"{key}: {rest}{self._newline}{' ' * at.column}")

    def _end(self, root: Any) -> int:
        """Return where the document ends: at the text's end, or where a line of dots is."""
        mark = root.end_mark if root else None
        if mark is None or mark.line >= len(self._starts):  # a last line without an end
            return len(self._text)
        return int(self._starts[mark.line] + mark.column)


def _child(node: Any, step: str | int) -> Any:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == step), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        return node.value[step] if step < len(node.value) else None
    return None
