"""onboard under the shells that nodes have, on a folder that stands for the node's root.

What it calls and a build machine has not (systemctl, the trust commands of other families) are
stand-ins written from their documentation; the real ones are met in test_boot.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from generator import identity, spec
from generator.render import environment, render
from generator.resources import TEMPLATES

SCRIPT = TEMPLATES / "onboard"
SHELLS = {"dash": ["dash"], "busybox": ["busybox", "sh"], "bash": ["bash", "--posix"]}
BINARY = b"#!/bin/sh\n"

SYSTEMCTL = """\
echo "$*" >>"$LLMGW_ROOT/calls"
case "$*" in
  *MainPID*) echo MainPID=42 ;;
  *ActiveState*) echo ActiveState=active ;;
esac
"""
# curl stands in for the network: it copies what the release server would give.
CURL = """\
echo "$*" >>"$LLMGW_ROOT/calls"
while [ "$1" != --output ]; do shift; done
cp "$LLMGW_ROOT/release" "$2" || { echo "curl: (7) Failed to connect" >&2; exit 7; }
"""


@pytest.fixture(params=[name for name in SHELLS if shutil.which(SHELLS[name][0])])
def shell(request: pytest.FixtureRequest) -> list[str]:
    return SHELLS[request.param]


@dataclass(frozen=True)
class Node:
    """A node's root folder, and a PATH of stand-ins before the host's own commands."""

    root: Path
    shell: list[str]

    def install(self, name: str, text: str) -> None:
        path = self.root / "stand-ins" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)

    def onboard(self, until: str = "") -> str:
        """Run `onboard run` until it ends, or has said `until`; return what it said."""
        command = [*self.shell, str(self.root / "usr/local/lib/llmgw/onboard"), "run"]
        path = f"{self.root}/stand-ins:/usr/sbin:/usr/bin:/sbin:/bin"
        environ = {"LLMGW_ROOT": str(self.root), "PATH": path}
        said = ""
        with subprocess.Popen(
            command, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:  # fmt: skip
            deadline = threading.Timer(20, os.killpg, (process.pid, signal.SIGKILL))
            deadline.start()
            assert process.stdout
            for line in process.stdout:
                said += line
                if until and until in line:
                    os.killpg(process.pid, signal.SIGKILL)
                    break
            process.wait()
            assert deadline.is_alive(), f"not within 20 s: {until or 'its end'}\n{said}"
            deadline.cancel()
        assert until in said
        return said

    def status(self) -> dict[str, str]:
        found = json.loads((self.root / "var/lib/llmgw-onboard/status.json").read_text())
        assert isinstance(found, dict)
        return found

    def verdict(self) -> str:
        return (self.root / "run/llmgw-onboard/verdict").read_text().strip()

    def calls(self) -> str:
        path = self.root / "calls"
        return path.read_text() if path.exists() else ""

    @property
    def binary(self) -> Path:
        return self.root / "usr/local/bin/llmgw"


@pytest.fixture
def node(tmp_path: Path, shell: list[str]) -> Node:
    """A node whose seed has been written, with a certificate that is good today."""
    digest = hashlib.sha256(BINARY).hexdigest()
    sums = {"amd64": digest, "arm64": digest}
    release = spec.Release("v1", "https://h.example/{version}/{arch}", sums)
    asked = spec.Spec("n7", "https://h.example", "10.0.0.7", release)
    seed = render(asked, identity.placeholder("n7"), environment())
    sums_file = ""
    for file in seed.files[:-1]:
        content = file.content
        if file.path.endswith(".conf") and "not_after" in content:
            content = content.replace("not_after=9", "not_after=99")  # in the year 2269
        path = tmp_path / file.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        sums_file += f"{hashlib.sha256(content.encode()).hexdigest()}  {file.path[1:]}\n"
    (tmp_path / "etc/llmgw/seed.sha256").write_text(sums_file)
    (tmp_path / "release").write_bytes(BINARY)
    made = Node(tmp_path, shell)
    made.install("systemctl", SYSTEMCTL)
    made.install("curl", CURL)
    made.install("sleep", "exec /bin/sleep 0.02")
    made.install("update-ca-certificates", 'echo update-ca-certificates "$@" >>"$LLMGW_ROOT/calls"')
    return made


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
    (node.root / "calls").unlink()
    shutil.rmtree(node.root / "run")
    status = node.status()
    assert "applied already" in node.onboard()
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


@pytest.mark.parametrize(
    ("arch", "digests"), [("x86_64", 1), ("amd64", 1), ("aarch64", 1), ("arm64", 1), ("riscv64", 0)]
)
def test_each_architecture_has_its_digest_or_a_reason(node: Node, arch: str, digests: int) -> None:
    node.install("uname", f"echo {arch}")
    said = node.onboard("" if digests else "next try")
    if digests:
        assert node.verdict() == "ok"
        assert "/v1/amd64\n" in said or arch in ("aarch64", "arm64")
    else:
        assert "no digest for this machine's architecture (riscv64)" in node.verdict()


def test_a_file_that_is_not_what_the_seed_says_stops_it(node: Node) -> None:
    (node.root / "etc/llmgw/agent-key.pem").write_text("half a k")
    said = node.onboard("next try")
    assert "failed: files: not what the seed says: etc/llmgw/agent-key.pem" in said
    assert not node.binary.exists()


def test_a_missing_list_of_files_stops_it(node: Node) -> None:
    (node.root / "etc/llmgw/seed.sha256").unlink()
    assert "files are not complete" in node.onboard("next try")
    assert not node.binary.exists()


def configure(node: Node, **values: str) -> None:
    """Change onboard.conf, and have the seed's list of digests say so."""
    conf = node.root / "etc/llmgw/onboard.conf"
    lines = [li for li in conf.read_text().splitlines() if li.partition("=")[0] not in values]
    conf.write_text("\n".join([*lines, *(f"{k}={v}" for k, v in values.items()), ""]))
    sums = node.root / "etc/llmgw/seed.sha256"
    paths = [line.split("  ")[1] for line in sums.read_text().splitlines()]
    digests = [hashlib.sha256((node.root / path).read_bytes()).hexdigest() for path in paths]
    sums.write_text("".join(f"{d}  {p}\n" for d, p in zip(digests, paths, strict=True)))


def test_p3_a_certificate_that_has_ended_is_named(node: Node) -> None:
    configure(node, not_before="946684800", not_after="947289600")
    assert "failed: clock: the node's certificate ended 2000-01-08T00:00:00Z" in node.onboard(
        "next try"
    )
    assert not node.binary.exists()


def test_k2_it_waits_for_the_certificates_start(node: Node) -> None:
    configure(node, not_before=str(int(time.time()) + 2))
    said = node.onboard()
    assert "waiting: clock: the clock says" in said
    assert node.verdict() == "ok"


def test_an_agent_that_does_not_stay_up_is_a_failure(node: Node) -> None:
    node.install("systemctl", SYSTEMCTL.replace("MainPID=42", "MainPID=$$"))
    said = node.onboard("next try")
    assert "waiting: agent: the agent does not stay up" in said
    assert not (node.root / "run/llmgw-onboard/verdict").exists()


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
    configure(node)
    node.onboard()
    found = {path.name: path.read_text() for path in (node.root / folder).iterdir()}
    assert found == {"llmgw-ca.crt": pem, "llmgw-ca-2.crt": pem}
    assert f"{call}\n" in node.calls()
    assert node.status()["trust"] == "ok"


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
    assert (done.returncode, done.stderr) == (2, "usage: onboard run | wait\n")


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck() -> None:
    done = subprocess.run(["shellcheck", SCRIPT], capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_of_the_bootcmd() -> None:
    text = environment().get_template("bootcmd.j2").render(instance_id="n7-1")
    command = ["shellcheck", "-s", "sh", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""


def test_auto_is_filled_from_the_way_to_the_server(node: Node) -> None:
    agent = node.root / "etc/llmgw/agent.yaml"
    text = agent.read_text()
    text = text.replace('mgmt_addr: "10.0.0.7"', "mgmt_addr: auto")
    agent.write_text(text.replace("mgmt_interface: eth0", "mgmt_interface: auto"))
    configure(node, server="https://127.0.0.1:7443", auto="'mgmt_addr mgmt_interface'")
    said = node.onboard()
    assert "the way to https://127.0.0.1:7443 is from 127.0.0.1 by lo" in said
    assert 'mgmt_addr: "127.0.0.1"\nmgmt_interface: "lo"\n' in agent.read_text()
    assert node.verdict() == "ok"
    # A second run finds the file filled, and that is no fault of the seed's.
    (node.root / "var/lib/llmgw-onboard/applied").unlink()
    node.onboard()
    assert node.status()["state"] == "started"


def test_an_address_that_changed_restarts_the_agent(node: Node) -> None:
    configure(node, server="https://127.0.0.1:7443", auto="mgmt_addr")
    node.onboard()
    agent = node.root / "etc/llmgw/agent.yaml"
    agent.write_text(agent.read_text().replace("127.0.0.1", "127.0.0.99"))
    (node.root / "calls").unlink()
    assert "applied already" in node.onboard()
    assert 'mgmt_addr: "127.0.0.1"' in agent.read_text()
    assert node.calls() == "restart --no-block llmgw-agent.service\n"
    (node.root / "calls").unlink()
    node.onboard()
    assert node.calls() == ""


def test_no_way_to_the_server_is_waited_for(node: Node) -> None:
    configure(node, server="https://nowhere.invalid:7443", auto="mgmt_addr")
    assert "waiting: address: no way to https://nowhere.invalid:7443: " in node.onboard("next try")
