"""One node's seed, from its spec and its identity to what is handed over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from generator import pack, render, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import jinja2

    from generator.identity import Identity
    from generator.spec import Spec


EPOCH = "SOURCE_DATE_EPOCH"
"""The variable that dates a seed, where it is set."""


@dataclass(frozen=True)
class Made:
    """What was made of a node, in memory."""

    instance_id: str
    packed: pack.Packed


def make(  # noqa: PLR0913, PLR0917 - what a seed is made from
    spec: Spec,
    identity: Identity,
    templates: jinja2.Environment,
    form: str,
    epoch: str | None,
    carried: Mapping[str, bytes] | None = None,
    check: Callable[[render.Seed, Spec], None] = verify.verify,
) -> Made:
    """Return a node's seed as `form`, rendered and verified; the spec has its attachments.

    `epoch` is SOURCE_DATE_EPOCH; `carried` are files that an ISO or a folder takes along;
    `check` reads back what was rendered. Raises `Refused`.
    """
    rendered = render.render(spec, identity, templates)
    check(rendered, spec)
    when = pack.date(identity, epoch)
    return Made(rendered.instance_id, pack.pack(rendered, form, when, carried))
