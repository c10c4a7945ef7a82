"""What was found of a whole fleet, put together from its parts: problems, and what to build."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from generator import plan, resolve
from generator.kept import Kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from generator.plan import Basis
    from generator.problem import Problem


class Survey:
    """Takes what was found of a fleet part by part; keeps little of each node."""

    def __init__(self) -> None:
        self.kept = Kept()
        self.unstored = False
        """Whether the store lacks the identity of a node whose seed is to be made."""
        self.refused: set[str] = set()
        """The nodes that are wrong, each by itself or together with another."""
        self.soon: list[str] = []
        """Nodes whose certificate ends soon and is not to be renewed."""
        self._found: dict[Problem, dict[str, None]] = {}
        self._claims: dict[int, str] = {}
        self._suspects: dict[str, None] = {}

    def take(self, part: plan.Part) -> None:
        """Add what was found of some nodes."""
        self.add(part.problems)
        self.refused |= set(part.refused)
        self.kept.add(part.specs, part.count)
        for one in part.plans:
            self.unstored = self.unstored or one.unstored
            if one.state == "unchanged" and one.soon:
                self.soon.append(one.node)
        for what, value, node in part.claims:
            # A number, because it is kept of every node; that two are alike is looked at again.
            other = self._claims.setdefault(hash((what, value)), node)
            if other != node:
                self._suspects |= dict.fromkeys((other, node))

    def add(self, problems: Iterable[Problem]) -> None:
        """Add problems; the same one of several nodes is told once."""
        for problem in problems:
            nodes = self._found.setdefault(replace(problem, nodes=()), {})
            nodes.update(dict.fromkeys(problem.nodes))

    def settle(self, basis: Basis) -> None:
        """Find out what is wrong among the nodes, once all are known."""
        if self._suspects:
            found = resolve.conflicts(basis.place, self._suspects)
            self.refused |= {node for problem in found for node in problem.nodes}
            self.add(found)

    def problems(self, severity: str = "error") -> list[Problem]:
        """Return the errors, or the warnings, in the order in which they came up."""
        return [
            replace(problem, nodes=tuple(nodes))
            for problem, nodes in self._found.items()
            if problem.severity == severity
        ]


def survey(
    basis: Basis,
    nodes: Sequence[str],
    processes: int,
    each: Callable[[plan.Part], None],
) -> Survey:
    """Return what is found of `nodes`; `each` gets what is found of some of them at a time."""
    found = Survey()
    found.add(basis.place.problems)
    with closing(plan.examine(basis, nodes, processes)) as parts:
        for part in parts:
            found.take(part)
            each(part)
    found.settle(basis)
    return found
