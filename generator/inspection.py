"""What a seed holds, and whether it holds together. Never the key itself."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import shlex
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from generator import identity, pem, render
from generator.problem import Problem, Refused

if TYPE_CHECKING:
    from datetime import datetime

    from generator.identity import Identity
    from generator.unpack import Unpacked

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CIDATA = ("cidata", "CIDATA")  # cloud-init before 19.1 knows the first only
_NESTED = 16 << 20  # bytes that compressed user-data may grow to
ETC = "/etc/llmgw"


@dataclass
class Inspection:
    """What was found so far; a value that was not found is empty or None."""

    node_id: str = ""
    instance_id: str = ""
    hostname: str = ""
    identity: Identity | None = None
    has_key: bool = False
    release: str = ""
    urls: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def wrong(self, message: str, hint: str = "") -> None:
        """Note a problem."""
        self.problems.append(Problem(message, hint))


def inspect(seed: Unpacked, now: datetime) -> Inspection:
    """Return what is in a seed and everything in which it is not consistent."""
    found = Inspection()
    if seed.label is not None and seed.label not in _CIDATA:
        found.wrong(
            f"the label is {seed.label!r}, not 'cidata'", "cloud-init finds a drive by its label"
        )
    if seed.kind != "user-data":
        for name in ("user-data", "meta-data"):
            if name not in seed.artifacts:
                found.wrong(f"{name} is missing", "without it cloud-init ignores the whole seed")
    if "meta-data" in seed.artifacts:
        _meta_data(found, seed.artifacts["meta-data"])
    if "user-data" in seed.artifacts:
        _user_data(found, seed.artifacts["user-data"])
    _agree(found)
    if found.files:
        conf = _conf(found)
        _digests(found, render.SHARED if conf.get("fetch") == "never" else frozenset())
        _identity(found, now)
        _release(found, conf)
    return found


def _load(found: Inspection, data: bytes, name: str) -> Mapping[str, Any]:
    try:
        content = yaml.load(data, _Loader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError):
        content = None
    if not isinstance(content, Mapping):
        found.wrong(f"{name} is not a YAML map", "cloud-init would ignore it with a warning")
        return {}
    return content


def _meta_data(found: Inspection, data: bytes) -> None:
    content = _load(found, data, "meta-data")
    found.instance_id = str(content.get("instance-id") or "")
    found.hostname = str(content.get("local-hostname") or "")
    if not found.instance_id:
        found.wrong("meta-data has no instance-id", "cloud-init would take every boot for the same")


def _plain(found: Inspection, data: bytes) -> bytes:
    """Return user-data without gzip and base64 around it, as cloud-init reads it."""
    try:
        if re.fullmatch(rb"[A-Za-z0-9+/=\s]+", data[:4096]):
            data = base64.b64decode(data, validate=False)
        if data.startswith(b"\x1f\x8b"):
            unzip = zlib.decompressobj(wbits=31)
            data = unzip.decompress(data, _NESTED)
    except (binascii.Error, zlib.error):
        found.wrong("user-data is compressed or encoded, and damaged")
    return data


def _user_data(found: Inspection, data: bytes) -> None:
    data = _plain(found, data)
    if not data.startswith(b"#cloud-config\n"):
        found.wrong("user-data does not begin with the line #cloud-config", "cloud-init ignores it")
    config = _load(found, data, "user-data")
    hostname = config.get("hostname")
    if isinstance(hostname, str):
        if found.hostname and hostname != found.hostname:
            found.wrong(
                f"the hostname is {hostname!r} in user-data, {found.hostname!r} in meta-data"
            )
        found.hostname = hostname
    written = config.get("write_files")
    for file in written if isinstance(written, list) else ():
        if isinstance(file, Mapping) and isinstance(file.get("content"), str):
            found.files[str(file.get("path"))] = file["content"].encode("utf-8", "replace")
    if not any(path.startswith(f"{ETC}/") for path in found.files):
        found.files = {}
        found.wrong(
            "user-data onboards no node: it writes no file of ours", "made by another tool?"
        )
    agent = found.files.get(f"{ETC}/agent.yaml")
    if agent is not None:
        found.node_id = str(_load(found, agent, "agent.yaml").get("node_id") or "")


def _agree(found: Inspection) -> None:
    names = {"hostname": found.hostname, "node_id of agent.yaml": found.node_id}
    if found.node_id and found.hostname and found.node_id != found.hostname:
        said = ", ".join(f"{what} is {name!r}" for what, name in names.items())
        found.wrong(f"the {said}", "the control plane knows a node by one name only")


def _digests(found: Inspection, baked: frozenset[str]) -> None:
    """Hold each file against the seed's own list: a changed byte shows, wherever it is.

    `baked` are the paths of files that the node's image has.
    """
    listed = found.files.get(f"{ETC}/seed.sha256")
    if listed is None:
        found.wrong(f"{ETC}/seed.sha256 is missing", "onboard would refuse the seed")
        return
    wanted = {}
    for line in listed.decode(errors="replace").splitlines():
        digest, _, path = line.partition("  ")
        wanted[f"/{path}"] = digest
    for path, digest in wanted.items():
        data = found.files.get(path)
        if data is None:
            if path not in baked:
                found.wrong(f"{path} is missing")
        elif hashlib.sha256(data).hexdigest() != digest:
            found.wrong(f"{path} is not what seed.sha256 says: a byte of it was changed")


def _identity(found: Inspection, now: datetime) -> None:
    parts = {
        name: found.files.get(f"{ETC}/{name}.pem", b"") for name in ("agent", "agent-key", "ca")
    }
    found.has_key = b"PRIVATE KEY" in parts["agent-key"]
    try:
        sent = pem.certificates(parts["agent"], "agent.pem")
        roots = pem.certificates(parts["ca"], "ca.pem")
        key = None
        if found.has_key:
            key = pem.key_pem(pem.private_key(parts["agent-key"], "agent-key.pem"))
    except Refused as refused:
        found.problems += refused.problems
        return
    found.identity = identity.Identity(found.node_id or found.hostname, sent, roots, key)
    found.problems += identity.check(found.identity, now, "agent.pem")


def _conf(found: Inspection) -> dict[str, str]:
    conf = found.files.get(f"{ETC}/onboard.conf", b"").decode(errors="replace")
    values = {}
    for line in conf.splitlines():
        name, _, value = line.partition("=")
        if not line.startswith("#") and value:
            try:
                values[name] = " ".join(shlex.split(value))
            except ValueError:
                found.wrong("onboard.conf is damaged")
    return values


def _release(found: Inspection, values: Mapping[str, str]) -> None:
    found.release = values.get("release", "")
    found.urls = {n[5:]: v for n, v in values.items() if n.startswith("urls_")}
    found.digests = {n[7:]: v for n, v in values.items() if n.startswith("sha256_")}
    if not found.digests:
        found.wrong("the release has no digest", "the node could not check what it fetches")
    for arch, digest in found.digests.items():
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            found.wrong(f"the digest of the release for {arch} is not 64 hex digits")
