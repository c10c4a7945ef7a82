"""A report becomes a page: one HTML file that loads nothing, and says so to the browser."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from generator.resources import TEMPLATES

if TYPE_CHECKING:
    from generator.report import Report

# A folder of its own: what stands in templates/ itself lands on nodes, and can be overridden.
_FOLDER = TEMPLATES / "report"


def render(report: Report) -> bytes:
    """Return the page, in UTF-8; the same report gives the same bytes."""
    templates = ImmutableSandboxedEnvironment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    style, script = ((_FOLDER / name).read_text("utf-8") for name in ("style.css", "script.js"))
    # By its hash the one script and the one style of ours may run, and nothing else: whatever
    # got into the page beside them would stay text.
    policy = (
        f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)};"
        " img-src data:; base-uri 'none'; form-action 'none'"
    )
    text = templates.get_template("page.html.j2").render(
        report=report, style=style, script=script, policy=policy
    )
    # A file's name may hold bytes that are no UTF-8.
    return text.encode("utf-8", "backslashreplace")


def _source(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
