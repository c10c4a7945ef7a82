"""YAML with positions, in a dialect where what the eye sees is what it means (docs/spec.md)."""

from __future__ import annotations

import re
from typing import Any

import yaml

from generator.composer import build
from generator.located import Located, at, entries, merge, plain
from generator.problem import Mark, Refused
from generator.text import Lines, decode

__all__ = ["Located", "at", "entries", "loader", "merge", "parse", "plain"]

_DISPUTED = re.compile(r"\t|[|>][-+0-9]*#")


def parse(data: bytes, file: str) -> Located:
    """Return the one document of a file, an empty map when there is none.

    Raises `Refused` with all that is wrong with its YAML. What is returned or raised does
    not depend on which of PyYAML's two parsers is there.
    """
    lines = Lines(file, decode(data, file))
    root, problems = build(lines, loader(lines.text))
    if problems:
        # The pure parser has the last word, so that libyaml's own ways do not show.
        root, problems = build(lines, yaml.SafeLoader)
    if problems:
        raise Refused(problems)
    if root is None or root.value is None:
        return Located({}, Mark(file, 1, 1, 1))
    return root


def loader(text: str) -> Any:
    """Return libyaml's loader, where PyYAML was built with it: it takes an eighth of the time.

    With tabs and with a comment close behind a block's sign the two differ.
    """
    if _DISPUTED.search(text):
        return yaml.SafeLoader
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)
