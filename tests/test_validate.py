"""`gen-seed validate`: the language is tried in test_bad.py, the command here."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from fleet import Fleet, gen_seed

from generator import authority

if TYPE_CHECKING:
    from pathlib import Path

FLEET = f"""\
schema: 1
defaults:
  server: https://llmgw.example.net:7443
  engines: {{llamacpp: {{bin: /opt/llama.cpp/llama-server}}}}
  fabrics: [{{name: ib-a, hcas: [mlx5_0]}}]
release:
  version: v1
  url: https://h.example/{{arch}}
  sha256: {{amd64: {"0123456789abcdef" * 4}}}
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    made = Fleet(tmp_path)
    made.write(fleet=FLEET, n7="mgmt_addr: 10.0.0.7\n", n8="mgmt_addr: 10.0.0.8\n")
    return made


def test_a_sound_fleet_is_0_and_makes_nothing(fleet: Fleet) -> None:
    before = sorted(fleet.root.rglob("*"))
    done = fleet("validate")
    assert (done.stdout, done.stderr) == (b"", b"2 nodes: no errors, no warnings\n")
    assert sorted(fleet.root.rglob("*")) == before


def test_every_error_of_every_node_is_told_at_once(fleet: Fleet) -> None:
    fleet.write(n7="mgmt_addr: 10.0.0\nfabrik: []\n", n8="mgmt_adr: 10.0.0.8\n")
    done = fleet("validate", check=False)
    said = done.stderr.decode()
    assert done.returncode == 1
    for place in ("n7.yaml:1:12: mgmt_addr: ", "n7.yaml:2:1: fabrik: ", "n8.yaml:1:1: mgmt_adr: "):
        assert f"error: nodes/{place}" in said
    assert "did you mean 'mgmt_addr'?" in said
    assert "2 nodes: 3 errors, no warnings" in said


def test_where_there_are_no_nodes_it_says_so(tmp_path: Path) -> None:
    done = gen_seed("validate", cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert b"there are no nodes in ." in done.stderr
    done = gen_seed("validate", "--format", "json", cwd=tmp_path, check=False)
    assert "there are no nodes in ." in json.loads(done.stdout)["problems"][0]["message"]


def test_a_fleet_that_cannot_be_read_may_have_nodes(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text("a: [", "utf-8")
    done = gen_seed("validate", cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert b"there are no nodes" not in done.stderr


def test_the_authority_is_the_one_that_is_named(fleet: Fleet) -> None:
    authority.create(fleet.root / "other", datetime.now(UTC), days=30)
    assert b"no warnings" in fleet("validate").stderr
    assert b"warning: " in fleet("validate", "--pki", "other").stderr


def test_only_all_nodes_are_compared_with_each_other(fleet: Fleet) -> None:
    fleet.write(n8="mgmt_addr: 10.0.0.7\n")
    assert fleet("validate", "n7", "n7").stderr == b"1 node: no errors, no warnings\n"
    assert b"10.0.0.7" in fleet("validate", check=False).stderr


def test_warnings_fail_only_when_strict(fleet: Fleet) -> None:
    fleet.write(n7="mgmt_addr: 10.0.0.7\nengines: {llamacpp: {bin: ''}}\n")
    assert b"warning: " in fleet("validate").stderr
    assert fleet("validate", "--strict", check=False).returncode == 1


def test_json_is_one_object_with_a_row_a_problem(fleet: Fleet) -> None:
    fleet.write(n7="mgmt_addr: 10.0.0\n")
    done = fleet("validate", "--format", "json", check=False)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    (row,) = found["problems"]
    assert found["schema"] == 1
    place = [row[key] for key in ("severity", "file", "line", "column", "path")]
    assert place == ["error", "nodes/n7.yaml", 1, 12, "mgmt_addr"]
    assert json.loads(fleet("validate", "n8", "--format", "json").stdout)["problems"] == []


def test_an_unknown_node_is_an_error_beside_others(fleet: Fleet) -> None:
    done = fleet("validate", "n9", "n7", check=False)
    assert b"error: no node 'n9'" in done.stderr
    assert b"2 nodes: 1 error, no warnings" in done.stderr


def test_explain_and_schema_answer(fleet: Fleet) -> None:
    assert b"mlx5_0" in fleet("explain", "fabrics[].hcas").stdout
    assert fleet("explain", "nonsense", check=False).returncode == 1
    for name in ("node", "fleet", "agent"):
        assert json.loads(fleet("schema", name).stdout)["$schema"].endswith("2020-12/schema")
