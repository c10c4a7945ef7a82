"""Doing something as a user who owns nothing, for tests that root would pass by being root."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_NOBODY = 65534


@contextmanager
def folder() -> Iterator[Path]:
    """Give a folder that every user can reach, as pytest's own are closed to others."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody else")
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def nobody() -> Iterator[None]:
    """Be nobody for the length of a with block."""
    groups, group = os.getgroups(), os.getegid()
    os.setgroups([])
    os.setegid(_NOBODY)
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)
