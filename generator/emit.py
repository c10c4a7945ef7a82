"""Values as YAML that a 1.1 reader (cloud-init) and a 1.2 reader (Go) understand alike.

PyYAML's own emitter leaves ``1e3`` or ``08`` unquoted, which a 1.2 reader takes for
numbers (PyYAML #860), differs between its C and its Python half, and the Python half
takes 10 ms for a seed. This one writes block style, quotes whatever is not plainly a word, and
keeps text of several lines readable.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

# Starts like a word or a path, and no character in it means anything to YAML.
_PLAIN = re.compile(r"(?:[A-Za-z/]|-(?=[A-Za-z]))(?:[A-Za-z0-9_./@+=-]|:(?=[A-Za-z0-9_./@+=-]))*")
_KEY_LIMIT = 1000  # characters
_ROW_LIMIT = 90
_LISTS = (list, tuple)
_BLOCKS = (dict, list, tuple, Mapping)  # the last takes long, and is seldom asked
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
# cloud-init takes all of user-data for mail when it sees this with a colon in the first 4096
# bytes (user_data.py); an escape in the colon's place means the same to YAML and nothing to it.
_MAIL = re.compile("(mime-version):", re.IGNORECASE)
# What a YAML reader may not find raw in a file, or takes for a line break. In pieces: one class
# of characters that reaches this far takes Python 6 ms to compile.
_UNPRINTABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f]|[\u2028-\u2029]|[\ud800-\udfff]|\ufeff|[\ufffe-\uffff]"
)


def dump(value: Any, indent: int = 0) -> str:
    """Return `value` as whole lines, each indented by `indent` spaces.

    Takes mappings with string keys, lists, tuples, strings, numbers, booleans and None.

    >>> print(dump({"runcmd": [["echo", "a: b"]], "note": "no"}), end="")
    runcmd:
      - [echo, "a: b"]
    note: "no"
    """
    pad = " " * indent
    if isinstance(value, Mapping) and value:
        return "".join(
            f"{_key(key, pad)}:{_behind(item, indent, dash=False)}" for key, item in value.items()
        )
    if isinstance(value, _LISTS) and value:
        return "".join(f"{pad}-{_behind(item, indent, dash=True)}" for item in value)
    return f"{pad}{inline(value)}\n"


def inline(value: Any) -> str:
    """Return a scalar, or an empty collection, in one line, as it may stand anywhere."""
    if isinstance(value, str):
        return _word(value)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, _BLOCKS) and not value:
        return "{}" if isinstance(value, Mapping) else "[]"
    raise TypeError(f"{type(value).__name__} is not a YAML scalar")


# The same words, and the same scripts, are in the seeds of a whole fleet.
@lru_cache(maxsize=1024)
def _word(text: str) -> str:
    return text if _is_plain(text) else _quoted(text)


def _behind(value: Any, indent: int, *, dash: bool) -> str:
    """Return what stands behind a dash or a key: on its line where it can be, or below a key."""
    if isinstance(value, str):
        return f" {_text(value, indent + 2)}\n"
    if row := _row(value):
        return f" {row}\n"
    if isinstance(value, _BLOCKS) and value:
        block = dump(value, indent + 2)
        return f" {block[indent + 2 :]}" if dash else f"\n{block}"
    return f" {inline(value)}\n"


def _row(value: Any) -> str:
    """Return a list in one line, or nothing where it is better read in several."""
    if not isinstance(value, _LISTS) or not value:
        return ""
    if any(isinstance(item, _BLOCKS) or "\n" in str(item) for item in value):
        return ""
    row = f"[{', '.join(map(_in_brackets, value))}]"
    return row if len(row) <= _ROW_LIMIT else ""


def _in_brackets(value: Any) -> str:
    # Readers before PyYAML 5.1 take any colon in a flow list for a key's.
    return _quoted(value) if isinstance(value, str) and ":" in value else inline(value)


def _key(key: str, pad: str) -> str:
    text = inline(key)
    # Without the question mark a reader looks 1024 characters ahead for the colon.
    return f"{pad}{text}" if len(text) < _KEY_LIMIT else f"{pad}? {text}\n{pad}"


def _is_plain(text: str) -> bool:
    return bool(_PLAIN.fullmatch(text)) and text.lower() not in _WORDS and not _is_mail(text)


def _is_mail(text: str) -> bool:
    return bool(_MAIL.search(f"{text}:"))  # a key has its colon behind it


@lru_cache(maxsize=64)
def _text(text: str, indent: int) -> str:
    # A literal block cannot hold a first line that is indented or empty without an
    # indicator, and more than one line break at its end without another.
    if "\n" not in text or text[0] in " \t\n" or text.endswith("\n\n"):
        return inline(text)
    if _UNPRINTABLE.search(text) or _is_mail(text):
        return inline(text)
    pad = " " * indent
    lines = text.removesuffix("\n").split("\n")
    mark = "|" if text.endswith("\n") else "|-"
    return "\n".join([mark, *(f"{pad}{line}" if line else "" for line in lines)])


def _quoted(text: str) -> str:
    quoted = _MAIL.sub(r"\1\\u003a", json.dumps(text, ensure_ascii=False))
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _float(value: float) -> str:
    text = repr(value)
    if not math.isfinite(value):
        return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}[text]
    # YAML 1.1 wants a point before an exponent.
    return text if "." in text or "e" not in text else text.replace("e", ".0e")
