"""pin's edit of fleet.yaml: what it should change changes, and not a byte of the rest."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from generator import pin_edit, schema, source
from generator.problem import Refused

A, B, C, D = ("ab" * 32, "cd" * 32, "12" * 32, "e" * 63 + "f")
NEW: dict[tuple[str | int, ...], str] = {
    ("version",): "v0.9.2",
    ("sha256", "amd64"): C,
    ("sha256", "arm64"): D,
}


def edited(text: str, changes: dict[tuple[str | int, ...], str] = NEW) -> str:
    document = source.plain(source.parse(text.encode(), "fleet.yaml"))
    return pin_edit.edit(text.encode(), "fleet.yaml", document, changes).decode()


def lines(old: str, new: str) -> list[str]:
    """Return the lines that differ, the old one before the new."""
    pairs = zip(old.splitlines(), new.splitlines(), strict=True)
    return [line for a, b in pairs if a != b for line in (f"- {a}", f"+ {b}")]


BLOCK = f"""\
# The fleet.
schema: 1
release:   # which llmgw
  version: v0.9.1       # the newest
  url: https://h/{{version}}/llmgw-{{arch}}

  sha256:
    # of the makers
    amd64: "{A}"  # here
    arm64: '{B}'
defaults: {{server: https://h}}   # and so on
"""


def test_each_value_keeps_its_place_its_quotes_and_its_comment() -> None:
    assert lines(BLOCK, edited(BLOCK)) == [
        "-   version: v0.9.1       # the newest",
        "+   version: v0.9.2       # the newest",
        f'-     amd64: "{A}"  # here',
        f'+     amd64: "{C}"  # here',
        f"-     arm64: '{B}'",
        f"+     arm64: '{D}'",
    ]


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_line_ends_and_the_mark_at_the_start_stay(end: str, bom: str) -> None:
    text = bom + BLOCK.replace("\n", end)
    assert edited(text) == bom + edited(BLOCK).replace("\n", end)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # Nothing there yet: at the end, with a line end before it.
        ("schema: 1", 'schema: 1\nrelease:\n  version: v0.9.2\n  url: "https://h/{arch}"\n'),
        ("# empty\n", '# empty\nrelease:\n  version: v0.9.2\n  url: "https://h/{arch}"\n'),
        # Before what ends the document, and not as a second one.
        (
            "schema: 1\n# 1\n...\n# 2\n",
            'schema: 1\n# 1\nrelease:\n  version: v0.9.2\n  url: "https://h/{arch}"\n...\n# 2\n',
        ),
        ("release: {}\n", 'release: {version: "v0.9.2", url: "https://h/{arch}"}\n'),
        # A part there: at its top.
        (
            "release:\n  # where\n  url: https://h/1\n",
            "release:\n  # where\n  version: v0.9.2\n  url: https://h/{arch}\n",
        ),
        (
            "release: {url: https://h/1}\n",
            'release: {version: "v0.9.2", url: "https://h/{arch}"}\n',
        ),
        (
            '{"release": {"url": "https://h/1"}}',
            '{"release": {"version": "v0.9.2", "url": "https://h/{arch}"}}',
        ),
        (
            '{"schema": 1}',
            '{"release": {"version": "v0.9.2", "url": "https://h/{arch}"}, "schema": 1}',
        ),
    ],
)
def test_what_is_not_there_is_added(old: str, new: str) -> None:
    changes: dict[tuple[str | int, ...], str] = {
        ("version",): "v0.9.2",
        ("url",): "https://h/{arch}",
    }
    assert edited(old, changes) == new


def test_a_digest_is_added_to_those_that_are_there() -> None:
    for old, new in [
        (f"{{amd64: {A}}}", f'{{arm64: "{D}", amd64: {A}}}'),
        (f"\n    amd64: {A}", f"\n    arm64: {D}\n    amd64: {A}"),
    ]:
        text = f"release:\n  version: v1\n  sha256: {old}\n"
        assert edited(text, {("sha256", "arm64"): D}) == text.replace(old, new)


def test_all_digests_at_once_in_a_release_without() -> None:
    text = "release:\n  version: v0.9.1\n  url: https://h/{arch}\n"
    want = f'release:\n  sha256: {{"amd64": "{C}", "arm64": "{D}"}}\n  version: v0.9.2\n  url: https://h/{{arch}}\n'
    assert edited(text) == want


def test_a_number_stays_text() -> None:
    text = f"release:\n  version: v1\n  sha256: {{amd64: {A}}}\n"
    new = edited(text, {("version",): "1.10", ("sha256", "amd64"): "1" * 64})
    assert yaml.safe_load(new)["release"] == {"version": "1.10", "sha256": {"amd64": "1" * 64}}


@pytest.mark.parametrize(
    "text",
    [
        f"release: &r\n  version: v1\n  sha256: {{amd64: {A}}}\ngroups:\n  a: {{release: *r}}\n",
        f"release:\n  version: v1\n  sha256: {{amd64: &d {A}, arm64: *d}}\n",
        f"release: {{sha256: {{amd64: &d {A}, arm64: *d}}}}\n",
        f"groups:\n  a: {{release: &r {{version: v1, sha256: {{amd64: {A}}}}}}}\nrelease: *r\n",
    ],
)
def test_what_other_places_share_is_not_changed(text: str) -> None:
    with pytest.raises(Refused) as caught:
        edited(text)
    (problem,) = caught.value.problems
    assert "is not changed" in problem.message
    assert "version: v0.9.2" in problem.hint


def test_what_the_schema_refuses_is_not_written() -> None:
    with pytest.raises(Refused) as caught:
        edited(BLOCK, {("version",): "no version"})
    assert "is not a version" in caught.value.problems[0].message


# ---- whatever a fleet.yaml looks like ----------------------------------------------------

COMMENT = st.sampled_from(["", "", '  # what: {is} [it] "', " #", "  # Zürich 🙂"])
GAP = st.sampled_from(["", "", "\n", "# a comment\n", "  # deeper\n\n", "\t\n".strip("\t")])
HEX = st.text("0123456789abcdefABCDEF", min_size=64, max_size=64)
QUOTE = st.sampled_from(["", "'", '"'])


@st.composite
def scalar(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    value = draw(values)
    quote = draw(QUOTE)
    if not quote and re.fullmatch(r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?", value):
        quote = '"'  # the dialect refuses a bare one
    return f"{quote}{value}{quote}"


VERSION = st.from_regex(r"v?[0-9]{1,2}\.[0-9]{1,2}(?:\.[0-9])?(?:-rc1)?", fullmatch=True)
URL = st.sampled_from(
    ["https://h.example/{version}/llmgw-{arch}", "https://h/v0.9.1/x-{arch}#".rstrip("#")]
)
OTHERS = [
    'defaults: {server: "https://h", mgmt_interface: eth0}',
    "defaults:\n  server: https://h # here\n  identity: {days: 90}",
    "groups:\n  a:\n    fabrics:\n      - {name: ib-a, hcas: [mlx5_0]}\n  b: {}",
    """\
nodes:
  n1: {mgmt_addr: 10.0.0.1, groups: [a]}
  n2:
    mgmt_addr: n2.example
    cloud_config:
      note: |
        version: v0.9.1
        sha256: x
""",
    'authority: {dir: "pki"}',
    "schema: 1",
]


@st.composite
def fleets(draw: st.DrawFn) -> str:
    """A fleet.yaml as somebody may have written it, with a whole release somewhere in it."""
    flow = draw(st.booleans())
    parts = {
        "version": draw(scalar(VERSION)),
        "url": f'"{draw(URL)}"' if flow or draw(st.booleans()) else draw(URL),
    }
    digests = {arch: draw(scalar(HEX)) for arch in draw(st.permutations(["amd64", "arm64"]))}
    order = draw(st.permutations([*parts, "sha256"]))
    if flow:
        space = draw(st.sampled_from([" ", "  ", "\n    "]))
        sums = ", ".join(f"{arch}: {value}" for arch, value in digests.items())
        values = parts | {"sha256": f"{{{sums}}}"}
        body = f" {{{space}{f',{space}'.join(f'{k}: {values[k]}' for k in order)}{space}}}"
    else:
        body = draw(COMMENT)
        indent = " " * draw(st.integers(1, 4))
        for key in order:
            body += f"\n{draw(GAP)}{indent}"
            if key != "sha256":
                body += f"{key}:{draw(st.sampled_from([' ', '   ']))}{parts[key]}{draw(COMMENT)}"
            elif draw(st.booleans()):
                body += "sha256: {" + ", ".join(f"{a}: {v}" for a, v in digests.items()) + "}"
            else:
                body += f"sha256:{draw(COMMENT)}"
                for arch, value in digests.items():
                    body += f"\n{draw(GAP)}{indent}  {arch}: {value}{draw(COMMENT)}"
    others = draw(st.lists(st.sampled_from(OTHERS), unique_by=lambda o: o.partition(":")[0]))
    blocks = draw(st.permutations([f"release:{body}", *others]))
    text = draw(GAP) + "".join(
        f"{block}{draw(COMMENT) if not block.endswith(chr(10)) else ''}\n{draw(GAP)}"
        for block in blocks
    )
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))


@settings(deadline=None)
@given(fleets(), VERSION, HEX.map(str.lower), HEX.map(str.lower), st.booleans())
def test_the_rest_stays_byte_for_byte(
    text: str,
    version: str,
    amd64: str,
    arm64: str,
    moved: bool,  # noqa: FBT001
) -> None:
    before = source.parse(text.encode(), "fleet.yaml")
    assert schema.problems(before, "fleet") == []
    changes: dict[tuple[str | int, ...], str] = {
        ("version",): version,
        ("sha256", "amd64"): amd64,
        ("sha256", "arm64"): arm64,
    }
    if moved:
        changes["url",] = "https://new.example/{version}/{arch}"
    new = edited(text, changes)
    # What is said is what was asked for.
    want: Any = source.plain(before)
    want["release"] |= {"version": version, "sha256": {"amd64": amd64, "arm64": arm64}}
    if moved:
        want["release"]["url"] = "https://new.example/{version}/{arch}"
    assert source.plain(source.parse(new.encode(), "fleet.yaml")) == want
    # And with the values taken out the two are the same text.
    old_values: Any = source.plain(before)["release"]
    assert bare(
        text, [old_values["version"], *old_values["sha256"].values(), old_values["url"]]
    ) == bare(new, [version, amd64, arm64, want["release"]["url"]])


def bare(text: str, values: list[str]) -> str:
    """Return a text with the values of its release, and quotes around them, blanked."""
    start = text.index("release:")
    for value in values:
        pattern = rf"(?<=[\s{{]){'(?:version|url|amd64|arm64)'}:(\s+)([\"']?){re.escape(value)}\2"
        text = text[:start] + re.sub(
            pattern, r"KEY:\1VALUE", text[start:], count=1, flags=re.DOTALL
        )
    return text
