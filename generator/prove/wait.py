"""Waiting for a machine, and what is said when the wait was in vain."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_T = TypeVar("_T")


def wait_for(
    what: str,
    done: Callable[[], _T],
    deadline: float,
    *,
    running: Callable[[], bool],
    failed: Callable[[str], TimeoutError],
) -> _T:
    """Return the first true answer of `done`; fail when `deadline` seconds are over.

    A file that is not there yet counts as no answer. Raises what `failed` makes of a message,
    as a RuntimeError when the machine went down.
    """
    end = time.monotonic() + deadline
    while True:
        with contextlib.suppress(FileNotFoundError):
            if answer := done():
                return answer
        if not running():
            raise RuntimeError(str(failed(f"went down while waiting for {what}")))
        if time.monotonic() > end:
            raise failed(f"waited {deadline} s in vain for {what}")
        time.sleep(0.05)


def failure(message: str, logs: Mapping[str, str]) -> TimeoutError:
    """Return an error with the ends of some logs, by name."""
    tails = [f"--- {name}:\n" + "\n".join(log.splitlines()[-40:]) for name, log in logs.items()]
    return TimeoutError("\n".join([message, *tails]))
