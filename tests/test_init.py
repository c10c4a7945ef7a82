"""`gen-seed init`: a workspace that works as it is, and nothing lost."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from fleet import Fleet, gen_seed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "ws"


def init(root: Path, *arguments: str, check: bool = True, pki: str = "") -> str:
    root.parent.mkdir(exist_ok=True)
    done = gen_seed(
        "init", str(root), *arguments, cwd=root.parent, check=check, environ={"GEN_SEED_PKI": pki}
    )
    assert done.returncode == 0 or not check
    return done.stderr.decode()


def content(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_a_new_workspace_renders(root: Path) -> None:
    said = init(root, "--new-ca")
    assert f"the control plane must trust {root}/pki/ca.pem before a node can join" in said
    assert Fleet(root)("n7").stdout[32769:32774] == b"CD001"
    assert root.joinpath("pki").stat().st_mode & 0o777 == 0o700
    assert root.joinpath("pki/ca-key.pem").stat().st_mode & 0o777 == 0o600


def test_each_yaml_file_names_its_schema_for_the_editor(root: Path) -> None:
    init(root, "--no-ca")
    for name in ("fleet.yaml", "nodes/n7.yaml"):
        first = (root / name).read_text().splitlines()[0]
        schema = first.removeprefix("# yaml-language-server: $schema=")
        assert (root / name).parent.joinpath(schema).is_file()


def test_it_uses_the_authority_that_there_is(root: Path, tmp_path: Path) -> None:
    gen_seed("ca", "init", "--pki", "there", cwd=tmp_path)
    assert "uses the authority in " in init(root, pki=str(tmp_path / "there"))
    assert not (root / "pki").exists()
    init(tmp_path / "other", "--new-ca", pki=str(tmp_path / "there"))
    assert (tmp_path / "other/pki/ca.pem").exists()


def test_no_authority_when_none_is_wanted(root: Path) -> None:
    assert "made no authority" in init(root, "--no-ca")
    assert not (root / "pki").exists()


def test_nothing_is_overwritten(root: Path) -> None:
    init(root, "--new-ca")
    (root / "fleet.yaml").write_text("schema: 1\n")
    before = content(root)
    said = init(root, check=False)
    assert f"error: {root}/fleet.yaml is there already" in said
    assert content(root) == before


def test_a_gitignore_that_is_there_stays(root: Path) -> None:
    root.mkdir()
    (root / ".gitignore").write_text("mine\n")
    assert "git should ignore pki/" in init(root, "--no-ca")
    assert (root / ".gitignore").read_text() == "mine\n"


def test_what_a_kill_left_is_completed(root: Path) -> None:
    init(root, "--new-ca")
    (root / "nodes/n7.yaml").unlink()
    before = content(root)
    init(root)
    assert content(root).items() > before.items()


def test_a_key_that_git_tracks_is_refused(root: Path) -> None:
    init(root, "--new-ca")
    for command in (["init", "-q"], ["add", "-f", "pki/ca-key.pem"]):
        subprocess.run(["git", "-C", root, *command], check=True)
    done = Fleet(root)("n7", check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"git tracks the authority's key" in done.stderr


def test_the_workspace_may_be_named_with_c_too(tmp_path: Path) -> None:
    for number, arguments in enumerate(
        (["-C", "a", "init"], ["init", "-C", "b"], ["-C", "c", "init", "d"])
    ):
        gen_seed(*arguments, "--no-ca", cwd=tmp_path)
        assert (tmp_path / ("a", "b", "c/d")[number] / "fleet.yaml").exists()
    assert not (tmp_path / "fleet.yaml").exists()


def test_git_sees_no_seed_but_the_placeholders(root: Path) -> None:
    init(root, "--new-ca")
    seeds = ("n7.iso", "n7.user-data", "seeds/n7.user-data", "seeds/n8/user-data", "out/n9.iso")
    placeholders = ("snapshots/n7.user-data", "snapshots/n8/user-data")
    for name in (*seeds, *placeholders):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    subprocess.run(["git", "-C", root, "init", "-q"], check=True)
    seen = subprocess.run(
        ["git", "-C", root, "ls-files", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert set(seen) & {*seeds, *placeholders} == set(placeholders)
    assert not [name for name in seen if name.startswith("pki/")]
