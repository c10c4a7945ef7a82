"""Running a program of the operator's: bounded in time and output, and without a shell."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_MOST_OUTPUT = 1 << 18  # bytes; a chain of certificates takes 2 to 10 KB
_MOST_TALK = 1 << 14  # bytes of stderr that are kept, the last
_TICK = 0.02  # seconds between two looks at a program that has closed its output
_LATE = "timeout"


@dataclass(frozen=True)
class Outcome:
    """What a program answered; `failure` says in words what went wrong, empty where nothing."""

    output: bytes
    talk: str
    failure: str


def run(  # noqa: PLR0913 - what a program runs with
    command: Sequence[str],
    stdin: bytes,
    environ: Mapping[str, str],
    folder: Path,
    timeout: float,
    *,
    most: int = _MOST_OUTPUT,
    together: bool = False,
) -> Outcome:
    """Run `command` in `folder` and return what it said; `timeout` in seconds.

    `stdin` must fit into a pipe (64 KB). When the time is over, or the output is more than
    `most` bytes, everything that the program has started is killed. With `together` what it
    writes to stderr is output as well. Raises OSError where it cannot start.
    """
    # A session of its own: what it starts can be killed as one, and none of it can ask
    # on the terminal, which would wait for an answer that nobody knows is due.
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if together else subprocess.PIPE,
        env=environ,
        cwd=folder,
        start_new_session=True,
    ) as process:
        try:
            return _talk_to(process, stdin, timeout, most)
        finally:
            if process.returncode is None:  # not waited for: the number is still its own
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def _name(number: int) -> str:
    with suppress(ValueError):  # of the real-time signals only the first and the last have names
        return signal.Signals(number).name
    return f"signal {number}"


def _talk_to(process: subprocess.Popen[bytes], stdin: bytes, timeout: float, most: int) -> Outcome:
    deadline = time.monotonic() + timeout
    assert process.stdin  # noqa: S101 - it is a pipe
    # A program that does not read is no failure: its answer is.
    with suppress(BrokenPipeError):
        process.stdin.write(stdin)
    with suppress(BrokenPipeError):
        process.stdin.close()
    out, talk = bytearray(), bytearray()
    failure = _read(process, out, talk, deadline, most)
    if failure == _LATE:
        failure = f"no answer within {timeout:g} seconds"
    elif not failure and (code := process.returncode):
        failure = f"exit status {code}" if code > 0 else f"killed by {_name(-code)}"
    return Outcome(bytes(out), bytes(talk).decode("utf-8", "replace"), failure)


def _read(
    process: subprocess.Popen[bytes], out: bytearray, talk: bytearray, deadline: float, most: int
) -> str:
    """Read until the program has ended and closed its output; return what failed.

    Its stderr is not waited for: an ssh that stays as the master of later connections
    keeps that open for as long as it lives.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, out)  # type: ignore[arg-type]
        if process.stderr:
            selector.register(process.stderr, selectors.EVENT_READ, talk)
        open_, ended = True, False
        while open_ or not ended:
            left = deadline - time.monotonic()
            if left <= 0:
                return _LATE
            # Looked at before the pipes: what it said before it ended is then in them.
            ended = not open_ and process.poll() is not None
            for key, _ in selector.select(0 if ended else left if open_ else min(_TICK, left)):
                data = os.read(key.fd, 1 << 16)
                key.data.extend(data)
                if not data:
                    selector.unregister(key.fileobj)
                    open_ = open_ and key.data is not out
            del talk[:-_MOST_TALK]
            if len(out) > most:
                return f"more than {most} bytes of output"
    return ""
