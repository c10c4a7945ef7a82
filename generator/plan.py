"""What building a fleet now would change: each node's spec against the manifest and the ledger.

Writes nothing and runs no program.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from generator import (
    __version__,
    alike,
    artifact,
    attachments,
    fields,
    identity,
    jobs,
    make,
    pem,
    render,
    resolve,
    standing,
    store,
    template,
)
from generator.problem import Problem, Refused
from generator.selection import Shard, chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from pathlib import Path

    from generator.fields import Field
    from generator.manifest import Manifest, Row
    from generator.spec import Spec
    from generator.workspace import Workspace

State = Literal["new", "changed", "ends_soon", "unchanged", "gone"]
_PARTIAL = ("meta-data", "network-config")  # which some nodes do not have


@dataclass(frozen=True)
class Basis:
    """What the nodes' seeds are compared with, and by.

    `form` is what --as says. `templates` and `authority` are digests as in a manifest's row;
    `authority` is None where it is not known. `ledger` says of each certificate, by node and
    serial number, whether it was revoked. `store`: the identities of this one are wanted, which no
    build renews. With `compared` all nodes are to be made: what is there is compared by its bytes.
    """

    place: Workspace
    folder: Path
    manifest: Manifest
    form: str
    now: datetime
    environ: Mapping[str, str]
    templates: str
    authority: str | None
    ledger: Mapping[tuple[str, str], bool]
    reserved: frozenset[str]
    store: Path | None = None
    fresh: bool = False
    compared: bool = False


@dataclass(frozen=True)
class Plan:
    """What would become of one node's seed, and why.

    `fields` are those of the spec that differ, the release's among them; `reasons` what else
    there is. `again`: cloud-init would do its work again on the machine. `soon`: the
    certificate ends soon. `unstored`: a store is asked for that lacks its identity.
    `before` is the row of what is there.
    """

    node: str
    state: State
    fields: tuple[Field, ...] = ()
    reasons: tuple[str, ...] = ()
    again: bool = False
    soon: bool = False
    unstored: bool = False
    before: Row | None = None


@dataclass(frozen=True)
class Part:
    """What was found of some nodes: problems, plans, and the specs that are to be built.

    `claims` are what no other node may have; `refused` the nodes that are wrong. `specs` are
    pickled, as they are kept until all nodes are known to be right.
    """

    problems: tuple[Problem, ...]
    claims: tuple[tuple[str, str, str], ...]
    plans: tuple[Plan, ...]
    specs: bytes
    count: int
    refused: tuple[str, ...]


def examine(basis: Basis, nodes: Sequence[str], processes: int) -> Generator[Part, None, None]:
    """Give what is found of `nodes`, some at a time, in their order. Raises `Refused`."""
    overrides = basis.place.root / "templates"
    templates = template.environment(overrides)
    every = os.path.lexists(overrides) or basis.form in _PARTIAL

    check = alike.Checker().check

    def trial(spec: Spec) -> None:
        stand_in, epoch = identity.placeholder(spec.node_id), basis.environ.get(make.EPOCH)
        make.make(spec, stand_in, templates, basis.form, epoch, check=check)

    def look(bounds: tuple[int, int]) -> Part:
        return _part(basis, nodes[bounds[0] : bounds[1]], trial, every=every)

    return jobs.run(look, chunks(len(nodes)), processes)


def gone(basis: Basis, part: Shard | None) -> tuple[list[Row], set[str]]:
    """Return the rows of seeds whose nodes are no more in the workspace.

    And the nodes that are in the manifest only, their seeds deleted. Those of one `part` only,
    where there is one.
    """
    lost = set(basis.manifest.nodes()) - {*basis.place.files, *basis.place.inline}
    rows = [basis.manifest.get(node) for node in sorted(lost) if not part or part.has(node)]
    found = [row for row in rows if row]
    left = [row for row in found if artifact.size(basis.folder, row.node, row.form) is not None]
    return left, {row.node for row in found} - {row.node for row in left}


def _part(
    basis: Basis, nodes: Sequence[str], trial: Callable[[Spec], None], *, every: bool
) -> Part:
    """Look at some nodes; their seeds are made on trial: the first one's, or `every` one's.

    Templates of an operator's can fail for some nodes, gen-seed's own for none.
    """
    outcome = resolve.examine_some(basis.place, nodes, basis.reserved)
    problems = list(outcome.problems)
    plans: list[Plan] = []
    specs: list[Spec] = []
    for node, spec in outcome.specs.items():
        try:
            whole = attachments.fill(spec, basis.place.root, basis.environ, stand_in=basis.compared)
            artifact.check_place(basis.folder, node, basis.form)
            if every or not plans:
                trial(whole)
        except Refused as refused:
            problems += [replace(problem, nodes=(node,)) for problem in refused.problems]
            continue
        plan = _plan(basis, spec, whole)
        if plan.state != "unchanged":
            specs.append(spec)
            if basis.store and not os.path.lexists(store.path(basis.store, node)):
                plan = replace(plan, unstored=True)
        plans.append(plan)
    pickled = pickle.dumps(specs)
    sound = {plan.node for plan in plans}
    wrong = tuple(node for node in nodes if node not in sound)
    return Part(tuple(problems), outcome.claims, tuple(plans), pickled, len(specs), wrong)


def roots(folder: Path) -> str | None:
    """Return the digest of the roots that an authority's folder has, None where it has none."""
    try:
        return roots_digest(pem.certificates_pem(pem.read_trust(folder)[1]))
    except Refused:
        return None


def roots_digest(text: bytes) -> str:
    """Return 16 hex digits that tell the roots that a node trusts, in PEM, from others."""
    return hashlib.sha256(text).hexdigest()[:16]


def _plan(basis: Basis, spec: Spec, whole: Spec) -> Plan:
    node, row = spec.node_id, basis.manifest.get(spec.node_id)
    if row is None:
        return Plan(node, "new")
    if basis.fresh or basis.compared:
        return Plan(node, "changed", reasons=("asked for",), before=row)
    found = None
    if artifact.size(basis.folder, node, row.form) == row.bytes:
        found = artifact.read(basis.folder, node, row.form)
    reasons = list(_made_otherwise(basis, row))
    known = artifact.digest(found) if found else None
    if known is None or known.sha256 != row.sha256:
        there = artifact.size(basis.folder, node, row.form) is not None
        reasons.append(f"{row.artifact} is {'not what was built' if there else 'missing'}")
        known = None
    # Without the seed there is no key: then secrets are not compared, and it is made anyway.
    now = fields.of(spec, whole, known.key if known else None)
    before = row.spec if known else fields.without_secrets(row.spec)
    differing = fields.compare(before, now)
    again = render.instance_id(spec) != row.instance_id
    state: State = "changed" if differing or reasons or again else "unchanged"
    begin, end = map(datetime.fromisoformat, (row.not_before, row.not_after))
    soon = standing.ends_soon(begin, end, basis.now)
    if state == "unchanged" and soon and not basis.store:
        state = "ends_soon"
    return Plan(node, state, differing, tuple(reasons), again, soon, before=row)


def _made_otherwise(basis: Basis, row: Row) -> Iterator[str]:
    """Tell what, apart from the spec, is not as it was when a seed was made."""
    if row.gen_seed != __version__:
        yield f"made by gen-seed {row.gen_seed}, this is {__version__}"
    if row.templates != basis.templates:
        yield "the templates have changed"
    if basis.authority is not None and row.authority != basis.authority:
        yield "the authority's roots have changed"
    revoked = basis.ledger.get((row.node, row.serial))
    if revoked:
        yield "its certificate was revoked"
    elif revoked is None and row.identity == "issued":
        yield "its certificate is not in the ledger"
    if basis.store and row.serial != store.serial(basis.store, row.node):
        yield "its certificate is not the stored one"
