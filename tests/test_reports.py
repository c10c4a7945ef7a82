"""Each public report that we answer has a test that carries its id."""

from __future__ import annotations

import ast
import re
from pathlib import Path

# What went wrong for others with YAML, validation, rendering, network-config and the command.
WANTED = {
    *("y1", "y2", "y3", "y4", "y5", "y8", "v1", "v2", "v3", "r1", "r2", "r4", "r6"),
    *("n1", "n3", "n4", "n6", "q1", "q4", "q5"),
    # With the first boot: writing files, the fetch, systemd, trust, the clock.
    # With the years after: another seed, a clone, and what the first one must not leave.
    *("x1", "x2", "x3", "p1", "p2", "p3", "p4", "l1", "l2"),
    *("w1", "w3", "d1", "d2", "d4", "d6", "u3", "u4", "c1", "c2", "c3", "c4", "k1", "k2"),
}


def test_every_report_has_a_test() -> None:
    assert WANTED - answered() == set()


def answered() -> set[str]:
    """Return the ids with which the tests' names begin: test_r4_r6_the_first_line is of two."""
    found: set[str] = set()
    for file in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                ids = re.match(r"test_((?:[a-z][0-9]+_)*)", node.name)
                found |= set(ids[1].split("_")) if ids else set()
    return found
