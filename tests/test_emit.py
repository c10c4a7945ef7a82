"""What emit writes, both YAML dialects read back as it was."""

from __future__ import annotations

import io
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from generator import emit

_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_HARD = st.sampled_from(
    [
        *(
            "",
            " ",
            "~",
            "no",
            "y",
            "N",
            "Null",
            "TRUE",
            "1e3",
            "08",
            "0o17",
            "0x1f",
            "1_000",
            ".inf",
        ),
        *("12:30:45", "2001-01-01", "a: b", "- a", "-", "# x", "a #b", "a:", "a:b", "=", "<<", "?"),
        *("? a", "*a", "&a", "!a", "%a", "@a", "`a", "|", ">", "{{ x }}", "${x}", "---\n", "a\nb"),
        *("a\n", "\na", " a\nb", "a\n\n", "a\n \n", "a\tb\n", "\ta\n", "a\r\nb\n", "x\u2028y\nz"),
        *(
            "x\x85y",
            "\ufeffa",
            "\x7f",
            "🙂\n🙂",
            "MIME-Version",
            "mime-version: 1",
            "a\nmime-version:\n",
        ),
    ]
)
_SCALARS = _TEXT | _HARD | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=40) | _HARD, inner),
    max_leaves=25,
)


def _yaml_1_2(text: str) -> Any:
    reader = YAML(typ="safe", pure=True)
    reader.version = (1, 2)
    return reader.load(io.StringIO(text))


@given(_VALUES)
def test_y8_both_dialects_read_what_was_meant(value: Any) -> None:
    text = emit.dump({"value": value})
    assert "mime-version:" not in text.lower()
    assert yaml.safe_load(text) == {"value": value}
    assert _yaml_1_2(text) == {"value": value}


@pytest.mark.parametrize("value", ["1e3", "08", "0o600", "no", "12:40:37:27:57:41"])
def test_y8_what_a_reader_could_mistake_is_quoted(value: str) -> None:
    assert emit.inline(value) == f'"{value}"'


def test_text_of_several_lines_stays_readable() -> None:
    assert emit.inline("[Unit]\nA=b\n") == '"[Unit]\\nA=b\\n"'
    assert emit.dump({"content": "[Unit]\nA=b\n"}) == "content: |\n  [Unit]\n  A=b\n"


def test_what_is_no_yaml_is_a_mistake_of_ours() -> None:
    with pytest.raises(TypeError, match="set is not a YAML scalar"):
        emit.dump({"a": {1}})
