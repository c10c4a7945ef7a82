"""`gen-seed add`: the script's command line becomes a node's file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml
from fleet import gen_seed

if TYPE_CHECKING:
    from pathlib import Path

NODE = ("--node", "n9", "--addr", "10.0.0.109", "--server", "https://llmgw.example.net:7443")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    gen_seed("init", ".", "--no-ca", cwd=tmp_path)
    return tmp_path


def added(root: Path, *flags: str) -> object:
    gen_seed("add", *NODE, *flags, cwd=root)
    return yaml.safe_load((root / "nodes/n9.yaml").read_text())


def test_what_was_not_given_is_left_to_its_default(root: Path) -> None:
    assert added(root) == {"mgmt_addr": "10.0.0.109", "server": "https://llmgw.example.net:7443"}
    first = (root / "nodes/n9.yaml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=../schemas/node.schema.json"


def test_every_flag_of_the_script_that_still_means_something(root: Path) -> None:
    flags = [
        *("--fabric", "ib-a", "--fabric", "ib-b:mlx5_2,mlx5_3", "--mgmt-addr", "10.1.0.9"),
        *("--mgmt-if", "bond0", "--llamacpp-bin", "/a/llama-server", "--vllm-bin", "/b/vllm"),
        *("--sglang-python", "/c/python", "--nvidia-smi", "/d/nvidia-smi", "--ib-root", "/e"),
    ]
    assert added(root, *flags) == {
        "mgmt_addr": "10.1.0.9",
        "mgmt_interface": "bond0",
        "server": "https://llmgw.example.net:7443",
        "fabrics": [
            {"name": "ib-a", "hcas": ["mlx5_0", "mlx5_1"]},
            {"name": "ib-b", "hcas": ["mlx5_2", "mlx5_3"]},
        ],
        "engines": {
            "llamacpp": {"bin": "/a/llama-server"},
            "vllm": {"bin": "/b/vllm"},
            "sglang": {"python": "/c/python"},
        },
        "discovery": {"nvidia_smi": "/d/nvidia-smi", "ib_root": "/e"},
    }
    agent = gen_seed("n9", "--identity", "placeholder", "--as", "user-data", cwd=root).stdout
    assert b"mgmt_interface: bond0" in agent


@pytest.mark.parametrize("left_out", [0, 2, 4])
def test_a_missing_flag_is_2_as_in_the_script(root: Path, left_out: int) -> None:
    flags = [*NODE[:left_out], *NODE[left_out + 2 :]]
    done = gen_seed("add", *flags, cwd=root, check=False)
    assert done.returncode == 2
    assert NODE[left_out].encode() in done.stderr
    assert not (root / "nodes/n9.yaml").exists()


@pytest.mark.parametrize(
    ("flag", "instead"),
    [
        ("--ssh-user", "attach the seed"),
        ("--binary", "fetches the release"),
        ("--pki", "--pki DIR"),
    ],
)
def test_a_flag_without_a_meaning_says_what_took_its_place(
    root: Path, flag: str, instead: str
) -> None:
    done = gen_seed("add", *NODE, flag, "x", cwd=root, check=False)
    assert done.returncode == 2
    assert f"{flag} has no meaning here" in done.stderr.decode()
    assert instead in done.stderr.decode()


WRONG = {
    "a bad value": (["--fabric", "ib-a:mlx5 0"], "n9.yaml:6:12: fabrics[0].hcas[0]: 'mlx5 0'"),
    "a relative path": (["--vllm-bin", "vllm"], "engines.vllm.bin: 'vllm' is not"),
    "an HCA twice": (["--fabric", "a:x_0", "--fabric", "b:x_0"], "x_0"),
    "another id": (["--node", "N9"], "'N9' is not a node id"),
    "a path": (["--node", "../n9"], "'../n9' is not a node id"),
    "a node that is there": (["--node", "n7"], "there is a node n7 already"),
}


@pytest.mark.parametrize("case", WRONG)
def test_nothing_wrong_is_written(root: Path, case: str) -> None:
    flags, message = WRONG[case]
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    done = gen_seed("add", *NODE, *flags, cwd=root, check=False)
    assert done.returncode == 1
    assert message in done.stderr.decode()
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_a_fleet_without_a_release_keeps_no_node_out(tmp_path: Path) -> None:
    done = gen_seed("add", *NODE, cwd=tmp_path)
    assert b"warning: nodes/n9.yaml:1:1: release: n9 has no release" in done.stderr
    assert (tmp_path / "nodes/n9.yaml").exists()
