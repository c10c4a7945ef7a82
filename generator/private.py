"""Which lines of a file are never shown: what stands under ``cloud_config`` may be a password."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from functools import cache

_NAME = "cloud_config"
_ALIKE = 0.8  # cloud-config and cloud_confg are meant for it; cloud-7 is a node
_KEY = re.compile(r"""(?P<start>^\s*(?:-\s+)*["']?)?(?<![\w-])(?P<key>[\w-]+)["']?\s*:""")
_SUSPECT = re.compile("cl|con", re.IGNORECASE)  # no misspelling of it is without either
# What ends the private lines: a key of the spec, or one with no text beside it. Any other
# line may be a password that is indented too little.
_END = re.compile(
    r"""\s*(?:-\s+)*["']?(?:
        (?:schema|server|mgmt_addr|mgmt_interface|groups|fabrics|engines|discovery|supervisor|agent
          |release|identity|network|proxy|trust|onboard|authority|defaults|nodes)["']?\s*:
        |[\w-]+["']?\s*:\s*(?:[{&\#].*)?$)""",
    re.VERBOSE,
)


@cache
def is_private(key: str | None) -> bool:
    """Tell whether a key is ``cloud_config``, or meant to be."""
    return key == _NAME or (
        key is not None and SequenceMatcher(None, key.lower(), _NAME).ratio() >= _ALIKE
    )


def without_private(lines: list[str]) -> list[str]:
    """Return the lines with the private ones emptied, and cut where private text begins."""
    shown = []
    private: int | None = None  # the indentation of the key whose lines are private
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if private is not None and (indent > private or not ends(line)):
            shown.append("")
            continue
        private = None
        found = _private_key(line) if _SUSPECT.search(line) else None
        if found:
            private = indent
            shown.append(line[: found.end()] if found["start"] is not None else "")
        else:
            shown.append(line)
    return shown


def ends(line: str) -> bool:
    """Tell whether a line, if it is not indented, is surely none of the private ones."""
    return bool(_END.match(line))


def _private_key(line: str) -> re.Match[str] | None:
    return next((found for found in _KEY.finditer(line) if is_private(found["key"])), None)
