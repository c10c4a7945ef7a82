"""What validating a fleet costs, and the share of each step: python bench/validate.py [NODES]."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from generator import checks, conform, files, resolve, schema, source, spec
from generator.workspace import open_workspace

if TYPE_CHECKING:
    from collections.abc import Callable

FLEET = """\
schema: 1
defaults: {server: https://control.example.net:7443}
release:
  version: v0.9.1
  url: https://git.example.net/llmgw-linux-{arch}
  sha256: {amd64: "DIGEST"}
groups:
  ib-a: {fabrics: [{name: ib-a, hcas: [mlx5_0, mlx5_1]}]}
""".replace("DIGEST", "ab" * 32)
NODE = """\
# one of many
mgmt_addr: 10.%d.%d.%d
groups: [ib-a]
engines:
  llamacpp: {bin: /opt/llama.cpp/llama-server, parallel: 4}
  vllm: {bin: /opt/vllm/bin/vllm}
supervisor: {log_lines: 1024, stop_timeout: 120s}
cloud_config: {timezone: Etc/UTC}
"""


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "nodes").mkdir()
        (root / "fleet.yaml").write_text(FLEET, "utf-8")
        for n in range(count):
            text = NODE % (n >> 16, n >> 8 & 255, n & 255)
            (root / f"nodes/n{n}.yaml").write_text(text, "utf-8")
        whole, outcome = timed(lambda: resolve.examine(open_workspace(root)))
        assert len(outcome.specs) == count  # noqa: S101 - a bench of what fails is no bench
        print(f"{count} nodes: {whole:.2f} s, {whole / count * 1e3:.2f} ms a node")
        for name, seconds in steps(root):
            print(f"  {name:8} {seconds / count * 1e3:6.3f} ms  {seconds / whole:4.0%}")


def steps(root: Path) -> list[tuple[str, float]]:
    place = open_workspace(root)
    node = schema.load("node")
    base = next(iter(resolve.layers(place.fleet, ["ib-a"])))
    read, data = timed(lambda: [files.read(path) for path in place.files.values()])
    parse, located = timed(lambda: [source.parse(each, "n.yaml") for each in data])
    judge, _ = timed(lambda: [conform.conforms(node, source.plain(each)) for each in located])
    merge, merged = timed(lambda: [source.merge(base, each) for each in located])
    plain, values = timed(lambda: [source.plain(each) for each in merged])
    pairs = list(zip(merged, values, strict=True))
    check, _ = timed(lambda: [checks.check("n", m, v, frozenset()) for m, v in pairs])
    whole = {"server": "https://h", **values[0]}
    build, _ = timed(lambda: [spec.build("n", whole, None) for _ in values])
    return [
        ("read", read),
        ("parse", parse),
        ("schema", judge),
        ("merge", merge + plain),
        ("checks", check),
        ("build", build),
    ]


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = run()
    return time.perf_counter() - started, result


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
