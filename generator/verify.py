"""Reads what was rendered as its readers will, and compares it with what was asked for.

A template that an operator overrides, or a value that breaks out of its place, is found here
and not on a machine.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

import yaml

from generator import render, schema, source
from generator.problem import Problem, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from generator.spec import Spec

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # both build the same values
_TEXT, _LIST, _MAP = (f"tag:yaml.org,2002:{name}" for name in ("str", "seq", "map"))
# A shell's variables that need no quotes but around spaces: nearly every onboard.conf, and
# shlex takes ten times as long.
_PLAIN = re.compile(
    r"(?:#[^\n]*\n|\n|[a-z0-9_]+=(?:[A-Za-z0-9_@%+=:,./-]*|'[A-Za-z0-9_@%+=:,./ -]*')\n)*"
)


def verify(seed: render.Seed, spec: Spec, *, alike: bool = False) -> None:
    """Raise `Refused` with every point in which the seed is not what the spec asks for.

    `alike`: another seed was read in full that was made with the same templates, gen-seed's own.
    Then how the values of agent.yaml are written is not looked at again, only what they are.
    """
    found = [
        *_transport(seed.user_data),
        *_user_data(seed, spec),
        *_same("meta-data", _load(seed.meta_data), _meta_data(seed)),
        *_agent(seed, spec, alike=alike),
        *_scripts(seed, spec),
    ]
    if seed.network_config is not None:
        found += _same("network-config", _load(seed.network_config), spec.network)
    if found:
        hint = "a template is at fault: templates/ in the workspace overrides gen-seed's own"
        raise Refused(Problem(f"{seed.node_id}: rendered {message}", hint) for message in found)


def agent_config(spec: Spec) -> dict[str, Any]:
    """Return what agent.yaml must say: keys and defaults as the llmgw agent reads them."""
    engines, discovery, supervisor = spec.engines, spec.discovery, spec.supervisor
    return {
        "node_id": spec.node_id,
        "server": spec.server,
        "tls": {
            "ca": "/etc/llmgw/ca.pem",
            "cert": "/etc/llmgw/agent.pem",
            "key": "/etc/llmgw/agent-key.pem",
        },
        "mgmt_addr": spec.mgmt_addr,
        "mgmt_interface": spec.mgmt_interface,
        **vars(spec.agent),
        "fabrics": [{"name": fabric.name, "hcas": list(fabric.hcas)} for fabric in spec.fabrics],
        "discovery": vars(discovery),
        "engines": {
            name: {key: value for key, value in vars(engine).items() if key != "flags"}
            for name, engine in vars(engines).items()
        },
        "supervisor": vars(supervisor),
    }


def _transport(user_data: bytes) -> list[str]:
    """Check the bytes: cloud-init ignores a part whose first line is not exactly right."""
    found = []
    if not user_data.startswith(b"#cloud-config\n"):
        found.append("user-data does not begin with the line #cloud-config")
    if b"\r" in user_data:
        found.append("user-data has a carriage return")
    # cloud-init parses everything as MIME when it sees this near the start (user_data.py).
    if b"mime-version:" in user_data[:4096].lower():
        found.append("user-data has 'mime-version:' in its first 4096 bytes")
    return found


def _user_data(seed: render.Seed, spec: Spec) -> list[str]:
    config = _load(seed.user_data)
    if not isinstance(config, dict):
        return ["user-data is not a YAML mapping"]
    found = _same("user-data hostname", config.get("hostname"), spec.node_id)
    written = config.get("write_files")
    ours = [
        {"path": f.path, "owner": "root:root", "permissions": f"{f.mode:04o}", "content": f.content}
        for f in seed.files
        if not f.baked
    ]
    theirs = spec.cloud_config
    found += _same("user-data write_files", written, [*ours, *theirs.get("write_files", ())])
    commands = render.commands(theirs.get("runcmd", ()))
    found += _same("user-data runcmd", config.get("runcmd"), commands)
    found += _same("user-data preserve_hostname", config.get("preserve_hostname"), wanted=False)
    found += _bootcmd(config.get("bootcmd"), seed, theirs.get("bootcmd", ()))
    known = {"hostname", "preserve_hostname", "bootcmd", "write_files", "runcmd", *theirs}
    found += [f"user-data has a stray {key!r}" for key in config if key not in known]
    for key, value in theirs.items():
        if key not in ("write_files", "runcmd", "bootcmd"):
            found += _same(f"user-data {key}", config.get(key), value)
    return found


def _bootcmd(found: Any, seed: render.Seed, theirs: Sequence[Any]) -> list[str]:
    """Check that the guards are there: of the files with secrets, and against a power cut."""
    ours = str(found[0]) if isinstance(found, list) and found else ""
    closed = [file.path for file in seed.files if not file.mode & 0o077]
    if any(text not in ours for text in (*closed, seed.instance_id)):
        return ["user-data bootcmd does not guard the files with secrets"]
    return _same("user-data bootcmd", found[1:], list(theirs))


def _scripts(seed: render.Seed, spec: Spec) -> list[str]:
    """Check what a shell and systemd will read, as far as it can be told here."""
    text = {file.path.rpartition("/")[2]: file.content for file in seed.files}
    found = [f"{name} has a carriage return" for name, content in text.items() if "\r" in content]
    if not text["onboard"].startswith("#!/bin/sh\n"):
        found.append("onboard does not begin with the line #!/bin/sh")
    units = ("llmgw-agent.service", "llmgw-onboard.service")
    found += [f"{name} starts nothing" for name in units if "\nExecStart=" not in text[name]]
    values = _assignments(text["onboard.conf"])
    wanted = {"seed": seed.instance_id, "server": spec.server, "release": spec.release.version}
    wanted["fetch"] = spec.release.fetch
    for arch, digest in spec.release.sha256.items():
        wanted |= {f"sha256_{arch}": digest, f"urls_{arch}": spec.release.places(arch)}
    return found + [
        f"onboard.conf.{name} is not what the spec asks for"
        for name, value in wanted.items()
        if values.get(name) != value
    ]


def _assignments(text: str) -> dict[str, str]:
    """Return the variables that a shell sets when it reads `text`."""
    if _PLAIN.fullmatch(text):
        words = [line.replace("'", "") for line in text.split("\n") if line[:1] not in ("", "#")]
    else:
        try:
            words = shlex.split(text, comments=True)
        except ValueError:
            words = []
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def _meta_data(seed: render.Seed) -> dict[str, str]:
    return {"instance-id": seed.instance_id, "local-hostname": seed.node_id}


def _agent(seed: render.Seed, spec: Spec, *, alike: bool) -> list[str]:
    text = next(file.content for file in seed.files if file.path.endswith("/agent.yaml"))
    found = _same("agent.yaml", _load(text.encode()), agent_config(spec))
    if found or alike:
        return found
    return [
        f"agent.yaml: {problem.path}: {problem.message}"
        for problem in schema.problems(source.parse(text.encode(), "agent.yaml"), "agent")
    ]


def _load(data: bytes) -> Any:
    loader = _Loader(data)
    try:
        node = loader.get_single_node()
        return None if node is None else _value(node, loader)
    except yaml.YAMLError as error:
        return f"not YAML: {error.__class__.__name__}"
    finally:
        loader.dispose()


def _value(node: yaml.Node, loader: Any) -> Any:
    """Return what PyYAML's own constructor does, in two thirds of the time."""
    if node.tag == _TEXT:
        return node.value
    if node.tag == _LIST:
        return [_value(item, loader) for item in node.value]
    if node.tag == _MAP and all(key.tag == _TEXT for key, _ in node.value):
        return {key.value: _value(item, loader) for key, item in node.value}
    return loader.construct_object(node, deep=True)


def _same(what: str, found: Any, wanted: Any) -> list[str]:
    """Name the first place where two values differ, without their text: it may be secret."""
    difference = _difference(found, wanted)
    return [f"{what}{difference}"] if difference else []


def _difference(found: Any, wanted: Any) -> str:
    """Return where two values differ and how, nothing where they are the same."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in [*wanted, *found]:
            if key not in found or key not in wanted:
                return f" {'lacks' if key in wanted else 'has a stray'} {key!r}"
            if differing := _difference(found[key], wanted[key]):
                return f".{key}{differing}"
        return ""
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
            if differing := _difference(one, other):
                return f"[{index}]{differing}"
        return ""
    # 1 is not True here, whatever Python says of them.
    equal = type(found) is type(wanted) and found == wanted
    return "" if equal else " is not what the spec asks for"
