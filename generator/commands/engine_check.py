"""`gen-seed engine-check`: whether an engine still takes the flags that llmgw gives it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from generator.cli import RESERVED
from generator.options import (
    format_option,
    number_option,
    show_json,
    strict_option,
    tell,
    workspace_option,
)
from generator.problem import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from generator.engine_check import Engine, Verdict
    from generator.spec import Engines

_ENGINES = ("llamacpp", "vllm", "sglang")
_PROGRAMS = (b"\x7fELF", b"#!")
_TEXT = 16 << 20  # bytes


@click.command()
@click.argument("path", metavar="PROGRAM|TEXT|DIR|IMAGE|-")
@click.option("--engine", "name", type=click.Choice(_ENGINES), help="Which engine it is.")
@click.option("--node", metavar="NODE", help="By this node's spec [default: by fleet.yaml's].")
@number_option("--timeout", "SECONDS", 120, 3600, "How long an engine may take for its help text.")
@format_option("text", "json")
@strict_option
@workspace_option
@click.pass_obj
def command(  # noqa: PLR0913, PLR0917 - an argument each option
    folder: Path,
    path: str,
    name: str | None,
    node: str | None,
    timeout: int,
    report: str,
    strict: bool,  # noqa: FBT001
) -> None:
    """Ask an engine whether it takes the flags that llmgw gives it.

    No GPU is needed, but for a vLLM of CUDA, which says nothing without one.

    PROGRAM is llama-server, vllm, or the Python that has SGLang, and is run for its help text.
    TEXT is such a text, captured elsewhere; - reads it from stdin. DIR is another system's root
    filesystem, IMAGE its disk: the engines that the spec names, or that are on its PATH, are run
    in it, as nobody and without a network; that takes root.

    Exit status 1 means that an engine does not know a flag, or gave no help text.
    """
    given = _given(folder, node)
    verdicts = _verdicts(path, name, given, timeout)
    if report == "json":
        show_json(engines=_rows(verdicts))
    else:
        click.echo("\n".join(_line(verdict) for verdict in verdicts))
    problems = [problem for verdict in verdicts for problem in verdict.problems]
    tell(problems)
    if any(strict or problem.severity == "error" for problem in problems):
        raise click.exceptions.Exit(1)


def _given(folder: Path, node: str | None) -> Engines:
    """Return the engines of a node's spec, or those that fleet.yaml gives to all."""
    from generator import resolve, source, spec, workspace
    from generator.problem import Refused

    place = workspace.open_workspace(folder)
    if node:
        return resolve.resolve(place, node, RESERVED)[0].engines
    if place.problems:
        raise Refused(place.problems)
    found = source.at(place.fleet, "defaults", "engines")
    return spec.engines(source.plain(found) if found else {})


def _verdicts(path: str, name: str | None, given: Engines, timeout: float) -> list[Verdict]:
    """Return what the engines say in whatever `path` is."""
    from generator import disk, engine_ask, files, image

    if path == "-":
        return [_text(sys.stdin.buffer.read(_TEXT), "standard input", name, given)]
    place = Path(path)
    if place.is_dir():
        return _system(place, path, name, given, timeout)
    if place.is_file() and _start(place).startswith(_PROGRAMS):
        engine = _engine(path, name)
        return [engine_ask.ask(engine, str(place.absolute()), given, timeout)]
    if place.is_file() and disk.kind(place):
        with image.read_only(place) as root:
            return _system(root, path, name, given, timeout)
    if "/" not in path and not place.exists() and (found := shutil.which(path)):
        hint = f"a program is named by its path: {found}"
        raise refuse(f"there is no {path} in this folder", hint)
    return [_text(files.read(place, limit=_TEXT), path, name, given)]


def _start(path: Path) -> bytes:
    from generator import files

    try:
        with path.open("rb") as file:
            return file.read(8)
    except OSError as error:
        raise files.cannot("read", path, error) from error


def _system(
    root: Path, path: str, name: str | None, given: Engines, timeout: float
) -> list[Verdict]:
    """Return what the engines of another system say; `path` is what it is called."""
    from generator import bake, engine_ask, engine_check

    bake.arch_of(root, path)  # so that what is no root filesystem is told as that
    found = engine_ask.examine(root, given, timeout, name)
    if not found:
        what = engine_check.engines()[name].title if name else "engine"
        raise refuse(
            f"there is no {what} in {path}",
            "engines.llamacpp.bin, engines.vllm.bin and engines.sglang.python in fleet.yaml"
            " say where they are; --node takes a node's",
        )
    return found


def _text(data: bytes, asked: str, name: str | None, given: Engines) -> Verdict:
    """Return what a captured help text says."""
    from generator import engine_ask, engine_check

    engine = _engine(asked, name)
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    if "\0" in text:
        raise refuse(f"{asked} is no program, no disk image and no text")
    wanted = engine_ask.flags(engine, given)
    return engine_check.judge(engine, wanted, text, asked, whole=False)


def _engine(path: str, name: str | None) -> Engine:
    """Return the engine that is named, or that a file's name tells (llama-server-help.txt)."""
    from generator import engine_check

    for engine in engine_check.engines().values():
        names = (engine.name, engine.program.rstrip("3"))
        if name == engine.name or (not name and Path(path).name.startswith(names)):
            return engine
    raise click.UsageError(f"which engine is it? --engine {'|'.join(_ENGINES)}")


def _line(verdict: Verdict) -> str:
    known = sum(bool(name) for _, name in verdict.found)
    told = {
        "truncated": "the help text looks truncated",
        "unknown": "no help text",
    }.get(verdict.state, f"{known} of {len(verdict.found)} flags known")
    return f"{verdict.engine}: {verdict.asked}: {told}"


def _rows(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    return [
        {
            "engine": verdict.engine,
            "asked": verdict.asked,
            "state": verdict.state,
            "flags": [
                {
                    "flag": flag.names[0],
                    "known_as": name or None,
                    "why": flag.why,
                    "source": flag.source,
                }
                for flag, name in verdict.found
            ],
            "problems": [
                {"severity": p.severity, "message": p.message, "hint": p.hint}
                for p in verdict.problems
            ],
        }
        for verdict in verdicts
    ]
