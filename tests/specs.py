"""Specs for hypothesis: from the schema, so that each property comes up, and sound as a whole."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from generator import schema

NODE = schema.load("node")["properties"]
REQUIRED = ["server", "mgmt_addr", "release"]
NETPLAN, SHORT = NODE["network"]["then"], NODE["network"]["else"]

# What breaks out of a place that it is not quoted for; and what looks like something else.
HARD = [
    *("x\nruncmd:\n - touch /pwn", "a: b", "'", '"', "%n %h", "$(id) `id`", "{{ 7*7 }}", "${HOME}"),
    *("Zürich 東京 🙂", " both ends ", "no", "1e3", "007", "0o17", "12:40:37:27:57:41", "#", "-"),
    *(
        "x\ty",
        "\u2028",
        "\x85",
        "\x7f",
        "\ufeff",
        "<<",
        "~",
        "",
        "a\n",
        "\na",
        "a\r\nb",
        "\\",
        "*a",
    ),
    *(
        "{% raw %}",
        "EOF",
        "---\n",
        "x" * 4000,
        "a\n\n",
        "2001-01-01",
        ".inf",
        "0x1f",
        "? a",
        "\0",
        "MIME-Version: 1",
    ),
]
TEXT = st.sampled_from(HARD) | st.text(max_size=20)
INLINE = st.sampled_from([t for t in HARD if t.isprintable()]) | st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=20
)
NAME = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,5}[a-z0-9])?", fullmatch=True)
_URL = st.text([c for c in string.printable.strip() if c not in "?#{}@"], max_size=20)
_PATH = INLINE.map(lambda text: "/" + text).filter(lambda path: ".." not in path.split("/"))
_SUBNET = st.integers(0, 255)
_NEAR = st.sampled_from(["", ":7443", ":1", ":65535"])
_HOSTS = st.sampled_from(["10.0.0.107", "fd00::107", "n7.example.net", "N7", "255.255.255.255"])

_FORMATS: dict[str, st.SearchStrategy[str]] = {
    "url-https": st.builds(
        "https://{}{}/{}".format,
        st.sampled_from(
            ["10.0.0.140", "[fd00::1]", "control.example.net", "xn--bcher-kva.example"]
        ),
        _NEAR,
        _URL | st.sampled_from(["$(id)`id`'\"\\", "{{x}}", "${HOME}", "%n", "%20", "a;b&c|d"]),
    ),
    "url-release": st.builds(
        "{}://h/{}{}".format,
        st.sampled_from(["https", "http"]),
        st.sampled_from(["{arch}", "{version}/{arch}", "{arch}/{arch}"]),
        _URL | st.sampled_from(["$(id)`id`'\"\\", "?a=$b&c=d", "'", "%n", "a;b&c|d"]),
    ),
    "host": _HOSTS | st.just("auto"),
    "host-name": st.lists(NAME, min_size=1, max_size=3)
    .map(".".join)
    .filter(lambda name: not name.rpartition(".")[2].isdecimal()),
    "interface": st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,14}", fullmatch=True),
    "ip-address": st.ip_addresses().map(str).filter(lambda address: "%" not in address),
    "ip-interface": st.builds("10.{}.0.7/24".format, _SUBNET)
    | st.builds("fd00:{:x}::7/64".format, _SUBNET),
    "mac": st.lists(st.from_regex(r"[0-9a-fA-F]{2}", fullmatch=True), min_size=6, max_size=6).map(
        ":".join
    ),
    "duration-go": st.sampled_from(["1ns", "500ms", "2s", "60s", "1m30s", "1.5h", "3µs", "2us"]),
    "absolute-path": _PATH,
    "absolute-path-or-empty": _PATH | st.just(""),
}


def of(part: dict[str, Any], **own: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return what fits a part of the schema; `own` are a map's properties that it cannot know."""
    if "const" in part:
        return st.just(part["const"])
    if "enum" in part:
        return st.sampled_from(part["enum"])
    if "if" in part:
        return of(part["then"]) | of(part["else"])
    kinds = [part["type"]] if isinstance(part["type"], str) else part["type"]
    return st.one_of([_KINDS[kind](part, **own) for kind in kinds])


def _map(part: dict[str, Any], **own: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    if isinstance(part.get("additionalProperties"), dict):
        names, items = of(part["propertyNames"]), of(part["additionalProperties"])
        return st.dictionaries(names, items, max_size=2)
    known = {
        name: own[name] if name in own else of(inner) for name, inner in part["properties"].items()
    }
    needed = {name: known.pop(name) for name in part.get("required", ())}
    if set(known) == {"file", "env"}:  # a secret is in one place
        return st.one_of([st.fixed_dictionaries({name: value}) for name, value in known.items()])
    least = part.get("minProperties", 0)
    return st.fixed_dictionaries(needed, optional=known).filter(lambda found: len(found) >= least)


def _list(part: dict[str, Any]) -> st.SearchStrategy[Any]:
    unique = bool(part.get("uniqueItems"))
    least = part.get("minItems", 0)
    return st.lists(of(part["items"]), min_size=least, max_size=2, unique=unique)


def _text(part: dict[str, Any]) -> st.SearchStrategy[str]:
    if "format" in part:
        return (
            _FORMATS[part["format"]]
            if part["format"] in _FORMATS
            else st.sampled_from(part["examples"])
        )
    if "pattern" not in part:
        return INLINE.filter(lambda text: len(text) <= part.get("maxLength", 100))
    made = st.from_regex(part["pattern"], fullmatch=True)
    return made.filter(lambda text: len(text) <= part.get("maxLength", 100))


def _whole(part: dict[str, Any]) -> st.SearchStrategy[int]:
    return st.integers(part["minimum"], part["maximum"])


_KINDS: dict[str, Callable[..., st.SearchStrategy[Any]]] = {
    "object": _map,
    "array": _list,
    "string": _text,
    "integer": _whole,
    "boolean": lambda _: st.booleans(),
}

# ---- what a schema does not know: how the parts fit together ----

_LEFT_OUT = st.nothing()
_SHORT = of(SHORT, gateway=_LEFT_OUT, routes=_LEFT_OUT)
_KINDS_OF_DEVICE = ("ethernets", "bonds", "bridges", "vlans")
_WHOLE_NETPLAN = of(NETPLAN, **dict.fromkeys(_KINDS_OF_DEVICE, _LEFT_OUT))
_DEVICES = {
    kind: of(
        NETPLAN["properties"][kind]["additionalProperties"],
        routes=_LEFT_OUT,
        **({"link": st.just("")} if kind == "vlans" else {"interfaces": _LEFT_OUT}),
    )
    for kind in _KINDS_OF_DEVICE
}
_IDS = st.lists(of(NETPLAN["properties"]["ethernets"]["propertyNames"]), max_size=5, unique=True)


def _gateway(subnet: str) -> str:
    return subnet.replace("7/", "1/").partition("/")[0]


@st.composite
def _routes(draw: Any, subnets: list[str]) -> list[dict[str, Any]]:
    """Return routes by way of a neighbour, or of anyone who is said to be on the link."""
    found = []
    for _ in range(draw(st.integers(0, 2))):
        six = draw(st.booleans())
        near = [_gateway(subnet) for subnet in subnets if (":" in subnet) == six]
        far = ["default", "fd99::/16", "2001:db8::1/128"] if six else ["default", "10.0.0.0/8"]
        route: dict[str, Any] = {"to": draw(st.sampled_from(far))}
        route["via"] = "fe80::1" if six else "9.9.9.9"
        if near and draw(st.booleans()):
            route["via"] = draw(st.sampled_from(near))
        elif not six or draw(st.booleans()):
            route["on-link"] = True
        if draw(st.booleans()):
            route["metric"] = draw(st.integers(0, 2**32 - 1))
        found.append(route)
    return found


@st.composite
def _short(draw: Any) -> dict[str, Any]:
    network: dict[str, Any] = draw(_SHORT)
    given = network.get("address", [])
    subnets = [given] if isinstance(given, str) else given
    if not subnets:
        network["dhcp"] = True
    gateways = list({":" in subnet: _gateway(subnet) for subnet in subnets}.values())
    if gateways and draw(st.booleans()):
        network["gateway"] = draw(st.sampled_from([gateways, gateways[0]]))
    if draw(st.booleans()):
        network["routes"] = draw(_routes(subnets))
    return network


@st.composite
def _netplan(draw: st.DrawFn) -> dict[str, Any]:
    """Return netplan whose devices refer to devices that are there."""
    network: dict[str, Any] = draw(_WHOLE_NETPLAN)
    known: list[str] = []
    for name in draw(_IDS):
        kind = draw(st.sampled_from(_KINDS_OF_DEVICE if known else ("ethernets",)))
        device = draw(_DEVICES[kind])
        if "match" not in device:
            device.pop("set-name", None)
        if draw(st.booleans()):
            device["routes"] = draw(_routes(device.get("addresses", [])))
        if kind == "vlans":
            device["link"] = draw(st.sampled_from(known))
        elif kind != "ethernets" and draw(st.booleans()):
            device["interfaces"] = draw(st.lists(st.sampled_from(known), max_size=2))
        network.setdefault(kind, {})[name] = device
        known.append(name)
    return network


_NUMBERS = st.integers(-(10**17), 10**17) | st.integers(-4000, 4000).map(lambda n: n / 8)
_KEYS = TEXT.map(lambda text: text[:500])
_ANY = st.recursive(
    TEXT | _NUMBERS | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)
_COMMANDS = st.lists(TEXT | st.lists(TEXT, min_size=1, max_size=3), max_size=2)
_WRITTEN = st.fixed_dictionaries(
    {"path": _PATH},
    optional={"content": TEXT, "permissions": st.just("0644"), "defer": st.booleans()},
)
_CLOUD_CONFIG = st.builds(
    dict.__or__,
    st.dictionaries(_KEYS, _ANY, max_size=3),
    st.fixed_dictionaries(
        {},
        optional={
            "write_files": st.lists(_WRITTEN, max_size=2),
            "runcmd": _COMMANDS,
            "bootcmd": _COMMANDS,
            "users": _ANY,
        },
    ),
)
_FABRIC = NODE["fabrics"]["items"]["properties"]
_FABRICS = st.lists(st.tuples(of(_FABRIC["name"]), of(_FABRIC["hcas"])), max_size=3).map(
    lambda pairs: [
        {"name": f"{name[:60]}{number}", "hcas": [f"{hca[:60]}{number}" for hca in hcas]}
        for number, (name, hcas) in enumerate(pairs)
    ]
)
_BINARY = {**NODE["release"], "required": ["version", "url", "sha256"]}
_RELEASE = of(_BINARY, archive=_LEFT_OUT, member=_LEFT_OUT)
_ARCHIVE = of({**_BINARY, "required": [*_BINARY["required"], "archive", "member"]})
_OWN: dict[str, st.SearchStrategy[Any]] = {
    "groups": _LEFT_OUT,  # they stand in fleet.yaml
    "release": _RELEASE | _ARCHIVE,
    "fabrics": _FABRICS,
    "agent": of(
        NODE["agent"],
        reconnect_base=st.sampled_from(["1ns", "3µs", "500ms", "1s"]),
        reconnect_max=st.sampled_from(["30s", "1m30s", "1.5h"]),
    ),
    "network": _short() | _netplan(),
    "cloud_config": _CLOUD_CONFIG,
}
SPECS = of({"type": "object", "properties": NODE, "required": REQUIRED}, **_OWN)
"""The values of a node's spec; nearly all of them are accepted."""
