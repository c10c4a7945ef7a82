"""A workspace's own tests, for `pytest` in its folder: what must hold for every node's seed.

Where there are no snapshots, or beside them: a test says why, a snapshot says what.
"""

import subprocess
from pathlib import Path

import pytest
import yaml

WORKSPACE = Path(__file__).resolve().parent


def gen_seed(*arguments):
    command = ["gen-seed", "-C", WORKSPACE, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.fixture(scope="session")
def seeds(tmp_path_factory):
    """The user-data of every node, by node id, with placeholders for the identities."""
    out = tmp_path_factory.mktemp("seeds")
    done = gen_seed("build", "--all", "--identity", "placeholder", "--as", "user-data", "-d", out)
    assert done.returncode == 0, done.stderr
    paths = out.glob("*.user-data")
    return {path.name.partition(".")[0]: yaml.safe_load(path.read_text()) for path in paths}


def test_the_specs_are_right():
    done = gen_seed("validate")
    assert done.returncode == 0, done.stderr


def test_the_snapshots_are_up_to_date():
    if not (WORKSPACE / "snapshots").exists():
        pytest.skip("there are none")
    snapshots = ("-d", WORKSPACE / "snapshots", "--check")
    done = gen_seed("build", "--all", "--identity", "placeholder", *snapshots)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_node_knows_the_control_plane(seeds):
    for node, seed in seeds.items():
        written = {file["path"]: file["content"] for file in seed["write_files"]}
        agent = yaml.safe_load(written["/etc/llmgw/agent.yaml"])
        assert agent["node_id"] == node
        assert agent["server"].startswith("https://")
