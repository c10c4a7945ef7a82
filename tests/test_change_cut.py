"""Changes that are broken off, or cross one another: what was decided stays true.

As in test_change.py, on a folder that stands for the node's root.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from stand_in import (
    BINARY,
    DASH,
    FIRST,
    SYSTEMCTL,
    Node,
    files_of,
    node_at_rest,
    node_in,
    release_of,
    user_data,
)
from test_change import (
    APPLIED,
    BETTER,
    BROKEN,
    COPY,
    CUT,
    FRAGILE,
    INCOMING,
    SECOND,
    apply,
    is_this,
    staged,
)

from generator import spec

STATE = "var/lib/llmgw-onboard"
OTHER = replace(FIRST, fabrics=SECOND.fabrics)  # with the same release
REST = replace(FIRST, cloud_config=MappingProxyType({"timezone": "Etc/UTC"}))
N8 = replace(FIRST, node_id="n8")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node that is what its first seed says."""
    return node_at_rest(tmp_path)


def cut(node: Node, at: int, *command: str) -> bool:
    """Run one of onboard's commands, its power gone after so many renames; was it cut off?"""
    node.install("mv", CUT)
    (node.root / "moves").unlink(missing_ok=True)
    (node.root / "limit").write_text(str(at))
    with subprocess.Popen(
        node.command(*command), env=node.environ, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        assert process.stdout
        for line in process.stdout:
            if b"not yet: " in line:  # all renames are done
                os.killpg(process.pid, signal.SIGKILL)
    (node.root / "stand-ins/mv").unlink()
    return int((node.root / "moves").read_text()) > at


def written_by_cloud_init(node: Node, asked: spec.Spec) -> None:
    """cloud-init has read a seed of a new instance: its bootcmd, its files, its own copy."""
    node.ask("keep", asked.node_id)
    files = files_of(asked)
    data = user_data(files)
    for entry in json.loads(data.partition("\n")[2])["write_files"]:
        (node.root / entry["path"][1:]).write_text(entry["content"])
    copy = node.root / COPY
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(data)


def until_decided(node: Node, asked: spec.Spec) -> None:
    """Apply a seed; the power goes as soon as there is no way back."""
    apply(node, user_data(files_of(asked)))
    for at in range(100):
        cut(node, at, "run")
        if (node.root / "etc/llmgw/.commit").exists():
            return
    pytest.fail("nothing was decided")


def test_a_seed_that_was_cut_off_in_its_list_is_refused(node: Node) -> None:
    """At the end of any line of it what there is reads like a whole, smaller seed."""
    entries = json.loads(user_data(files_of(SECOND)).partition("\n")[2])["write_files"]
    lines = entries[-1]["content"].splitlines(keepends=True)
    for count in range(len(lines)):
        entries[-1]["content"] = "".join(lines[:count])
        said = apply(node, "#cloud-config\n" + json.dumps({"write_files": entries}))
        assert "the seed's list of files is cut off" in said
        assert not (node.root / INCOMING).exists()


def test_x1_a_full_disk_keeps_no_piece_of_a_seed(node: Node) -> None:
    """And what the machine was at, it goes on with."""
    before, notes = node.calls(), node.root / STATE / "notes"
    notes.write_text("a note\n")
    (node.root / "run/llmgw-onboard/verdict").write_text("ok\n")
    full = 'case "$*" in "") head -c 3000; [ -t 0 ] || exit 1 ;; *) exec /bin/cat "$@" ;; esac\n'
    node.install("cat", full)
    done = subprocess.run(
        node.command("apply", str(seed_file(node, SECOND))),
        env=node.environ, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, f"onboard: cannot write to {node.root / STATE}\n")
    assert {path.name for path in (node.root / STATE).iterdir() if "incoming" in path.name} == set()
    assert node.calls().removeprefix(before).splitlines() == [
        "stop llmgw-onboard.service",
        "start --no-block llmgw-onboard.service",
    ]
    assert notes.exists()


def seed_file(node: Node, asked: spec.Spec) -> Path:
    path = node.root / "seed"
    path.write_text(user_data(files_of(asked)))
    return path


def test_x1_the_power_goes_while_apply_writes(node: Node) -> None:
    assert cut(node, 0, "apply", str(seed_file(node, OTHER)))
    assert (node.root / STATE / "incoming.new").exists()
    node.onboard("")
    assert [path for path in (node.root / STATE).iterdir() if "incoming" in path.name] == []
    assert is_this(node, files_of(FIRST))


def test_p1_apply_comes_before_this_boots_own_run(tmp_path: Path) -> None:
    """SSH may answer before cloud-init ends: what it has read is older than what is applied."""
    node = node_in(tmp_path, DASH)
    written_by_cloud_init(node, FIRST)
    apply(node, user_data(files_of(OTHER)))
    node.onboard()
    assert is_this(node, files_of(OTHER))


def test_p1_what_the_agent_was_not_given_it_is_given_by_the_next_seed(node: Node) -> None:
    """Back to the first seed while the agent still shows whether it stays up with the second."""
    apply(node, user_data(files_of(OTHER)))
    node.install("systemctl", SYSTEMCTL.replace("MainPID=42", "MainPID=$$"))
    node.onboard("next try")  # running, but never for long
    assert is_this(node, files_of(OTHER))
    (node.root / "calls").unlink()
    apply(node, user_data(files_of(FIRST)))
    node.onboard()
    assert is_this(node, files_of(FIRST))
    assert "restart --no-block llmgw-agent.service\n" in node.calls()
    # Once it runs with that, it is left alone.
    (node.root / "calls").unlink()
    apply(node, user_data(files_of(replace(FIRST, onboard=spec.Onboard(wait="300s")))))
    node.onboard()
    assert "restart" not in node.calls()


def test_p1_the_power_goes_after_the_claim(node: Node) -> None:
    """The next boot tells of the new seed, and has the system trust its root."""
    anchor = node.root / "usr/local/share/ca-certificates/llmgw-ca.crt"
    last = 100  # at first it comes to its end
    for turn in range(5):
        agent = turn % 2 == 0
        asked = replace(OTHER if agent else FIRST, trust="agent" if agent else "system")
        apply(node, user_data(files_of(asked)))
        cut(node, last - turn, "run")
        last = last if turn else int((node.root / "moves").read_text())
        node.onboard()
        assert is_this(node, files_of(asked))
        assert anchor.exists() != agent, turn
        assert node.status()["accepted"].startswith("not yet"), turn
        node.accept()


def test_p1_a_change_that_was_broken_off_and_then_a_new_instance(node: Node) -> None:
    """What stood ready to be renamed must not go over the files that cloud-init writes."""
    until_decided(node, OTHER)
    written_by_cloud_init(node, REST)
    node.ask("finish")
    assert is_this(node, files_of(REST))
    node.onboard()
    node.accept()
    assert is_this(node, files_of(REST))
    assert staged(node) == []
    # And it is known whose work cloud-init has done.
    assert "nothing to do" in apply(node, user_data(files_of(REST)))


def test_l1_a_change_that_was_broken_off_and_then_a_clone(node: Node) -> None:
    until_decided(node, OTHER)
    written_by_cloud_init(node, N8)
    node.ask("finish")
    node.onboard()
    node.accept()
    assert is_this(node, files_of(N8))
    assert staged(node) == []
    assert node.status()["notes"] == ["this disk was the node n7"]
    assert "nothing to do" in apply(node, user_data(files_of(N8)))


def test_p1_files_that_cloud_init_wrote_in_part_are_nobodys_edit(node: Node) -> None:
    """The power went between two of them; the next boot's bootcmd looks again."""
    node.ask("keep", "n7")
    agent = node.root / "etc/llmgw/agent.yaml"
    agent.write_text(files_of(replace(REST, fabrics=SECOND.fabrics))["/etc/llmgw/agent.yaml"])
    node.ask("keep", "n7")
    assert list(agent.parent.glob("*.before-*")) == []
    # With the old seed attached again instead: that, and not a mixture.
    copy = node.root / COPY
    copy.parent.mkdir(parents=True)
    copy.write_text(user_data(files_of(FIRST)))
    node.onboard()
    assert is_this(node, files_of(FIRST))
    assert staged(node) == []


def test_cloud_inits_place_is_known_though_its_seed_was_never_applied(tmp_path: Path) -> None:
    """Else the bootcmd of the seed that is attached would have it written again at each boot."""
    node = node_in(tmp_path, DASH)
    (node.root / "release").unlink()
    node.onboard("next try")
    (node.root / "release").write_bytes(BINARY)
    first = node.conf()["seed"]
    assert apply(node, user_data(files_of(REST)), "--without-cloud-init") == ""
    node.onboard()
    assert is_this(node, files_of(REST))
    assert (node.root / APPLIED).read_text().splitlines()[0] == first


def test_cloud_init_has_done_what_was_left_to_it(node: Node) -> None:
    """Attached after all: else its bootcmd would have it written again at each later boot."""
    apply(node, user_data(files_of(REST)), "--without-cloud-init")
    node.onboard()
    node.accept()
    assert not (node.root / APPLIED).read_text().startswith(node.conf()["seed"])
    written_by_cloud_init(node, REST)
    (node.root / "calls").unlink()
    node.onboard("")
    assert (node.root / APPLIED).read_text().startswith(node.conf()["seed"])
    assert node.calls() == ""


def test_a_release_that_was_given_up_is_tried_again_after_another_seed(node: Node) -> None:
    broken = user_data(files_of(replace(SECOND, release=release_of(BROKEN, "v2"))))
    for seed in (broken, user_data(files_of(FIRST)), broken):
        (node.root / "release").write_bytes(BROKEN)
        apply(node, seed)
        node.install("systemctl", FRAGILE)
        node.onboard()
        assert node.binary.read_bytes() == BINARY
        told = "went back to v1" if seed == broken else "ok"
        assert told in node.verdict()


def test_the_same_seed_mends_a_binary_that_is_not_its_release(node: Node) -> None:
    node.binary.write_bytes(BETTER)
    assert apply(node, user_data(files_of(FIRST))) == ""
    node.onboard()
    assert node.binary.read_bytes() == BINARY


def test_x1_no_way_to_the_server_keeps_no_copy_of_the_key(tmp_path: Path) -> None:
    """The address is followed as soon as it is known; the rest of the boot goes on."""
    node = node_in(tmp_path, DASH)
    node.install("ip", "echo '10.0.0.1 dev eth0 src 10.0.0.7 uid 0'")
    asked = replace(FIRST, server="https://127.0.0.1:7443", mgmt_addr="auto")
    node.write({path[1:]: content for path, content in files_of(asked).items()})
    node.onboard()
    node.accept()
    node.install("ip", "exit 2")
    copy = node.root / "var/lib/cloud/instances/n7-1/obj.pkl"
    copy.parent.mkdir(parents=True)
    copy.touch()
    node.install("sleep", f'[ -e {copy} ] || echo "no copy"\nexec /bin/sleep 0.02')
    node.onboard("no copy")


def test_what_a_later_boot_notes_is_in_the_status(node: Node) -> None:
    old = node.root / "etc/cloud/cloud.cfg.d/99-installer.cfg"
    old.parent.mkdir(parents=True)
    old.write_bytes((node.root / "etc/llmgw/agent-key.pem").read_bytes())
    node.install("python3", 'case "$*" in *"scrub "*) echo "no way" >&2; exit 1 ;; esac\n'
                 'exec /usr/bin/python3 "$@"')  # fmt: skip
    node.onboard()
    assert node.status()["notes"] == ["copies of the key may be left: no way"]


@pytest.mark.parametrize("folder", [True, False])
def test_cloud_init_is_switched_off_once_or_it_is_said(node: Node, *, folder: bool) -> None:
    off = node.root / "etc/cloud/cloud-init.disabled"
    if folder:
        off.parent.mkdir()
    apply(node, user_data(files_of(replace(FIRST, onboard=spec.Onboard(disable_cloud_init=True)))))
    node.onboard()
    assert node.verdict() == "ok"
    node.accept()
    if not folder:
        assert node.status()["notes"] == [
            f"cannot switch cloud-init off: cannot write to {off.parent}"
        ]
        return
    made = off.stat()
    node.onboard("")
    assert off.stat().st_mtime_ns == made.st_mtime_ns


def test_x1_a_short_line_of_a_key_is_no_copy_of_it(tmp_path: Path) -> None:
    node = node_in(tmp_path, DASH)
    key = (
        "-----BEGIN PRIVATE KEY-----\n" + ("A7" * 32 + "\n") * 3 + "4=\n-----END PRIVATE KEY-----\n"
    )
    node.write({"etc/llmgw/agent-key.pem": key})
    folder = node.root / "etc/cloud/cloud.cfg.d"
    folder.mkdir(parents=True)
    (folder / "90-others.cfg").write_text("token: x4=\n")
    (folder / "91-of-another-key.cfg").write_text("-----END PRIVATE KEY-----\n")
    (folder / "99-installer.cfg").write_text(key)
    node.onboard()
    assert sorted(path.name for path in folder.iterdir()) == [
        "90-others.cfg", "91-of-another-key.cfg",
    ]  # fmt: skip


def test_l1_the_first_ones_seed_folder_and_the_seconds_drive(node: Node) -> None:
    """cloud-init takes the id from the one and the user-data from the other."""
    before = (node.root / APPLIED).read_text().splitlines()[0]
    sem = node.root / "var/lib/cloud/instances" / before / "sem"
    sem.mkdir(parents=True)
    (node.root / "var/lib/cloud/instance").symlink_to(sem.parent)
    written_by_cloud_init(node, N8)
    node.onboard()
    assert is_this(node, files_of(N8))
    assert sem.exists()
    assert (node.root / APPLIED).read_text().startswith("n8-")
