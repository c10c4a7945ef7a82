"""How long onboarding takes: sudo python bench/boot.py [RUNS].

The same image in systemd-nspawn, in turn: until cloud-init is done with an empty seed, until the
control plane has seen the node join with its own, and the same where the image was baked and
nothing serves the release. The release is as large as the real one; it comes from this host.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from generator import authority, render, spec, template
from generator import bake as baker
from generator import baked as baking
from generator.prove.machine import Machine
from generator.prove.rootfs import SUITES, rootfs
from generator.prove.servers import ControlPlane, ReleaseServer, agent_binary

EMPTY = {"meta-data": b"instance-id: n7-1\nlocal-hostname: n7\n", "user-data": b"#cloud-config\n"}
NOWHERE = "https://127.0.0.1:9"  # nothing listens there
SIZE = 40 << 20  # bytes of a release


def main(runs: int) -> None:
    now, binary = datetime.now(UTC), as_large_as_a_release(agent_binary())
    with tempfile.TemporaryDirectory() as folder:
        ca, _ = authority.create(Path(folder) / "pki", now)
        for suite in SUITES:
            empty, joined, baked = [], [], []
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
                    joined.append(time_to_join(machine, plane))
                with (
                    ControlPlane(ca) as plane,
                    Machine(
                        rootfs(suite), EMPTY, edit=lambda root: bake(root, ca, binary)
                    ) as machine,
                ):
                    machine.attach(seed(ca, NOWHERE, plane.url, binary, "never"))
                    baked.append(time_to_join(machine, plane))
            base, whole, short = median(empty), median(joined), median(baked)
            print(
                f"{suite:9} empty {base:5.2f} s   joined {whole:5.2f} s ({whole - base:+5.2f})"
                f"   baked, joined {short:5.2f} s ({short - base:+5.2f})"
            )


def as_large_as_a_release(agent: bytes) -> bytes:
    """Return a program that runs the stand-in and does not read the rest of itself."""
    end = len(agent.splitlines()) + 2
    head = f'#!/bin/sh\nexec python3 -c "$(head -n {end} "$0" | tail -n +3)" "$@"\n'.encode()
    return head + agent + b"x" * (SIZE - len(agent))


def time_to_join(machine: Machine, plane: ControlPlane) -> float:
    started = time.monotonic()
    machine.boot()
    plane.wait_for_join(120)
    return time.monotonic() - started


def bake(root: Path, ca: authority.Authority, binary: bytes) -> None:
    shared = render.shared(template.environment())
    made = baking.entries(release_of(NOWHERE, binary), "amd64", binary, ca.roots, shared, "debian")
    list(baker.bake(root, made, clean=False))


def release_of(server: str, binary: bytes, fetch: str = "if-needed") -> spec.Release:
    digest = hashlib.sha256(binary).hexdigest()
    digests = {"amd64": digest, "arm64": digest}
    return spec.Release("v1", (f"{server}/llmgw",), digests, fetch=fetch)


def seed(
    ca: authority.Authority, server: str, plane: str, binary: bytes, fetch: str = "if-needed"
) -> dict[str, bytes]:
    wanted = release_of(server, binary, fetch)
    asked = spec.Spec("n7", plane, "127.0.0.1", wanted, mgmt_interface="lo")
    identity, _ = authority.issue(ca, "n7", 30, datetime.now(UTC))
    return render.render(asked, identity, template.environment()).artifacts()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
