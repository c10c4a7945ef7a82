"""What a schema cannot see: how the values of one node's merged spec fit together."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from generator import check_cloud_config, check_network, formats, source
from generator.located import problem_at
from generator.problem import Mark, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from generator.located import Located

_REQUIRED = {
    "server": "such as server: https://10.0.0.140:7443",
    "mgmt_addr": "such as mgmt_addr: 10.0.0.107",
    "release": "it has version, url and sha256",
}
_RELEASE = {
    "version": "such as version: v0.9.1",
    "url": "such as url: https://git.example.net/{version}/llmgw-linux-{arch}",
    "sha256": "such as sha256: {amd64: DIGEST}, as sha256sum prints it",
}


def check(
    node_id: str, merged: Located, values: dict[str, Any], reserved: frozenset[str]
) -> list[Problem]:
    """Return the errors and warnings about a merged spec that has passed the schema.

    `values` is the spec without positions; `reserved` are the names of commands.
    """
    return [
        *_missing(node_id, merged, values),
        *_release(merged, values.get("release", {})),
        *_proxy(merged, values.get("proxy", {})),
        *_fabrics(merged, values.get("fabrics", [])),
        *_pace(merged, values.get("agent", {})),
        *check_network.check(merged, values),
        *check_cloud_config.check(merged),
        *_server(merged, values.get("server", "")),
        *_whole_node(node_id, values, reserved),
    ]


def _missing(node_id: str, merged: Located, values: dict[str, Any]) -> Iterator[Problem]:
    where = Mark(merged.mark.file, merged.mark.line, merged.mark.column, merged.mark.column + 1)
    for name, such in _REQUIRED.items():
        if name not in values:
            hint = f"{such}; here, or under defaults in fleet.yaml for all nodes"
            yield Problem(f"{node_id} has no {name}", hint, where, name)
    release = values.get("release", {})
    for name, such in _RELEASE.items():
        if (
            "release" in values
            and name not in release
            and not (name == "url" and "urls" in release)
        ):
            yield problem_at(merged, ["release"], f"{node_id}'s release has no {name}", such)
    for name, other in (("archive", "member"), ("member", "archive")):
        if name in release and other not in release:
            hint = "an archive's binary is named by both: archive: tar.gz, member: llmgw"
            yield problem_at(merged, ["release", name], f"{name} without {other}", hint)


def release(merged: Located, values: dict[str, Any]) -> list[Problem]:
    """Return the errors and warnings about the release that all nodes of fleet.yaml share."""
    lacking = _missing("fleet.yaml", merged, values)
    about = [problem for problem in lacking if problem.path.startswith("release")]
    return [*about, *_release(merged, values.get("release", {}))]


def _proxy(merged: Located, proxy: dict[str, Any]) -> Iterator[Problem]:
    for name in ("http", "https"):
        way = proxy.get(name, "")
        if isinstance(way, dict) and len(way) > 1:
            hint = "give one of the two"
            yield problem_at(merged, ["proxy", name], "a file and a variable for one value", hint)
        if isinstance(way, str) and "@" in way:
            message = "a user and a password in the spec are readable by whoever reads it"
            hint = "write {file: PATH} or {env: NAME}"
            told = problem_at(merged, ["proxy", name], message, hint, "warning")
            yield replace(told, where=told.where and replace(told.where, text=""))


def _release(merged: Located, release: dict[str, Any]) -> Iterator[Problem]:
    url, digests = release.get("url", ""), release.get("sha256", {})
    for arch, digest in digests.items():
        if len(set(digest.lower())) == 1:
            message = f"{digest[:8]}… is no binary's digest: the node will refuse what it fetches"
            hint = f"sha256sum llmgw-linux-{arch} prints it"
            yield problem_at(merged, ["release", "sha256", arch], message, hint, "warning")
    places: list[list[str | int]] = [["release", "url"]] if url else []
    places += [["release", "urls", number] for number in range(len(release.get("urls", ())))]
    for place in places:
        located = source.at(merged, *place)
        yield from _url(merged, place, str(located.value) if located else "", digests)


def _url(
    merged: Located, place: list[str | int], url: str, digests: dict[str, str]
) -> Iterator[Problem]:
    different = len({digest.lower() for digest in digests.values()})
    if "{arch}" not in url and different > 1:
        message = "one URL for both architectures, which have different digests"
        yield problem_at(merged, place, message, "put {arch} where amd64 or arm64 goes")
    elif "{arch}" in url and different < len(digests) and not _example(digests):
        message = "amd64 and arm64 have the same digest"
        hint = "each binary has its own: one of the two will be refused on the node"
        yield problem_at(merged, ["release", "sha256", "arm64"], message, hint, "warning")
    if url.startswith("http:"):
        message = (
            "fetched without TLS: the digest protects the binary, but anyone can see and stop it"
        )
        yield problem_at(merged, place, message, "use https if you can", "warning")


def _example(digests: dict[str, str]) -> bool:
    return any(len(set(digest)) == 1 for digest in digests.values())


def _fabrics(merged: Located, fabrics: list[dict[str, Any]]) -> Iterator[Problem]:
    names: set[str] = set()
    owner: dict[str, str] = {}
    for index, fabric in enumerate(fabrics):
        name = fabric["name"]
        if name in names:
            message = f"the fabric {name!r} is given twice"
            hint = "write all its HCAs in one list"
            yield problem_at(merged, ["fabrics", index, "name"], message, hint)
        names.add(name)
        for place, hca in enumerate(fabric["hcas"]):
            if owner.setdefault(hca, name) != name:
                message = f"{hca} is in the fabric {owner[hca]!r} as well"
                hint = "an HCA hangs on one fabric; fabrics are told apart by nothing but this"
                yield problem_at(merged, ["fabrics", index, "hcas", place], message, hint)


def _pace(merged: Located, agent: dict[str, Any]) -> Iterator[Problem]:
    base, most = agent.get("reconnect_base", "1s"), agent.get("reconnect_max", "30s")
    if formats.seconds(base) > formats.seconds(most):
        name = "reconnect_base" if "reconnect_base" in agent else "reconnect_max"
        message = f"reconnect_base, {base}, is longer than reconnect_max, {most}"
        yield problem_at(merged, ["agent", name], message, "the wait grows from one to the other")


def _server(merged: Located, server: str) -> Iterator[Problem]:
    try:
        ipaddress.ip_address(urlsplit(server).hostname or "")
    except ValueError:
        return
    # A name in the certificate's common name is not enough either (rancher/rke2#775).
    message = "the server is named by its IP address: its certificate must carry that address"
    hint = "as a subject alternative name of type IP; a host name outlives a change of address"
    yield problem_at(merged, ["server"], message, hint, "warning")


def _whole_node(
    node_id: str, values: dict[str, Any], reserved: frozenset[str]
) -> Iterator[Problem]:
    if node_id in reserved:
        message = f"{node_id} is also the name of a command"
        yield _warning(node_id, message, f"its seed is made by: gen-seed seed {node_id}")
    engines = values.get("engines", {})
    if not any(engine.get(key) for engine in engines.values() for key in ("bin", "python")):
        hint = "give engines.llamacpp.bin, engines.vllm.bin or engines.sglang.python"
        yield _warning(node_id, "no engine paths: only the 'sim' engine can run", hint)
    if not values.get("fabrics"):
        hint = "give fabrics if the node hangs on one"
        yield _warning(node_id, "no fabric: single-node replicas only", hint)


def _warning(node_id: str, message: str, hint: str) -> Problem:
    return Problem(message, hint, severity="warning", nodes=(node_id,))
