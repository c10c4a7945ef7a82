"""The templates: ours, and the workspace's in their place."""

from __future__ import annotations

import difflib
import hashlib
import os
import shlex
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from generator import emit, files
from generator.problem import Problem, Refused, refuse
from generator.resources import TEMPLATES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def environment(overrides: Path | None = None) -> jinja2.Environment:
    """Return the templates, those of the folder `overrides` first where it has them.

    Raises `Refused` for a file there that overrides nothing or cannot be read: it would
    silently not be used.
    """
    if overrides is not None and os.path.lexists(overrides):
        _check_overrides(overrides)
    folders = [TEMPLATES] if overrides is None else [overrides, TEMPLATES]
    made = _Environment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # what is rendered is YAML and shell, each with its filter
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
        optimized=False,  # compiling takes longer with it, and each is rendered once
    )
    made.filters["yaml"] = emit.inline
    made.filters["yaml_lines"] = lambda value, indent=0: emit.dump(value, indent).rstrip("\n")
    made.filters["sh"] = shlex.quote
    return made


class _Environment(ImmutableSandboxedEnvironment):
    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        # From a text or a number nothing else can be reached; most of a seed is those.
        if type(value) in (str, int, bool) and not attr.startswith("_"):
            return True
        return super().is_safe_attribute(obj, attr, value)


def digest(overrides: Path) -> str:
    """Return 16 hex digits that tell the templates, those of `overrides` first, from others."""
    names = sorted(path.name for path in TEMPLATES.iterdir() if path.is_file())
    found = hashlib.sha256()
    for name in names:
        own = overrides / name
        text = files.read(own if os.path.lexists(own) else TEMPLATES / name)
        found.update(f"{name} {len(text)}\n".encode() + text)
    return found.hexdigest()[:16]


def _check_overrides(folder: Path) -> None:
    known = {path.name for path in TEMPLATES.iterdir() if path.is_file()}
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except OSError as error:
        raise files.cannot("read", folder, error) from error
    problems = []
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
            problems.append(Problem(f"{folder / name} overrides no template", hint))
            continue
        try:
            files.read(folder / name)
        except Refused as refused:
            problems += refused.problems
    if problems:
        raise Refused(problems)


def fill(templates: jinja2.Environment, name: str, context: Mapping[str, Any]) -> str:
    """Return a template filled in, or as it is without .j2; raise `Refused` where it is faulty."""
    try:
        if name.endswith(".j2"):
            return templates.get_template(name).render(context)
        return _source(templates, name)
    except jinja2.TemplateSyntaxError as error:
        raise refuse(
            f"template {error.filename or name}:{error.lineno}: {error.message}"
        ) from error
    except Exception as error:  # a template of the operator's may raise anything
        raise refuse(
            f"template {name} cannot be rendered: {error}",
            "templates/ in the workspace overrides what gen-seed ships",
        ) from error


@lru_cache(maxsize=64)
def _source(templates: jinja2.Environment, name: str) -> str:
    """Return a file that is taken as it is; read once, as templates are."""
    assert templates.loader is not None  # noqa: S101 - environment() gives it one
    return templates.loader.get_source(templates, name)[0]
