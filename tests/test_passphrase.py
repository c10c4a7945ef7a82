"""An authority whose key is encrypted, and where its passphrase comes from."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import openssl
import pytest
from fleet import CHECKOUT, Fleet
from openssl import NOW
from test_cli import FLEET, rows

from generator import authority, passphrase
from generator.problem import Refused

SECRET = "correct horse 7"  # noqa: S105 - of an authority that lives for one test


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    made = Fleet(tmp_path / "ws")
    made.root.mkdir()
    made.write(fleet=FLEET, n7="mgmt_addr: 10.0.0.107\n")
    (made.root / "secret").write_text(f"{SECRET}\n")
    return made


def on_a_terminal(fleet: Fleet, *arguments: str, answers: list[str]) -> tuple[int, str]:
    """Run gen-seed with a terminal of its own; return its exit status and what was shown."""
    pid, terminal = pty.fork()
    if not pid:  # the child
        os.environ["PYTHONPATH"] = str(CHECKOUT)
        os.chdir(fleet.root)
        os.execv(sys.executable, [sys.executable, "-m", "generator", *arguments])  # noqa: S606
    shown = b""
    deadline = time.monotonic() + 60
    try:
        while True:
            if not select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0]:
                os.kill(pid, signal.SIGKILL)
                pytest.fail(f"it waits for an answer: {shown.decode()}")
            shown += os.read(terminal, 4096)
            if answers and re.search(rb"(key|again): \Z", shown):
                os.write(terminal, f"{answers.pop(0)}\n".encode())
                shown += b"\n"
    except OSError:  # the terminal's end, on Linux
        pass
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


@pytest.mark.parametrize("kind", ["P-256", "P-384", "Ed25519", "RSA"])
def test_every_kind_of_key_plain_and_encrypted(kind: str, fleet: Fleet) -> None:
    fleet("ca", "init", "--key-type", kind.lower(), "--passphrase-file", "secret", "--days", "99")
    key = fleet.pki / "ca-key.pem"
    assert key.read_bytes().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert openssl.run("pkey", "-in", key, "-passin", f"pass:{SECRET}", "-noout") == b""
    done = fleet("n7", "--passphrase-file", "secret", "-o", "n7.iso")
    assert SECRET not in done.stderr.decode()
    assert rows(fleet) == 1
    fleet("ca", "crl", "--passphrase-file", "secret")


def test_the_terminal_is_asked(fleet: Fleet) -> None:
    code, shown = on_a_terminal(fleet, "ca", "init", "--passphrase", answers=[SECRET, SECRET])
    assert code == 0, shown
    assert SECRET not in shown
    code, shown = on_a_terminal(fleet, "n7", "-o", "n7.iso", answers=[SECRET])
    assert code == 0, shown
    assert shown.count("passphrase of the authority's key: ") == 1
    assert (fleet.root / "n7.iso").exists()
    code, shown = on_a_terminal(fleet, "n7", "-o", "n7.iso", answers=["wrong"])
    assert code == 1
    assert "the passphrase does not open the private key pki/ca-key.pem" in shown
    assert rows(fleet) == 1


def test_two_passphrases_that_differ_make_nothing(fleet: Fleet) -> None:
    code, shown = on_a_terminal(fleet, "ca", "init", "--passphrase", answers=[SECRET, "another"])
    assert code == 1
    assert "the two passphrases differ" in shown
    assert not fleet.pki.exists()


def test_without_a_terminal_it_says_what_to_do(fleet: Fleet) -> None:
    fleet("ca", "init", "--passphrase-file", "secret")
    for arguments in (["n7"], ["ca", "issue", "n7", "--out", "x"], ["ca", "crl"]):
        done = run_without_terminal(fleet, *arguments)
        assert done[0] == 1
        assert "there is no terminal to ask on" in done[1]
        assert "--passphrase-file FILE" in done[1]
    assert rows(fleet) == 0


def run_without_terminal(fleet: Fleet, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "generator", *arguments],
        cwd=fleet.root,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        start_new_session=True,
        input=f"{SECRET}\n",  # which is not asked
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def test_a_plain_key_asks_nobody(fleet: Fleet) -> None:
    authority.create(fleet.pki, NOW)
    assert run_without_terminal(fleet, "n7", "-o", "n7.iso")[0] == 0


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"a\nb\n", "holds more than one line"),
        (b"a\0b", "holds more than one line"),
        (b"x" * 5000, "larger than 4096 bytes"),
    ],
)
def test_files_that_hold_no_passphrase(data: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(data)
    with pytest.raises(Refused, match=said):
        passphrase.choose(str(tmp_path / "secret"))


@pytest.mark.parametrize("data", [b" a b ", b" a b \n", b" a b \r\n"])
def test_a_passphrase_is_the_line(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(data)
    assert passphrase.choose(str(tmp_path / "secret")) == b" a b "
    assert passphrase.asking(str(tmp_path / "secret"))() == b" a b "


def test_an_encrypted_key_of_openssl_in_both_forms(fleet: Fleet) -> None:
    for form in (["pkcs8", "-topk8"], ["ec", "-aes256"]):
        folder = openssl.authority(fleet.root / form[0], openssl.key())
        path = folder / "ca-key.pem"
        command = [*form, "-passout", f"pass:{SECRET}"]
        openssl.write_key(path, openssl.run(*command, stdin=path.read_bytes()))
        fleet(
            *("ca", "issue", "n7", "--out", f"{form[0]}-out"),
            *("--pki", form[0], "--passphrase-file", "secret"),
        )
