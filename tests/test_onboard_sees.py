"""What onboard finds out about its machine, and what it says of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from stand_in import DASH, Authority, Node, authority, node_in, read_only

from generator.prove.servers import ControlPlane

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return node_in(tmp_path, DASH)


@pytest.fixture(scope="module")
def ca() -> Authority:
    return authority()


@pytest.fixture
def plane(ca: Authority) -> Iterator[ControlPlane]:
    with ControlPlane(ca) as made:
        yield made


def test_accepted_is_what_the_control_plane_says(
    node: Node, ca: Authority, plane: ControlPlane
) -> None:
    node.write(ca.identity())
    node.configure(server=plane.url)
    said = node.onboard("")
    assert "started: agent: active for" in said
    assert "accepted: agent: the control plane took the node's certificate" in said
    assert (node.status()["state"], node.status()["accepted"]) == ("accepted", "yes")
    assert node.verdict() == "ok"


def test_a_certificate_of_another_authority_is_not_accepted(
    node: Node, ca: Authority, plane: ControlPlane
) -> None:
    stranger = authority("another authority")
    # It believes the server: what is refused is its own certificate.
    node.write(stranger.identity() | {"etc/llmgw/ca.pem": ca.pem})
    node.configure(server=plane.url)
    said = node.onboard("started: agent: not yet: ")
    assert "unknown ca" in said
    assert (node.status()["state"], node.status()["accepted"][:8]) == ("started", "not yet:")
    assert node.verdict() == "ok"


def test_a_server_of_another_authority_is_not_believed(node: Node, plane: ControlPlane) -> None:
    node.write(authority("another authority").identity())
    node.configure(server=plane.url)
    assert "certificate verify failed" in node.onboard("not yet: ")


def test_acceptance_is_asked_for_again_after_a_reboot(node: Node, ca: Authority) -> None:
    node.write(ca.identity())
    plane = ControlPlane(ca)
    node.configure(server=plane.url)
    node.onboard("not yet: ")
    with plane:
        said = node.onboard("")
    assert "is applied already" in said
    assert (node.status()["state"], node.status()["trust"]) == ("accepted", "ok")
    assert node.status()["reality"]


def test_status_is_for_a_person(node: Node, ca: Authority) -> None:
    told = node.ask("status")
    assert (told.returncode, told.stdout) == (
        1,
        "nothing is known yet: journalctl -u llmgw-onboard\n",
    )
    (node.root / "release").unlink()
    node.onboard("next try in 2 s")
    told = node.ask("status")
    assert told.returncode == 1
    first, since, rest = told.stdout.split("\n", 2)
    assert first.startswith("waiting: release: cannot fetch https://h.example/v1/amd64: curl: (7)")
    assert since.endswith(", seed " + node.conf()["seed"] + ", release v1")
    assert rest == (
        "next try after 2 s\n"
        "the system trusts the root: ok\n"
        "the control plane takes the certificate: not looked at yet\n"
    )
    (node.root / "release").write_text("#!/bin/sh\n")
    node.write(ca.identity())
    with ControlPlane(ca) as plane:
        node.configure(server=plane.url)
        node.onboard("")
    told = node.ask("status")
    assert told.returncode == 0
    assert told.stdout.startswith("accepted: agent: the control plane took")
    assert "\nthe control plane takes the certificate: yes\n  wrong: " in told.stdout


@pytest.mark.parametrize(("verdict", "code"), [("ok", 0), ("failed: release: why", 1)])
def test_u4_wait_starts_the_unit_and_ends_with_its_verdict(
    node: Node, verdict: str, code: int
) -> None:
    """--no-block: a start that waits for a job of the boot, which waits for us, never ends."""
    node.install(
        "systemctl",
        'echo "$*" >>"$LLMGW_ROOT/calls"\n'
        '[ "$1" != start ] || { mkdir -p "$LLMGW_ROOT/run/llmgw-onboard"\n'
        f'echo "{verdict}" >"$LLMGW_ROOT/run/llmgw-onboard/verdict"; }}',
    )
    told = node.ask("wait")
    assert (told.returncode, told.stdout) == (code, f"onboard: {verdict}\n")
    assert node.calls() == "daemon-reload\nstart --no-block llmgw-onboard.service\n"


def test_wait_is_bounded(node: Node) -> None:
    node.configure(wait_limit="3")
    told = node.ask("wait")
    assert told.returncode == 1
    assert "no verdict after 3 s; onboard goes on trying" in told.stdout


def test_without_systemd_nothing_is_changed(node: Node) -> None:
    (node.root / "run/systemd/system").rmdir()
    before = {p: p.stat().st_mtime_ns for p in (node.root / "etc").rglob("*")}
    told = node.ask("wait")
    assert told.returncode == 1
    reason = "this system is not run by systemd, which the agent's unit needs; nothing was changed"
    assert f"failed: system: {reason}" in told.stdout
    assert node.status()["reason"] == reason
    assert {p: p.stat().st_mtime_ns for p in (node.root / "etc").rglob("*")} == before
    assert not (node.root / "usr/local/bin").exists()
    assert not (node.root / "usr/local/share").exists()
    assert node.calls() == ""


@needs_root
def test_a_disk_that_cannot_be_written_to_is_no_silence(node: Node) -> None:
    with read_only(node.root / "var/lib"):
        said = node.onboard()
        assert "cannot write to" in said
        assert node.status("run")["state"] == "started"
        assert node.ask("status").stdout.startswith("started: agent: ")
        assert not (node.root / "var/lib/llmgw-onboard").exists()
    node.onboard()
    # What was said in between is not what is said from now on.
    assert node.status()["state"] == "started"
    assert not (node.root / "run/llmgw-onboard/status.json").exists()
    assert node.bin() == ["llmgw"]


@needs_root
@pytest.mark.parametrize("folder", ["usr/local/bin", "usr"])
def test_a_usr_that_cannot_be_written_to_has_a_reason(node: Node, folder: str) -> None:
    with read_only(node.root / folder):
        said = node.onboard("next try")
    assert f"waiting: release: cannot write to {node.root}/usr/local/bin; " in said
    assert not node.binary.exists()
    assert "restart" not in node.calls()


def test_c2_the_agent_alone_may_trust_the_root(node: Node) -> None:
    node.configure(trust="agent")
    node.onboard()
    assert node.status()["trust"] == "the agent alone, as the spec has it"
    assert "update-ca-certificates" not in node.calls()
    assert not (node.root / "usr/local/share").exists()
    assert node.verdict() == "ok"


def test_no_trust_store_is_said_and_stops_nothing(node: Node) -> None:
    node.lacks("update-ca-certificates", "update-ca-trust")
    node.onboard()
    assert node.status()["trust"] == "no trust store that onboard knows"
    assert node.verdict() == "ok"


def test_a_store_that_does_not_trust_afterwards_is_found_out(node: Node) -> None:
    node.install("openssl", 'echo "$*" >>"$LLMGW_ROOT/calls"; exit 2')
    said = node.onboard()
    told = "update-ca-certificates succeeded, and still the root is not trusted"
    assert node.status()["trust"] == told
    assert f"the system does not trust the root: {told}" in said
    assert f"verify {node.root}/etc/llmgw/ca.pem" in node.calls()
    assert node.verdict() == "ok"


# ---- the reality check ----


def reality(node: Node, **changes: object) -> list[str]:
    """Have an agent.yaml with these changes looked at; the interface is lo unless they say."""
    agent = yaml.safe_load((node.root / "etc/llmgw/agent.yaml").read_text())
    agent |= {"mgmt_interface": "lo", "mgmt_addr": "127.0.0.1"} | changes
    (node.root / "sys/class/net/lo").mkdir(parents=True, exist_ok=True)
    node.write({"etc/llmgw/agent.yaml": json.dumps(agent)})
    (node.root / "var/lib/llmgw-onboard/applied").unlink(missing_ok=True)
    node.onboard()
    return list(node.status()["reality"])


NO_GPUS = {"nvidia_smi": "", "ib_root": "/sys/class/infiniband", "skip_gpus": True}


def test_the_interface_carries_its_address_or_what_there_is_is_named(node: Node) -> None:
    assert reality(node, discovery=NO_GPUS) == ["ok: lo carries 127.0.0.1"]


def test_a_name_for_an_address_says_nothing(node: Node) -> None:
    assert reality(node, mgmt_addr="cafe.de", discovery=NO_GPUS) == []


@pytest.mark.parametrize(
    ("interface", "address", "told"),
    [
        ("lo", "10.99.99.99", "wrong: lo does not carry 10.99.99.99"),
        ("eth9", "127.0.0.1", "wrong: there is no interface eth9; there are: lo"),
        ("lo", "FE80::7", "wrong: lo does not carry fe80::7"),
    ],
)
def test_an_interface_that_is_not_as_said(
    node: Node, interface: str, address: str, told: str
) -> None:
    found = reality(node, mgmt_interface=interface, mgmt_addr=address, discovery=NO_GPUS)
    assert found == [told]
    assert node.verdict() == "ok"  # recorded, never fatal


def hca(node: Node, name: str, *, layer: str, state: str, gid: str) -> None:
    port = node.root / "sys/class/infiniband" / name / "ports/1"
    (port / "gids").mkdir(parents=True)
    (port / "link_layer").write_text(f"{layer}\n")
    (port / "state").write_text(f"{state}\n")
    (port / "gids/0").write_text(f"{gid}\n")


def test_each_hca_is_looked_for_under_its_name(node: Node) -> None:
    gid = "fe80:0000:0000:0000:0002:c903:000a:1b2c"
    hca(node, "mlx5_0", layer="InfiniBand", state="4: ACTIVE", gid=gid)
    hca(node, "ibp1s0", layer="InfiniBand", state="1: DOWN", gid=gid.replace("fe80", "fec0"))
    fabrics = [{"name": "ib-a", "hcas": ["mlx5_0", "mlx5_1"]}, {"name": "b", "hcas": ["ibp1s0"]}]
    assert reality(node, fabrics=fabrics, discovery=NO_GPUS)[1:] == [
        "ok: mlx5_0 of ib-a, port 1: InfiniBand, 4: ACTIVE, GID prefix fe80:0000:0000:0000",
        "wrong: mlx5_1 of ib-a is not under /sys/class/infiniband; there are: ibp1s0, mlx5_0",
        "wrong: ibp1s0 of b, port 1: InfiniBand, 1: DOWN, GID prefix fec0:0000:0000:0000",
    ]


def test_no_hca_at_all(node: Node) -> None:
    fabrics = [{"name": "ib-a", "hcas": ["mlx5_0"]}]
    assert reality(node, fabrics=fabrics, discovery=NO_GPUS)[1:] == [
        "wrong: mlx5_0 of ib-a is not under /sys/class/infiniband; there are: none"
    ]


def test_where_nvidia_smi_was_found_and_whether_it_answers(node: Node) -> None:
    told = reality(node, discovery=NO_GPUS | {"skip_gpus": False})[1:]
    assert told == ["wrong: nvidia-smi is not on PATH"]
    node.install("nvidia-smi", "echo GPU 0: H100; echo GPU 1: H100")
    smi = node.root / "stand-ins/nvidia-smi"
    assert reality(node, discovery=NO_GPUS | {"skip_gpus": False})[1:] == [f"ok: {smi}: 2 GPUs"]
    node.install("nvidia-smi", "echo NVIDIA-SMI has failed; exit 9")
    given = NO_GPUS | {"skip_gpus": False, "nvidia_smi": str(smi)}
    assert reality(node, discovery=given)[1:] == [f"wrong: {smi}: NVIDIA-SMI has failed"]


def test_an_engines_path_is_an_executable_file(node: Node) -> None:
    for name, mode in (("good", 0o755), ("text", 0o644)):
        (node.root / "opt").mkdir(exist_ok=True)
        (node.root / "opt" / name).touch(mode)
    engines = {
        "llamacpp": {"bin": "/opt/good", "parallel": 4},
        "vllm": {"bin": "/opt/text"},
        "sglang": {"python": "/opt"},
    }
    assert reality(node, engines=engines, discovery=NO_GPUS)[1:] == [
        "ok: llamacpp: /opt/good is there",
        "wrong: vllm: /opt/text is not an executable file",
        "wrong: sglang: /opt is not an executable file",
    ]


def test_an_agent_yaml_that_cannot_be_looked_at_is_no_failure(node: Node) -> None:
    found = reality(node, discovery=None)
    assert found == ["wrong: agent.yaml could not be held against this machine"]
    assert node.verdict() == "ok"
