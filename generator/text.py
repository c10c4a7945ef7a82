"""The text of a YAML file before it is understood: its encoding, its lines, its syntax errors."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Any

from generator.private import without_private
from generator.problem import Mark, Problem, refuse

if TYPE_CHECKING:
    import yaml

# What an editor shows as nothing, or as a line's end where YAML sees none (or the reverse).
_INVISIBLE = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f]|[\u2028-\u2029]|\ufeff|[\ufffe-\uffff]"  # emit says why so
)
_WIDE_BOMS = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Lines:
    """The lines of a file, and the marks in it.

    Private ones are never shown (private.py).
    """

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self._lines = text.split("\n")
        self._shown = without_private(self._lines)

    def mark(self, start: Any, end: Any, *, hidden: bool = False) -> Mark:
        """Return the mark between two marks of PyYAML, cut at the end of the first line."""
        return self.at(start.line, start.column, end.line, end.column, hidden=hidden)

    def at(
        self, line: int, column: int, end_line: int, end_column: int, *, hidden: bool = False
    ) -> Mark:
        """Return a mark; the arguments count from 0, the end is exclusive."""
        length = len(self._line(line).rstrip())
        end_column = max(length if end_line > line else min(end_column, length), column + 1)
        shown = "" if hidden or line >= len(self._shown) else self._shown[line]
        return Mark(self.file, line + 1, column + 1, end_column + 1, shown)

    def empty(self, mark: yaml.Mark, *, hidden: bool) -> Mark:
        """Return the mark of a value that is not there: at the last character before it.

        PyYAML's two parsers put it before and behind the space that follows.
        """
        line, before = mark.line, self.before(mark)
        while not before and line:
            line -= 1
            before = self._line(line).rstrip()
        column = max(0, len(before) - 1)
        return self.at(line, column, line, column + 1, hidden=hidden)

    def character(self, mark: yaml.Mark) -> str:
        """Return the character at a mark of PyYAML, empty at the end of a line."""
        return self._line(mark.line)[mark.column : mark.column + 1]

    def before(self, mark: yaml.Mark) -> str:
        """Return what stands before a mark on its line, without the space between."""
        return self._line(mark.line)[: mark.column].rstrip()

    def indentation(self, mark: yaml.Mark) -> str:
        """Return the white space that a mark's line starts with."""
        text = self._line(mark.line)
        return text[: len(text) - len(text.lstrip())]

    def _line(self, number: int) -> str:
        return self._lines[number] if number < len(self._lines) else ""


def decode(data: bytes, file: str) -> str:
    """Return the text of a YAML file, without BOM and with plain line feeds.

    Raises `Refused` for what is not UTF-8 and for characters that cannot be seen.
    """
    if data.startswith(_WIDE_BOMS):
        raise refuse(f"{file} is UTF-16 or UTF-32, not UTF-8", "save it as UTF-8")
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        good = error.object[: error.start].decode("utf-8")
        mark = _mark_at(file, good + "\N{REPLACEMENT CHARACTER}", len(good))
        byte = f"0x{error.object[error.start]:02x}"
        raise refuse(f"byte {byte} is not UTF-8", "save the file as UTF-8", mark) from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    found = _INVISIBLE.search(text)
    if found:
        mark = _mark_at(file, text, found.start())
        hint = f'remove it, or write it in double quotes as "\\u{ord(found[0]):04x}"'
        raise refuse(f"invisible character U+{ord(found[0]):04X}", hint, mark)
    return text


def _mark_at(file: str, text: str, offset: int) -> Mark:
    before = text[:offset]
    line, column = before.count("\n"), offset - (before.rfind("\n") + 1)
    return Lines(file, text).at(line, column, line, column + 1, hidden=True)


_INDENT = "check its indentation against the lines above, and quote a text that has ': ' in it"
_BLOCK = "quote a text that starts with '|' or '>'"
# What PyYAML's pure parser says; what we say and advise; whether it is about where the thing
# that is wrong starts, and not about where the parser noticed.
_SYNTAX = (
    ("mapping values are not allowed", "a ':' that cannot stand here", _INDENT, False),
    ("could not find expected ':'", "a line without ':'", "write 'key: value'", True),
    ("expected ',' or ']'", "a list that is not closed", "its end is a ']'", True),
    ("expected ',' or '}'", "a map that is not closed", "its end is a '}'", True),
    ("expected <block end>", "this belongs to nothing above it", _INDENT, False),
    (
        "sequence entries are",
        "a '-' that cannot stand here",
        "a list starts on its own line",
        False,
    ),
    ("mapping keys are not allowed", "a '?' that cannot stand here", "quote the text", False),
    ("unexpected end of stream", "a quote that is not closed", "close it on this line", True),
    ("unexpected document separator", "a quote that is not closed", "close it on this line", True),
    ("unknown escape character", "an escape that YAML does not know", "a backslash is \\\\", False),
    ("escape sequence of", "an escape that is not complete", 'such as "\\u00e9"', False),
    ("cannot start any token", "a character that cannot start a value", "quote the text", False),
    ("alphabetic or numeric", "an anchor or alias without a name", "quote the text", True),
    ("block scalar", "a block that YAML does not understand", _BLOCK, True),
    ("chomping or indentation", "a block that YAML does not understand", _BLOCK, True),
    ("<document start>", "text after the document's end", "a file holds one document", False),
    ("directive", "a '%' line that YAML does not know", "quote a text that starts with '%'", False),
    ("YAML document", "a version of YAML that is not known", "remove the %YAML line", False),
)


def syntax_problem(error: yaml.YAMLError, lines: Lines) -> Problem:
    """Return what PyYAML's pure parser refused, in our own words."""
    found = f"{getattr(error, 'context', '')} {getattr(error, 'problem', '')}"
    noticed, start = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    mark = noticed or start
    if mark and (lines.character(mark) == "\t" or "\t" in lines.indentation(mark)):
        return Problem("a tab as indentation", "YAML wants spaces", _point(lines, mark))
    for words, message, hint, at_start in _SYNTAX:
        if words in found:
            return Problem(message, hint, _point(lines, start if at_start and start else mark))
    return Problem("not YAML", "check the quotes and the indentation here", _point(lines, mark))


def _point(lines: Lines, mark: yaml.Mark | None) -> Mark:
    line, column = (mark.line, mark.column) if mark else (0, 0)
    return lines.at(line, column, line, column + 1)
