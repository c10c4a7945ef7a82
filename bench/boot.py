"""How long onboarding takes: sudo python bench/boot.py [RUNS].

The same image in systemd-nspawn, in turn: until cloud-init is done with an empty seed, and until
the control plane has seen the node join with its own.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from generator import authority, render, spec
from generator.prove.machine import Machine
from generator.prove.rootfs import SUITES, rootfs
from generator.prove.servers import ControlPlane, ReleaseServer, agent_binary

EMPTY = {"meta-data": b"instance-id: n7-1\nlocal-hostname: n7\n", "user-data": b"#cloud-config\n"}


def main(runs: int) -> None:
    now, binary = datetime.now(UTC), agent_binary()
    with tempfile.TemporaryDirectory() as folder:
        ca, _ = authority.create(Path(folder) / "pki", now)
        for suite in SUITES:
            empty, joined = [], []
            for _ in range(runs):
                with Machine(rootfs(suite), EMPTY) as machine:
                    started = time.monotonic()
                    machine.boot()
                    machine.wait_for_cloud_init()
                    empty.append(time.monotonic() - started)
                with (
                    ReleaseServer(ca, {"/llmgw": binary}) as release,
                    ControlPlane(ca) as plane,
                    Machine(rootfs(suite), seed(ca, release.url, plane.url, binary)) as machine,
                ):
                    started = time.monotonic()
                    machine.boot()
                    plane.wait_for_join(120)
                    joined.append(time.monotonic() - started)
            base, whole = median(empty), median(joined)
            print(f"{suite:9} empty {base:5.2f} s   joined {whole:5.2f} s   {whole - base:+5.2f} s")


def seed(ca: authority.Authority, release: str, plane: str, binary: bytes) -> dict[str, bytes]:
    digest = hashlib.sha256(binary).hexdigest()
    wanted = spec.Release("v1", (f"{release}/llmgw",), {"amd64": digest, "arm64": digest})
    asked = spec.Spec("n7", plane, "127.0.0.1", wanted, mgmt_interface="lo")
    identity, _ = authority.issue(ca, "n7", 30, datetime.now(UTC))
    return render.render(asked, identity, render.environment()).artifacts()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
