"""What building a fleet costs: python bench/fleet.py [NODES] [--table COUNT...].

In one run, in turn and twice, so that a machine whose speed drifts slows all alike:

- `gen-seed build --all` as a whole process, from specs on the disk to ISOs on the disk, with fresh
  P-256 certificates, ledger and manifest; with one job and with two;
- a floor: a bare loop over the same files, in one process and in two: parse the YAML, make a key
  and a certificate, put them into a text that is there already, pack an ISO with pycdlib, write it
  durably and rename it. No check, no template, no ledger, no manifest;
- by hand: openssl and cloud-localds (Debian's cloud-image-utils), one node after another.

With --table, only builds of COUNT nodes each: with certificates, then with nothing to do, then with
placeholders.
"""

from __future__ import annotations

import argparse
import io
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pycdlib
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from startup import BY_HAND
from validate import FLEET, NODE

from generator import authority, certificate, identity, pem, render, resolve, template
from generator.workspace import open_workspace

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
HAND = 200
ROUNDS = 2  # of each the faster counts


def main(count: int, table: list[int]) -> None:
    with tempfile.TemporaryDirectory(dir=ROOT / "out") as folder:
        if table:
            for number in table:
                row(number, Path(folder) / str(number))
        else:
            compare(count, Path(folder))


def compare(count: int, folder: Path) -> None:
    root = fleet(folder / "ws", count)
    costs: dict[str, float] = {}

    def note(name: str, cost: float) -> None:
        costs[name] = min(cost, costs.get(name, cost))

    for _ in range(ROUNDS):
        for jobs in (1, 2):
            floor_ = seconds(lambda jobs=jobs: floor(root, folder / "floor", jobs))
            note(f"floor, {jobs}", floor_ / count)
            made = seconds(lambda jobs=jobs: build(root, "--jobs", str(jobs)))
            note(f"build, {jobs}", made / count)
            for path in (folder / "floor", root / "out"):
                shutil.rmtree(path)
        if shutil.which("cloud-localds"):
            note("by hand", seconds(lambda: by_hand(root, folder / "hand")) / HAND)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    for name, cost in costs.items():
        print(f"{name:8} {cost * 1e3:8.3f} ms a node")
    one, two = costs["build, 1"] / costs["floor, 1"], costs["build, 2"] / costs["floor, 2"]
    print(f"a build takes {one:.2f} times the floor, with two jobs {two:.2f} times")
    print(f"a second job gains {one / two:.2f} of what it gains the floor")
    if hand := costs.get("by hand"):
        print(f"by hand takes {hand / costs['build, 2']:.0f} times as long as two jobs")
    else:
        print("by hand: left out, there is no cloud-localds")
    print(f"peak memory of a process: {peak:.0f} MiB")


def row(count: int, folder: Path) -> None:
    """Print a line of the table in docs/scale.md."""
    root = fleet(folder, count)
    first, again = seconds(lambda: build(root)), seconds(lambda: build(root))
    sizes = [sum(entry.stat().st_size for entry in os.scandir(root / "out"))]
    sizes += [(root / name).stat().st_size for name in ("pki/ledger.db", "out/manifest.jsonl")]
    shutil.rmtree(root / "out")
    stand_in = seconds(lambda: build(root, "--identity", "placeholder", "--as", "iso"))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    each = f"{first:.1f} s | {first / count * 1e3:.2f} ms | {again:.1f} s | {stand_in:.1f} s"
    told = " | ".join(f"{size / 1e6:,.1f} MB" for size in sizes)
    print(f"| {count:,} | {each} | {peak:.0f} MiB | {told} |", flush=True)
    shutil.rmtree(folder)


def fleet(root: Path, count: int) -> Path:
    """Make a workspace with so many nodes, and an authority."""
    (root / "nodes").mkdir(parents=True)
    (root / "fleet.yaml").write_text(FLEET, "utf-8")
    for n in range(count):
        text = NODE % (n >> 16, n >> 8 & 255, n & 255)
        (root / f"nodes/n{n}.yaml").write_text(text, "utf-8")
    authority.create(root / "pki", datetime.now(UTC))
    return root


def build(root: Path, *options: str) -> None:
    command = [sys.executable, "-m", "generator", "build", "--all", *options]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=root, env=environ, check=True, stderr=subprocess.DEVNULL)


def floor(root: Path, out: Path, jobs: int) -> None:
    out.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    ca, _ = authority.load(root / "pki", now)
    files = sorted((root / "nodes").iterdir())
    spec, _ = resolve.resolve(open_workspace(root), files[0].stem)
    stand_in = identity.placeholder(spec.node_id)
    seed = render.render(spec, stand_in, template.environment())
    children = []
    for job in range(jobs):
        if child := os.fork():
            children.append(child)
            continue
        loop(files[job::jobs], out, ca, seed, stand_in)
        os._exit(0)
    for child in children:
        if os.waitpid(child, 0)[1]:
            raise RuntimeError("the floor failed")


def loop(
    files: list[Path],
    out: Path,
    ca: authority.Authority,
    seed: render.Seed,
    stand_in: identity.Identity,
) -> None:
    life = certificate.period(datetime.now(UTC), 365)
    text = seed.user_data.decode()
    old = [indented(part) for part in (stand_in.certificate_pem, stand_in.key or b"")]
    for path in files:
        values = yaml.load(path.read_bytes(), yaml.CSafeLoader)
        key = ec.generate_private_key(ec.SECP256R1())
        leaf = certificate.leaf(
            key.public_key(), path.stem, x509.random_serial_number(), life, ca.certificate, ca.key
        )
        new = [indented(part) for part in (pem.certificates_pem([leaf]), pem.key_pem(key))]
        whole = text.replace(old[0], new[0]).replace(old[1], new[1])
        whole = whole.replace("10.0.0.0", values["mgmt_addr"]).replace(seed.node_id, path.stem)
        artifacts = {"user-data": whole.encode(), "meta-data": seed.meta_data}
        data = packed(artifacts)
        beside, target = out / f".{path.stem}.tmp", out / f"{path.stem}.iso"
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.rename(target)


def packed(artifacts: dict[str, bytes]) -> bytes:
    """Return an ISO as pycdlib alone makes it."""
    image, file = pycdlib.PyCdlib(), io.BytesIO()
    image.new(vol_ident="cidata", joliet=3, rock_ridge="1.09")
    for number, (name, data) in enumerate(artifacts.items()):
        names = {"rr_name": name, "joliet_path": f"/{name}", "file_mode": 0o100400}
        image.add_fp(io.BytesIO(data), len(data), f"/FILE{number}.;1", **names)
    image.write_fp(file)
    image.close()
    return file.getvalue()


def indented(text: bytes) -> str:
    return "".join(f"      {line}\n" for line in text.decode().splitlines())


def by_hand(root: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    if not (folder / "pki").exists():
        (folder / "pki").symlink_to(root / "pki")
    for _ in range(HAND):
        subprocess.run(["sh", "-c", BY_HAND], cwd=folder, check=True, capture_output=True)


def seconds(run: Callable[[], None]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=10_000)
    parser.add_argument("--table", type=int, nargs="+", default=[])
    given = parser.parse_args()
    main(given.count, given.table)
