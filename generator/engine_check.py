"""Whether an engine still takes the flags that llmgw gives it, by the engine's own help text.

What llmgw gives is data: engines.json, each flag with its reason and its source.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from generator.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from generator.spec import Flags

State = Literal["accepted", "missing", "truncated", "unknown"]

_DATA = Path(__file__).with_name("engines.json")
# CSI (colours, erasing), the choice of a character set (tput sgr0), and OSC (links): ECMA-48.
_COLOUR = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[()].|\][^\x07\x1b]*(?:\x07|\x1b\\))")
# How argparse, llama.cpp and most others begin what they say of a flag: at the margin or a
# little in. What is deeper in is prose, which may name a flag that is gone.
_DEFINITION = re.compile(r" {0,8}(-{1,2}[A-Za-z0-9].*)")
_NAME = re.compile(r"(?<![\w.-])--?[A-Za-z0-9](?:[\w.-]*\w)?")


@dataclass(frozen=True)
class Flag:
    """A flag by all its spellings, the one that llmgw is believed to give first."""

    names: tuple[str, ...]
    why: str
    source: str
    without: str = ""
    """The launch mode in which it is not given; empty: always given."""


@dataclass(frozen=True)
class Engine:
    """An engine: what is run, and with which arguments, to get its help text.

    Each of `help` is tried; a complete help text has one of the `landmarks`, which stand at
    its end, where there are any.
    """

    name: str
    title: str
    program: str
    help: tuple[tuple[str, ...], ...]
    landmarks: tuple[str, ...]
    flags: tuple[Flag, ...]


@dataclass(frozen=True)
class Verdict:
    """What an engine's help text says of our flags.

    `asked` is what the text is from. `found` are pairs of a flag and the spelling under which
    the engine knows it, empty where it does not. `accepted`: all are known. `truncated` and
    `unknown`: there is no whole help text, and nothing is said of a flag; only `missing` and
    `unknown` come with an error.
    """

    engine: str
    asked: str
    state: State
    found: tuple[tuple[Flag, str], ...] = ()
    problems: tuple[Problem, ...] = ()


@cache
def engines() -> Mapping[str, Engine]:
    """Return the engines that llmgw launches, by their names in a spec."""
    data = json.loads(_DATA.read_text("utf-8"))["engines"]
    return {name: _engine(name, part) for name, part in data.items()}


def _engine(name: str, part: Mapping[str, Any]) -> Engine:
    flags = tuple(Flag(**{**flag, "names": tuple(flag["names"])}) for flag in part["flags"])
    return Engine(
        name,
        part["title"],
        part["program"],
        tuple(map(tuple, part["help"])),
        tuple(part["landmarks"]),
        flags,
    )


def wanted(engine: Engine, given: Flags, launch_mode: str = "") -> tuple[Flag, ...]:
    """Return the flags that an engine must take: ours, or what a spec puts in their place.

    A spelling that a spec names is the one that is given, so it stands first.

    >>> from generator.spec import Flags
    >>> [flag.names for flag in wanted(engines()["llamacpp"], Flags(replace=("-np",)))]
    [('-np', '--parallel')]
    """
    ours = {name: flag for flag in engine.flags for name in flag.names}
    reason = ("the spec wants it", f"engines.{engine.name}.flags")
    kept = [flag for flag in engine.flags if not flag.without or flag.without != launch_mode]
    own = [
        replace(ours[name], names=tuple(dict.fromkeys((name, *ours[name].names))))
        if name in ours
        else Flag((name,), *reason)
        for name in (*given.replace, *given.add)
    ]
    return tuple(dict.fromkeys(own if given.replace else [*kept, *own]))


def known(text: str) -> frozenset[str]:
    """Return the flags that a help text defines, with every spelling.

    >>> sorted(known("-ngl,  --gpu-layers N   not --port\\n  --port-range A-B\\n"))
    ['--gpu-layers', '--port-range', '-ngl']
    """
    names: set[str] = set()
    for line in _COLOUR.sub("", text).expandtabs().splitlines():
        if found := _DEFINITION.fullmatch(line):
            # Spaces behind a comma are layout; more than one elsewhere ends the definition.
            definition = re.sub(r", +(?=-)", ", ", found[1])
            names.update(_NAME.findall(re.split(r" {2,}", definition)[0]))
    return frozenset(names)


def judge(engine: Engine, flags: Sequence[Flag], text: str, asked: str, *, whole: bool) -> Verdict:
    """Hold flags against a help text that came from `asked` (a file, a command).

    `whole` says that nothing of the text can be missing, as when the engine has just printed
    it and ended well. Else a text without its end is told as that, and not as lacking flags.
    """
    names = known(text)
    found = tuple((flag, next((n for n in flag.names if n in names), "")) for flag in flags)
    missing = [flag for flag, name in found if not name]
    ours = {name for flag in (*engine.flags, *flags) for name in flag.names}
    if not ours.intersection(_NAME.findall(text)):
        return unknown(
            engine, asked, f"this is no help text of {engine.title}: it has none of its flags"
        )
    if not missing:
        told = tuple(
            _respelled(engine, flag, name) for flag, name in found if name != flag.names[0]
        )
        return Verdict(engine.name, asked, "accepted", found, told)
    if not whole and _is_cut(engine, text, names):
        problem = Problem(
            f"{asked}: the help text of {engine.title} looks truncated, so nothing is said of it",
            "capture all of it, such as: " + _capture(engine),
            severity="warning",
        )
        return Verdict(engine.name, asked, "truncated", (), (problem,))
    told = tuple(_missing(engine, flag, asked, names) for flag in missing)
    return Verdict(engine.name, asked, "missing", found, told)


def unknown(engine: Engine, asked: str, reason: str) -> Verdict:
    """Return the verdict for an engine that gave no help text."""
    hint = "capture it where the engine works, and check FILE: " + _capture(engine)
    return Verdict(engine.name, asked, "unknown", (), (Problem(f"{asked}: {reason}", hint),))


def _is_cut(engine: Engine, text: str, names: frozenset[str]) -> bool:
    """Tell whether a help text has no end: mid-line, before its last part, or in its usage."""
    if not text.endswith("\n"):
        return True
    if engine.landmarks and not any(mark in text for mark in engine.landmarks):
        return True
    # argparse names all flags in its usage, and then says of each what it does.
    usage = re.match(r"(?s)\s*usage:.*?\n\s*\n|\s*usage:.*", _COLOUR.sub("", text))
    return bool(usage and set(re.findall(r"\[(--?[A-Za-z][\w-]*)", usage[0])) - names)


def _missing(engine: Engine, flag: Flag, asked: str, names: frozenset[str]) -> Problem:
    also = f" (nor {', '.join(flag.names[1:])})" if flag.names[1:] else ""
    near = difflib.get_close_matches(flag.names[0], sorted(names), n=3)
    return Problem(
        f"{asked}: {engine.title} does not know {flag.names[0]}{also}, {flag.why}",
        (f"it knows {', '.join(near)}; " if near else "")
        + f"use a version of {engine.title} that your llmgw is for, or say in"
        f" engines.{engine.name}.flags what it gives",
    )


def _respelled(engine: Engine, flag: Flag, name: str) -> Problem:
    return Problem(
        f"{engine.title} knows {name} and not {flag.names[0]}",
        "see that your llmgw gives what it knows",
        severity="warning",
    )


def _capture(engine: Engine) -> str:
    return f"{engine.program} {' '.join(engine.help[0])} > FILE 2>&1"
