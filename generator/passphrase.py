"""The passphrase of an encrypted key: from a file or from the terminal, and from nowhere else.

Not from an argument or the environment: those are readable by other processes, and end up
in histories and logs.
"""

from __future__ import annotations

import getpass
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from generator import files
from generator.problem import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    Ask = Callable[[], bytes]
    """Gives the passphrase when it turns out to be needed; raises `Refused`."""

_LIMIT = 4096  # bytes


def asking(file: str | None) -> Ask:
    """Return what gives the passphrase of `file`, else of the terminal, asked for once."""

    @cache
    def ask() -> bytes:
        return _read(Path(file)) if file else _prompt("passphrase of the authority's key: ")

    return ask


def choose(file: str | None) -> bytes:
    """Return a new passphrase: what `file` holds, or else what the terminal says twice."""
    if file:
        return _read(Path(file))
    chosen = _prompt("passphrase for the authority's key: ")
    if _prompt("the same again: ") != chosen:
        raise refuse("the two passphrases differ", "nothing was made: try again")
    return chosen


def _read(path: Path) -> bytes:
    # One end of line, as editors put it; what else is in the file is the passphrase.
    text = files.read(path, limit=_LIMIT)
    text = text.removesuffix(b"\n").removesuffix(b"\r")
    if not text:
        raise refuse(f"the passphrase file {path} is empty")
    if b"\n" in text or b"\0" in text:
        raise refuse(f"the passphrase file {path} holds more than one line")
    return text


def _prompt(text: str) -> bytes:
    try:
        # getpass itself would go on with stdin, which may be a request for a certificate.
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
        chosen = getpass.getpass(text)
    except (OSError, EOFError) as error:
        raise refuse(
            "the authority's key needs a passphrase, and there is no terminal to ask on",
            "name a file that holds it: --passphrase-file FILE",
        ) from error
    if not chosen:
        raise refuse("an empty passphrase")
    return chosen.encode()
