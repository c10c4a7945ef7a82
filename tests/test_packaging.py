"""What is built is complete, and works where nothing else is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from fleet import CHECKOUT

from generator import __version__

VERSION = f"gen_seed-{__version__}"
TOP = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml", ".gitignore")
DATA = ("schemas", "templates")


def run(*command: object, cwd: Path, **environ: str) -> bytes:
    """Run a command in a clean environment but for what pip needs to reach its index."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=kept | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"} | environ,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def tracked(*folders: str) -> set[str]:
    """Return the files that git tracks, or will once they are committed."""
    listed = run("git", "ls-files", "-co", "--exclude-standard", *folders, cwd=CHECKOUT).decode()
    return {name for name in listed.splitlines() if (CHECKOUT / name).exists()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", target, cwd=CHECKOUT)
    return target


def test_the_wheel_holds_exactly_the_program(built: Path) -> None:
    wheel = built / f"{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        found = set(archive.namelist())
    data = {f"generator/_data/{name}" for name in tracked(*DATA)}
    about = {
        f"{VERSION}.dist-info/{n}" for n in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")
    }
    assert found == tracked("generator") | data | about


def test_the_sdist_holds_exactly_what_the_suite_needs(built: Path) -> None:
    with tarfile.open(built / f"{VERSION}.tar.gz") as archive:
        found = {name.removeprefix(f"{VERSION}/") for name in archive.getnames()}
    folders = tracked("generator", "schemas", "templates", "tests", "examples", "docs", "bench")
    about = {"PKG-INFO", "constraints.txt", "constraints-lowest.txt", "out/.gitignore"}
    assert found == folders | set(TOP) | about


def renders_from_elsewhere(program: list[object], folder: Path) -> None:
    """Make a workspace and a seed far from any checkout."""
    folder.mkdir()
    run(*program, "init", ".", "--new-ca", cwd=folder)
    run(*program, "n7", "-o", "n7.iso", cwd=folder)
    assert (folder / "n7.iso").read_bytes()[32769:32774] == b"CD001"
    assert b"node id      n7" in run(*program, "inspect", "n7.iso", cwd=folder)


@pytest.mark.parametrize("name", [f"{VERSION}-py3-none-any.whl", f"{VERSION}.tar.gz"])
def test_it_installs_into_an_empty_environment(built: Path, name: str, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    pip = tmp_path / "venv/bin/pip"
    constraints = CHECKOUT / "constraints.txt"
    run(pip, "install", "--quiet", "-c", constraints, built / name, cwd=tmp_path)
    renders_from_elsewhere([tmp_path / "venv/bin/gen-seed"], tmp_path / "ws")


def test_it_runs_from_a_checkout_that_is_not_installed(tmp_path: Path) -> None:
    copy = tmp_path / "checkout"
    for name in ("generator", *DATA):
        shutil.copytree(CHECKOUT / name, copy / name)
    start = f"import sys; sys.path.insert(0, {str(copy)!r}); from generator.__main__ import main"
    renders_from_elsewhere([sys.executable, "-c", f"{start}; main()"], tmp_path / "ws")


def debian_has_the_packages() -> bool:
    python = Path("/usr/bin/python3")
    needs = (
        "import click, cryptography, jinja2, jsonschema, pycdlib, yaml; from datetime import UTC"
    )
    command = [str(python), "-c", needs]
    return (
        python.exists()
        and not subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode
    )


@pytest.mark.skipif(
    not debian_has_the_packages(), reason="no python3 of Debian 12 or newer with its packages"
)
def test_it_runs_on_debians_own_python_and_packages(tmp_path: Path) -> None:
    program = ["env", f"PYTHONPATH={CHECKOUT}", "/usr/bin/python3", "-m", "generator"]
    renders_from_elsewhere(list(program), tmp_path / "ws")
