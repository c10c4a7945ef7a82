"""The command as a process: what it prints, writes, refuses, and leaves alone."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import unprivileged
import yaml
from fleet import CHECKOUT, Fleet, gen_seed, on_terminal

from generator.__main__ import run

if TYPE_CHECKING:
    from collections.abc import Callable

FLEET = f"""\
schema: 1
defaults:
  server: https://10.0.0.140:7443
  engines: {{llamacpp: {{bin: /opt/llama.cpp/llama-server}}}}
  fabrics: [{{name: ib-a, hcas: [mlx5_0]}}]
release:
  version: v0.9.1
  url: https://git.example.net/{{version}}/llmgw-linux-{{arch}}
  sha256: {{amd64: {"0123456789abcdef" * 4}}}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fleet = Fleet(tmp_path_factory.mktemp("made"))
    fleet.write(fleet=FLEET, n7="mgmt_addr: 10.0.0.107\n", n8="mgmt_addr: 10.0.0.108\n")
    fleet("ca", "init")
    return fleet.root


@pytest.fixture
def fleet(made: Path, tmp_path: Path) -> Fleet:
    return Fleet(Path(shutil.copytree(made, tmp_path / "ws")))


def rows(fleet: Fleet) -> int:
    if not (fleet.pki / "ledger.db").exists():
        return 0
    with sqlite3.connect(fleet.pki / "ledger.db") as connection:
        return int(connection.execute("SELECT count(*) FROM certificate").fetchone()[0])


def shell(fleet: Fleet, script: str) -> None:
    command = f"{sys.executable} -m generator"
    subprocess.run(
        ["sh", "-ec", f"umask 022; {script.replace('gen-seed', command)}"],
        cwd=fleet.root,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        check=True,
        stderr=subprocess.DEVNULL,
    )


def test_q1_stdout_a_file_and_a_pipe_get_the_same_bytes(fleet: Fleet) -> None:
    shell(fleet, "gen-seed n7 --as dir -o given")
    config = yaml.safe_load((fleet.root / "given/user-data").read_text())
    content = {file["path"]: file["content"] for file in config["write_files"]}
    (fleet.root / "id").mkdir()
    (fleet.root / "id/n7.pem").write_text(content["/etc/llmgw/agent.pem"])
    (fleet.root / "id/n7-key.pem").write_text(content["/etc/llmgw/agent-key.pem"])
    (fleet.root / "appended").touch()
    shell(
        fleet,
        """
        gen-seed n7 --identity id > redirected
        gen-seed n7 --identity id -o named
        gen-seed n7 --identity id | cat > piped
        gen-seed n7 --identity id >> appended
        """,
    )
    images = {
        name: (fleet.root / name).read_bytes()
        for name in ("redirected", "named", "piped", "appended")
    }
    assert len(set(images.values())) == 1
    assert images["named"][32769:32774] == b"CD001"
    modes = {name: (fleet.root / name).stat().st_mode & 0o777 for name in images}
    assert modes == {"redirected": 0o600, "named": 0o600, "piped": 0o644, "appended": 0o600}
    assert rows(fleet) == 1


def test_the_placeholder_is_the_same_for_ever_and_needs_no_authority(fleet: Fleet) -> None:
    with_authority = fleet("n7", "--identity", "placeholder").stdout
    shutil.rmtree(fleet.pki)
    assert fleet("n7", "--identity", "placeholder").stdout == with_authority
    assert not fleet.pki.exists()


@pytest.mark.parametrize("form", ["iso", "user-data"])
def test_q1_a_terminal_is_refused(fleet: Fleet, form: str) -> None:
    status, shown, said = on_terminal("n7", "--as", form, cwd=fleet.root)
    assert status == 1
    assert shown == b""
    assert "is not written to a terminal" in said
    assert "hint: redirect it, > FILE, or write it with -o FILE" in said
    assert rows(fleet) == 0


def test_parts_without_an_identity_issue_none(fleet: Fleet) -> None:
    meta_data = yaml.safe_load(fleet("n7", "--as", "meta-data").stdout)
    assert meta_data["local-hostname"] == "n7"
    assert rows(fleet) == 0
    fleet("n7", "--as", "user-data")
    assert rows(fleet) == 1


def remove(name: str) -> Callable[[Fleet], object]:
    return lambda fleet: (fleet.root / name).unlink()


def write(name: str, text: str) -> Callable[[Fleet], object]:
    return lambda fleet: Path(fleet.root / name).write_text(text)


def another_key(fleet: Fleet) -> None:
    fleet("ca", "init", "--pki", "other")
    (fleet.root / "other/ca-key.pem").rename(fleet.pki / "ca-key.pem")


def garbled_ledger(fleet: Fleet) -> None:
    (fleet.pki / "ledger.db").write_bytes(b"not a database" * 100)


REFUSED: dict[str, tuple[list[str], Callable[[Fleet], object] | None, str]] = {
    "unknown node": (["n9"], None, "error: no node 'n9'"),
    "not a node id": (["../n7"], None, "'../n7' is not a node id"),
    "no authority": (["n7"], remove("pki/ca.pem"), "no authority in pki: ca.pem is missing"),
    "no key": (["n7"], remove("pki/ca-key.pem"), "no authority in pki: ca-key.pem is missing"),
    "another key": (["n7"], another_key, "does not belong to any certificate in pki/ca.pem"),
    "no YAML": (["n7"], write("nodes/n7.yaml", "a: [1"), "error: nodes/n7.yaml:1:"),
    "a wrong spec": (
        ["n7"],
        write("nodes/n7.yaml", "mgmt_addr: 10.0.0.107\nfabrik: []\n"),
        "error: nodes/n7.yaml:2:1: fabrik",
    ),
    "no such identity": (["n7", "--identity", "nowhere"], None, "no folder nowhere"),
    "no network": (["n7", "--as", "network-config"], None, "n7 has no network-config"),
    "no folder": (["n7", "-o", "no/n7.iso"], None, "there is no folder no"),
    "a folder to stdout": (["n7", "--as", "dir"], None, "a folder cannot be written to stdout"),
    "a broken template": (
        ["n7"],
        lambda fleet: shutil.copytree(
            CHECKOUT / "tests/broken-templates", fleet.root / "templates"
        ),
        "rendered agent.yaml.node_id is not what the spec asks for",
    ),
    "a garbled ledger": (["n7"], garbled_ledger, "ledger"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_issues_and_writes_nothing(fleet: Fleet, case: str) -> None:
    arguments, spoil, message = REFUSED[case]
    if spoil:
        spoil(fleet)
    before = {path: path.read_bytes() for path in fleet.root.rglob("*") if path.is_file()}
    done = fleet(*arguments, check=False)
    said = done.stderr.decode()
    assert message in said
    assert said.count("error: ") == 1
    assert (done.returncode, done.stdout) == (1, b"")
    if case != "a garbled ledger":
        assert rows(fleet) == 0
    after = {path: path.read_bytes() for path in fleet.root.rglob("*") if path.is_file()}
    assert {path.name for path in after.keys() - before.keys()} <= {"ledger.db"}
    assert before.items() <= after.items()


def test_an_unreadable_file_is_named(fleet: Fleet) -> None:
    target = fleet.root / "nodes/n7.yaml"
    target.unlink()
    target.mkdir()
    done = fleet("n7", check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"error: cannot read nodes/n7.yaml: is a directory\n"


@pytest.mark.parametrize(
    "arguments", [["--nonsense"], ["n7", "--as", "tar"], ["build"], ["ca", "x"]]
)
def test_wrong_usage_is_2(fleet: Fleet, arguments: list[str]) -> None:
    done = fleet(*arguments, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: ")
    assert b"\n  hint: " in done.stderr
    assert done.stdout == b""


def test_a_node_with_a_commands_name_works_in_the_long_form(fleet: Fleet) -> None:
    fleet.write(help="mgmt_addr: 10.0.0.109\n")
    assert b"gen-seed seed help" in fleet("help", check=False).stderr
    assert b"local-hostname: help" in fleet("seed", "help", "--as", "meta-data").stdout


def test_the_workspace_may_be_named_before_or_behind(fleet: Fleet) -> None:
    for arguments in (["-C", str(fleet.root), "n7"], ["n7", "-C", str(fleet.root)]):
        done = gen_seed(*arguments, "--as", "meta-data", cwd=Path("/"))
        assert b"local-hostname: n7" in done.stdout


def test_the_authority_that_is_used_is_named(fleet: Fleet) -> None:
    fleet("ca", "init", "--pki", "a", "--name", "authority A")
    fleet("ca", "init", "--name", "authority B", environ={"GEN_SEED_PKI": "b"})
    said = fleet("n7", "--pki", "a", environ={"GEN_SEED_PKI": "b"}).stderr
    assert b"issued by CN=authority A in a\n" in said
    assert b"issued by CN=authority B in b\n" in fleet("n7", environ={"GEN_SEED_PKI": "b"}).stderr
    fleet.write(fleet=FLEET + "authority: {dir: a}\n")
    assert b"issued by CN=authority A in a\n" in fleet("n7").stderr


def test_after_rendering_it_says_where_to_look_and_when_it_ends(fleet: Fleet) -> None:
    said = fleet("n7").stderr.decode()
    assert "llmgw ctl nodes" in said
    assert "the control plane's log says why" in said
    assert "it ends on 20" in said
    assert "`sim`" not in said
    fleet.write(fleet=FLEET.replace("{llamacpp: {bin: /opt/llama.cpp/llama-server}}", "{}"))
    assert "sim" in fleet("n7").stderr.decode()


def test_a_reader_that_goes_away_gets_no_traceback(fleet: Fleet) -> None:
    shell(fleet, "gen-seed n7 2>said | true || true; ! grep -i -e traceback -e error said")


def test_a_full_device_is_told(fleet: Fleet) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "generator", "n7"],
            cwd=fleet.root,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    assert b"cannot write standard output: no space left on device" in done.stderr


def test_a_folder_that_may_not_be_entered_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with unprivileged.folder() as place:
        (place / "closed").mkdir(0o700)
        command = ["inspect", f"{place}/closed/n7.iso"]
        assert run(command) == 1  # as root, who can read all that Python needs for it
        capsys.readouterr()
        with unprivileged.nobody():
            assert run(command) == 1
        said = capsys.readouterr().err
        assert said == f"error: {place}/closed/n7.iso: permission denied\n"


def test_closed_stdout_is_told_and_issues_nothing(fleet: Fleet) -> None:
    shell(
        fleet, "gen-seed n7 >&- 2>said && exit 1 || true; grep -q 'standard output is closed' said"
    )
    assert rows(fleet) == 0
    shell(fleet, "gen-seed n7 -o n7.iso >&-")
    assert (fleet.root / "n7.iso").exists()


def test_an_iso_behind_something_else_is_refused(fleet: Fleet) -> None:
    shell(fleet, "echo x >f; gen-seed n7 >>f 2>said && exit 1 || true; grep -q 'not >> FILE' said")
    assert (fleet.root / "f").read_text() == "x\n"
    assert rows(fleet) == 0


def test_the_help_shows_its_examples_line_by_line(fleet: Fleet) -> None:
    for arguments in ([], ["--help"]):
        done = fleet(*arguments, check=False)
        text = (done.stdout + done.stderr).decode()
        assert "\n      gen-seed n7 > n7.iso           the seed of node n7" in text
        assert "\b" not in text
        assert "error" not in text


def test_r6_files_from_windows_make_a_seed_with_plain_line_ends(fleet: Fleet) -> None:
    script = "#!/bin/sh\necho hello\n"
    own = f"""\
mgmt_addr: 10.0.0.107
release: {{ca: release-ca.pem}}
cloud_config:
  write_files:
    - path: /opt/hello
      permissions: "0755"
      content: |
        {script.strip().replace(chr(10), chr(10) + "        ")}
"""
    root = fleet.pki / "ca.pem"
    (fleet.root / "release-ca.pem").write_bytes(root.read_bytes())
    fleet.write(n7=own)
    files = [fleet.root / name for name in ("fleet.yaml", "nodes/n7.yaml", "release-ca.pem")]
    for path in (*files, root):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    user_data = fleet("n7", "--as", "user-data").stdout
    assert b"\r" not in user_data
    written = yaml.safe_load(user_data)["write_files"]
    assert written[-1]["content"] == script
    assert [file["path"] for file in written if "\r" in file["content"]] == []


def test_q5_a_dry_render_is_the_same_on_every_host(fleet: Fleet, tmp_path: Path) -> None:
    """As `tests/good` is: recorded on one, compared on all others."""
    elsewhere = Fleet(Path(shutil.copytree(fleet.root, tmp_path / "else where")))
    shutil.rmtree(elsewhere.pki)
    here = {"TZ": "Asia/Tokyo", "LANG": "tr_TR.UTF-8", "HOME": "/", "USER": "nobody"}
    for form in ("iso", "user-data", "meta-data"):
        render = ("n7", "--as", form, "--identity", "placeholder")
        data = fleet(*render).stdout
        assert data
        assert elsewhere(*render, environ=here).stdout == data


def test_what_is_printed_is_utf_8_in_every_locale(fleet: Fleet) -> None:
    fleet("build", "--all")
    fleet.write(n7="mgmt_addr: 10.0.0.109\n")
    latin = {"PYTHONIOENCODING": "latin-1"}
    told = fleet("diff", environ=latin, check=False)
    assert told.returncode == 2, told.stderr
    assert "10.0.0.107 → 10.0.0.109".encode() in told.stdout
    # The name of a file need be no text at all; in JSON its bytes can be told from others.
    name = os.fsdecode(b"n7-\xff.iso")
    (fleet.root / "out/n7.iso").rename(fleet.root / name)
    assert b"n7-\\udcff.iso: ISO" in fleet("inspect", name).stdout
    assert json.loads(fleet("inspect", name, "--format", "json").stdout)["seeds"][0]["file"] == name


def test_x3_user_data_to_be_pasted_comes_with_a_warning(fleet: Fleet) -> None:
    told = b"warning: this user-data holds the node's private key"
    assert told in fleet("n7", "--as", "user-data").stderr
    assert told not in fleet("n7", "--as", "user-data", "--identity", "placeholder").stderr
    assert told not in fleet("n7").stderr


def test_p4_a_digest_names_an_iso(fleet: Fleet) -> None:
    """What docs/node.md advises where files are known by name: same seed, same name."""
    first, again = (hashlib.sha256(fleet("n7", "--reuse").stdout).digest() for _ in range(2))
    renewed = hashlib.sha256(fleet("n7", "--renew").stdout).digest()
    assert first == again != renewed


def test_l2_nothing_goes_by_the_machine_id(fleet: Fleet) -> None:
    """Two machines from one image have one; the node id is what a node is known by."""
    fleet("n7", "--as", "dir", "-o", "made")
    made = b"".join(path.read_bytes() for path in (fleet.root / "made").iterdir())
    assert b"node_id: n7" in made
    assert b"machine-id" not in made


@pytest.mark.parametrize("command", [["n7", "--reuse"], ["build", "--all"], ["n7"], ["ca", "show"]])
def test_without_an_authority_nothing_is_made_and_the_way_out_is_said(
    fleet: Fleet, tmp_path: Path, command: list[str]
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    done = fleet(*command, "--pki", str(empty), check=False)
    assert done.returncode == 1
    assert f"no authority in {empty}: ca.pem is missing".encode() in done.stderr
    assert b"hint: make an authority with 'gen-seed ca init', or name one with --pki" in done.stderr
    assert list(empty.iterdir()) == []
