"""Whether the snapshots of a fleet are up to date: seeds with placeholders against a folder."""

from __future__ import annotations

import difflib
import os
from typing import TYPE_CHECKING

from generator import artifact, attachments, identity, jobs, make, template, unpack
from generator.problem import Refused
from generator.workspace import is_node_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    import jinja2

    from generator.artifact import Parts
    from generator.kept import Kept
    from generator.plan import Basis
    from generator.selection import Shard
    from generator.spec import Spec


def compare(basis: Basis, kept: Kept, processes: int) -> Iterator[str]:
    """Give a unified diff for each node whose snapshot is not what building would make.

    From what is there to what would be. Writes nothing. Raises `Refused`.
    """
    templates = template.environment(basis.place.root / "templates")
    for texts in jobs.run(
        lambda number: [_node(basis, spec, templates) for spec in kept.read(number)],
        kept.parts(),
        processes,
    ):
        yield from filter(None, texts)


def strays(basis: Basis, part: Shard | None) -> list[str]:
    """Return the names of snapshots in the folder whose nodes are no more; those of one `part`."""
    suffix = artifact.name("", basis.form)
    try:
        names = sorted(os.listdir(basis.folder))  # noqa: PTH208
    except OSError:
        return []
    nodes = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    known = {*basis.place.files, *basis.place.inline}
    return [
        artifact.name(node, basis.form)
        for node in nodes
        if node not in known
        and is_node_id(node)
        and (not part or part.has(node))
        and artifact.read(basis.folder, node, basis.form)
    ]


def _node(basis: Basis, spec: Spec, templates: jinja2.Environment) -> str:
    whole = attachments.fill(spec, basis.place.root, basis.environ, stand_in=True)
    stand_in, epoch = identity.placeholder(spec.node_id), basis.environ.get(make.EPOCH)
    after = artifact.parts(make.make(whole, stand_in, templates, basis.form, epoch).packed)
    before = artifact.read(basis.folder, spec.node_id, basis.form) or {}
    if before == after:
        return ""
    path = str(basis.folder / artifact.name(spec.node_id, basis.form))
    old, new = _texts(before), _texts(after)
    found = "".join(
        _diff(f"{path}/{name}" if name else path, old.get(name), new.get(name))
        for name in sorted({*old, *new})
    )
    return found or f"{path} differs in its bytes, not in its texts\n"


def _texts(found: Parts) -> dict[str, str]:
    """Return an artifact's texts by name, those of an ISO as well."""
    texts = dict(found)
    if texts.get("", b"")[:1] == b"\0":
        try:
            texts = dict(unpack.from_bytes(texts[""], "").artifacts)
        except Refused:
            return {}
    return {name: data.decode("utf-8", "replace") for name, data in texts.items()}


def _diff(path: str, before: str | None, after: str | None) -> str:
    lines = difflib.unified_diff(
        _lines(before),
        _lines(after),
        "/dev/null" if before is None else path,
        "/dev/null" if after is None else path,
    )
    return "".join(lines)


def _lines(text: str | None) -> list[str]:
    """Return a text's lines, told as diff(1) tells it where the last one has no end."""
    *whole, rest = (text or "").split("\n")
    found = [f"{line}\n" for line in whole]
    return [*found, f"{rest}\n\\ No newline at end of file\n"] if rest else found
