"""onboard under the shells that nodes have, on a folder that stands for the node's root.

Its shell's work is here; what its python3 does, and its fetch, in test_onboard_*.py.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from stand_in import BINARY, CONF, SCRIPT, SHA256, SHELLS, SUMS, SYSTEMCTL, Node, available, node_in

from generator.template import environment


@pytest.fixture(params=available())
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    """A node under each shell: what is tested here is the shell's work."""
    return node_in(tmp_path, SHELLS[request.param])


def test_it_trusts_installs_starts_and_says_so(node: Node) -> None:
    node.onboard()
    assert node.verdict() == "ok"
    assert (node.status()["state"], node.status()["trust"]) == ("started", "ok")
    assert node.binary.read_bytes() == BINARY
    assert node.binary.stat().st_mode & 0o777 == 0o755
    anchor = node.root / "usr/local/share/ca-certificates/llmgw-ca.crt"
    assert anchor.read_bytes() == (node.root / "etc/llmgw/ca.pem").read_bytes()
    assert "restart --no-block llmgw-agent.service" in node.calls()
    assert [path.name for path in node.binary.parent.iterdir()] == ["llmgw"]


def test_a_second_time_it_does_nothing(node: Node) -> None:
    node.onboard()
    node.accept()
    (node.root / "calls").unlink()
    shutil.rmtree(node.root / "run")
    status = node.status()
    assert "applied already" in node.onboard("")
    assert node.calls() == ""
    assert node.verdict() == "ok"
    assert node.status() == status


def test_it_does_its_work_for_another_seed(node: Node) -> None:
    node.onboard()
    applied = node.root / "var/lib/llmgw-onboard/applied"
    applied.write_text(
        applied.read_text().replace("  etc/llmgw/agent.pem", "0  etc/llmgw/agent.pem")
    )
    assert "applied already" not in node.onboard()
    assert "restart" in node.calls()


def test_d1_a_wrong_binary_goes_nowhere(node: Node) -> None:
    (node.root / "release").write_bytes(b"<html>")
    said = node.onboard("next try")
    assert "failed: release: https://h.example/v1/" in said
    assert node.verdict().startswith("failed: release: ")
    assert node.status()["state"] == "failed"
    assert not list(node.binary.parent.iterdir())
    assert "restart" not in node.calls()


def test_it_tries_again_until_the_server_is_there(node: Node) -> None:
    (node.root / "release").unlink()
    release = node.root / "release"
    late = f"{release}.late"
    node.install("sleep", f"printf '#!/bin/sh\\n' >{late} && mv {late} {release}")
    said = node.onboard()
    assert "waiting: release: cannot fetch https://h.example/v1/" in said
    assert "curl: (7) Failed to connect" in said
    assert node.verdict() == "ok"


def test_a_file_that_is_not_what_the_seed_says_stops_it(node: Node) -> None:
    (node.root / "etc/llmgw/agent-key.pem").write_text("half a k")
    said = node.onboard("next try")
    assert "failed: files: not what the seed says: etc/llmgw/agent-key.pem" in said
    assert not node.binary.exists()


def test_a_missing_list_of_files_stops_it(node: Node) -> None:
    (node.root / "etc/llmgw/seed.sha256").unlink()
    assert "files are not complete" in node.onboard("next try")
    assert not node.binary.exists()


def test_p3_a_certificate_that_has_ended_is_named(node: Node) -> None:
    node.configure(not_before="946684800", not_after="947289600")
    assert "failed: clock: the node's certificate ended 2000-01-08T00:00:00Z" in node.onboard(
        "next try"
    )
    assert not node.binary.exists()


def test_k2_it_waits_for_the_certificates_start(node: Node) -> None:
    node.configure(not_before=str(int(time.time()) + 6))
    said = node.onboard()
    assert "waiting: clock: the clock says" in said
    assert node.verdict() == "ok"


def test_an_agent_that_does_not_stay_up_is_a_failure(node: Node) -> None:
    node.install("systemctl", SYSTEMCTL.replace("MainPID=42", "MainPID=$$"))
    said = node.onboard("next try")
    assert "waiting: agent: the agent does not stay up" in said
    assert not (node.root / "run/llmgw-onboard/verdict").exists()


USAGE = (
    "usage: onboard run | finish | wait | status | apply FILE|- [--without-cloud-init] | csr"
    " | keep NODE\n"
)
FAMILIES = {
    "rhel": ("etc/pki/ca-trust/source/anchors", "update-ca-trust", "update-ca-trust extract"),
    "arch": ("etc/ca-certificates/trust-source/anchors", "update-ca-trust", "update-ca-trust"),
    "suse": ("etc/pki/trust/anchors", "update-ca-certificates", "update-ca-certificates"),
    "debian, alpine": (
        "usr/local/share/ca-certificates",
        "update-ca-certificates",
        "update-ca-certificates",
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_c1_c2_c3_each_family_gets_one_root_a_file(node: Node, family: str) -> None:
    folder, name, call = FAMILIES[family]
    node.install(name, f'echo {name} "$@" >>"$LLMGW_ROOT/calls"')
    (node.root / folder).mkdir(parents=True)
    pem = (node.root / "etc/llmgw/ca.pem").read_text()
    trusted = node.root / "etc/llmgw/ca.pem"
    trusted.write_text(f"a comment\n{pem}between\n{pem}")
    node.write({})
    node.onboard()
    found = {path.name: path.read_text() for path in (node.root / folder).iterdir()}
    assert found == {"llmgw-ca.crt": pem, "llmgw-ca-2.crt": pem}
    assert f"{call}\n" in node.calls()
    assert node.status()["trust"] == "ok"


@pytest.mark.parametrize("cut", ["empty", "the last line", "a quote"])
def test_a_seed_that_was_written_in_part_has_a_reason_and_no_crash(node: Node, cut: str) -> None:
    sums = node.root / SUMS
    if cut == "a quote":
        conf = node.root / CONF
        conf.write_text(conf.read_text() + "late='half a quo")
    else:
        lines = sums.read_text().splitlines(keepends=True)
        sums.write_text("" if cut == "empty" else "".join(lines[:-1]))
    said = node.onboard("next try in 300 s\n")
    assert "failed: files: the seed's files are not complete" in said
    assert node.status()["state"] == "failed"
    assert not node.binary.exists()


def test_a_trust_command_that_fails_is_recorded_and_stops_nothing(node: Node) -> None:
    node.install("update-ca-certificates", "echo; echo 'no openssl here'; exit 1")
    node.onboard()
    assert node.status()["trust"] == "update-ca-certificates failed: no openssl here"
    assert node.verdict() == "ok"


def test_a_reason_with_quotes_is_still_json(node: Node) -> None:
    node.install("curl", """printf 'a "b" \\\\c\\td\\n' >&2; exit 1""")
    node.onboard("next try")
    assert node.status()["reason"].endswith('a "b" \\c d')


def test_wrong_usage(node: Node) -> None:
    done = subprocess.run(
        [*node.shell, str(SCRIPT), "nonsense"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, USAGE)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck() -> None:
    done = subprocess.run(["shellcheck", SCRIPT], capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_of_the_bootcmd() -> None:
    text = (
        environment()
        .get_template("bootcmd.j2")
        .render(node_id="n7", instance_id="n7-1", closed=["/a", "/b"])
    )
    command = ["shellcheck", "-s", "sh", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""


def test_auto_is_filled_from_the_way_to_the_server(node: Node) -> None:
    agent = node.root / "etc/llmgw/agent.yaml"
    text = agent.read_text()
    text = text.replace('mgmt_addr: "10.0.0.7"', "mgmt_addr: auto")
    agent.write_text(text.replace("mgmt_interface: eth0", "mgmt_interface: auto"))
    node.configure(server="https://127.0.0.1:7443", auto="'mgmt_addr mgmt_interface'")
    said = node.onboard()
    assert "the way to https://127.0.0.1:7443 is from 127.0.0.1 by lo" in said
    assert 'mgmt_addr: "127.0.0.1"\nmgmt_interface: "lo"\n' in agent.read_text()
    assert node.verdict() == "ok"
    # A second run finds the file filled, and that is no fault of the seed's.
    (node.root / "var/lib/llmgw-onboard/applied").unlink()
    node.onboard()
    assert node.status()["state"] == "started"


def test_an_address_that_changed_restarts_the_agent(node: Node) -> None:
    node.configure(server="https://127.0.0.1:7443", auto="mgmt_addr")
    node.onboard()
    node.accept()
    agent = node.root / "etc/llmgw/agent.yaml"
    agent.write_text(agent.read_text().replace("127.0.0.1", "127.0.0.99"))
    (node.root / "calls").unlink()
    assert "applied already" in node.onboard("")
    assert 'mgmt_addr: "127.0.0.1"' in agent.read_text()
    assert node.calls() == "restart --no-block llmgw-agent.service\n"
    (node.root / "calls").unlink()
    node.onboard("")
    assert node.calls() == ""


def test_no_way_to_the_server_is_waited_for(node: Node) -> None:
    node.configure(server="https://nowhere.invalid:7443", auto="mgmt_addr")
    assert "waiting: address: no way to https://nowhere.invalid:7443: " in node.onboard("next try")


ENI = """\
auto lo
iface lo inet loopback

auto eth0
iface eth0 inet static
    address 10.0.0.7/24
    dns-nameservers 10.0.0.1 fd00::53
    dns-search example.net example.org
"""


@pytest.mark.parametrize(
    ("eni", "command", "written"),
    [
        (
            ENI,
            "",
            "search example.net example.org\nnameserver 10.0.0.1\nnameserver fd00::53\n",
        ),
        (ENI, "resolvconf", "nameserver 9.9.9.9\n"),
        (ENI + "iface eth1 inet dhcp\n", "", "nameserver 9.9.9.9\n"),
        ("iface lo inet loopback\n", "", "nameserver 9.9.9.9\n"),
        ("", "", "nameserver 9.9.9.9\n"),
    ],
)
def test_n6_name_servers_of_ifupdown_are_written_where_nobody_reads_them(
    node: Node, eni: str, command: str, written: str
) -> None:
    if eni:
        lines = node.root / "etc/network/interfaces.d/50-cloud-init"
        lines.parent.mkdir(parents=True)
        lines.write_text(eni)
    if command:
        node.install(command, "exit 1\n")
    (node.root / "etc/resolv.conf").write_text("nameserver 9.9.9.9\n")
    node.onboard()
    assert (node.root / "etc/resolv.conf").read_text() == written


def test_a_resolv_conf_that_is_anothers_is_left_alone(node: Node) -> None:
    lines = node.root / "etc/network/interfaces.d/50-cloud-init"
    lines.parent.mkdir(parents=True)
    lines.write_text(ENI)
    (node.root / "etc/resolv.conf").symlink_to("stub.conf")
    node.onboard()
    assert (node.root / "etc/resolv.conf").readlink() == Path("stub.conf")


def test_headers_that_a_power_cut_left_go_at_the_next_boot(node: Node) -> None:
    node.onboard()
    left = node.root / "etc/llmgw/release-headers"
    left.write_text("Authorization: Bearer x\n")
    assert "applied already" in node.onboard()
    assert not left.exists()


@pytest.mark.parametrize("present", ["missing", hashlib.sha256(b"another").hexdigest()])
def test_with_fetch_never_another_binary_is_an_error(node: Node, present: str) -> None:
    node.configure(fetch="never")
    if present != "missing":
        node.binary.parent.mkdir(parents=True)
        node.binary.write_bytes(b"another")
        node.binary.chmod(0o755)
    said = node.onboard("next try")
    wanted = f"the digest of {node.binary} is {present}, not {SHA256}"
    assert f"failed: release: release.fetch is never, and {wanted}" in said
    assert not [line for line in node.calls().splitlines() if "--output" in line]
    assert node.binary.exists() == (present != "missing")


def test_with_fetch_never_the_binary_of_the_image_is_taken(node: Node) -> None:
    node.configure(fetch="never")
    node.binary.parent.mkdir(parents=True)
    node.binary.write_bytes(BINARY)
    node.binary.chmod(0o755)
    node.onboard()
    assert node.verdict() == "ok"
    assert "--output" not in node.calls()


ENGINES = """\
case "$*" in
  "ctl --help") echo "  engine-check   holds the engines against our flags" ;;
  "ctl engine-check") echo "checking"; echo 'vllm: no "--port" here'; exit STATUS ;;
esac
"""


@pytest.mark.parametrize(("status", "word"), [("0", "ok"), ("1", "wrong")])
def test_what_llmgw_says_of_its_engines_is_recorded(node: Node, status: str, word: str) -> None:
    binary = f"#!/bin/sh\n{ENGINES.replace('STATUS', status)}".encode()
    digest = hashlib.sha256(binary).hexdigest()
    (node.root / "release").write_bytes(binary)
    node.configure(sha256_amd64=digest, sha256_arm64=digest)
    node.onboard()
    assert node.status()["reality"][-1] == f'{word}: engine-check: vllm: no "--port" here'
    assert node.verdict() == "ok"


def test_a_llmgw_that_checks_no_engines_is_not_asked(node: Node) -> None:
    node.onboard()
    assert "engine-check" not in str(node.status())
