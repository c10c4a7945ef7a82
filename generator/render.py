"""Spec and identity become the texts of a seed, by way of templates/."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from generator import formats, template

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import jinja2

    from generator.identity import Identity
    from generator.spec import Spec

ONBOARD = "/usr/local/lib/llmgw/onboard"
_UNITS = "/etc/systemd/system"

# What lands on every node, in the order in which cloud-init writes it: path, mode, and the
# template it comes from (the identity's files have none). The list of digests is added last.
_FILES = (
    ("/etc/llmgw/ca.pem", 0o644, None),
    ("/etc/llmgw/agent.pem", 0o644, None),
    ("/etc/llmgw/agent-key.pem", 0o600, None),
    ("/etc/llmgw/agent.yaml", 0o644, "agent.yaml.j2"),
    ("/etc/llmgw/onboard.conf", 0o600, "onboard.conf.j2"),
    (ONBOARD, 0o755, "onboard"),
    ("/usr/local/lib/llmgw/seed.py", 0o644, "seed.py"),
    (f"{_UNITS}/llmgw-agent.service", 0o644, "llmgw-agent.service"),
    (f"{_UNITS}/llmgw-onboard.service", 0o644, "llmgw-onboard.service"),
    (f"{_UNITS}/multi-user.target.d/llmgw-onboard.conf", 0o644, "llmgw-onboard.conf"),
)
# And what lands only where the spec asks for it.
_RELEASE_CA = ("/etc/llmgw/release-ca.pem", 0o644, None)
_RELEASE_HEADERS = ("/etc/llmgw/release-headers", 0o600, None)
_PROXY = (
    ("/etc/llmgw/proxy.env", 0o600, "proxy.env.j2"),
    (f"{_UNITS}/llmgw-agent.service.d/llmgw-proxy.conf", 0o644, "llmgw-proxy.conf"),
)
DIGESTS = "/etc/llmgw/seed.sha256"
IDENTITY = ("/etc/llmgw/agent.pem", "/etc/llmgw/agent-key.pem")
SHARED = frozenset(
    {path for path, _, name in _FILES if name and not name.endswith(".j2")}  # as they are
)
"""What is the same on every node, so that `gen-seed bake` can put it into an image."""


@dataclass(frozen=True)
class File:
    """A file as it is to be on the node, owned by root; where it is `baked`, the image has it."""

    path: str
    mode: int
    content: str
    baked: bool = False


@dataclass(frozen=True)
class Seed:
    """The artifacts of one node; `network_config` is None where the spec has no network."""

    node_id: str
    instance_id: str
    files: tuple[File, ...]
    user_data: bytes
    meta_data: bytes
    network_config: bytes | None

    def artifacts(self) -> dict[str, bytes]:
        """Return what a NoCloud seed consists of, by the file names that cloud-init looks for."""
        named = {"user-data": self.user_data, "meta-data": self.meta_data}
        if self.network_config is not None:
            named["network-config"] = self.network_config
        return named


def shared(templates: jinja2.Environment) -> tuple[File, ...]:
    """Return the files that are the same on every node. Raises `Refused`."""
    return tuple(
        File(path, mode, template.fill(templates, name or "", {}))
        for path, mode, name in _FILES
        if path in SHARED
    )


def render(spec: Spec, identity: Identity, templates: jinja2.Environment) -> Seed:
    """Return the node's seed. Raises `Refused` where a template is at fault."""
    identifier = instance_id(spec)
    context = {
        **vars(spec),
        "hostname": spec.node_id,
        "instance_id": identifier,
        "auto": " ".join(k for k in ("mgmt_addr", "mgmt_interface") if vars(spec)[k] == "auto"),
        "files": len(list(_wanted(spec))),
        "no_proxy": _direct(spec),
        "wait": math.ceil(formats.seconds(spec.onboard.wait)),
        "not_before": int(identity.not_before.timestamp()),
        "not_after": int(identity.not_after.timestamp()),
    }
    given = {
        "/etc/llmgw/ca.pem": identity.roots_pem.decode(),
        "/etc/llmgw/agent.pem": identity.certificate_pem.decode(),
        "/etc/llmgw/agent-key.pem": (identity.key or b"").decode(),
        _RELEASE_CA[0]: spec.release.roots,
        _RELEASE_HEADERS[0]: spec.release.headers,
    }
    written = [
        File(
            path,
            mode,
            template.fill(templates, name, context) if name else given[path],
            baked=spec.release.baked and path in SHARED,
        )
        for path, mode, name in _wanted(spec)
    ]
    written.append(File(DIGESTS, 0o644, _digests(written)))
    context["closed"] = [file.path for file in written if not file.mode & 0o077]
    context |= _cloud_config(spec, template.fill(templates, "bootcmd.j2", context), written)
    network = template.fill(templates, "network-config.j2", context) if spec.network else None
    return Seed(
        node_id=spec.node_id,
        instance_id=identifier,
        files=tuple(written),
        user_data=template.fill(templates, "user-data.j2", context).encode(),
        meta_data=template.fill(templates, "meta-data.j2", context).encode(),
        network_config=None if network is None else network.encode(),
    )


def _wanted(spec: Spec) -> Iterator[tuple[str, int, str | None]]:
    yield from _FILES
    if spec.release.roots:
        yield _RELEASE_CA
    if spec.release.headers:
        yield _RELEASE_HEADERS
    if spec.proxy.http or spec.proxy.https:
        yield from _PROXY


def _direct(spec: Spec) -> str:
    """Return what no proxy is asked for: the control plane, always, and the node itself."""
    plane = urlsplit(spec.server).hostname or ""
    return ",".join(dict.fromkeys([plane, "localhost", "127.0.0.1", "::1", *spec.proxy.no_proxy]))


def instance_id(spec: Spec) -> str:
    """Return an id that changes only with what cloud-init itself would have to do again.

    A new id makes it replace the SSH host keys and run runcmd again, so a new certificate,
    setting or release must not change it.
    """
    meaning = json.dumps([spec.node_id, spec.network, dict(spec.cloud_config)], sort_keys=True)
    return f"{spec.node_id}-{hashlib.sha256(meaning.encode()).hexdigest()[:12]}"


def _digests(written: list[File]) -> str:
    """Return the list that ``sha256sum -c`` reads from the file system's root."""
    return "".join(f"{_sha256(file.content)}  {file.path.lstrip('/')}\n" for file in written)


@lru_cache(maxsize=64)  # the programs are the same on every node
def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _cloud_config(spec: Spec, bootcmd: str, written: list[File]) -> dict[str, Any]:
    """Return our own user-data keys joined with the operator's; what is only his is `extra`."""
    extra = dict(spec.cloud_config)
    ours = [
        {
            "path": file.path,
            "owner": "root:root",
            "permissions": f"{file.mode:04o}",
            "content": file.content,
        }
        for file in written
        if not file.baked
    ]
    return {
        # Ours first: a file of the operator's that cannot be written ends cloud-init's list.
        "bootcmd": [bootcmd, *extra.pop("bootcmd", ())],
        "write_files": [*ours, *extra.pop("write_files", ())],
        "runcmd": commands(extra.pop("runcmd", ())),
        "preserve_hostname": False,
        "extra": extra,
    }


def commands(theirs: Sequence[Any]) -> list[Any]:
    """Return the operator's runcmd with ours last, however his ends.

    cloud-init makes one shell script of them all, in which an ``exit`` is the end.
    """
    wait = [[ONBOARD, "wait"]]
    if not theirs:
        return wait
    return [f"trap 's=$?; {ONBOARD} wait || exit; exit \"$s\"' EXIT", *theirs, *wait]
