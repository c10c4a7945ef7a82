"""Puts what all nodes share into a root filesystem, and takes away what a newer bake replaces."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from generator import baked, render
from generator.generalize import generalize, holding
from generator.problem import refuse
from generator.tree import Folder, inside, unfinished

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from generator.baked import Entry

_MACHINES = {62: "amd64", 183: "arm64"}  # e_machine (elf.h)
_ELF = struct.Struct("<4s14xH")


def arch_of(root: Path, name: str) -> str:
    """Return the architecture of a root filesystem, by its shell. Raises `Refused`."""
    try:
        with inside(root, "/bin/sh", last=True).open("rb") as file:
            magic, machine = _ELF.unpack(file.read(_ELF.size))
    except (OSError, struct.error) as error:
        raise refuse(f"{name} is no root filesystem: it has no /bin/sh") from error
    if magic != b"\x7fELF" or machine not in _MACHINES:
        raise refuse(
            f"{name} is for no architecture that gen-seed knows",
            f"it knows {', '.join(_MACHINES.values())}",
        )
    return _MACHINES[machine]


def family_of(root: Path) -> str | None:
    """Return whose trust store a root filesystem has, as onboard finds it on the node."""
    for family in ("rhel", "arch", "suse"):
        if inside(root, baked.ANCHORS[family], last=True).is_dir():
            return family
    for folder in ("/usr/sbin", "/usr/bin", "/sbin"):
        if inside(root, f"{folder}/update-ca-certificates", last=True).is_file():
            return "debian"
    return None


def check(root: Path, name: str, *, clean: bool) -> None:
    """Raise `Refused` where a root filesystem, called `name`, cannot be every node's.

    With `clean`, what is one machine's own will be taken away.
    """
    held = holding(Folder(root))
    refusal = held.refusal(name)
    if refusal and (held.authority or not clean):
        raise refusal


def bake(root: Path, made: Sequence[Entry], *, clean: bool) -> Iterator[str]:
    """Put files into a root filesystem; yield a line for each thing that was changed.

    With `clean` what is one machine's own is taken away first. The note comes last: a bake that
    is cut short is done again by the next.
    """
    folder = Folder(root)
    earlier = folder.read(baked.NOTE)
    if clean:
        yield from generalize(folder)
    if earlier:
        yield from _replaced(folder, earlier.data, made)
    for entry in made:
        place, _, name = entry.path.rpartition("/")
        for path in folder.find(f"{place}/.{name}.*"):
            if unfinished(path) == entry.path and folder.remove(path):
                yield f"took away {path}, of a bake that was cut short"
        if folder.put(entry):
            yield f"put {entry.path}"


def _replaced(folder: Folder, note: bytes, made: Sequence[Entry]) -> Iterator[str]:
    """Take away what an earlier bake put there and this one does not.

    The note of an image says what to take away only as far as a bake could have put it there.
    """
    kept = {entry.path for entry in made}
    could = {baked.BINARY, baked.INSTALLED, *render.SHARED}
    earlier = baked.read_note(note)
    for path in earlier.files if earlier else ():
        ours = path in could or baked.is_anchor(path)
        if ours and path not in kept and folder.remove(path):
            yield f"took away {path}, of an earlier bake"
