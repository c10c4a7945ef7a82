"""What the checks let pass; what they refuse stands in tests/bad/."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.problem import Refused
from generator.resolve import resolve
from generator.workspace import open_workspace

FLEET = """\
defaults:
  server: https://control.example.net:7443
  engines: {vllm: {bin: /opt/vllm}}
  fabrics: [{name: x, hcas: [h0]}]
release: {version: v1, url: "https://h/{arch}", sha256: {amd64: %s}}
""" % ("ab" * 32)


@pytest.mark.parametrize(
    "node",
    [
        "mgmt_addr: auto\nmgmt_interface: auto",
        "network: {address: 10.0.0.7/31, gateway: 10.0.0.6}",
        "network: {address: 'fd00::7/64', gateway: 'fe80::1'}\nmgmt_addr: fd00::7",
        "network: {address: [10.0.0.7/24, 'fd00::7/64'], gateway: [10.0.0.1, 'fd00::1']}",
        "network: {dhcp: true, routes: [{to: 10.1.0.0/16, via: 10.0.0.1}]}",
        "network: {address: 10.0.0.7/32, routes: [{to: default, via: 10.9.0.1, on-link: true}]}",
        "network: {address: 10.0.0.7/24, dhcp: true}\nmgmt_addr: 10.5.0.1",
        "network: {version: 2, ethernets: {a: {dhcp6: true, routes: [{to: default, via: f::1}]}}}",
        "network: {version: 2, ethernets: {a: {match: {name: 'en*'}, dhcp4: true}}}",
        "release: {version: v2, sha256: {amd64: %s}}" % ("cd" * 32),
        "release: {version: v1}",
        "release: {url: 'https://h/llmgw'}",
        "fabrics: [{name: a, hcas: [h0]}, {name: b, hcas: [h1]}]",
        "cloud_config: {write_files: [{path: /etc/llmgw-notes}], runcmd: [[ls, '5'], 'a: b']}",
        "cloud_config: {ssh_pwauth: false, users: [{name: 'yes', expiredate: 2030-01-01}]}",
    ],
)
def test_nothing_is_said_of(tmp_path: Path, node: str) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET, "utf-8")
    (tmp_path / "nodes").mkdir()
    own = node if "mgmt_addr" in node else f"mgmt_addr: 10.0.0.7\n{node}"
    (tmp_path / "nodes/n7.yaml").write_text(own, "utf-8")
    spec, warnings = resolve(open_workspace(tmp_path), "n7", frozenset({"seed"}))
    assert spec.node_id == "n7"
    assert warnings == ()


def test_v3_no_line_of_cloud_config_is_shown_wherever_its_lines_start(tmp_path: Path) -> None:
    lines = [
        '{"mgmt_addr": "a", "cloud_config": {',
        '"runcmd": [{"passwd": "hunter2"}],',
        '"a": 1}}',
    ]
    own = "\n".join(lines)
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes/n7.yaml").write_text(own, "utf-8")
    with pytest.raises(Refused) as caught:
        resolve(open_workspace(tmp_path), "n7")
    told = [problem for problem in caught.value.problems if problem.path.startswith("cloud_config")]
    assert [problem.where and problem.where.text for problem in told] == [""]
