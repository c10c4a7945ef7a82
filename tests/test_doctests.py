"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import generator

MODULES = [module.name for module in pkgutil.iter_modules(generator.__path__, "generator.")]


@pytest.mark.parametrize("name", [name for name in MODULES if name != "generator.__main__"])
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
