"""Whatever is accepted arrives as it was meant; whatever is refused is refused with its place.

HYPOTHESIS_PROFILE=full makes 10,000 tries of each (`make test-full`).
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, example, given, note, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from specs import HARD, SPECS

from generator import attachments, emit, identity, schema
from generator.problem import Problem, Refused
from generator.problem import render as told
from generator.render import ONBOARD, SHARED, render
from generator.resolve import examine, resolve
from generator.template import environment
from generator.verify import verify
from generator.workspace import open_workspace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from generator.render import Seed
    from generator.spec import Spec

FULL = os.environ.get("HYPOTHESIS_PROFILE") == "full"
TRIES = settings(
    max_examples=10_000 if FULL else 100,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
PLACEHOLDER = identity.placeholder("n7")
TEMPLATES = environment()
SECRET = "hunter2-correct-horse"  # noqa: S105 - nobody's
Node = dict[str, Any]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / "nodes").mkdir()
        (Path(made) / "release-ca.pem").write_bytes(PLACEHOLDER.roots_pem)  # the schema's example
        yield Path(made)


def yaml_1_1(text: str | bytes) -> Any:
    return yaml.safe_load(text)  # as cloud-init does


def yaml_1_2(text: str | bytes) -> Any:
    reader = YAML(typ="safe", pure=True)
    reader.version = (1, 2)
    return reader.load(io.BytesIO(text) if isinstance(text, bytes) else io.StringIO(text))


def seed_of(folder: Path, values: Node) -> Seed:
    """Return the seed of a node with these values; leave the example out if they are refused."""
    (folder / "nodes/n7.yaml").write_text(emit.dump(values), "utf-8")
    try:
        spec, _ = resolve(open_workspace(folder), "n7")
    except Refused as refused:
        note(str(refused))
        assume(False)
    return rendered(spec, folder)


def rendered(spec: Spec, folder: Path) -> Seed:
    whole = attachments.fill(spec, folder, {}, stand_in=True)
    seed = render(whole, PLACEHOLDER, TEMPLATES)
    verify(seed, whole)
    return seed


# ---- what a spec asks for, said here once more ----


def filled(part: dict[str, Any], given: Any) -> Any:
    """Return a value with the defaults of its schema."""
    if "properties" not in part:
        return given
    known = part["properties"].items()
    return {
        name: filled(inner, given.get(name, {} if "properties" in inner else inner.get("default")))
        for name, inner in known
    }


def agent_yaml(values: Node) -> Node:
    properties = schema.load("node")["properties"]
    parts = ("discovery", "supervisor")
    engines = filled(properties["engines"], values.get("engines", {}))
    return {
        "node_id": "n7",
        "server": values["server"],
        "tls": {
            "ca": "/etc/llmgw/ca.pem",
            "cert": "/etc/llmgw/agent.pem",
            "key": "/etc/llmgw/agent-key.pem",
        },
        "mgmt_addr": values["mgmt_addr"],
        "mgmt_interface": values.get("mgmt_interface", "eth0"),
        **filled(properties["agent"], values.get("agent", {})),
        "fabrics": values.get("fabrics", []),
        # Their flags are for engine-check alone.
        "engines": {
            name: {key: value for key, value in engine.items() if key != "flags"}
            for name, engine in engines.items()
        },
        **{name: filled(properties[name], values.get(name, {})) for name in parts},
    }


def devices(network: Node) -> Iterator[tuple[str, Node]]:
    for kind in ("ethernets", "bonds", "bridges", "vlans"):
        yield from network.get(kind, {}).items()


def network_config(values: Node) -> Node:
    network: Node = deepcopy(values["network"])
    interface = values.get("mgmt_interface", "eth0")
    if "version" not in network:
        network = long_form(network, interface)
    named = {device.get("set-name", name) for name, device in devices(network)}
    for name, device in devices(network):
        for holder in (device, device.get("match", {})):
            if "macaddress" in holder:
                holder["macaddress"] = holder["macaddress"].lower()
        if "routes" in device:
            device["routes"] = [
                {**route, "to": to} for route in device["routes"] for to in destinations(route)
            ]
        if interface in named and device.get("set-name", name) != interface:
            device.setdefault("optional", True)
    return network


def destinations(route: Node) -> list[str]:
    if route["to"] != "default":
        return [route["to"]]
    return ["::/0", "::/1", "8000::/1"] if ":" in route["via"] else ["0.0.0.0/0"]


def long_form(short: Node, interface: str) -> Node:
    def listed(name: str) -> list[str]:
        value = short.get(name, [])
        return [value] if isinstance(value, str) else value

    names = {"addresses": listed("nameservers"), "search": listed("search")}
    routes = [{"to": "default", "via": via} for via in listed("gateway")]
    device = {
        "dhcp4": short.get("dhcp", False),
        "addresses": listed("address"),
        "routes": routes + short.get("routes", []),
        "nameservers": {name: value for name, value in names.items() if value},
        "mtu": short.get("mtu"),
    }
    if "mac" in short:
        device |= {"match": {"macaddress": short["mac"]}, "set-name": interface}
    kept = {name: value for name, value in device.items() if value not in ([], {}, None)}
    return {"version": 2, "ethernets": {"mgmt" if "mac" in short else interface: kept}}


# ---- what arrives ----


EVERY_HARD_VALUE: Node = {
    "server": "https://h/$(id)`id`'\"\\{{x}}${HOME}%n",
    "mgmt_addr": "auto",
    "release": {
        "version": "v1",
        "url": "http://h/{arch}/'$(id)\"`id`\\&;|{version}",
        "sha256": {"amd64": "AB" * 32, "arm64": "cd" * 32},
    },
    "engines": {"vllm": {"bin": "/{{ 7*7 }} ' \" $(id) `id` %n Zürich 🙂 "}},
    "cloud_config": {
        "notes": {text[:500]: text for text in HARD},
        "bootcmd": HARD,
        "runcmd": [*HARD, HARD],
        "write_files": [
            {"path": f"/{number}", "content": text} for number, text in enumerate(HARD)
        ],
    },
}


@TRIES
@given(SPECS)
@example(EVERY_HARD_VALUE)
def check_what_arrives(folder: Path, confs: list[tuple[str, str, Node]], values: Node) -> None:
    seed = seed_of(folder, values)
    files = {file.path: file.content for file in seed.files}
    never = values["release"].get("fetch") == "never"
    sent = {path: text for path, text in files.items() if not (never and path in SHARED)}
    config = values.get("cloud_config", {})
    for read in (yaml_1_1, yaml_1_2):
        user_data = read(seed.user_data)
        written = user_data["write_files"]
        theirs = config.get("write_files", [])
        assert written[len(sent) :] == theirs
        assert {file["path"]: file["content"] for file in written[: len(sent)]} == sent
        assert user_data["bootcmd"][1:] == config.get("bootcmd", [])
        commands = config.get("runcmd", [])
        assert user_data["runcmd"][-1 - len(commands) :] == [*commands, [ONBOARD, "wait"]]
        ours = {"hostname": "n7", "preserve_hostname": False}
        joined = {name: user_data[name] for name in ("write_files", "runcmd", "bootcmd")}
        assert same(user_data, config | ours | joined)
        assert same(read(files["/etc/llmgw/agent.yaml"]), agent_yaml(values))
        meta_data = {"instance-id": seed.instance_id, "local-hostname": "n7"}
        assert same(read(seed.meta_data), meta_data)
        if "network" in values:
            assert same(read(seed.network_config or b""), network_config(values))
    assert (seed.network_config is None) == ("network" not in values)
    conf = files["/etc/llmgw/onboard.conf"]
    confs.append((conf, user_data["bootcmd"][0], onboard_conf(values, seed)))


def onboard_conf(values: Node, seed: Seed) -> Node:
    release = values["release"]

    def filled_in(text: str, arch: str) -> str:
        return text.replace("{version}", release["version"]).replace("{arch}", arch)

    wanted = {
        "seed": seed.instance_id,
        "release": release["version"],
        "server": values["server"],
        "archive": release.get("archive", ""),
        "trust": values.get("trust", "system"),
        "fetch": release.get("fetch", "if-needed"),
    }
    urls = [release["url"], *release.get("urls", ())]
    for arch, digest in release["sha256"].items():
        wanted[f"sha256_{arch}"] = digest.lower()
        wanted[f"urls_{arch}"] = " ".join(filled_in(url, arch) for url in urls)
        wanted[f"member_{arch}"] = filled_in(release.get("member", ""), arch)
    return wanted


def same(left: Any, right: Any) -> bool:
    """Tell whether two values are equal to a reader that keeps 1, 1.0 and true apart."""
    return left == right and json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def test_y8_r1_r2_r4_what_is_accepted_arrives_as_it_was_meant(folder: Path) -> None:
    confs: list[tuple[str, str, Node]] = []
    check_what_arrives(folder, confs)
    with tempfile.TemporaryDirectory() as made:
        for number, (conf, script, _) in enumerate(confs):
            Path(made, f"{number}.conf").write_text(conf, "utf-8")
            Path(made, f"{number}.script").write_text(script, "utf-8")
        names = list(dict.fromkeys(name for *_, wanted in confs for name in wanted))
        shell = f"""
            number=0
            while [ -e "$number.conf" ]; do
                sh -n "$number.script" && sh -n "$number.conf" || exit 1
                (. "./$number.conf"; printf '%s\\0' {" ".join(f'"${{{n}-}}"' for n in names)})
                number=$((number + 1))
            done
        """
        done = subprocess.run(["sh", "-c", shell], cwd=made, capture_output=True, check=True)
    values = done.stdout.decode().split("\0")[:-1]
    assert done.stderr == b""
    assert len(values) == len(names) * len(confs) > 0
    for number, (*_, wanted) in enumerate(confs):
        read = dict(zip(names, values[number * len(names) :], strict=False))
        assert read == dict.fromkeys(names, "") | wanted


# ---- what is refused ----

WORDS = [
    *(
        "\n",
        "\n  ",
        "  ",
        "\t",
        ":",
        ": ",
        "- ",
        "'",
        '"',
        "{",
        "}",
        "[",
        "]",
        "#",
        " #",
        "&a ",
        "*a",
    ),
    *(
        "!",
        "|",
        ">",
        "%",
        "@",
        "`",
        "?",
        "<<: *a",
        "007",
        "1e3",
        "no",
        "~",
        "null",
        "\x00",
        "\u2028",
    ),
    *(
        "server: ",
        "mgmt_addr: x\n",
        "---\n",
        "...\n",
        "é",
        "🙂",
        "1",
        "true",
        ",",
        "\r\n",
        "\ufeff",
    ),
]
STRANGE: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 2, 10**17, 1.5, "", "auto", {}, [], {"a": 1}, [1], [[]], *HARD]
)


@st.composite
def changed_values(draw: st.DrawFn) -> Any:
    """Return a spec in which some values are other ones, gone, moved, or under another name."""
    spec: Any = deepcopy(draw(SPECS))
    for _ in range(draw(st.integers(1, 3))):
        place = spec
        while True:
            keys = [*place] if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and draw(st.booleans()):
                place = place[key]
                continue
            change = draw(st.sampled_from(["remove", "replace", "rename"]))
            value = place.pop(key)
            if change == "replace":
                value = draw(STRANGE)
            elif change == "rename":
                others = [f"{key}s", str(key)[1:], "version", "address", "groups"]
                key = draw(st.sampled_from(others))
            if isinstance(place, list):
                place.append(value)
            elif change != "remove":
                place[key] = value
            break
    return spec


@st.composite
def changed_text(draw: st.DrawFn, text: str) -> str:
    """Return a text with some pieces put in, taken out or written twice."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.sampled_from([start, start, start + 1, start + 7]))
        text = text[:start] + draw(st.sampled_from([*WORDS, text[start:end] * 2, ""])) + text[end:]
    return text


def problems_of(folder: Path) -> tuple[Problem, ...]:
    """Return what is said of a workspace; what is not an error must then render."""
    try:
        outcome = examine(open_workspace(folder))
    except Refused as refused:
        return refused.problems
    for spec in outcome.specs.values():
        try:
            attachments.fill(spec, folder, {}, stand_in=True)
        except Refused:
            continue  # a file that it names is not there
        rendered(spec, folder)
    return outcome.problems


def is_placed(problem: Problem, folder: Path, text: str) -> bool:
    """Tell whether a problem points at a character that is there, or just behind the last."""
    if problem.where is None:
        return problem.severity == "warning" and bool(problem.nodes)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff").split("\n")
    mark = problem.where
    return (
        mark.file == str(folder / "nodes/n7.yaml")
        and 1 <= mark.line <= len(lines)
        and 1 <= mark.column <= len(lines[mark.line - 1]) + 1
        and mark.column < mark.end_column
    )


@TRIES
@given(st.data())
def check_what_is_refused(folder: Path, data: st.DataObject) -> None:
    values = data.draw(changed_values() | SPECS)
    text = emit.dump(values) if data.draw(st.booleans()) else json.dumps(values, indent=1)
    if data.draw(st.booleans()):
        text = data.draw(changed_text(text))
    (folder / "nodes/n7.yaml").write_bytes(text.encode())
    for problem in problems_of(folder):
        assert problem.message
        assert is_placed(problem, folder, text), problem
        assert "Traceback" not in told(problem)


def test_v2_whatever_is_refused_is_refused_with_its_place(folder: Path) -> None:
    check_what_is_refused(folder)


@st.composite
def around_a_secret(draw: st.DrawFn) -> str:
    """Return a node with a secret in it, and one mistake or more that leave it where it is."""
    shapes = (
        f"cloud_config:\n  password: {SECRET}\n  chpasswd: {{list: ['a:{SECRET}']}}\n",
        f"cloud_config:\n  write_files:\n  - path: /a\n    content: |\n      {SECRET}\n",
        f"cloud_config: {{password: {SECRET}, runcmd: [[{SECRET}, no], {{a: {SECRET}}}]}}\n",
        f'"cloud_config": {{"password": "{SECRET}",\n "users": ["{SECRET}"]}}\n',
    )
    secret = draw(st.sampled_from(shapes))
    values = draw(SPECS)
    values.pop("cloud_config", None)
    before, after = (draw(changed_text(emit.dump(values))) for _ in range(2))
    # In the secret's own lines: what cannot move it out of its place, as a word at the start of
    # a line would, which makes a key of its own there.
    words = [word for word in WORDS if "\n" not in word]
    places = range(secret.index(":") + 2, len(secret))
    at = draw(st.sampled_from([place for place in places if secret[place - 1] != "\n"]))
    secret = secret[:at] + draw(st.sampled_from(["", *words])) + secret[at:]
    return draw(st.sampled_from([secret + after, before + "\n" + secret, secret]))


@TRIES
@given(around_a_secret())
def check_that_no_secret_is_told(folder: Path, text: str) -> None:
    (folder / "nodes/n7.yaml").write_bytes(text.encode())
    for problem in problems_of(folder):
        assert SECRET not in told(problem) + repr(problem), told(problem)


def test_v3_no_secret_is_in_any_problem(folder: Path) -> None:
    check_that_no_secret_is_told(folder)
