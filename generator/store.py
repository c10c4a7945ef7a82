"""The identity store: a node's identity kept for reuse, NODE.pem with chain and key in one file.

One file, because two cannot be put in place as one: a kill between them would leave a
certificate with the key of another.
"""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from generator import custody, files, identity, lock, pem, standing
from generator.problem import Problem, Refused, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path

    from generator.identity import Identity
    from generator.passphrase import Ask

NAME = "identities"
WAIT = 60.0
"""Seconds that whoever adds to the store waits for the others."""


def path(store: Path, node_id: str) -> Path:
    """Return where a node's identity is kept."""
    return store / f"{node_id}.pem"


def serial(store: Path, node_id: str) -> str | None:
    """Return the serial number of a stored certificate in hex; None where it cannot be read."""
    file = path(store, node_id)
    try:
        return f"{pem.certificates(pem.read(file), str(file))[0].serial_number:x}"
    except Refused:
        return None


def find(
    store: Path, node_id: str, now: datetime, authority: Path, ask: Ask | None
) -> tuple[Identity, list[Problem]] | None:
    """Return the stored identity of a node and warnings; None where there is none.

    Of the `authority` folder only the certificates are read. Raises `Refused` where the
    identity has ended or cannot be used: another is made only when somebody asks for it.
    """
    file = path(store, node_id)
    if not os.path.lexists(file):
        return None
    data = pem.read(file), str(file)
    found = identity.assemble(node_id, data, data, authority, ask)
    if problems := identity.check(found, now, str(file)):
        raise Refused(replace(problem, hint=problem.hint or renew(node_id)) for problem in problems)
    warnings = custody.open_to_others(file)
    if standing.ends_soon(found.not_before, found.not_after, now):
        text = f"the stored identity of {node_id} ends in {(found.not_after - now).days} days, on"
        text += f" {found.not_after:%Y-%m-%d}"
        warnings.append(Problem(text, renew(node_id), severity="warning"))
    return found, warnings


def renew(node_id: str) -> str:
    """Return the hint that tells how to get another identity."""
    return f"issue another in its place: gen-seed {node_id} --renew"


@contextmanager
def locked(store: Path, timeout: float) -> Iterator[None]:
    """Be the only one that adds to the store; wait up to `timeout` seconds for the others.

    Makes the folder where it is missing, 0700. Where the file system has no locks, two may
    make an identity each, but only one can put its own in place: link(2) refuses the second.
    Raises `Refused`.
    """
    try:
        if not store.is_dir():
            with suppress(FileExistsError):
                store.mkdir(0o700, parents=True)
                custody.hand_over(store)
    except OSError as error:
        raise files.cannot("write", store, error) from error
    with lock.held(store / ".lock", timeout) as alone:
        custody.hand_over(store / ".lock")
        if alone:
            for left in store.glob(".*.tmp"):  # what a kill has left behind
                left.unlink(missing_ok=True)
        yield


@contextmanager
def staged(  # noqa: PLR0913 - what a stored identity is made from
    store: Path,
    node_id: str,
    certificates: bytes,
    key: bytes,
    passphrase: bytes | None,
    *,
    replacing: bool = False,
) -> Iterator[Callable[[], None]]:
    """Write an identity beside its place and yield what puts it there; to be used locked.

    `certificates` and `key` are PEM. That the disk takes it is known before it counts as
    issued. The key is encrypted where there is a passphrase. Raises `Refused`.
    """
    target = path(store, node_id)
    if not replacing and os.path.lexists(target):
        raise _taken(target)
    beside = store / f".{node_id}.{secrets.token_hex(6)}.tmp"
    opened = pem.private_key(key, "of this identity")
    files.create(beside, certificates + pem.key_pem(opened, passphrase), 0o600)

    def put() -> None:
        try:
            if replacing:
                beside.replace(target)
            else:
                os.link(beside, target)
        except FileExistsError as error:
            raise _taken(target) from error
        except OSError as error:
            raise files.cannot("write", target, error) from error

    try:
        custody.hand_over(beside)
        yield put
    finally:
        beside.unlink(missing_ok=True)


def _taken(target: Path) -> Refused:
    return refuse(f"{target} was stored by another process", "try again")
