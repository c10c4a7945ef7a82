"""Golden errors: each folder of tests/bad/ is a workspace, and `want` is all that is said of it.

A file `ask` there holds a folder and a node: what is said when that node's seed is made.

GEN_SEED_RECORD=1 writes `want` anew, and the run fails, so that it is read before it is kept.
"""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from generator import formats, wording
from generator.problem import Refused, render
from generator.resolve import examine, resolve
from generator.workspace import open_workspace

if TYPE_CHECKING:
    from collections.abc import Iterator

BAD = Path(__file__).parent / "bad"
CASES = sorted(path.name for path in BAD.iterdir())
PACKAGE = Path(formats.__file__).parent
MODULES = [
    *("check_cloud_config", "check_fleet", "check_network", "checks", "formats", "resolve"),
    *("composer", "located", "source", "text", "wording", "workspace"),
]
REPORTERS = {"Problem", "problem_at", "refuse", "_problem", "_stop", "_warning"}


def said_of(case: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(BAD / case)
    ask = Path("ask")
    try:
        if ask.exists():
            folder, node_id = ask.read_text("utf-8").split()
            _, problems = resolve(open_workspace(Path(folder)), node_id)
        else:
            problems = examine(open_workspace(Path()), frozenset({"report"})).problems
    except Refused as refused:
        problems = refused.problems
    return "".join(f"{render(problem)}\n" for problem in problems)


@pytest.mark.parametrize("case", CASES)
def test_bad(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = said_of(case, monkeypatch)
    want = BAD / case / "want"
    if os.environ.get("GEN_SEED_RECORD"):
        want.write_text(said, "utf-8")
        pytest.fail("recorded: read the difference, then run again without GEN_SEED_RECORD")
    assert said == want.read_text("utf-8")


def test_every_place_that_reports_a_problem_has_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    run: set[tuple[str, int]] = set()

    def trace(frame: Any, event: str, _: Any) -> Any:
        path = Path(frame.f_code.co_filename)
        if path.parent != PACKAGE or path.stem not in MODULES:
            return None
        if event == "line":
            run.add((path.stem, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for case in CASES:
            said_of(case, monkeypatch)
    finally:
        sys.settrace(before)
    missing = [
        f"{module}.py:{first}"
        for module in MODULES
        for first, last in sites(module)
        if not any((module, line) in run for line in range(first, last + 1))
    ]
    assert missing == []


def test_every_keyword_of_the_schemas_has_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    refused_by: set[str] = set()
    tell = wording.tell

    def listen(error: Any, *others: Any) -> Any:
        refused_by.add(error.validator)
        return tell(error, *others)

    monkeypatch.setattr(wording, "tell", listen)
    for case in CASES:
        said_of(case, monkeypatch)
    assert refused_by == wording.TELL.keys() | {"additionalProperties", "uniqueItems"}


def sites(module: str) -> Iterator[tuple[int, int]]:
    """Yield the first and last line of each statement that makes a problem, or a part of one."""
    tree = ast.parse((PACKAGE / f"{module}.py").read_text("utf-8"))
    tellers = {function.__name__ for function in wording.TELL.values()}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and module == "wording" and node.name in tellers:
            yield node.body[0].lineno, node.end_lineno or node.lineno
        if not isinstance(node, ast.stmt) or isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        calls = {
            n.func.id
            for n in ast.walk(node)
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
        }
        simple = isinstance(node, ast.Expr | ast.Return | ast.Raise | ast.Assign)
        reason = module == "formats" and isinstance(node, ast.Return) and is_reason(node.value)
        if simple and (calls & REPORTERS or reason):
            yield node.lineno, node.end_lineno or node.lineno


def is_reason(value: ast.expr | None) -> bool:
    return isinstance(value, ast.JoinedStr) or (
        isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value != ""
    )
