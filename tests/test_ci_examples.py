"""The examples for CI: what they run works, and fails where it should."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from fleet import CHECKOUT

EXAMPLES = CHECKOUT / "examples/ci"


class Demo:
    """The demo's workspace with snapshots, and gen-seed on the PATH."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "ws"
        shutil.copytree(CHECKOUT / "examples/demo", self.root)
        command = folder / "bin/gen-seed"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m generator "$@"\n', "utf-8")
        command.chmod(0o755)
        self.environ = {
            **os.environ,
            "PATH": f"{command.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(CHECKOUT),
        }

    def run(self, command: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["sh", "-ec", command],
            cwd=self.root,
            env=self.environ,
            capture_output=True,
            check=False,
            timeout=100,
        )


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    made = Demo(tmp_path)
    assert made.run("gen-seed build --all --identity placeholder -d snapshots").returncode == 0
    return made


@pytest.mark.parametrize("name", ["github.yml", "gitea.yml"])
def test_the_workflows_pass_and_fail_where_they_should(demo: Demo, name: str) -> None:
    steps = yaml.safe_load((EXAMPLES / name).read_text("utf-8"))["jobs"]["seeds"]["steps"]
    commands = [step["run"] for step in steps if step.get("run", "").startswith("gen-seed")]
    assert len(commands) == 2
    script = "\n".join(commands)
    done = demo.run(script)
    assert done.returncode == 0, done.stderr.decode()
    nodes = demo.root / "nodes/n7.yaml"
    nodes.write_text(nodes.read_text("utf-8") + "supervisor: {log_lines: 64}\n", "utf-8")
    done = demo.run(script)
    assert done.returncode == 1
    assert b"\n+      log_lines: 64\n" in done.stdout


def test_the_pytest_example(demo: Demo) -> None:
    shutil.copy(EXAMPLES / "test_seeds.py", demo.root)
    command = f"{sys.executable} -m pytest -q -p no:cacheprovider --rootdir . test_seeds.py"
    done = demo.run(command)
    assert done.returncode == 0, done.stdout.decode()
    assert b"3 passed" in done.stdout
    text = (demo.root / "nodes/n7.yaml").read_text("utf-8")
    (demo.root / "nodes/n7.yaml").write_text(f"{text}supervisor: {{log_lines: 64}}\n", "utf-8")
    done = demo.run(command)
    assert done.returncode == 1
    assert b"1 failed, 2 passed" in done.stdout
    assert b"log_lines: 64" in done.stdout
