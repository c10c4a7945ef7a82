"""What building would change, before it does."""

from __future__ import annotations

import shutil
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fleet import Fleet
from racks import edit, plain, racks, tree

from generator import ledger
from generator.changes import field_text
from generator.fields import Field

COUNT = 10
LEFT, RIGHT = ([f"n{n}" for n in range(COUNT) if n % 2 == odd] for odd in (0, 1))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fleet = racks(tmp_path_factory.mktemp("diff") / "ws", COUNT)
    fleet("build", "--all")
    return fleet.root


@pytest.fixture
def fleet(kept: Path, tmp_path: Path) -> Fleet:
    return Fleet(Path(shutil.copytree(kept, tmp_path / "ws")))


def told(fleet: Fleet, *arguments: str, code: int = 2) -> list[str]:
    before = tree(fleet.root)
    done = fleet("diff", *arguments, check=False)
    assert done.returncode == code, done.stderr.decode()
    assert tree(fleet.root) == before
    return done.stdout.decode().splitlines()


def test_after_a_build_nothing_has_changed(fleet: Fleet) -> None:
    assert told(fleet, code=0) == [f"out: {COUNT} unchanged"]
    assert told(fleet, "--all", "-v", code=0) == [f"out: {COUNT} unchanged"]
    assert {row["state"] for row in plain(fleet, "diff")} == {"unchanged"}


def test_a_field_of_a_group_is_named_with_the_groups_nodes(fleet: Fleet) -> None:
    edit(fleet, "fleet.yaml", "heartbeat_interval: 5s", "heartbeat_interval: 10s")
    assert told(fleet) == [
        "out: 5 changed, 5 unchanged",
        "agent.heartbeat_interval: the default → 10s, on 5 nodes: n1, n3, n5, n7, n9",
    ]
    changed = [row for row in plain(fleet, "diff") if row["state"] == "changed"]
    assert [row["node"] for row in changed] == RIGHT
    field = {
        "path": "agent.heartbeat_interval",
        "before": None,
        "after": "10s",
        "secret": False,
    }
    assert all(row["fields"] == [field] for row in changed)
    assert not any(row["cloud_init_starts_over"] or row["new_release"] for row in changed)
    fleet("build", "--all")
    assert told(fleet, code=0) == [f"out: {COUNT} unchanged"]


def test_the_most_important_comes_first(fleet: Fleet) -> None:
    edit(fleet, "fleet.yaml", "v0.9.1", "v0.9.2")
    edit(fleet, "fleet.yaml", "0123456789abcdef" * 4, "fedcba9876543210" * 4)
    edit(fleet, "nodes/n3.yaml", "mgmt_addr: 10.0.0.3", "mgmt_addr: 10.0.9.3")
    edit(fleet, "nodes/n4.yaml", "groups:", "network: {dhcp: true}\ngroups:")
    fleet.write(n77="mgmt_addr: 10.0.9.7\n")
    (fleet.root / "nodes/n9.yaml").unlink()
    (fleet.root / "out/n1.iso").unlink()
    fleet("ca", "revoke", "n2")
    assert told(fleet) == [
        "out: 9 changed, 1 new, 1 gone",
        "cloud-init starts over, on 1 node: n4",
        "release v0.9.1 → v0.9.2, on 9 nodes: n0, n1, n2, n3, n4, n5, n6, n7 and 1 more",
        "n1.iso is missing, on 1 node: n1",
        "its certificate was revoked, on 1 node: n2",
        "mgmt_addr: 10.0.0.3 → 10.0.9.3, on 1 node: n3",
        "network.ethernets.eth0.dhcp4: the default → true, on 1 node: n4",
        "network.version: the default → 2, on 1 node: n4",
        "new: n77",
        "no node any more, but a seed of it is there: n9",
    ]
    rows = {row["node"]: row for row in plain(fleet, "diff")}
    assert {node: row["state"] for node, row in rows.items() if row["state"] != "changed"} == {
        "n77": "new",
        "n9": "gone",
    }
    assert [node for node, row in rows.items() if row["cloud_init_starts_over"]] == ["n4"]
    assert sum(row["new_release"] for row in rows.values()) == 9


def test_a_node_that_is_no_more_and_whose_seed_is_deleted(fleet: Fleet) -> None:
    (fleet.root / "nodes/n9.yaml").unlink()
    (fleet.root / "out/n9.iso").unlink()
    assert told(fleet, code=0) == ["out: 9 unchanged"]


def test_the_same_version_with_other_bytes_is_another_release(fleet: Fleet) -> None:
    edit(fleet, "fleet.yaml", "0123456789abcdef" * 4, "fedcba9876543210" * 4)
    edit(fleet, "fleet.yaml", "url: https://git.", "url: https://git2.")
    nodes = "n0, n1, n2, n3, n4, n5, n6, n7 and 2 more"
    first, second = told(fleet)[1:]
    assert (
        first
        == f"release of the same version, with another sha256.amd64, on {COUNT} nodes: {nodes}"
    )
    assert second.startswith("release.urls: ")
    assert all(row["new_release"] for row in plain(fleet, "diff"))
    edit(fleet, "fleet.yaml", "fedcba9876543210" * 4, "0123456789abcdef" * 4)
    assert not any(row["new_release"] for row in plain(fleet, "diff"))


def test_each_node_in_full(fleet: Fleet) -> None:
    edit(fleet, "nodes/n3.yaml", "mgmt_addr: 10.0.0.3", "mgmt_addr: 10.0.9.3")
    assert told(fleet, "-v")[2:] == ["n3: changed", "    mgmt_addr: 10.0.0.3 → 10.0.9.3"]


def test_a_value_of_its_own_for_each_node_is_one_line(fleet: Fleet) -> None:
    for node in RIGHT:
        edit(fleet, f"nodes/{node}.yaml", "mgmt_addr: 10.0.0", "mgmt_addr: 10.0.1")
    assert told(fleet)[1:] == ["mgmt_addr: 5 different values, on 5 nodes: n1, n3, n5, n7, n9"]


def test_some_nodes_only(fleet: Fleet) -> None:
    edit(fleet, "fleet.yaml", "heartbeat_interval: 5s", "heartbeat_interval: 10s")
    assert told(fleet, "n1", "n2")[0] == "out: 1 changed, 1 unchanged"
    assert told(fleet, "--group", "left", code=0) == ["out: 5 unchanged"]
    assert told(fleet, "--group", "left", "n1") == []  # wrong usage
    assert told(fleet, "--group", "right")[0] == "out: 5 changed"


def test_a_certificate_that_ends_soon(fleet: Fleet) -> None:
    path = fleet.root / "out/manifest.jsonl"
    lines = path.read_text("utf-8").splitlines(keepends=True)
    ends = lines[0].partition('"not_after":"')[2][:10]
    soon = f"{datetime.now(UTC) + timedelta(days=20):%Y-%m-%d}"
    began = lines[0].partition('"not_before":"')[2][:10]
    lines[0] = lines[0].replace(ends, soon).replace(began, "2020-01-01")
    lines[1] = lines[1].replace(ends, "2021-01-01").replace(began, "2020-01-01")
    path.write_text("".join(lines), "utf-8")
    assert told(fleet) == [
        "out: 2 with a certificate at its end, 8 unchanged",
        "the certificate has ended, on 1 node: n1",
        "the certificate ends soon, on 1 node: n0",
    ]


def test_what_a_long_value_differs_in_is_shown() -> None:
    digest = "ab" * 31
    assert field_text(Field("release.sha256.amd64", f"{digest}01", f"{digest}02")) == (
        f"release.sha256.amd64: {digest}01 → {digest}02"
    )
    url = f"https://git.example.net/{'far/' * 9}llmgw-linux"
    assert field_text(Field("release.urls", [f"{url}-amd64-v1"], [f"{url}-amd64-v2", "x"])) == (
        'release.urls: …/llmgw-linux-amd64-v1"] → …/llmgw-linux-amd64-v2", "x"]'
    )
    assert field_text(Field("agent.x", "y" * 99)) == f"agent.x: {'y' * 63}… → the default"


SECRET = "correct-horse"  # noqa: S105


def test_a_secret_is_compared_and_not_shown(fleet: Fleet) -> None:
    environ = {"PROXY": f"http://u:{SECRET}@proxy:3128"}
    text = f"""\
mgmt_addr: 10.0.0.3
proxy: {{https: {{env: PROXY}}}}
release: {{headers_file: headers}}
cloud_config: {{chpasswd: {{list: "root:{SECRET}"}}}}
"""
    fleet.write(n3=text)
    (fleet.root / "headers").write_text(f"X-Token: {SECRET}\n", "utf-8")
    fleet("build", "n3", environ=environ)
    assert fleet("diff", "n3", environ=environ).stdout == b"out: 1 unchanged\n"

    def after(new: str, header: str, cloud: str) -> list[str]:
        (fleet.root / "headers").write_text(f"X-Token: {header}\n", "utf-8")
        fleet.write(n3=text.replace(SECRET, cloud))
        changed = {"PROXY": f"http://u:{new}@proxy:3128"}
        seen = []
        for form in ("text", "json"):
            done = fleet("diff", "n3", "-v", "--format", form, check=False, environ=changed)
            assert done.returncode == 2
            assert SECRET[:6] not in (done.stdout + done.stderr).decode()
            seen.append(done.stdout.decode())
        assert '"new_release": false' in seen[1]
        return seen[0].splitlines()[1:-1]

    other = SECRET + "2"
    unseen = ": another value, which is not shown"
    assert after(other, SECRET, SECRET)[:-1] == [f"proxy.https{unseen}, on 1 node: n3"]
    assert after(SECRET, other, SECRET)[:-1] == [
        f"content of release.headers_file{unseen}, on 1 node: n3"
    ]
    assert after(SECRET, SECRET, other)[:-1] == [
        "cloud-init starts over, on 1 node: n3",
        f"cloud_config.chpasswd{unseen}, on 1 node: n3",
    ]


def test_what_is_wrong_is_told_and_is_1(fleet: Fleet) -> None:
    fleet.write(n3="mgmt_addr: 10.0.9\n")
    done = fleet("diff", check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"nodes/n3.yaml:1:12: mgmt_addr" in done.stderr


def test_before_the_first_build_and_without_an_authority(tmp_path: Path) -> None:
    fleet = racks(tmp_path / "ws", 3)
    shutil.rmtree(fleet.pki)
    assert told(fleet) == ["out: 3 new", "new: n0, n1, n2"]


def test_no_program_is_run(fleet: Fleet, tmp_path: Path) -> None:
    script = fleet.root / "sign"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n", "utf-8")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    edit(fleet, "fleet.yaml", "groups:", "authority: {command: [./sign]}\ngroups:")
    fleet.write(n77="mgmt_addr: 10.0.9.7\n")
    assert told(fleet)[0] == "out: 1 new, 10 unchanged"
    assert not (tmp_path / "ran").exists()
    assert len(ledger.reading(fleet.pki)) == COUNT


def test_a_folder_of_another_format(fleet: Fleet) -> None:
    fleet("build", "--all", "--as", "dir", "-d", "folders")
    assert told(fleet, "-d", "folders", code=0) == [f"folders: {COUNT} unchanged"]
    (fleet.root / "folders/n3/meta-data").unlink()
    assert told(fleet, "-d", "folders")[1:] == ["n3 is not what was built, on 1 node: n3"]


def test_the_snapshots_have_their_own_command(fleet: Fleet) -> None:
    fleet("build", "--all", "--identity", "placeholder", "-d", "snapshots")
    done = fleet("diff", "-d", "snapshots", "--as", "dir", check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"snapshots holds seeds with placeholders, not certificates" in done.stderr
