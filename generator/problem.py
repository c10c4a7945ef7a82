"""What can be wrong, where it stands, and what to do about it.

Every step returns its problems as values or raises `Refused` with all of them;
only the command line prints.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Severity = Literal["error", "warning"]


@dataclass(frozen=True, order=True)
class Mark:
    """A stretch of one line of a file: line and columns count characters from 1."""

    file: str
    line: int
    column: int
    end_column: int
    text: str = field(default="", compare=False, repr=False)
    """The whole source line; empty where it must not be shown."""


@dataclass(frozen=True)
class Problem:
    """One problem, as a compiler would tell it.

    `path` is the place in the spec (``fabrics[0].hcas[1]``), `nodes` the ids of the
    nodes it concerns when it stands in a file that several share.
    """

    message: str
    hint: str = ""
    where: Mark | None = None
    path: str = ""
    severity: Severity = "error"
    nodes: tuple[str, ...] = ()


class Refused(Exception):  # noqa: N818 - an outcome, and the word DESIGN uses for it
    """The input was refused; `problems` names everything that was found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problem.message for problem in self.problems))


def refuse(message: str, hint: str = "", where: Mark | None = None) -> Refused:
    """Return the exception for a single problem, to be raised by the caller."""
    return Refused([Problem(message, hint, where)])


def printable(text: str) -> str:
    """Return a stranger's line of text as it may be shown: it could tell the terminal to do things.

    >>> printable("no GPU\\x1b[2J\\n")
    'no GPU [2J '
    """
    return "".join(c if c.isprintable() else " " for c in text.replace("\t", "    "))[:300]


def render(problem: Problem) -> str:
    """Return the problem as text: what and where, the source line, the hint.

    >>> print(render(Problem("no node 'n8'", "the nodes are: n7")))
    error: no node 'n8'
      hint: the nodes are: n7
    """
    mark = problem.where
    parts: list[str] = [problem.severity]
    if mark:
        parts.append(f"{mark.file}:{mark.line}:{mark.column}")
    if problem.path:
        parts.append(problem.path)
    lines = [": ".join([*parts, problem.message])]
    if mark and mark.text.strip():
        gutter, mark = str(mark.line), _clipped(mark)
        # A tab stays a tab, so that the caret stands under its character in any terminal.
        indent = "".join("\t" if c == "\t" else " " for c in mark.text[: mark.column - 1])
        carets = "^" * max(1, mark.end_column - mark.column)
        lines.append(f"  {gutter} | {mark.text}")
        lines.append(f"  {' ' * len(gutter)} | {indent}{carets}")
    if problem.nodes:
        lines.append(f"  nodes: {some(problem.nodes)}")
    if problem.hint:
        lines.append(f"  hint: {problem.hint}")
    return "\n".join(lines)


def _clipped(mark: Mark, most: int = 160, before: int = 60) -> Mark:
    """Return the mark with a long line cut around it."""
    start = max(0, mark.column - 1 - before) if len(mark.text) > most else 0
    text = mark.text[start : start + most]
    if len(mark.text) > start + most:
        text += "…"
    end = min(mark.end_column - start, len(text) + 1)
    return Mark(mark.file, mark.line, mark.column - start, end, text)


def some(names: Sequence[str], most: int = 8) -> str:
    """Return names as a message lists them: the first of them, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def count(number: int, thing: str) -> str:
    """Return a number of things in words.

    >>> f"{count(1, 'error')}, {count(0, 'warning')}"
    '1 error, no warnings'
    """
    return f"{number or 'no'} {thing}{'' if number == 1 else 's'}"
