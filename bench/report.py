"""What a report costs, and how fast its page answers: python bench/report.py [NODES].

The page is opened in Chromium without a window (drawn by the processor), twice as a desk's and
as a phone's window. "answered" is from the letter typed until the count and the first rows are laid
out, "drawn" until the browser has drawn them, "whole" until the last row is there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import browser  # noqa: E402 - the tests' own, by the line above
from fleet import Fleet  # noqa: E402
from test_report_browser import write_large  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

ROUNDS = 7
SEARCHES = ("n", "n7", "n77", "group:a", "certificate:soon", "10.0.", "nowhere", "")
SEARCH = """(async () => {
  const box = document.querySelector("input"), main = document.querySelector("main"), taken = [];
  for (const text of %s) {
    box.value = text;
    const start = performance.now();
    box.dispatchEvent(new Event("input"));
    document.body.offsetHeight;
    const answered = performance.now() - start;
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    const drawn = performance.now() - start;
    while (main.ariaBusy === "true") await new Promise(requestAnimationFrame);
    taken.push([answered, drawn, performance.now() - start]);
    await new Promise(done => setTimeout(done, 100));
  }
  return taken;
})()"""


def main(count: int) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        fleet = Fleet(Path(folder) / "ws")
        fleet.root.mkdir()
        write_large(fleet, count)
        for name in ("validate", "report"):
            taken = [seconds(fleet.root, name) for _ in range(5)]
            print(
                f"gen-seed {name:9} {count} nodes: {median(taken):.2f} s (up to {max(taken):.2f})"
            )
        page = fleet.root / "fleet.html"
        print(f"the page: {page.stat().st_size / 1e6:.2f} MB")
        if reason := browser.missing():
            print(f"left out: the browser ({reason})")
            return
        with browser.page(Path(folder) / "profile") as opened:
            searches(opened, page)


def seconds(root: Path, name: str) -> float:
    command = [sys.executable, "-m", "generator", name]
    command += ["-o", "fleet.html"] if name == "report" else []
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    started = time.perf_counter()
    subprocess.run(command, cwd=root, env=environ, check=True, capture_output=True)
    return time.perf_counter() - started


def searches(page: browser.Page, file: Path) -> None:
    for width in (1400, 390):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}  # noqa: PLR2004
        page.call("Emulation.setDeviceMetricsOverride", **size)
        started = time.perf_counter()
        page.open(file.as_uri())
        print(f"{width} wide: opened in {(time.perf_counter() - started) * 1e3:.0f} ms")
        times = page.run(SEARCH % json.dumps(SEARCHES * ROUNDS))
        for number, text in enumerate(SEARCHES):
            steps = zip(*times[number :: len(SEARCHES)], strict=True)
            named = zip(("answered", "drawn", "whole"), steps, strict=True)
            print(f"  {text!r:20}" + ", ".join(f"{name} {told(taken)}" for name, taken in named))


def told(taken: Sequence[float]) -> str:
    return f"{median(taken):4.0f} ms (up to {max(taken):.0f})"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
