"""The manifest: which seeds are in an out folder, a JSON object a line; no secret is in it.

`manifest.jsonl`, or `manifest-3-of-8.jsonl` where one shard of a fleet was built: all that lie
in a folder are read as one. A build appends to its own, so that what it has made is known after
a kill, and sorts it at the end; of several rows for one node the last one counts.
"""

from __future__ import annotations

import json
import os
import re
import weakref
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from generator import artifact, files
from generator.problem import refuse
from generator.workspace import is_node_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from generator.selection import Shard

NAME = "manifest.jsonl"
SCHEMA = 1
_NAME = re.compile(r"manifest(?:-[0-9]+-of-[0-9]+)?\.jsonl")
_FORM = re.compile(r"[a-z-]+")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


@dataclass(frozen=True)
class Row:
    """One node's seed.

    `artifact` is its name in the folder (``n7.iso``, or ``n7`` for a folder), `form` what --as
    says, `sha256` its digest in 64 hex digits (`digest` below for a folder's), `bytes` its size.
    `serial`, `not_before` and `not_after` are the certificate's; moments are RFC 3339 in UTC.
    `identity` is "issued", "stored" (--reuse) or "placeholder". `spec` has the fields that are
    not left at their defaults, by path (fields.py), and `spec_sha256` is the digest of these.
    `templates` and `authority` are digests of the templates and of the roots that the node
    trusts, `gen_seed` the version; they and `spec` are empty for a placeholder's seed, which is
    compared by its bytes.
    """

    node: str
    artifact: str
    form: str
    sha256: str
    bytes: int
    instance_id: str
    serial: str
    not_before: str
    not_after: str
    identity: str
    spec_sha256: str
    spec: Mapping[str, Any] = field(default_factory=dict)
    gen_seed: str = ""
    templates: str = ""
    authority: str = ""


_FIELDS = {part.name: part.type for part in fields(Row)}


class Manifest:
    """What the manifests of a folder say; a row is read when it is asked for.

    What is kept of each is its place in one of the `opened` files, in one number: the file's,
    then where the line starts, then its length.
    """

    def __init__(self, places: dict[str, int], opened: list[int], *, tidy: bool = False) -> None:
        self._places = places
        self._opened = opened
        self.tidy = tidy
        """Whether they stand as they are to: a row a node, in the order of the nodes."""

    def __len__(self) -> int:
        return len(self._places)

    def first(self) -> Row | None:
        """Return any row, None where there is none."""
        return next((self._row(node) for node in self._places), None)

    def nodes(self) -> list[str]:
        """Return the ids of the nodes, sorted."""
        return sorted(self._places)

    def get(self, node: str) -> Row | None:
        """Return a node's row, None where there is none."""
        return self._row(node) if node in self._places else None

    def line(self, node: str) -> bytes:
        """Return a node's row as it is written."""
        place = self._places[node]
        start, length = place >> _LENGTH & (1 << _START) - 1, place & (1 << _LENGTH) - 1
        # Not by seeking: processes that were forked share where a file is at.
        return os.pread(self._opened[place >> _LENGTH + _START], length, start)

    def _row(self, node: str) -> Row:
        values = json.loads(self.line(node))
        return Row(**{name: values[name] for name in _FIELDS})


_LENGTH, _START = 24, 40  # bits


def name(shard: Shard | None = None) -> str:
    """Return the file name of a shard's manifest, or of the whole fleet's."""
    return NAME if shard is None else f"manifest-{shard.number}-of-{shard.count}.jsonl"


def paths(folder: Path) -> list[Path]:
    """Return the manifests in a folder, the one that was written last at the end."""
    found = []
    try:
        for entry in os.listdir(folder) if folder.exists() else []:  # noqa: PTH208
            if _NAME.fullmatch(entry):
                with suppress(FileNotFoundError):  # a build has just joined it with the others
                    found.append(((folder / entry).stat().st_mtime_ns, entry))
    except OSError as error:
        raise files.cannot("list", folder, error) from error
    return [folder / entry for _, entry in sorted(found)]


def read(folder: Path) -> Manifest:
    """Return what the manifests in a folder say together; nothing where there is none.

    Changes nothing. Raises `Refused`.
    """
    while True:
        found = paths(folder)
        made = read_all(found)
        if {*paths(folder)} == {*found}:  # else a build has joined them meanwhile
            return made


def read_all(found: Iterable[Path]) -> Manifest:
    """Return what some manifests say together, the last one first; nothing where one is missing."""
    places: dict[str, int] = {}
    opened: list[int] = []
    tidy, last = True, ""
    for path in found:
        if not os.path.lexists(path):
            continue
        base, start = len(opened) << _LENGTH + _START, 0
        for number, text in enumerate(files.lines(path, opened), 1):
            if text.endswith(b"\n"):
                node = _node(text, path, number)
                tidy, last = tidy and last < node, node
                places[node] = base | start << _LENGTH | len(text)
            else:  # a kill has cut it short
                tidy = False
            start += len(text)
    made = Manifest(places, opened, tidy=tidy)
    weakref.finalize(made, _close, opened)
    return made


def _close(opened: list[int]) -> None:
    for descriptor in opened:
        os.close(descriptor)


def _node(line: bytes, path: Path, number: int) -> str:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        values = None
    schema = values.get("schema") if isinstance(values, dict) else None
    if isinstance(schema, int) and schema > SCHEMA:
        raise refuse(
            f"{path}:{number}: a manifest of form {schema}; this gen-seed knows {SCHEMA}",
            "use the gen-seed that made it, or another folder: -d DIR",
        )
    if not isinstance(values, dict) or schema != SCHEMA or not _is_row(values):
        raise refuse(
            f"{path}:{number}: not a row of a manifest",
            f"move {path} away: then gen-seed build makes every seed anew",
        )
    return str(values["node"])


def _is_row(values: Mapping[str, Any]) -> bool:
    kinds = {"int": int, "str": str}
    return (
        all(
            isinstance(values.get(name), kinds.get(str(kind), dict))
            for name, kind in _FIELDS.items()
        )
        and is_node_id(values["node"])
        and _FORM.fullmatch(values["form"]) is not None
        and values["artifact"] == artifact.name(values["node"], values["form"])
        and _is_moment(values["not_before"])
        and _is_moment(values["not_after"])
    )


def _is_moment(text: str) -> bool:
    try:
        return bool(_MOMENT.fullmatch(text) and datetime.fromisoformat(text))
    except ValueError:
        return False


def line(row: Row) -> bytes:
    """Return a row as it is written, without the line's end."""
    values = {"schema": SCHEMA, **vars(row)}
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
