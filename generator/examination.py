"""What an image holds of ours, and whether that is what its note says."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from generator import baked
from generator.generalize import holding
from generator.problem import Problem, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from generator.tree import Tree

_AGAIN = "bake the image again"


@dataclass(frozen=True)
class Examination:
    """What was found: the note, None where there is none; paths of an identity; what is wrong."""

    note: baked.Note | None
    identity: tuple[str, ...]
    problems: tuple[Problem, ...]

    def facts(self) -> dict[str, Any]:
        """Return everything that is known, as JSON has it."""
        note = self.note
        release = (
            {"version": note.version, "arch": note.arch, "sha256": note.sha256} if note else {}
        )
        rows = note.files.items() if note else ()
        return {
            "format": note.format if note else None,
            "gen_seed": note.gen_seed if note else None,
            "release": release or None,
            "roots": list(note.roots) if note else [],
            "files": [{"path": p, "mode": mode, "sha256": sha} for p, (mode, sha) in rows],
            "identity": list(self.identity),
            "problems": [{"message": p.message, "hint": p.hint} for p in self.problems],
        }

    def lines(self) -> Iterator[str]:
        """Yield the same for a person."""
        if self.note:
            yield f"baked        by gen-seed {self.note.gen_seed}, format {self.note.format}"
            yield f"release      {self.note.version}, {self.note.arch}, sha256 {self.note.sha256}"
            yield from (f"root         sha256 {root}" for root in self.note.roots)
            yield "files"
            yield from (f"  {mode} {path}" for path, (mode, _) in self.note.files.items())
        yield f"identity     {', '.join(self.identity) or 'none'}"


def examine(tree: Tree) -> Examination:
    """Return what an image holds. Raises `Refused` where a newer gen-seed baked it."""
    held = holding(tree)
    identity = tuple(map(printable, (*held.authority, *held.identity)))
    kept = tree.read(baked.NOTE)
    if kept is None:
        message = f"it is not baked: there is no {baked.NOTE}"
        return Examination(None, identity, (Problem(message, "gen-seed bake makes it so"),))
    note = baked.read_note(kept.data)
    if note is None:
        return Examination(None, identity, (Problem(f"{baked.NOTE} is damaged", _AGAIN),))
    wrong = [_file(tree, path, mode, digest) for path, (mode, digest) in note.files.items()]
    return Examination(note, identity, tuple(problem for problem in wrong if problem))


def _file(tree: Tree, path: str, mode: str, digest: str) -> Problem | None:
    found = tree.read(path)
    if found is None:
        return Problem(f"{path} is missing", _AGAIN)
    if hashlib.sha256(found.data).hexdigest() != digest:
        return Problem(f"{path} is not what {baked.NOTE} says: it was changed", _AGAIN)
    if not found.is_roots or f"{found.mode:04o}" != mode:
        whose = "root's" if found.is_roots else "somebody else's"
        return Problem(f"{path} is {whose} with mode {found.mode:04o}, not root's {mode}", _AGAIN)
    return None
