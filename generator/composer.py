"""A parser's events made into located values, in the dialect of docs/spec.md.

Events and not PyYAML's own loaders: a loader recurses, so that a file can make it fall over,
and YAML 1.1 would make a number of a MAC address and false of `no`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from generator.located import Located
from generator.private import is_private
from generator.problem import Problem
from generator.text import syntax_problem

if TYPE_CHECKING:
    from generator.problem import Mark
    from generator.text import Lines

_DEPTH = 64  # levels; nothing an operator writes comes near, and no later step recurses deeper
_COPIES = 100_000  # values that aliases may add to what is written
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,17})?")
# What one reader of YAML, or a person, takes for a number and another for text.
_NUMBERISH = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}


def build(lines: Lines, loader: Any) -> tuple[Located | None, list[Problem]]:
    """Return the document and all that is wrong with it; the document is None when empty."""
    builder = _Builder(lines)
    try:
        for event in yaml.parse(lines.text, Loader=loader):
            builder.take(event)
    except _CannotGoOn:
        pass
    except yaml.YAMLError as error:
        builder.problems.append(syntax_problem(error, lines))
    return builder.root, builder.problems


class _CannotGoOn(Exception):  # noqa: N818 - carries nothing: the problem is recorded
    """The rest of the file would only make more noise."""


@dataclass(slots=True)
class _Frame:
    """A map or list that is still open."""

    value: dict[str, Located] | list[Located]
    event: Any
    hidden: bool
    keys: dict[str, Mark] = field(default_factory=dict)
    key: str | None = None
    merges: list[Located] = field(default_factory=list)
    size: int = 1  # values, aliases followed
    height: int = 1  # levels, aliases followed


class _Builder:
    """Takes a parser's events one by one and builds the value."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.problems: list[Problem] = []
        self.root: Located | None = None
        self.frames: list[_Frame] = []
        self.anchors: dict[str, tuple[Located, int, int]] = {}
        self.copies = 0

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._refuse_tag(event)
            self._scalar(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._refuse_tag(event)
            self._open(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close(event)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            self._stop(event, "a second document starts here", "a file holds one document")

    def _scalar(self, event: Any) -> None:
        unquoted = event.style in (None, "")
        if not unquoted and _SURROGATE.search(event.value):
            self._problem(event, "an escape that is no character", "write the character itself")
        if self._wants_key():
            self._key(event, unquoted=unquoted)
            return
        value = event.value
        if unquoted:
            value = self._meaning(event)
        if unquoted and not event.value:
            mark = self.lines.empty(event.start_mark, hidden=self._hidden())
        else:
            mark = self._mark(event)
        self._add(event, Located(value, mark, plain=event.value if unquoted else ""), 1, 0)

    def _meaning(self, event: Any) -> Any:
        text = event.value
        if text in _WORDS:
            return _WORDS[text]
        if _NUMBER.fullmatch(text):
            number = float(text) if "." in text else int(text)
            if str(number) == text:
                return number
        if _NUMBERISH.fullmatch(text):
            shown = "a value" if self._hidden() else text
            self._problem(
                event,
                f"{shown} can be read as a number or as text",
                "put it in quotes if it is text, else write the number plainly, as 7 or 1.5",
            )
        return text

    def _key(self, event: Any, *, unquoted: bool) -> None:
        frame = self.frames[-1]
        key = event.value
        explicit = self.lines.character(frame.event.start_mark) == "?"
        if (unquoted and not key) or explicit or self.lines.before(event.start_mark).endswith("?"):
            self._stop(frame.event, "an empty key, or one with '?'", "write key: value")
        first = frame.keys.get(key)
        if first:
            message = f"{key!r} is given twice, first at {first.line}:{first.column}"
            self._problem(event, message, "keep one of them")
        frame.key = key
        if not (unquoted and key == "<<"):
            frame.keys[key] = self._mark(event)

    def _open(self, event: Any) -> None:
        if self._wants_key():
            self._stop(event, "a key that is a list or a map", "a key is one word")
        if len(self.frames) == _DEPTH:
            self._stop(event, f"nested deeper than {_DEPTH} levels", "no spec needs that")
        value: dict[str, Located] | list[Located] = (
            {} if isinstance(event, yaml.MappingStartEvent) else []
        )
        self.frames.append(_Frame(value, event, self._hidden()))

    def _close(self, event: Any) -> None:
        frame = self.frames.pop()
        if isinstance(frame.value, dict):
            for base in frame.merges:  # the earlier one wins, what is written here most
                frame.value = base.value | frame.value
                frame.keys = {**base.keys, **frame.keys}
        mark = self.lines.mark(frame.event.start_mark, event.end_mark, hidden=frame.hidden)
        self._add(frame.event, Located(frame.value, mark, frame.keys), frame.size, frame.height)

    def _alias(self, event: Any) -> None:
        if self._wants_key():
            self._stop(event, "an alias as a key", "write the key itself")
        if event.anchor not in self.anchors:
            hint = f"write &{event.anchor} before the value that it stands for, above this line"
            self._stop(event, f"no anchor &{event.anchor} before *{event.anchor}", hint)
        located, size, height = self.anchors[event.anchor]
        self.copies += size
        if self.copies > _COPIES:
            self._stop(event, f"aliases copy more than {_COPIES} values", "no spec needs that")
        if len(self.frames) + height > _DEPTH:
            self._stop(event, f"nested deeper than {_DEPTH} levels", "no spec needs that")
        self._add(event, located, size, height)

    def _add(self, event: Any, located: Located, size: int, height: int) -> None:
        """Put a finished value where it belongs."""
        if event.anchor and not isinstance(event, yaml.AliasEvent):
            self.anchors[event.anchor] = (located, size, height)
        if not self.frames:
            self.root = located
            return
        frame = self.frames[-1]
        frame.size += size
        frame.height = max(frame.height, height + 1)
        if isinstance(frame.value, list):
            frame.value.append(located)
            return
        key, frame.key = frame.key, None
        if key == "<<" and "<<" not in frame.keys:
            self._merge_key(event, frame, located)
        elif key is not None:
            frame.value[key] = located

    def _merge_key(self, event: Any, frame: _Frame, located: Located) -> None:
        bases = located.value if isinstance(located.value, list) else [located]
        if frame.merges:
            self._problem(event, "'<<' is given twice", "write <<: [*a, *b]")
        elif all(isinstance(base.value, dict) for base in bases):
            frame.merges = bases
        else:
            self._problem(event, "'<<' takes a map or a list of maps", "such as <<: *defaults")

    def _wants_key(self) -> bool:
        return (
            bool(self.frames)
            and isinstance(self.frames[-1].value, dict)
            and (self.frames[-1].key is None)
        )

    def _hidden(self) -> bool:
        return bool(self.frames) and (self.frames[-1].hidden or is_private(self.frames[-1].key))

    def _refuse_tag(self, event: Any) -> None:
        if event.tag:
            self._problem(event, "a tag ('!')", "remove it; quotes make a text of any value")

    def _mark(self, event: Any) -> Mark:
        return self.lines.mark(event.start_mark, event.end_mark, hidden=self._hidden())

    def _problem(self, event: Any, message: str, hint: str) -> None:
        self.problems.append(Problem(message, hint, self._mark(event)))

    def _stop(self, event: Any, message: str, hint: str) -> NoReturn:
        self._problem(event, message, hint)
        raise _CannotGoOn
