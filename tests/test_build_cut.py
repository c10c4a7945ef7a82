"""A build that is cut short, by a kill or a full disk: nothing is half, and the next goes on."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from fleet import CHECKOUT, Fleet
from racks import RACKS, check_manifest, check_whole, edit, racks, rows_of, tree

from generator import ledger

FULL = os.environ.get("HYPOTHESIS_PROFILE") == "full"
NODES, KILLS = (500, 20) if FULL else (150, 6)


def start(fleet: Fleet, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "generator", "build", "--all", *arguments],
        cwd=fleet.root,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def length(fleet: Fleet) -> float:
    """Return how long a whole build takes, in seconds."""
    started = time.monotonic()
    fleet("build", "--all", "-d", "first")
    shutil.rmtree(fleet.root / "first")
    return time.monotonic() - started


@pytest.mark.parametrize("whole", [True, False], ids=["all processes", "the parent only"])
def test_a_build_that_is_killed_is_gone_on_with(tmp_path: Path, whole: bool) -> None:  # noqa: FBT001
    fleet, chance = racks(tmp_path / "ws", NODES), random.Random(7)  # noqa: S311
    out, span = fleet.root / "out", length(fleet)
    number = cut = 0
    while cut < KILLS:
        number += 1
        # Each build has something to do: half of the fleet, and what the last one left.
        fleet.write(fleet=RACKS.replace("interval: 5s", f"interval: {10 + number}s"))
        process = start(fleet, "--jobs", "2")
        time.sleep(chance.uniform(0.1, 1) * span)
        if process.poll() is None:
            cut += 1
        else:  # the machine has less to do than when it was measured
            span *= 0.7
        with suppress(ProcessLookupError):  # it may be done
            if whole:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        process.communicate(timeout=60)
        if out.exists():
            check_whole(fleet, out)
    fleet("build", "--all")
    assert check_whole(fleet, out) == NODES
    check_manifest(out, NODES)
    assert {path.name for path in out.iterdir()} == {
        *(f"n{n}.iso" for n in range(NODES)),
        "manifest.jsonl",
    }
    assert b"0 made" in fleet("build", "--all").stderr


def test_what_a_killed_build_has_finished_is_kept(tmp_path: Path) -> None:
    fleet = racks(tmp_path / "ws", 400)
    process = start(fleet, "--jobs", "1")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:  # until a part is finished
        if (fleet.root / "out/manifest.jsonl").exists() and list(fleet.root.glob("out/n*.iso")):
            break
        time.sleep(0.01)
    process.kill()
    process.communicate(timeout=60)
    before = tree(fleet.root / "out")
    kept = {row.node for row in rows_of(fleet.root / "out") if f"{row.node}.iso" in before}
    assert kept
    fleet("build", "--all")
    after = tree(fleet.root / "out")
    # At most the part that was being put in its place is done again.
    assert sum(after[f"{node}.iso"] != before[f"{node}.iso"] for node in kept) <= 100
    assert check_whole(fleet, fleet.root / "out") == 400


def test_what_a_killed_shard_has_left_goes_with_the_next_build(tmp_path: Path) -> None:
    fleet = racks(tmp_path / "ws", 2)
    left = fleet.root / "out/.manifest-1-of-2.tmp"
    left.mkdir(parents=True)
    (left / "n0.iso").write_bytes(b"a private key")
    fleet("build", "--shard", "2/2")
    assert left.exists()  # that of another shard, which may be at work
    fleet("build", "--all")
    assert not list(fleet.root.glob("out/.*"))


def test_ctrl_c(tmp_path: Path) -> None:
    fleet = racks(tmp_path / "ws", 400)
    process = start(fleet, "--jobs", "2")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not list(fleet.root.glob("out/n*.iso")):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    talk = process.communicate(timeout=60)[1]
    assert process.returncode == 130, talk
    assert b"Traceback" not in talk
    assert not list(fleet.root.glob("out/.*"))
    check_whole(fleet, fleet.root / "out")
    fleet("build", "--all")
    assert check_whole(fleet, fleet.root / "out") == 400


def test_ctrl_c_ends_the_program_that_signs(tmp_path: Path) -> None:
    fleet = racks(tmp_path / "ws", 1)
    # Its input ends when it is being waited for: before that, nobody would end it.
    program = "[sh, -c, 'cat >/dev/null; echo $$ >pid; exec sleep 600']"
    edit(fleet, "fleet.yaml", "groups:", f"authority: {{command: {program}}}\ngroups:")
    process = start(fleet, "--jobs", "2")
    deadline, told = time.monotonic() + 60, fleet.root / "pid"
    while time.monotonic() < deadline and not (told.exists() and told.read_text("utf-8")):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text("utf-8")), 0)


@pytest.fixture
def small() -> Iterator[Path]:
    """Give a file system of 8 MB: 70 seeds or so."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small file system")
    with tempfile.TemporaryDirectory() as name:
        mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", name]
        if subprocess.run(mount, check=False, capture_output=True).returncode:
            pytest.skip("needs to mount a small file system, which is not allowed here")
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", "--lazy", name], check=True)


def test_no_room_for_the_specs(tmp_path: Path, small: Path) -> None:
    fleet = racks(tmp_path / "ws", 100)
    (small / "filler").write_bytes(b"\0" * ((8 << 20) - 8192))
    done = fleet("build", "--all", check=False, environ={"TMPDIR": str(small)})
    assert done.returncode == 1
    assert done.stderr.decode() == (
        f"error: cannot write to {small}, which TMPDIR names: no space left on device\n"
    )
    assert not (fleet.root / "out").exists()


def test_no_room_for_one_more_name(tmp_path: Path, small: Path) -> None:
    fleet = racks(tmp_path / "ws", 5)
    # The root, out, out/.manifest.tmp and the manifest; of each node a folder with two files.
    count = f"remount,nr_inodes={4 + 5 * 3}"
    subprocess.run(["mount", "-o", count, str(small)], check=True, capture_output=True)
    fleet("build", "--all", "--as", "dir", "-d", str(small / "out"), "--jobs", "1")
    assert len(tree(small / "out")) == 11
    assert len(ledger.reading(fleet.pki)) == 5


@pytest.mark.parametrize("what", ["seeds", "ledger"])
def test_a_disk_that_is_full(tmp_path: Path, small: Path, what: str) -> None:
    fleet = racks(tmp_path / "ws", 30)
    out = small / "out" if what == "seeds" else fleet.root / "out"
    if what == "ledger":
        shutil.move(fleet.pki, small / "pki")
        fleet.pki.symlink_to(small / "pki")
    options = ("build", "--all", "-d", str(out), "--jobs", "2")
    fleet(*options)
    before, rows = tree(out), len(ledger.reading(fleet.pki))
    edit(fleet, "fleet.yaml", "v0.9.1", "v0.9.2")
    if what == "seeds":  # more nodes than it has room for
        fleet.write(**{f"m{n}": f"mgmt_addr: 10.1.0.{n}\n" for n in range(80)})
    else:
        filler = os.open(small / "filler", os.O_WRONLY | os.O_CREAT)
        with suppress(OSError):
            while True:
                os.write(filler, b"\0" * 4096)
        os.close(filler)
    done = fleet(*options, check=False)
    assert done.returncode == 1
    talk = done.stderr.decode()
    assert "Traceback" not in talk
    assert ("no space left on device" if what == "seeds" else "the disk does not take") in talk
    assert tree(out) == before
    assert len(ledger.reading(fleet.pki)) == rows
    (small / "filler").unlink(missing_ok=True)
    for path in fleet.root.glob("nodes/m*.yaml"):
        path.unlink()
    fleet(*options)
    assert check_whole(fleet, out) == 30
    check_manifest(out, 30)
