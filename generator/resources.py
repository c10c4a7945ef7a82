"""Where schemas/ and templates/ are: inside an installed package, or beside it in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
# The wheel carries both folders as generator/_data (pyproject.toml, force-include);
# a checkout and an editable install have them at the top level.
_ROOT = _PACKAGE / "_data" if (_PACKAGE / "_data").is_dir() else _PACKAGE.parent

SCHEMAS = _ROOT / "schemas"
TEMPLATES = _ROOT / "templates"
