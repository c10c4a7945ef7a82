"""Somebody else's authority: authority.command, as a program of every kind."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import openssl
import pytest
from cryptography import x509
from fleet import CHECKOUT, Fleet
from openssl import NOW
from test_cli import FLEET

from generator import authority, chain, external, ledger, pem, signer
from generator.problem import Refused

SOON = NOW + timedelta(hours=6)
DOCS = CHECKOUT / "docs/authority.md"


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    """The authority of somebody else; of its folder we get the certificate only."""
    return authority.create(tmp_path / "theirs", NOW)[0].folder


@pytest.fixture
def trust(pki: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "ours"
    folder.mkdir(0o700)
    shutil.copy(pki / "ca.pem", folder)
    return folder


def command(*arguments: str, folder: Path, timeout: float = 20) -> signer.Command:
    return signer.Command(arguments, timeout, folder)


def sign(script: str, trust: Path, days: int = 30, timeout: float = 20) -> str:
    """Return what is said of the answer of a shell script: the warnings, or why it is refused."""
    how = command("sh", "-c", script, folder=trust, timeout=timeout)
    try:
        identity, notes = signer.issue(how, trust, "n7", days, SOON)
    except Refused as refused:
        return "\n".join(f"{problem.message}\n{problem.hint}" for problem in refused.problems)
    assert identity.key
    return "\n".join(note.message for note in notes) or "accepted"


def by_openssl(pki: Path, extensions: str, *more: str) -> str:
    """Return a script that signs the request with openssl."""
    settings = pki.parent / "ext.cnf"
    settings.write_text(f"{extensions}\nauthorityKeyIdentifier=keyid\n")
    signs = f"openssl x509 -req -CA {pki}/ca.pem -CAkey {pki}/ca-key.pem"
    signs += " -set_serial 0x$(openssl rand -hex 8)"
    return f"{signs} -extfile {settings} {' '.join(more) or '-days $DAYS'} 2>/dev/null"


LEAF = "basicConstraints=critical,CA:FALSE\nextendedKeyUsage=clientAuth"


# What answers


def test_our_own_ca_sign(pki: Path, trust: Path, tmp_path: Path) -> None:
    how = command(
        *(sys.executable, "-m", "generator", "-C", str(tmp_path), "ca", "sign", "n7"),
        *("--pki", str(pki), "--days", "30"),
        folder=CHECKOUT,
    )
    identity, notes = signer.issue(how, trust, "n7", 30, SOON)
    assert notes == ()
    (row,) = ledger.reading(pki)
    assert (row.serial, row.node) == (identity.serial, "n7")
    later = str(int(SOON.timestamp()))
    sent, roots = identity.certificate_pem, identity.roots_pem
    assert openssl.verify(tmp_path, sent, roots, "sslclient", "-attime", later) == ""
    assert "unsuitable" in openssl.verify(tmp_path, sent, roots, "sslserver", "-attime", later)


def block(name: str) -> str:
    """Return a code block of docs/authority.md: the one whose first line is a comment of `name`."""
    for found in re.findall(r"```\w*\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL):
        if str(found).startswith((f"# {name}", f"#!/usr/bin/env python3\n# {name}")):
            return str(found)
    raise AssertionError(name)


def test_openssl_ca_as_documented(pki: Path, trust: Path, tmp_path: Path) -> None:
    place = tmp_path / "openssl"
    place.mkdir()
    (place / "index.txt").touch()
    (place / "openssl.cnf").write_text(
        block("openssl.cnf").replace("/etc/llmgw/openssl", str(place))
    )
    for name in ("ca.pem", "ca-key.pem"):
        shutil.copy(pki / name, place)
    script = block("openssl-sign").replace("/etc/llmgw/openssl", str(place))
    assert sign(script, trust, days=42) == "accepted"
    assert sign(script, trust) == "accepted"
    assert (place / "index.txt").read_text().count("/CN=n7") == 2


@pytest.fixture
def cfssl(pki: Path, tmp_path: Path) -> Iterator[str]:
    """A cfssl server with the profile of docs/authority.md; its URL."""
    if not shutil.which("cfssl"):
        if os.environ.get("GEN_SEED_BOOT") == "required":
            pytest.fail("cfssl is missing: apt-get install golang-cfssl")
        pytest.skip("needs cfssl (golang-cfssl)")
    (tmp_path / "cfssl.json").write_text(
        json.dumps(json.loads(block("cfssl.json").split("\n", 1)[1]))
    )
    port = 20_000 + os.getpid() % 10_000  # below those that a system gives to whoever asks
    log = (tmp_path / "cfssl.log").open("wb")
    server = subprocess.Popen(
        [
            *("cfssl", "serve", "-address", "127.0.0.1", "-port", str(port)),
            *("-ca", str(pki / "ca.pem"), "-ca-key", str(pki / "ca-key.pem")),
            *("-config", str(tmp_path / "cfssl.json")),
        ],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=log,
    )
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < deadline, (tmp_path / "cfssl.log").read_text()
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()
        log.close()


def test_a_cfssl_server_as_documented(cfssl: str, trust: Path, tmp_path: Path) -> None:
    script = tmp_path / "cfssl-sign"
    script.write_text(block("cfssl-sign").replace("http://ca.example.net:8888", cfssl))
    how = command(sys.executable, str(script), folder=trust)
    identity, notes = signer.issue(how, trust, "n7", 365, SOON)
    assert notes == ()
    assert chain.name_of(identity.chain[0]) == "CN=n7"
    wrong = script.read_text().replace(cfssl, f"{cfssl}/nothing")
    script.write_text(wrong)
    with pytest.raises(Refused, match="exit status 1; it said:"):
        signer.issue(how, trust, "n7", 365, SOON)


def test_a_chain_in_any_order_with_its_root(pki: Path, trust: Path) -> None:
    signs = by_openssl(pki, LEAF)
    assert sign(f"cat {pki}/ca.pem; {signs}", trust) == "accepted"
    assert sign(f"{signs}; cat {pki}/ca.pem", trust) == "accepted"


def test_an_intermediate_of_theirs(trust: Path, tmp_path: Path) -> None:
    root = openssl.authority(tmp_path / "root", openssl.key())
    between = tmp_path / "between"
    between.mkdir()
    openssl.write_key(between / "ca-key.pem", openssl.key())
    settings = between / "ext.cnf"
    settings.write_text(f"{openssl.EXTENSIONS}\nauthorityKeyIdentifier=keyid\n")
    request = openssl.run("req", "-new", "-key", between / "ca-key.pem", "-subj", "/CN=between")
    by: list[str | Path] = ["-CA", root / "ca.pem", "-CAkey", root / "ca-key.pem"]
    by += ["-set_serial", "7", "-days", "99", "-extfile", settings]
    (between / "ca.pem").write_bytes(openssl.run("x509", "-req", *by, stdin=request))
    shutil.copy(root / "ca.pem", trust / "ca.pem")
    signs = by_openssl(between, LEAF)
    how = command("sh", "-c", f"{signs}; cat {between}/ca.pem", folder=trust)
    identity, _ = signer.issue(how, trust, "n7", 30, SOON)
    assert [chain.name_of(one) for one in identity.chain] == ["CN=n7", "CN=between"]
    # The leaf alone is enough where ca.pem has the intermediate.
    assert "does not lead to a root" in sign(signs, trust)
    shutil.copy(root / "ca.pem", trust / "root.pem")
    shutil.copy(between / "ca.pem", trust / "ca.pem")
    assert sign(signs, trust) == "accepted"


# What is not believed


@pytest.mark.parametrize(
    ("extensions", "more", "said"),
    [
        (LEAF, "-days 30 -subj /CN=n8", "has the common name 'n8', not 'n7'"),
        ("extendedKeyUsage=serverAuth", "", "it lacks clientAuth"),
        ("basicConstraints=critical,CA:TRUE", "", "is an authority's (CA:TRUE)"),
        (LEAF, "-days -1", "ended on"),
        (LEAF.replace("clientAuth", "clientAuth,serverAuth"), "", "could pose as a server"),
        (LEAF, "-days 20", "20 days, not 30"),
    ],
)
def test_an_answer_is_checked_like_our_own(
    extensions: str, more: str, said: str, pki: Path, trust: Path
) -> None:
    assert said in sign(by_openssl(pki, extensions, *more.split()), trust)


def test_k1_the_other_clock_may_be_a_little_ahead(pki: Path, trust: Path) -> None:
    how = command("sh", "-c", by_openssl(pki, LEAF), folder=trust)
    now = datetime.now(UTC)
    assert signer.issue(how, trust, "n7", 30, now - timedelta(minutes=4))[0].not_before >= NOW
    with pytest.raises(Refused, match="begins on"):
        signer.issue(how, trust, "n7", 30, now - timedelta(minutes=9))


def test_a_certificate_for_another_key(pki: Path, trust: Path, tmp_path: Path) -> None:
    made, _ = authority.load(pki, NOW)
    other, _ = authority.issue(made, "n7", 30, NOW)
    (tmp_path / "other.pem").write_bytes(other.certificate_pem)
    assert "holds no certificate for the key" in sign(f"cat {tmp_path}/other.pem", trust)


def test_the_root_of_somebody_else(trust: Path, tmp_path: Path) -> None:
    stranger = openssl.authority(tmp_path / "stranger", openssl.key(), subject="/CN=llmgw CA")
    assert "does not lead to a root" in sign(by_openssl(stranger, LEAF), trust)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("true", "holds no certificate in PEM form"),
        ("echo hello", "holds no certificate in PEM form"),
        ("exit 3", "failed: exit status 3, and it said nothing"),
        (
            "echo no such role >&2; echo 'try \033[31magain' >&2; exit 1",
            "said:\n    no such role\n",
        ),
        ("kill -9 $$", "failed: killed by SIGKILL"),
        ("yes", "more than 262144 bytes of output"),
        ("yes >&2", "no answer within 2 seconds"),
        ("exec 0<&-; exec 1>&-; sleep 300", "no answer within 2 seconds"),
    ],
)
def test_what_is_no_answer(script: str, said: str, trust: Path) -> None:
    found = sign(script, trust, timeout=2 if "no answer" in said else 60)
    assert said in found
    assert "\033" not in found


def test_a_program_that_is_not_there(trust: Path) -> None:
    for name in ("no-such-program", str(trust)):
        with pytest.raises(Refused, match=f"authority.command cannot run {name}: "):
            signer.issue(command(name, folder=trust), trust, "n7", 30, SOON)


def test_the_whole_group_is_killed_when_the_time_is_over(trust: Path, tmp_path: Path) -> None:
    script = f"sleep 300 & echo $! > {tmp_path}/pid; wait"
    assert "no answer within 5 seconds" in sign(script, trust, timeout=5)
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_helper_that_stays_with_stderr_is_not_waited_for(tmp_path: Path) -> None:
    """As the master of shared ssh connections stays."""
    script = ["sh", "-c", "(sleep 600 >/dev/null </dev/null) & echo $!; echo hm >&2"]
    outcome = external.run(script, b"", os.environ, tmp_path, 60)
    assert (outcome.failure, outcome.talk) == ("", "hm\n")
    os.kill(int(outcome.output), 9)


def test_a_large_answer_and_a_program_that_does_not_read(tmp_path: Path) -> None:
    script = ["sh", "-c", "head -c 200000 /dev/zero; head -c 200000 /dev/zero >&2"]
    outcome = external.run(script, b"x" * 5000, os.environ, tmp_path, 20)
    assert (len(outcome.output), outcome.failure) == (200_000, "")
    assert len(outcome.talk) == 1 << 14


# What it is given


def test_what_the_command_gets(pki: Path, trust: Path, tmp_path: Path) -> None:
    script = tmp_path / "sign it; no shell.sh"
    signs = by_openssl(pki, LEAF)
    script.write_text(
        f"#!/bin/sh\nenv > {tmp_path}/env; printf '%s\\n' \"$@\" > {tmp_path}/args\n"
        f"pwd > {tmp_path}/pwd; tee {tmp_path}/stdin | {signs}\n"
    )
    script.chmod(0o755)
    how = command(str(script), "$HOME", "a b", folder=trust)
    identity, _ = signer.issue(how, trust, "n7", 30, SOON)
    environ = (tmp_path / "env").read_text()
    assert "\nNODE=n7\n" in f"\n{environ}"
    assert "\nDAYS=30\n" in f"\n{environ}"
    assert (tmp_path / "args").read_text() == "$HOME\na b\n"
    assert (tmp_path / "pwd").read_text() == f"{trust}\n"
    request = x509.load_pem_x509_csr((tmp_path / "stdin").read_bytes())
    assert request.is_signature_valid
    assert request.subject.rfc4514_string() == "CN=n7"
    names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["n7"]
    # The key stays here, and the request has its public half.
    assert identity.key
    secret = identity.key.split(b"\n")[1]
    for name in ("env", "args", "stdin"):
        assert secret not in (tmp_path / name).read_bytes()
    public = pem.private_key(identity.key, "key").public_key()
    assert chain.same_key(public, request.public_key())


# The command of a workspace


@pytest.fixture
def fleet(pki: Path, trust: Path, tmp_path: Path) -> Fleet:
    made = Fleet(tmp_path / "ws")
    made.root.mkdir()
    script = made.root / "sign"
    script.write_text(f"#!/bin/sh\necho $NODE $DAYS >> {tmp_path}/asked\n{by_openssl(pki, LEAF)}\n")
    script.chmod(0o755)
    says = f"authority: {{dir: {trust}, command: [./sign], timeout: 20s}}\n"
    made.write(fleet=FLEET + says, n7="mgmt_addr: 10.0.0.107\nidentity: {days: 20}\n")
    return made


def test_a_seed_with_the_certificate_of_another_authority(
    fleet: Fleet, trust: Path, tmp_path: Path
) -> None:
    said = fleet("n7", "-o", "n7.iso").stderr.decode()
    assert "signed by ./sign" in said
    (row,) = ledger.reading(trust)
    assert row.node == "n7"
    assert row.issuer == chain.key_id(
        pem.certificates((trust / "ca.pem").read_bytes(), "ca.pem")[0].public_key()
    )
    assert (tmp_path / "asked").read_text() == "n7 20\n"
    fleet("n7", "--reuse", "-o", "a.iso")
    fleet("n7", "--reuse", "-o", "b.iso")
    assert (fleet.root / "a.iso").read_bytes() == (fleet.root / "b.iso").read_bytes()
    fleet("ca", "issue", "n8", "--out", "n8", "--days", "9")
    assert (tmp_path / "asked").read_text() == "n7 20\nn7 20\nn8 9\n"


def test_a_command_that_fails_leaves_nothing(fleet: Fleet, trust: Path) -> None:
    (fleet.root / "sign").write_text("#!/bin/sh\necho the token has expired >&2; exit 4\n")
    done = fleet("n7", "-o", "n7.iso", check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"failed: exit status 4; it said:\n    the token has expired\n" in done.stderr
    assert not (fleet.root / "n7.iso").exists()
    assert ledger.reading(trust) == []


def test_reading_runs_no_program_that_a_workspace_names(fleet: Fleet, tmp_path: Path) -> None:
    fleet("n7", "--as", "user-data", "--identity", "placeholder")
    fleet("n7", "--as", "meta-data")
    fleet("schema", "node")
    for arguments in (["ca", "list"], ["ca", "show"], ["ca", "export"]):
        fleet(*arguments)
    assert not (tmp_path / "asked").exists()


def test_a_broken_fleet_runs_nothing(fleet: Fleet, tmp_path: Path) -> None:
    fleet.write(fleet=(fleet.root / "fleet.yaml").read_text() + "nonsense: 1\n")
    for arguments in (["n7"], ["ca", "issue", "n7", "--out", "x"], ["ca", "revoke", "n7"]):
        done = fleet(*arguments, check=False)
        assert done.returncode == 1
        assert b"nonsense" in done.stderr
    assert not (tmp_path / "asked").exists()
