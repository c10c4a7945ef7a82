"""A workspace for tests, and gen-seed as a process of its own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


def gen_seed(
    *arguments: str,
    cwd: Path,
    check: bool = True,
    environ: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> subprocess.CompletedProcess[bytes]:
    """Run the real command in `cwd`, away from any authority of this host."""
    done = subprocess.run(
        [sys.executable, "-m", "generator", *arguments],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), **(environ or {})},
        timeout=120,
    )
    assert not check or done.returncode == 0, done.stderr.decode()
    return done


def on_terminal(*arguments: str, cwd: Path) -> tuple[int, bytes, str]:
    """Run the real command, its stdout a terminal: exit status, what that shows, and stderr."""
    leader, follower = os.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "generator", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        stdout=follower,
        stderr=subprocess.PIPE,
        check=False,
        timeout=120,
    )
    os.close(follower)
    shown = b""
    with suppress(OSError), os.fdopen(leader, "rb", buffering=0) as terminal:  # EIO is its end
        while piece := terminal.read(1000):
            shown += piece
    return done.returncode, shown, done.stderr.decode()


@dataclass(frozen=True)
class Fleet:
    """A workspace with an authority of its own."""

    root: Path

    def __call__(
        self, *arguments: str, check: bool = True, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return gen_seed(*arguments, cwd=self.root, check=check, environ=environ)

    def write(self, **files: str) -> None:
        """Write ``fleet`` (fleet.yaml) and nodes (n7=… is nodes/n7.yaml)."""
        (self.root / "nodes").mkdir(exist_ok=True)
        for name, text in files.items():
            path = self.root / ("fleet.yaml" if name == "fleet" else f"nodes/{name}.yaml")
            path.write_text(text, encoding="utf-8")

    @property
    def pki(self) -> Path:
        return self.root / "pki"


def write_fleet(fleet: Fleet, server: str, url: str, binary: bytes) -> None:
    """Write a fleet.yaml whose release is `binary` at `url`; its nodes are containers here."""
    digest = hashlib.sha256(binary).hexdigest()
    content = {
        "schema": 1,
        "defaults": {"server": server, "mgmt_addr": "127.0.0.1", "mgmt_interface": "lo"},
        "release": {"version": "v0.9.1", "url": url, "sha256": {"amd64": digest}},
    }
    fleet.write(fleet=json.dumps(content, indent=1))
