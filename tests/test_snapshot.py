"""Snapshots: a fleet's seeds with placeholders, committed, and compared in CI."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from fleet import Fleet
from racks import edit, racks, tree

OPTIONS = ("build", "--all", "--identity", "placeholder", "-d", "snapshots")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fleet = racks(tmp_path_factory.mktemp("snapshot") / "ws", 4)
    shutil.rmtree(fleet.pki)  # no authority is needed
    fleet(*OPTIONS)
    return fleet.root


@pytest.fixture
def fleet(kept: Path, tmp_path: Path) -> Fleet:
    return Fleet(Path(shutil.copytree(kept, tmp_path / "ws")))


def check(fleet: Fleet, *arguments: str, code: int = 1) -> tuple[str, str]:
    before = tree(fleet.root)
    done = fleet(*OPTIONS, "--check", *arguments, check=False)
    assert done.returncode == code, done.stderr.decode()
    assert tree(fleet.root) == before
    return done.stdout.decode(), done.stderr.decode()


def test_they_are_texts_and_up_to_date(fleet: Fleet) -> None:
    found = tree(fleet.root / "snapshots")
    assert set(found) == {
        "manifest.jsonl",
        *(f"n{n}/{name}" for n in range(4) for name in ("user-data", "meta-data")),
    }
    assert check(fleet, code=0) == ("", "snapshots: up to date, 4 snapshots\n")


def test_a_change_is_a_unified_diff(fleet: Fleet) -> None:
    edit(fleet, "fleet.yaml", "heartbeat_interval: 5s", "heartbeat_interval: 10s")
    diff, talk = check(fleet)
    assert diff.count('\n-    heartbeat_interval: "5s"\n+    heartbeat_interval: "10s"\n') == 2
    assert "--- snapshots/n1/user-data\n+++ snapshots/n1/user-data\n@@ " in diff
    assert "n0/" not in diff
    assert "2 of 4 snapshots in snapshots are not up to date" in talk
    # patch(1) makes of what is there what would be built.
    subprocess.run(["patch", "-p0", "-s"], cwd=fleet.root, input=diff.encode(), check=True)
    assert check(fleet, code=0)[0] == ""
    before = tree(fleet.root / "snapshots")
    fleet(*OPTIONS)
    assert {n: d for n, d in tree(fleet.root / "snapshots").items() if "/" in n} == {
        name: data for name, data in before.items() if "/" in name
    }


def test_a_last_line_without_its_end(fleet: Fleet) -> None:
    path = fleet.root / "snapshots/n0/meta-data"
    path.write_bytes(path.read_bytes()[:-1])
    (fleet.root / "snapshots/n1/network-config").write_bytes(b"more")
    diff, _ = check(fleet)
    assert diff == (
        "--- snapshots/n0/meta-data\n+++ snapshots/n0/meta-data\n@@ -1,2 +1,2 @@\n"
        f" {path.read_text('utf-8').splitlines()[0]}\n"
        "-local-hostname: n0\n\\ No newline at end of file\n+local-hostname: n0\n"
        "--- snapshots/n1/network-config\n+++ /dev/null\n@@ -1 +0,0 @@\n"
        "-more\n\\ No newline at end of file\n"
    )


def test_a_build_writes_only_what_differs(fleet: Fleet) -> None:
    edit(fleet, "fleet.yaml", "heartbeat_interval: 5s", "heartbeat_interval: 10s")
    times = {path: path.stat().st_mtime_ns for path in (fleet.root / "snapshots").rglob("*-data")}
    assert b"snapshots: 2 made, 2 unchanged" in fleet(*OPTIONS).stderr
    after = {path: path.stat().st_mtime_ns for path in times}
    assert {path.parent.name for path in times if times[path] != after[path]} == {"n1", "n3"}


def test_a_node_more_and_a_node_less(fleet: Fleet) -> None:
    fleet.write(n9="mgmt_addr: 10.0.0.9\nnetwork: {dhcp: true}\n")
    (fleet.root / "nodes/n0.yaml").unlink()
    diff, talk = check(fleet)
    assert "--- /dev/null\n+++ snapshots/n9/network-config\n" in diff
    assert "snapshots/n0 is of no node: rm -r snapshots/n0" in talk
    assert "1 of 4 snapshots in snapshots is not up to date" in talk
    fleet(*OPTIONS)
    # What is left over no build takes away, and it is none of the nodes that are counted.
    diff, talk = check(fleet)
    assert diff == ""
    assert talk == (
        "snapshots/n0 is of no node: rm -r snapshots/n0\n"
        "snapshots: up to date, 4 snapshots; to be deleted: 1\n"
    )
    # Whoever asks for one node is not told of another's.
    some = ("build", "n1", *OPTIONS[2:], "--check")
    assert fleet(*some).stderr == b"snapshots: up to date, 1 snapshot\n"
    shutil.rmtree(fleet.root / "snapshots/n0")
    assert check(fleet, code=0)[0] == ""
    # A network that is gone takes its file along.
    fleet.write(n9="mgmt_addr: 10.0.0.9\n")
    assert "--- snapshots/n9/network-config\n+++ /dev/null\n" in check(fleet)[0]
    fleet(*OPTIONS)
    assert not (fleet.root / "snapshots/n9/network-config").exists()


def test_what_an_iso_holds_is_compared_as_text(fleet: Fleet) -> None:
    images = ("build", "--all", "--identity", "placeholder", "--as", "iso", "-d", "images")
    fleet(*images)
    edit(fleet, "fleet.yaml", "heartbeat_interval: 5s", "heartbeat_interval: 10s")
    done = fleet(*images, "--check", check=False)
    assert done.returncode == 1
    assert b"--- images/n1.iso/user-data\n" in done.stdout
    assert b'\n+    heartbeat_interval: "10s"\n' in done.stdout
    done = fleet(*images, "--check", check=False, environ={"SOURCE_DATE_EPOCH": "1000000000"})
    assert b"images/n0.iso differs in its bytes, not in its texts\n" in done.stdout


def test_before_there_are_any(fleet: Fleet) -> None:
    shutil.rmtree(fleet.root / "snapshots")
    diff, talk = check(fleet)
    assert diff.count("--- /dev/null\n") == 8
    assert "4 of 4 snapshots" in talk


def test_a_secret_that_is_kept_elsewhere_is_not_in_them(fleet: Fleet) -> None:
    fleet.write(
        n0="mgmt_addr: 10.0.0.0\nproxy: {https: {env: PROXY}}\nrelease: {headers_file: none}\n"
    )
    fleet(*OPTIONS)  # neither is there, and neither is needed
    check(fleet, code=0)


def test_git_takes_them_and_no_key(fleet: Fleet) -> None:
    (fleet.root / "fleet.yaml").rename(fleet.root / "kept.yaml")
    for name in ("nodes", "snapshots"):
        (fleet.root / name).rename(fleet.root / f"kept-{name}")
    fleet("init", "--new-ca")
    for name in ("nodes", "snapshots"):
        shutil.rmtree(fleet.root / name, ignore_errors=True)
        (fleet.root / f"kept-{name}").rename(fleet.root / name)
    (fleet.root / "kept.yaml").replace(fleet.root / "fleet.yaml")
    for form in ("iso", "dir", "user-data"):
        fleet("build", "--all", "--as", form, "-d", f"out/{form}")
    for command in (["git", "init", "-q"], ["git", "add", "."]):
        subprocess.run(command, cwd=fleet.root, check=True)
    listed = subprocess.run(["git", "ls-files"], cwd=fleet.root, check=True, capture_output=True)
    names = listed.stdout.decode().split()
    assert {name for name in names if name.startswith("snapshots/")} == {
        f"snapshots/{name}" for name in tree(fleet.root / "snapshots")
    }
    assert not [name for name in names if name.startswith(("out/", "pki/"))]
