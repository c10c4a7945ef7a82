"""The machinery that boots seeds: its servers, its agent, its machines."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from generator.problem import Refused
from generator.prove import overlay, rootfs
from generator.prove.machine import SEED, Machine
from generator.prove.servers import ControlPlane, ReleaseServer, agent_binary
from generator.prove.watch import Watch
from generator.tree import inside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEY_LINE = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg"


@dataclasses.dataclass(frozen=True)
class Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)


def sign(name: str, issuer: Authority | None = None) -> Authority:
    """A certificate that may be everything: this file tests the servers, not certificates."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=not issuer, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(issuer.key if issuer else key, hashes.SHA256())
    )
    return Authority(certificate, key)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return sign("a test's authority")


def key_pem(identity: Authority) -> bytes:
    return identity.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def agent_yaml(folder: Path | str, server: str, node: str = "n7") -> str:
    return f"""\
node_id: {node}
server: "{server}"
tls: {{ca: {folder}/ca.pem, cert: {folder}/agent.pem, key: {folder}/agent-key.pem}}
heartbeat_interval: 100ms
reconnect_base: 50ms
reconnect_max: 0.2s
"""


@pytest.fixture
def agent(tmp_path: Path, authority: Authority) -> Iterator[Callable[..., Authority]]:
    """Starts the stand-in agent on this host, as a unit would."""
    running = []
    binary = tmp_path / "llmgw"
    # The guest's python3 has yaml; here it is this interpreter that has it.
    binary.write_bytes(agent_binary("v1.2.3").replace(b"/usr/bin/python3", sys.executable.encode()))
    binary.chmod(0o755)

    def start(
        server: str, node: str = "n7", name: str = "n7", issuer: Authority = authority
    ) -> Authority:
        identity = sign(name, issuer)
        (tmp_path / "ca.pem").write_bytes(authority.pem())
        (tmp_path / "agent.pem").write_bytes(identity.pem())
        (tmp_path / "agent-key.pem").write_bytes(key_pem(identity))
        (tmp_path / "agent.yaml").write_text(agent_yaml(tmp_path, server, node))
        command = [str(binary), "agent", "--config", str(tmp_path / "agent.yaml")]
        running.append(subprocess.Popen(command, stderr=subprocess.PIPE))
        return identity

    yield start
    for process in running:
        process.kill()
        process.communicate()


def until(done: Callable[[], object], deadline: float = 60) -> None:
    end = time.monotonic() + deadline
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_agent_joins_and_sends_heartbeats(
    agent: Callable[..., Authority], authority: Authority
) -> None:
    with ControlPlane(authority) as plane:
        identity = agent(plane.url)
        join = plane.wait_for_join(120)
        until(lambda: len(plane.heartbeats) > 2)
    assert (join.common_name, join.node_id) == ("n7", "n7")
    assert join.serial == identity.certificate.serial_number
    assert join.config["reconnect_max"] == "0.2s"
    assert join.config["server"] == plane.url


def test_control_plane_refuses_another_common_name_and_the_agent_tries_again(
    agent: Callable[..., Authority], authority: Authority
) -> None:
    with ControlPlane(authority) as plane:
        agent(plane.url, node="n7", name="n8")
        until(lambda: len(plane.refusals) > 1)
        assert "'n8' claims to be 'n7'" in plane.refusals[0]
        with pytest.raises(TimeoutError, match="claims to be"):
            plane.wait_for_join(0.1)


def test_control_plane_refuses_a_certificate_of_another_authority(
    agent: Callable[..., Authority], authority: Authority
) -> None:
    with ControlPlane(authority) as plane:
        agent(plane.url, issuer=sign("another authority"))
        until(lambda: len(plane.failures) > 1)
        assert not plane.joins
        assert not plane.refusals
    assert "certificate" in plane.failures[0].lower()


def test_agent_refuses_a_server_of_another_authority(agent: Callable[..., Authority]) -> None:
    other = sign("another authority")
    with ControlPlane(other) as plane:
        agent(plane.url, issuer=other)  # so that nothing but the server's certificate is wrong
        until(lambda: len(plane.failures) > 1)
        assert not plane.joins


def test_agent_joins_again_when_the_control_plane_comes_back(
    agent: Callable[..., Authority], authority: Authority
) -> None:
    with ControlPlane(authority) as plane:
        agent(plane.url)
        plane.wait_for_join(120)
    with ControlPlane(authority, plane.server_port) as plane:
        plane.wait_for_join(120)


def run_agent(*argv: str) -> subprocess.CompletedProcess[str]:
    binary = [sys.executable, "-c", agent_binary("v1.2.3").decode(), *argv]
    return subprocess.run(binary, capture_output=True, text=True, check=False, timeout=20)


@pytest.mark.parametrize(
    "text", ["", "[]", "node_id: n7", "a: [", agent_yaml("/nowhere", "https://127.0.0.1:1")]
)
def test_agent_ends_on_a_configuration_it_cannot_use(tmp_path: Path, text: str) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text(text)
    done = run_agent("agent", "--config", str(config))
    assert done.returncode == 1
    assert str(config) in done.stderr
    assert "Traceback" not in done.stderr


def test_each_version_of_the_agent_has_its_own_bytes() -> None:
    assert run_agent("version").stdout == "llmgw v1.2.3 (stand-in)\n"
    assert agent_binary("v1") != agent_binary("v2")
    assert agent_binary().startswith(b"#!/usr/bin/python3\n")


def test_release_server_needs_the_authority_to_be_trusted(authority: Authority) -> None:
    trusting = ssl.create_default_context(cadata=authority.pem().decode())

    def get(url: str, context: ssl.SSLContext) -> bytes:
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(url, timeout=10) as answer:
            return bytes(answer.read())

    with ReleaseServer(authority, {"/llmgw": b"\0bytes"}) as server:
        assert get(f"{server.url}/llmgw", trusting) == b"\0bytes"
        with pytest.raises(urllib.error.HTTPError, match="404") as failure:
            get(f"{server.url}/other", trusting)
        failure.value.close()
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            get(f"{server.url}/llmgw", ssl.create_default_context())
        assert server.requests == ["/llmgw", "/other"]


def test_guest_paths_never_leave_the_guest(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/a").symlink_to("/etc/b")
    (tmp_path / "up").symlink_to("../../../etc")
    (tmp_path / "loop").symlink_to("loop")
    assert inside(tmp_path, "/etc/a") == tmp_path / "etc/a"
    assert inside(tmp_path, "/etc/a", last=True) == tmp_path / "etc/b"
    assert inside(tmp_path, "/up/../up/./a", last=True) == tmp_path / "etc/b"
    with pytest.raises(OSError, match="too many links"):
        inside(tmp_path, "/loop/x")


def test_mirror_is_the_one_of_the_hosts_apt(tmp_path: Path) -> None:
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    with pytest.raises(Refused, match="no Debian mirror"):
        rootfs.mirror(tmp_path)
    (parts / "debian.sources").write_text(
        "Types: deb\nURIs: http://a.example/debian-security\n\n"
        "Types: deb\nURIs: http://a.example/debian\nSuites: trixie\n"
    )
    assert rootfs.mirror(tmp_path) == "http://a.example/debian"
    (tmp_path / "sources.list").write_text(
        "# deb http://c.example/debian trixie main\n"
        "deb [signed-by=/k.gpg arch=amd64] http://b.example/debian/ trixie main\n"
    )
    assert rootfs.mirror(tmp_path) == "http://b.example/debian/"


def seed(user_data: str) -> dict[str, bytes]:
    return {
        "meta-data": b"instance-id: n7-1\nlocal-hostname: n7\n",
        "user-data": b"#cloud-config\n" + user_data.encode(),
    }


UNIT = f"""\
write_files:
- path: /etc/llmgw/agent.yaml
  content: "word"
  permissions: "0640"
- path: /etc/systemd/system/joins.service
  content: |
    [Service]
    ExecStart=/usr/local/bin/llmgw agent --config /etc/t/agent.yaml
    [Install]
    WantedBy=multi-user.target
runcmd:
- [sh, -ec, "curl -sS --fail --cacert /etc/t/ca.pem -o /usr/local/bin/llmgw RELEASE/llmgw"]
- [sh, -ec, "chmod 755 /usr/local/bin/llmgw; systemctl enable --now --no-block joins"]
- [sh, -c, "echo ran {KEY_LINE[:4]} >/dev/console"]
"""


@pytest.mark.boot
def test_boot_kill_reboot(tree: Path, authority: Authority) -> None:
    identity = sign("n7", authority)
    binary = agent_binary()
    with (
        ReleaseServer(authority, {"/llmgw": binary}) as release,
        ControlPlane(authority) as plane,
    ):

        def edit(root: Path) -> None:
            (root / "etc/t").mkdir()
            (root / "etc/t/ca.pem").write_bytes(authority.pem())
            (root / "etc/t/agent.pem").write_bytes(identity.pem())
            (root / "etc/t/agent-key.pem").write_bytes(key_pem(identity))
            (root / "etc/t/agent.yaml").write_text(agent_yaml("/etc/t", plane.url))

        user_data = UNIT.replace("RELEASE", release.url)
        with Machine(tree, seed(user_data), edit=edit) as machine:
            machine.boot()
            machine.kill()
            assert not machine.running
            assert not plane.joins
            machine.boot()
            verdict = machine.wait_for_cloud_init()
            assert verdict.clean, verdict
            assert plane.wait_for_join(120).serial == identity.certificate.serial_number
            assert machine.hostname() == "n7"
            assert machine.read("/usr/local/bin/llmgw") == binary
            assert machine.stat("/etc/llmgw/agent.yaml").st_mode == 0o100640
            assert machine.exists("/var/run/cloud-init/result.json")
            assert not machine.exists("/nowhere")
            assert "ran MIGH" in machine.console()
            machine.wait_for("its log", lambda: "llmgw[" in machine.journal("-u", "joins"), 60)
            ids = machine.read("/etc/machine-id")
            assert len(ids) == 33
            assert machine.exists("/etc/ssh/ssh_host_ed25519_key")
            assert machine.run("systemctl", "is-system-running", "--wait").stdout == "running\n"
            with pytest.raises(RuntimeError, match="exit 1"):
                machine.run("false")

            joins = len(plane.joins)
            machine.reboot()
            plane.wait_for_join(120, after=joins)
            machine.wait_for_cloud_init()
            assert "ran MIGH" not in machine.console()
            assert machine.read("/etc/machine-id") == ids
            assert release.requests == ["/llmgw"]

            with pytest.raises(TimeoutError, match=r"(?s)0.1 s in vain for pigs.*--- console"):
                machine.wait_for("pigs", lambda: None, 0.1)
            machine.power_off()
            assert "Journal stopped" in machine.journal()
            with pytest.raises(RuntimeError, match="went down while"):
                machine.wait_for("pigs", lambda: None, 10)
    assert not os.path.ismount(machine.root)
    assert not (tree / SEED).exists()


@pytest.mark.boot
def test_cloud_init_verdict_tells_a_failure_and_a_warning(tree: Path) -> None:
    with Machine(tree, seed("runcmd:\n- [sh, -c, exit 3]\n")) as machine:
        machine.boot()
        verdict = machine.wait_for_cloud_init()
        assert verdict.status == "error"
        assert verdict.exit_code == 1
        assert verdict.errors
        machine.kill()
        machine.attach(
            {
                "meta-data": b"instance-id: n7-2\n",
                "user-data": b"#cloud-config\nwrite_files:\n- {path: /a, encoding: rot13}\n",
            }
        )
        machine.boot()
        verdict = machine.wait_for_cloud_init()
        assert not verdict.errors
        assert verdict.warnings  # some versions call the encoding unknown, some the schema broken
        assert not verdict.clean


FILES = f"""\
write_files:
- path: /etc/llmgw/agent-key.pem
  permissions: "0600"
  content: {KEY_LINE}
"""
FIRST = (
    "umask 077; mkdir -p /etc/llmgw; [ -e /etc/llmgw/agent-key.pem ] || : >/etc/llmgw/agent-key.pem"
)
CHMOD = "f=/etc/llmgw/agent-key.pem; chmod 644 $f; chmod 600 $f"


@pytest.mark.boot
@pytest.mark.parametrize(
    ("user_data", "modes"),
    [
        pytest.param(f"bootcmd:\n- [sh, -c, '{FIRST}']\n{FILES}", {0o600}, id="right"),
        pytest.param(FILES, {0o600, 0o644}, id="narrowed-after-it-was-made"),
        pytest.param(
            f"bootcmd:\n- [sh, -c, '{FIRST}']\n{FILES}runcmd:\n- [sh, -c, '{CHMOD}']\n",
            {0o600, 0o644},
            id="wide-for-a-moment",
        ),
    ],
)
def test_watch_knows_every_mode_of_a_key(tree: Path, user_data: str, modes: set[int]) -> None:
    with (
        Machine(tree, seed(user_data)) as machine,
        Watch(machine.root, KEY_LINE.encode()) as watch,
    ):
        machine.boot()
        assert machine.wait_for_cloud_init().clean
        machine.kill()
    assert watch.modes()["/etc/llmgw/agent-key.pem"] == modes
    assert bool(watch.wide("/etc/llmgw/")) == (modes != {0o600})


BOOTER = """
import sys, time
from pathlib import Path
from generator.prove.machine import Machine
with Machine(Path(sys.argv[1]), {"meta-data": b"", "user-data": b""}) as machine:
    machine.boot()
    print(machine.root, machine._leader, flush=True)
    time.sleep(600)
"""


@pytest.mark.boot
def test_nothing_stays_when_the_tests_are_killed() -> None:
    tree = rootfs.rootfs("trixie")
    with subprocess.Popen(
        [sys.executable, "-c", BOOTER, tree], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        root, leader = process.stdout.readline().split()
        os.kill(process.pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{leader}").exists())
    assert os.path.ismount(root)
    overlay.sweep()
    assert not Path(root).parent.exists()


@pytest.mark.parametrize("boot", ["", "required"])
def test_a_missing_program_is_a_skip_or_where_boots_are_required_a_failure(boot: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"{__file__}::{_BOOT_TEST}"],
        cwd=Path(__file__).parent.parent,
        env={"PATH": "/nowhere", "GEN_SEED_BOOT": boot},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == (1 if boot else 0), done.stdout
    assert ("1 error" if boot else "1 skipped") in done.stdout
    assert "machines booted: 0 (nspawn 0, qemu 0)" in done.stdout
    assert done.stdout.count("left out: the tests that boot a machine") == 1


_BOOT_TEST = test_nothing_stays_when_the_tests_are_killed.__name__
