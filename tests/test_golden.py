"""Golden seeds: what the nodes of the workspaces in tests/good/ get, in `want/NODE/`.

The identity is the placeholder. What every node gets as it stands in templates/ is left out of
`want/`, where its place is kept, so that a change there is read once and not in each case.

GEN_SEED_RECORD=1 writes `want/` anew, and the run fails, so that it is read before it is kept.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from generator import attachments, identity
from generator.render import render
from generator.resolve import resolve
from generator.resources import TEMPLATES
from generator.template import environment
from generator.verify import verify
from generator.workspace import open_workspace

GOOD = Path(__file__).parent / "good"
CASES = [(case.name, node) for case in GOOD.iterdir() for node in open_workspace(case).node_ids]
SHARED = (
    "onboard",
    "seed.py",
    "llmgw-agent.service",
    "llmgw-onboard.service",
    "llmgw-onboard.conf",
)


def made_of(workspace: Path, node: str) -> dict[str, str]:
    spec, _ = resolve(open_workspace(workspace), node)
    spec = attachments.fill(spec, workspace, {}, stand_in=True)
    seed = render(spec, identity.placeholder(node), environment())
    verify(seed, spec)
    made = {name: data.decode() for name, data in seed.artifacts().items()}
    for name in SHARED:
        text = (TEMPLATES / name).read_text("utf-8")
        block = "".join(f"    {line}".rstrip() + "\n" for line in text.splitlines())
        assert (block in made["user-data"]) != spec.release.baked, name
        made["user-data"] = (
            made["user-data"]
            .replace(block, f"    (templates/{name})\n")
            .replace(hashlib.sha256(text.encode()).hexdigest(), f"(sha256 of templates/{name})")
        )
    return made


@pytest.mark.parametrize(("case", "node"), sorted(CASES))
def test_golden(case: str, node: str) -> None:
    made = made_of(GOOD / case, node)
    want = GOOD / case / "want" / node
    if os.environ.get("GEN_SEED_RECORD"):
        want.mkdir(parents=True, exist_ok=True)
        for name, text in made.items():
            (want / name).write_text(text, "utf-8")
        pytest.fail("recorded: read the difference, then run again without GEN_SEED_RECORD")
    assert made == {path.name: path.read_text("utf-8") for path in want.iterdir()}
