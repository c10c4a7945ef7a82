from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker

from generator import conform, schema, source, wording
from generator.formats import CHECKS, seconds
from generator.resources import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES: tuple[schema.Name, ...] = ("node", "fleet", "agent")
EXAMPLE = {
    "server": "https://10.0.0.140:7443",
    "mgmt_addr": "10.0.0.107",
    "groups": ["ib-a"],
    "fabrics": [{"name": "ib-a", "hcas": ["mlx5_0", "mlx5_1"]}],
    "engines": {"llamacpp": {"bin": "/a", "parallel": 4}, "sglang": {"python": ""}},
    "supervisor": {"log_lines": 512, "stop_timeout": "60s"},
    "release": {"version": "v1", "url": "https://h/{arch}", "sha256": {"amd64": "ab" * 32}},
    "identity": {"days": 365},
    "network": {"address": ["10.0.0.107/24"], "gateway": "10.0.0.1", "mtu": 9000},
    "cloud_config": {"timezone": "Etc/UTC"},
}
NETPLAN = {
    "version": 2,
    "ethernets": {"eth0": {"match": {"macaddress": "52:54:00:12:34:56"}, "dhcp4": True}},
    "vlans": {"v": {"id": 1, "link": "eth0", "routes": [{"to": "default", "via": "10.0.0.1"}]}},
}


def parts(part: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema in a schema, with where it stands."""
    yield path, part
    for holder in ("properties", "$defs"):
        for name, child in part.get(holder, {}).items():
            yield from parts(child, f"{path}/{holder}/{name}")
    for keyword in ("items", "additionalProperties", "propertyNames", "if", "then", "else"):
        if isinstance(part.get(keyword), dict):
            yield from parts(part[keyword], f"{path}/{keyword}")


EVERY = [pair for name in NAMES for pair in parts(schema.read(name), name)]


@pytest.mark.parametrize("name", NAMES)
def test_the_schemas_are_of_their_standard(name: schema.Name) -> None:
    Draft202012Validator.check_schema(schema.read(name))
    assert schema.read(name)["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema.read(name)["$id"].startswith("urn:gen-seed:")


def test_every_property_is_described_and_has_an_example_that_fits() -> None:
    for name in NAMES:
        for path, part in parts(schema.load(name), name):
            if not re.search(r"/properties/[^/]+$|/items$", path):
                continue
            assert part.get("description"), path
            assert not part["description"].endswith("."), path
            assert part.get("examples"), path
            for value in [*part["examples"], *([part["default"]] if "default" in part else [])]:
                assert list(Draft202012Validator(part).iter_errors(value)) == [], path
                assert conform.conforms(part, value), path


def test_what_a_message_needs_is_in_the_schemas() -> None:
    for path, part in EVERY:
        assert ("minimum" in part) == ("maximum" in part), path
        if "pattern" in part or "format" in part:
            assert part.get("title"), path


def test_nothing_undeclared_is_allowed() -> None:
    free = [
        path
        for path, part in EVERY
        if part.get("type") == "object" and "additionalProperties" not in part
    ]
    assert [path.rpartition("/")[2] for path in free] == ["network", "cloud_config"]


def test_the_defaults_are_those_of_the_spec() -> None:
    from generator.spec import build

    release = {"version": "v1", "url": "https://h", "sha256": {"amd64": "ab" * 32}}
    least = {"server": "https://h", "mgmt_addr": "n7", "release": release}
    every = copy.deepcopy(least)
    properties = schema.load("node")["properties"]
    for name, part in properties.items():
        inner = {k: p["default"] for k, p in part.get("properties", {}).items() if "default" in p}
        if inner and name != "release":
            every[name] = inner
        elif "default" in part and name != "schema":
            every[name] = part["default"]
    engines = properties["engines"]["properties"]
    every["engines"] = {
        name: {key: part["default"] for key, part in engine["properties"].items()}
        for name, engine in engines.items()
    }
    assert build("n7", every, None) == build("n7", least, None)


def test_y3_no_pattern_and_no_format_takes_a_final_newline() -> None:
    patterns = [(path, part["pattern"]) for path, part in EVERY if "pattern" in part]
    assert patterns
    for path, pattern in patterns:
        assert pattern.startswith("^"), path
        assert pattern.endswith("(?!\\n)$"), path
        # Python's own syntax would not do in an editor.
        assert not re.search(r"\\[AZ]|\(\?P|\(\?<[^=!]", pattern), path
    for path, part in EVERY:
        if part.get("type") == "string" and ("pattern" in part or "format" in part):
            assert not conform.conforms(part, f"{part['examples'][0]}\n"), path


def test_every_keyword_is_known_and_every_format_checked() -> None:
    structure = {"properties", "additionalProperties", "propertyNames", "items", "if", "anyOf"}
    expanded = [part for name in NAMES for _, part in parts(schema.load(name), name)]
    keywords = {keyword for part in expanded for keyword in part} - conform.ANNOTATIONS
    assert keywords <= conform.KEYWORDS.keys()
    assert keywords - structure - {"uniqueItems", "$defs"} <= wording.TELL.keys()
    assert {part["format"] for part in expanded if "format" in part} == CHECKS.keys()


def test_v1_our_formats_do_not_depend_on_what_is_installed() -> None:
    assert not CHECKS.keys() & FormatChecker.checkers.keys()


def test_what_a_schema_file_refers_to_is_there() -> None:
    for name in NAMES:
        text = json.dumps(schema.load(name))
        assert "$ref" not in text
        # jsonschema would judge a part that has one with formats and types of its own.
        assert "$schema" not in text
        for reference in re.findall(r'"\$ref": "([^"#]+)', json.dumps(schema.read(name))):
            assert (SCHEMAS / reference).is_file()


def test_seconds_reads_gos_durations() -> None:
    assert [seconds(text) for text in ("60s", "1m30s", "1.5h", "500ms")] == [60, 90, 5400, 0.5]


SCALARS = st.sampled_from(
    [None, True, False, 0, 1, 2, -1, 1.0, 4.5, 10**12, "", "x", "a\n", "10.0.0.1", "auto", "é" * 70]
)
STRANGE = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.sampled_from("ab"), SCALARS)


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """Return a sound spec in which some values are other ones, missing, or too many."""
    spec: dict[str, Any] = copy.deepcopy(EXAMPLE)
    if draw(st.booleans()):
        spec["network"] = copy.deepcopy(NETPLAN)
    for _ in range(draw(st.integers(0, 3))):
        place: Any = spec
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and draw(st.integers(0, 3)):
                place = place[key]
                continue
            change = draw(st.integers(0, 3))
            if change == 0:
                del place[key]
            elif change == 1 and isinstance(place, dict):
                place[draw(st.sampled_from(["sever", "version", "address", "x y", ""]))] = place[
                    key
                ]
            else:
                place[key] = draw(STRANGE)
            break
    return spec


@given(mutated())
@settings(deadline=None)
def test_the_quick_yes_is_jsonschemas_yes(spec: Any) -> None:
    name: schema.Name
    fleet = {"nodes": {"n7": spec}}
    for name, document in (("node", spec), ("fleet", fleet), ("fleet", {"defaults": spec})):
        sound = schema._judge(name).is_valid(document)  # noqa: SLF001 - held against it
        assert conform.conforms(schema.load(name), document) == sound


@given(mutated())
@settings(deadline=None)
def test_every_error_has_a_position_and_words_of_our_own(spec: Any) -> None:
    text = json.dumps(spec, indent=1, ensure_ascii=False)
    document = source.parse(text.encode(), "n7.yaml")
    found = schema.problems(document, "node")
    assert bool(found) != schema._judge("node").is_valid(source.plain(document))  # noqa: SLF001
    for problem in found:
        assert problem.where
        assert problem.where.line <= text.count("\n") + 1
        assert problem.message
        assert "is not valid under any" not in problem.message
        assert "does not match" not in problem.message
    assert len({(problem.path, problem.where) for problem in found}) == len(found)


@pytest.mark.parametrize("value", [True, 1.0, "1", [1]])
def test_one_is_a_whole_number_and_nothing_else_is(value: object) -> None:
    assert not conform.conforms(schema.load("node"), {"schema": value})
    assert not conform.conforms({"enum": [0, 1]}, value)


def test_v2_a_typo_in_a_variant_is_one_problem() -> None:
    for network in ({"adress": "10.0.0.7/24"}, {"version": 2, "ethernet": {}}):
        document = source.parse(json.dumps({"network": network}).encode(), "n7.yaml")
        assert len(schema.problems(document, "node")) == 1


def test_v3_a_password_in_a_url_is_not_told() -> None:
    document = source.parse(b"server: https://user:hunter2@host\n", "n7.yaml")
    (problem,) = schema.problems(document, "node")
    assert "hunter2" not in problem.message + problem.hint
    assert problem.where
    assert problem.where.text == ""


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_printed_as_one_document(name: schema.Name) -> None:
    whole = schema.bundled(name)
    Draft202012Validator.check_schema(whole)
    assert ".json" not in json.dumps(whole)
    judge = Draft202012Validator(whole)
    if name == "fleet":
        assert judge.is_valid({"defaults": EXAMPLE, "release": EXAMPLE["release"]})
        assert not judge.is_valid({"groups": {"a": {"identity": {"days": 0}}}})
        assert not judge.is_valid({"groups": {"A": {}}})
        assert not judge.is_valid({"release": {"version": "new"}})
