"""How long another seed takes on a machine that is a node: sudo python bench/change.py [RUNS].

In systemd-nspawn, from the moment the machine is told until the control plane has seen it join
with the new certificate: by a reboot, from its start, and by `onboard apply` without one.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from boot import seed

from generator import authority
from generator.prove.machine import Machine
from generator.prove.rootfs import SUITES, rootfs
from generator.prove.servers import ControlPlane, ReleaseServer, agent_binary

ONBOARD = "/usr/local/lib/llmgw/onboard"


def main(runs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ca, _ = authority.create(Path(folder) / "pki", datetime.now(UTC))
        for suite in SUITES:
            ways: tuple[list[float], list[float]] = ([], [])
            for _ in range(runs):
                for taken, way in zip(ways, measure(suite, ca), strict=True):
                    taken.append(way)
            rebooted, applied = map(median, ways)
            print(f"{suite:9} reboot {rebooted:5.2f} s   apply {applied:5.2f} s")


def measure(suite: str, ca: authority.Authority) -> tuple[float, float]:
    releases = [agent_binary(f"v{n}") for n in range(3)]
    files = {"/llmgw": releases[0]}
    with ReleaseServer(ca, files) as release, ControlPlane(ca) as plane:
        seeds = [seed(ca, release.url, plane.url, binary) for binary in releases]
        with Machine(rootfs(suite), seeds[0]) as machine:
            machine.boot()
            plane.wait_for_join(120)
            machine.wait_for_cloud_init()
            machine.power_off()
            release.files["/llmgw"] = releases[1]
            machine.attach(seeds[1])
            # The agent starts with the old seed first, and joins.
            started = time.monotonic()
            machine.boot()
            rebooted = until_new(plane, len(plane.joins)) - started
            machine.wait_for_cloud_init()
            machine.wait_for("the verdict", lambda: machine.read("/run/llmgw-onboard/verdict"), 60)
            release.files["/llmgw"] = releases[2]
            told = seeds[2]["user-data"].decode()
            started, before = time.monotonic(), len(plane.joins)
            apply = threading.Thread(
                target=machine.run, args=(ONBOARD, "apply", "-"), kwargs={"stdin": told}
            )
            apply.start()
            applied = until_new(plane, before) - started
            apply.join()
            return rebooted, applied


def until_new(plane: ControlPlane, before: int) -> float:
    """Wait until a join has another certificate than the last one had; return when."""
    old = plane.joins[before - 1].serial
    while plane.wait_for_join(120, after=before).serial == old:
        before += 1
    return time.monotonic()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
