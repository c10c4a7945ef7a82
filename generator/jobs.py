"""The same work on many items, in several processes, with the results in the items' order.

Plain forks and pipes: the work is a closure that the children inherit, so that no key goes
through a pipe, and no thread is in the parent when it forks. Items and what is inherited must be
small or shared: an item is sent while its child may be waiting to send a result.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import traceback
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from generator.problem import Refused, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from multiprocessing.connection import Connection

Item = TypeVar("Item")
Result = TypeVar("Result")
_AHEAD = 2  # items that a child has been given: one it works on, and the next


def available() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(
    work: Callable[[Item], Result], items: Iterable[Item], jobs: int
) -> Generator[Result, None, None]:
    """Give the result of each item; when this is closed, the children have ended.

    Raises `Refused` where the work does, or where a child has died.
    """
    if jobs == 1:
        yield from map(work, items)
        return
    children: list[tuple[Any, Connection]] = []
    try:
        pending: deque[Connection] = deque()
        for number, item in enumerate(items):
            if number < jobs:  # no more than have something to do; all before the first result
                children.append(_start(work, [pipe for _, pipe in children]))
            if len(pending) == jobs * _AHEAD:
                yield _result(pending.popleft())
            pipe = children[number % jobs][1]
            with suppress(BrokenPipeError):  # it has died, which its result tells
                pipe.send(item)
            pending.append(pipe)
        while pending:
            yield _result(pending.popleft())
    finally:
        for process, pipe in children:
            pipe.close()
            process.terminate()
        for process, _ in children:
            process.join()


def _start(work: Callable[[Any], Any], others: list[Connection]) -> tuple[Any, Connection]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(work, theirs, [*others, ours]), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _serve(work: Callable[[Any], Any], pipe: Connection, others: list[Connection]) -> None:
    """Work until there is nothing more, or the parent has gone."""
    # The parent tells the children to stop, on Ctrl-C as well.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Not at once dead: what it has started, such as authority.command, is ended first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    for other in others:  # else a child would keep its siblings from seeing that the parent died
        other.close()
    gc.freeze()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            item = pipe.recv()
            try:
                answer = ("done", work(item))
            except Refused as refused:
                answer = ("refused", refused.problems)
            except Exception as bug:  # noqa: BLE001 - told by the parent
                at = traceback.extract_tb(bug.__traceback__)[-1]
                answer = ("broken", f"{type(bug).__name__} at {at.filename}:{at.lineno}")
            pipe.send(answer)


def _result(pipe: Connection) -> Any:
    try:
        kind, value = pipe.recv()
    except (EOFError, ConnectionResetError) as error:
        raise refuse(
            "one of the processes that build was killed",
            "dmesg tells whether memory ran out; with fewer --jobs less is needed",
        ) from error
    if kind == "refused":
        raise Refused(value)
    if kind == "broken":
        # Not the exception's text: it may quote a secret.
        raise refuse(f"gen-seed is broken: {value}", "report this line with the command you gave")
    return value
