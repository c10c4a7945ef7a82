"""A fleet of many nodes for tests, in two groups, with an authority."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fleet import Fleet

from generator import authority, inspection, ledger, manifest, unpack

RACKS = f"""\
schema: 1
defaults:
  server: https://control.example.net:7443
  engines: {{llamacpp: {{bin: /opt/llama.cpp/llama-server}}}}
release:
  version: v0.9.1
  url: https://git.example.net/{{version}}/llmgw-linux-{{arch}}
  sha256: {{amd64: {"0123456789abcdef" * 4}}}
groups:
  left:
    fabrics: [{{name: ib-a, hcas: [mlx5_0]}}]
  right:
    fabrics: [{{name: ib-b, hcas: [mlx5_0]}}]
    agent: {{heartbeat_interval: 5s}}
"""


def racks(root: Path, count: int) -> Fleet:
    """Make a workspace with nodes n0, n1 …: even ones in the group left, odd ones in right."""
    made = Fleet(root)
    root.mkdir()
    texts = {
        f"n{n}": f"mgmt_addr: 10.0.{n >> 8}.{n & 255}\ngroups: [{'right' if n % 2 else 'left'}]\n"
        for n in range(count)
    }
    made.write(fleet=RACKS, **texts)
    authority.create(made.pki, datetime.now(UTC) - timedelta(days=1))
    return made


def edit(fleet: Fleet, name: str, old: str, new: str) -> None:
    """Replace a text in a file of the workspace."""
    path = fleet.root / name
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def tree(folder: Path) -> dict[str, bytes]:
    """Return all files in a folder, by their paths."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def plain(fleet: Fleet, *arguments: str) -> list[dict[str, Any]]:
    """Return the rows that a command prints as JSON."""
    done = fleet(*arguments, "--format", "json", check=False)
    assert done.returncode in {0, 2}, done.stderr.decode()
    found: list[dict[str, Any]] = json.loads(done.stdout)["nodes"]
    return found


def rows_of(folder: Path) -> list[manifest.Row]:
    """Return what a folder's manifests say, by node."""
    found = manifest.read(folder)
    return [row for node in found.nodes() if (row := found.get(node))]


def check_whole(fleet: Fleet, out: Path) -> int:
    """Check every ISO in a folder: whole, consistent, and in the ledger; return how many."""
    known = ledger.revoked(fleet.pki)
    count = 0
    for path in out.iterdir():
        if path.suffix != ".iso":
            continue
        count += 1
        found = inspection.inspect(unpack.unpack(path), datetime.now(UTC))
        assert not found.problems, found.problems
        assert found.identity
        assert (path.stem, found.identity.serial) in known
        assert path.stat().st_mode & 0o777 == 0o600
    return count


def check_manifest(out: Path, nodes: int) -> None:
    """Check that a folder has so many seeds, each as its row in the manifest says."""
    found = rows_of(out)
    assert len(found) == nodes
    for row in found:
        data = (out / row.artifact).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (row.sha256, row.bytes)
