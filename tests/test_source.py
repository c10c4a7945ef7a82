from __future__ import annotations

import time
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from generator import private, schema, source
from generator.problem import Refused, render


def parsed(text: str | bytes) -> Any:
    return source.plain(source.parse(text if isinstance(text, bytes) else text.encode(), "f.yaml"))


def refused(text: str | bytes) -> tuple[str, ...]:
    with pytest.raises(Refused) as caught:
        source.parse(text if isinstance(text, bytes) else text.encode(), "f.yaml")
    return tuple(render(problem) for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("7", 7),
        ("-7", -7),
        ("0", 0),
        ("1.5", 1.5),
        ("1.0", 1.0),
        ("'7'", "7"),
        ('"true"', "true"),
        ('"\\u00e9"', "é"),
        *((word, word) for word in "yes no on off Yes NO True FALSE Null y n".split()),  # noqa: SIM905
        ("2026-01-01", "2026-01-01"),
        ("0x1f", "0x1f"),
        ("0o17", "0o17"),
        ("1:30", "1:30"),
        (".inf", ".inf"),
        ("=", "="),
        ("10.0.0.7", "10.0.0.7"),
        ("v0.10", "v0.10"),
        ("1-2", "1-2"),
    ],
)
def test_a_value_is_what_it_looks_like(text: str, value: object) -> None:
    found = parsed(f"key: {text}\n")["key"]
    assert found == value
    assert type(found) is type(value)


def test_y1_a_mac_address_of_digits_stays_text() -> None:
    assert parsed("mac: 12:40:37:27:57:41\n") == {"mac": "12:40:37:27:57:41"}


def test_y2_colon_numbers_stay_text() -> None:
    text = "{pci: 0000:17:00.0, guid: 0x0002c903000a1b2c}"
    assert parsed(text) == {"pci": "0000:17:00.0", "guid": "0x0002c903000a1b2c"}


@pytest.mark.parametrize("text", "007 08 1e3 1.10 1_000 +1 .5 5. 1.5e3 1e-5 0.00001 -.5".split())  # noqa: SIM905
def test_y5_what_can_be_read_in_two_ways_is_refused(text: str) -> None:
    assert "can be read as a number or as text" in refused(f"key: {text}\n")[0]
    assert parsed(f"key: '{text}'\n") == {"key": text}


def test_y4_merge_keys_work_and_the_nearer_value_wins() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  <<: [*a, *b]\n  z: 3\nd: {<<: *a}\n"
    found = source.parse(text.encode(), "f.yaml")
    assert source.plain(found)["c"] == {"x": 1, "y": 1, "z": 3}
    assert source.plain(found)["d"] == {"x": 1, "y": 1}
    merged = source.at(found, "c", "x")
    assert merged
    assert (merged.mark.line, merged.mark.column) == (1, 11)


def test_a_quoted_merge_key_is_a_key() -> None:
    assert parsed("'<<': {a: 1}\n") == {"<<": {"a": 1}}


def test_marks_stand_on_the_value_and_on_the_key() -> None:
    found = source.parse("a:\n  bc: [x, 'yz']\n".encode(), "f.yaml")  # noqa: UP012
    value, inner = source.at(found, "a", "bc", 1), source.at(found, "a")
    assert value
    assert inner
    assert (value.mark.line, value.mark.column, value.mark.end_column) == (2, 11, 15)
    assert value.mark.text == "  bc: [x, 'yz']"
    key = inner.keys["bc"]
    assert (key.line, key.column, key.end_column) == (2, 3, 5)


def test_bom_and_crlf_change_nothing() -> None:
    assert parsed(b"\xef\xbb\xbfa: 1\r\nb: |\r\n  x\r\n  y\r\n") == {"a": 1, "b": "x\ny\n"}


def test_an_empty_file_is_an_empty_map() -> None:
    assert parsed("") == parsed("# nothing\n") == parsed("---\n") == {}


@pytest.mark.parametrize("depth", [3, 30, 20_000])
def test_nesting_never_overflows(depth: int) -> None:
    for opening, closing in (("[", "]"), ("{a: ", "}")):
        text = opening * depth + closing * depth
        if depth <= 30:
            parsed(text)
        else:
            assert "nested deeper than 64 levels" in refused(text)[0]


def test_a_billion_laughs_are_refused_at_once() -> None:
    lines = ["a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    started = time.process_time()  # of this process: others may be busy
    assert "aliases copy more than" in refused("\n".join(lines))[0]
    assert time.process_time() - started < 5


def test_a_chain_of_aliases_is_refused_at_once() -> None:
    text = "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 20_000))
    started = time.process_time()  # of this process: others may be busy
    assert "nested deeper" in refused(text)[0]
    assert time.process_time() - started < 5


def test_an_alias_may_not_stand_in_its_own_value() -> None:
    assert "no anchor &a" in refused("a: &a [*a]\n")[0]


def test_all_problems_of_a_file_are_told() -> None:
    assert len(refused("a: 007\nb: !x 1\na: 2\nc: [\n")) == 4


def test_maps_merge_lists_and_scalars_replace() -> None:
    base = source.parse(b"a: {x: 1, y: [1, 2]}\nb: 1\nc: {z: 1}\n", "base")
    over = source.parse(b"a: {y: [3]}\nb: {q: 1}\nc: 5\nd: 6\n", "over")
    merged = source.merge(base, over)
    assert source.plain(merged) == {"a": {"x": 1, "y": [3]}, "b": {"q": 1}, "c": 5, "d": 6}
    files = {
        name: source.at(merged, *path) for name, path in {"x": ("a", "x"), "y": ("a", "y")}.items()
    }
    assert {name: found and found.mark.file for name, found in files.items()} == {
        "x": "base",
        "y": "over",
    }


@pytest.mark.parametrize("path", [("a", "b"), ("l", 5), ("l", "x"), ("t", 0), ("t", "a")])
def test_at_finds_nothing_where_nothing_is(path: tuple[str | int, ...]) -> None:
    assert source.at(source.parse(b"a: {}\nl: [1]\nt: text\n", "f"), *path) is None


SECRET = "hunter2"  # noqa: S105 - looked for in what is said


@pytest.mark.parametrize(
    "text",
    [
        "cloud_config:\n  password: 'hunter2\n",
        "cloud_config: {password: hunter2, password: hunter2}\n",
        "cloud_config:\n  a: {password: hunter2, b: 007}\n",
        "defaults: {cloud_config: {password: hunter2}, a: 007}\n",
        "cloud_config: {\n password: !x hunter2}\n",
        "- cloud_config:\n    password: hunter2: x\n",
        '{"cloud_config": {"password": "hunter2", "password": "x"}}\n',
    ],
)
def test_v3_a_line_of_cloud_config_is_never_shown(text: str) -> None:
    assert SECRET not in "\n".join(refused(text))


PIECES = [
    *("a", "b:", "- ", "[", "]", "{", "}", ",", ": ", ", ", "<<: ", "*a", "&a ", "#c", " #", "|#"),
    *("|", ">", "? ", "!", "!!str ", "%", "---", "1", "1.5", "007", "~", "é", '"x"', "'y'", "a: "),
    *('"', "'", "@", "|-\n  ", "k: v\n", "k:\n", "-\n", "\\", "cloud_config:", "---\n", "...\n"),
    *("\n", "  ", "\n  ", "\n    ", "\t", '"\\'),
]


@example("a b\tc")
@example("key: value\t# comment\n")
@example("a: |#x\n")
@example("- \n- a:  \n")
@given(st.lists(st.sampled_from(PIECES), max_size=16).map("".join))
def test_both_parsers_of_pyyaml_give_the_same(text: str) -> None:
    quick = outcome(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(yaml, "CSafeLoader")
        assert outcome(text) == quick


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_bytes_give_a_traceback(data: bytes) -> None:
    outcome(data)


def outcome(text: str | bytes) -> object:
    try:
        return marked(source.parse(text if isinstance(text, bytes) else text.encode(), "f"))
    except Refused as refusal:
        return [render(problem) for problem in refusal.problems]


def marked(located: source.Located) -> object:
    match located.value:
        case dict() as items:
            return located.mark, [(k, located.keys[k], marked(item)) for k, item in items.items()]
        case list() as items:
            return located.mark, [marked(item) for item in items]
        case scalar:
            return located.mark, repr(scalar), located.plain


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("server: a\nserver: b\n", ["f.yaml:2:1", "1:1"]),
        ("a:\n  x: 1\n  x: 1\n", ["f.yaml:3:3", "2:3"]),
        ("a: {x: 1, 'x': 2}\n", ["f.yaml:1:11", "1:5"]),
        ("- {x: 1}\n- {x: 1,\n   y: 2, x: 3}\n", ["f.yaml:3:10", "2:4"]),
        ("a: &a {x: 1}\nb: {<<: *a, x: 2, x: 3}\n", ["f.yaml:2:19", "2:13"]),
    ],
)
def test_y4_a_duplicate_key_is_refused_with_both_places(text: str, places: list[str]) -> None:
    (problem,) = refused(text)
    assert all(place in problem for place in places)


@pytest.mark.parametrize("key", ["cloud-config", "cloud_confg", "Cloud_Config", "cloudconfig"])
def test_v3_a_misspelt_cloud_config_is_as_private(key: str) -> None:
    for text in (f"{key}: {{password: {SECRET}, n: 007}}\n", f"{key}:\n  {SECRET}: x: y\n"):
        assert SECRET not in "\n".join(refused(text))


def test_v3_a_line_indented_too_little_is_as_private() -> None:
    text = f"cloud_config:\n  key: |\n    a\n{SECRET}\nserver 007: x: y\nagent: a: b\n"
    assert SECRET not in "\n".join(refused(text))


def test_a_line_behind_cloud_config_is_shown() -> None:
    for line in ("server: a: b", "n8: {x: 007}", "groups: [007]"):
        assert f" | {line}" in "\n".join(refused(f"cloud_config:\n  a: 1\n{line}\n"))
    assert " | cloud-7: 007" in refused("cloud-7: 007\n")[0]


def test_what_ends_the_private_lines_is_every_key_of_the_spec() -> None:
    known = {*schema.load("node")["properties"], *schema.load("fleet")["properties"]}
    assert [key for key in sorted(known - {"cloud_config"}) if not private.ends(f"{key}: x")] == []
