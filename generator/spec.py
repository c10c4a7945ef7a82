"""The spec as frozen values: what an operator asked of one node, defaults filled in."""

from __future__ import annotations

import copyreg
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

ARCHITECTURES = ("amd64", "arm64")  # for which there are releases


def _read_only(mapping: dict[str, Any]) -> MappingProxyType[str, Any]:
    return MappingProxyType(mapping)


# So that a spec can go from one process to another.
copyreg.pickle(MappingProxyType, lambda mapping: (_read_only, (dict(mapping),)))


@dataclass(frozen=True)
class Fabric:
    """An InfiniBand fabric and the HCAs by which this node hangs on it."""

    name: str
    hcas: tuple[str, ...]


@dataclass(frozen=True)
class Flags:
    """The flags that engine-check asks an engine for: instead of its own list, or as well."""

    replace: tuple[str, ...] = ()
    add: tuple[str, ...] = ()


@dataclass(frozen=True)
class LlamaCpp:
    """Where llama-server is (empty: on PATH) and how many requests it takes at once."""

    bin: str = ""
    parallel: int = 4
    flags: Flags = Flags()


@dataclass(frozen=True)
class Vllm:
    """Where the vllm entry point is (empty: on PATH) and how its replicas are launched."""

    bin: str = ""
    launch_mode: str = "ray"
    flags: Flags = Flags()


@dataclass(frozen=True)
class Sglang:
    """The interpreter of the virtualenv that holds SGLang (empty: on PATH)."""

    python: str = ""
    flags: Flags = Flags()


@dataclass(frozen=True)
class Engines:
    """The engines that the agent may launch."""

    llamacpp: LlamaCpp = LlamaCpp()
    vllm: Vllm = Vllm()
    sglang: Sglang = Sglang()


@dataclass(frozen=True)
class Discovery:
    """How the agent finds GPUs and HCAs."""

    nvidia_smi: str = ""
    ib_root: str = "/sys/class/infiniband"
    prefer_nvml: bool = False
    skip_gpus: bool = False


@dataclass(frozen=True)
class Supervisor:
    """How the agent runs engines; durations in Go's form (``60s``)."""

    work_dir: str = "/var/lib/llmgw-agent"
    log_lines: int = 512
    stop_timeout: str = "60s"
    health_interval: str = "2s"


@dataclass(frozen=True)
class Agent:
    """The agent's pace towards the control plane; durations in Go's form."""

    heartbeat_interval: str = "5s"
    reconnect_base: str = "1s"
    reconnect_max: str = "30s"


@dataclass(frozen=True)
class Release:
    """The llmgw release: `sha256` maps an architecture (amd64, arm64) to 64 hex digits.

    `urls` are tried in their order. `archive` is empty where they give the binary itself;
    else the digests are the archive's, and the binary is its `member`. `ca` and
    `headers_file` are paths in the workspace; what stands there is `roots` and `headers`.
    With `fetch` ``never`` the image has the binary, and what else all nodes share.
    """

    version: str
    urls: tuple[str, ...]
    sha256: Mapping[str, str]
    archive: str = ""
    member: str = ""
    ca: str = ""
    headers_file: str = ""
    fetch: str = "if-needed"
    roots: str = ""
    headers: str = field(default="", repr=False)

    @property
    def baked(self) -> bool:
        """Whether the node's image has what all nodes share."""
        return self.fetch == "never"

    def fill(self, text: str, arch: str) -> str:
        """Return a URL, or the member, with version and architecture filled in."""
        return text.replace("{version}", self.version).replace("{arch}", arch)

    def places(self, arch: str) -> str:
        """Return the URLs for one architecture, in order, with a space between them."""
        return " ".join(self.fill(url, arch) for url in self.urls)


@dataclass(frozen=True)
class Secret:
    """Where a secret value is: in a file of the workspace, or in a variable of gen-seed's."""

    file: str = ""
    env: str = ""


@dataclass(frozen=True)
class Proxy:
    """The way out; `https` and `http` are URLs, or where they are kept, or empty."""

    http: str | Secret = field(default="", repr=False)
    https: str | Secret = field(default="", repr=False)
    no_proxy: tuple[str, ...] = ()


@dataclass(frozen=True)
class Onboard:
    """How onboarding goes on the node, and what it leaves; `wait` is a duration in Go's form."""

    wait: str = "120s"
    scrub: bool = True
    disable_cloud_init: bool = False


@dataclass(frozen=True)
class Lifetime:
    """How long a certificate is asked to live, in whole days."""

    days: int = 365


@dataclass(frozen=True)
class Spec:
    """All that one node's seed is made from, but for its identity.

    `network` is netplan version 2 (the content below ``network:``) or None;
    `cloud_config` the operator's own user-data keys.
    """

    node_id: str
    server: str
    mgmt_addr: str
    release: Release
    mgmt_interface: str = "eth0"
    groups: tuple[str, ...] = ()
    fabrics: tuple[Fabric, ...] = ()
    engines: Engines = Engines()
    discovery: Discovery = Discovery()
    supervisor: Supervisor = Supervisor()
    agent: Agent = Agent()
    identity: Lifetime = Lifetime()
    proxy: Proxy = Proxy()
    trust: str = "system"
    onboard: Onboard = Onboard()
    network: Mapping[str, Any] | None = None
    cloud_config: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def build(node_id: str, values: Mapping[str, Any], network: Mapping[str, Any] | None) -> Spec:
    """Return the spec of values that have passed the schema and the checks.

    >>> release = {"version": "v1", "url": "https://h/{arch}", "sha256": {"amd64": "AB"}}
    >>> values = {"server": "https://h", "mgmt_addr": "10.0.0.7", "release": release}
    >>> build("n7", values, None).release.sha256["amd64"]
    'ab'
    """
    return Spec(
        node_id=node_id,
        server=values["server"],
        mgmt_addr=values["mgmt_addr"],
        release=_release(values["release"]),
        mgmt_interface=values.get("mgmt_interface", Spec.mgmt_interface),
        groups=tuple(values.get("groups", ())),
        fabrics=tuple(
            Fabric(fabric["name"], tuple(fabric["hcas"])) for fabric in values.get("fabrics", ())
        ),
        engines=engines(values.get("engines", {})),
        discovery=Discovery(**values.get("discovery", {})),
        supervisor=Supervisor(**values.get("supervisor", {})),
        agent=Agent(**values.get("agent", {})),
        identity=Lifetime(**values.get("identity", {})),
        proxy=_proxy(values.get("proxy", {})),
        trust=values.get("trust", Spec.trust),
        onboard=Onboard(**values.get("onboard", {})),
        network=network,
        cloud_config=MappingProxyType(values.get("cloud_config", {})),
    )


def engines(values: Mapping[str, Any]) -> Engines:
    """Return the engines of values that have passed the schema.

    >>> engines({"vllm": {"flags": {"add": ["--swap-space"]}}}).vllm.flags.add
    ('--swap-space',)
    """
    given = {name: _with_flags(values.get(name, {})) for name in ("llamacpp", "vllm", "sglang")}
    return Engines(LlamaCpp(**given["llamacpp"]), Vllm(**given["vllm"]), Sglang(**given["sglang"]))


def _with_flags(values: Mapping[str, Any]) -> dict[str, Any]:
    flags = {name: tuple(names) for name, names in values.get("flags", {}).items()}
    return {**values, "flags": Flags(**flags)}


def _release(values: Mapping[str, Any]) -> Release:
    first = (values["url"],) if "url" in values else ()
    digests = {arch: digest.lower() for arch, digest in values["sha256"].items()}
    rest = {k: v for k, v in values.items() if k not in ("url", "urls", "sha256")}
    return Release(urls=(*first, *values.get("urls", ())), sha256=MappingProxyType(digests), **rest)


def _proxy(values: Mapping[str, Any]) -> Proxy:
    ways = {
        name: Secret(**way) if isinstance(way := values.get(name, ""), Mapping) else way
        for name in ("http", "https")
    }
    return Proxy(**ways, no_proxy=tuple(values.get("no_proxy", ())))


def digest(spec: Spec) -> str:
    """Return 64 hex digits that differ where two specs differ."""
    return hashlib.sha256(text(spec).encode()).hexdigest()


def text(spec: Spec) -> str:
    """Return a spec as JSON, which differs where two specs differ."""
    return json.dumps(
        spec, sort_keys=True, default=lambda x: dict(x) if isinstance(x, Mapping) else vars(x)
    )
