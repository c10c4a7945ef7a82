from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from generator import source
from generator.problem import Refused
from generator.resolve import examine, resolve
from generator.workspace import Workspace, open_workspace

FLEET = """\
schema: 1
defaults: {server: https://control.example.net, engines: {vllm: {bin: /opt/vllm}}}
release: {version: v1, url: "https://h/{arch}", sha256: {amd64: %s}}
groups:
  a: {identity: {days: 10}, fabrics: [{name: x, hcas: [h0]}], agent: {reconnect_max: 1m}}
  b: {identity: {days: 20}, supervisor: {log_lines: 5}}
nodes:
  inline: {mgmt_addr: 10.0.0.9, groups: [a, b]}
""" % ("AB" * 32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "nodes").mkdir()
    (tmp_path / "fleet.yaml").write_text(FLEET, "utf-8")
    (tmp_path / "nodes/n7.yaml").write_text("mgmt_addr: 10.0.0.7\ngroups: [b, a]\n", "utf-8")
    return tmp_path


def messages(workspace: Workspace) -> list[str]:
    return [problem.message for problem in examine(workspace).problems]


def test_defaults_then_groups_in_their_order_then_the_node(folder: Path) -> None:
    (folder / "nodes/n8.yaml").write_text(
        "mgmt_addr: n8\ngroups: [b, a]\nidentity: {days: 30}\nagent: {reconnect_base: 2s}\n",
        "utf-8",
    )
    specs = examine(open_workspace(folder)).specs
    assert {name: spec.identity.days for name, spec in specs.items()} == {
        "inline": 20,
        "n7": 10,
        "n8": 30,
    }
    n8 = specs["n8"]
    assert n8.supervisor.log_lines == 5
    assert (n8.agent.reconnect_base, n8.agent.reconnect_max) == ("2s", "1m")
    assert n8.engines.vllm.bin == "/opt/vllm"
    assert n8.release.sha256 == {"amd64": "ab" * 32}
    assert n8.release.places("arm64") == "https://h/arm64"
    assert n8.fabrics[0].hcas == ("h0",)


def test_a_position_names_the_file_as_the_operator_would(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "nodes/n7.yaml").write_text("mgmt_adr: x\n", "utf-8")

    def file_of(root: Path) -> str:
        with pytest.raises(Refused) as caught:
            resolve(open_workspace(root), "n7")
        mark = caught.value.problems[0].where
        return mark.file if mark else ""

    monkeypatch.chdir(folder)
    assert file_of(Path()) == "nodes/n7.yaml"
    monkeypatch.chdir(folder.parent)
    assert file_of(Path(folder.name)) == f"{folder.name}/nodes/n7.yaml"
    assert file_of(folder) == f"{folder}/nodes/n7.yaml"


def test_one_node_is_resolved_without_reading_the_others(folder: Path) -> None:
    for number in range(100):
        (folder / f"nodes/x{number}.yaml").write_text("broken: [\n", "utf-8")
    spec, warnings = resolve(open_workspace(folder), "n7")
    assert (spec.node_id, warnings) == ("n7", ())


def test_a_wrong_fleet_is_refused_for_every_node(folder: Path) -> None:
    (folder / "fleet.yaml").write_text(FLEET + "  N8: {mgmt_addr: x}\n", "utf-8")
    with pytest.raises(Refused, match="'N8' is not a lower-case DNS label"):
        resolve(open_workspace(folder), "n7")


def test_a_mistake_that_nodes_share_is_told_once_with_their_names(folder: Path) -> None:
    wrong = FLEET.replace("days: 10", "days: 0").replace("https://control", "http://control")
    (folder / "fleet.yaml").write_text(wrong, "utf-8")
    (folder / "nodes/n8.yaml").write_text("mgmt_addr: n8\n", "utf-8")
    problems = examine(open_workspace(folder)).problems
    assert {problem.path: problem.nodes for problem in problems} == {
        "defaults.server": ("inline", "n7", "n8"),
        "groups.a.identity.days": ("inline", "n7"),
    }


def test_the_authority_is_where_fleet_yaml_says(folder: Path) -> None:
    assert open_workspace(folder).authority_dir is None
    (folder / "fleet.yaml").write_text(FLEET + "authority: {dir: ../pki}\n", "utf-8")
    assert open_workspace(folder).authority_dir == "../pki"


def test_a_folder_without_anything_is_a_workspace_without_nodes(tmp_path: Path) -> None:
    workspace = open_workspace(tmp_path)
    assert (workspace.node_ids, workspace.problems) == ((), ())


def test_a_symbolic_link_to_a_file_is_followed(folder: Path) -> None:
    (folder / "shared.yaml").write_text("mgmt_addr: 10.0.0.8\n", "utf-8")
    (folder / "nodes/n8.yaml").symlink_to("../shared.yaml")
    assert examine(open_workspace(folder)).specs["n8"].mgmt_addr == "10.0.0.8"


@pytest.mark.parametrize("kind", ["dangling", "loop", "fifo", "folder", "large"])
@pytest.mark.parametrize("name", ["nodes/n8.yaml", "fleet.yaml"])
def test_what_is_not_a_file_is_one_clear_error(folder: Path, name: str, kind: str) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    match kind:
        case "dangling":
            path.symlink_to("nowhere")
        case "loop":
            path.symlink_to(path.name)
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case _:
            path.write_bytes(b"#" * (17 << 20))
    found = messages(open_workspace(folder))
    assert any(
        re.search(rf"{name}.*(no such|too many|not a reg|is a dir|larger)", m) for m in found
    )


def test_names_that_are_no_node_ids_are_refused(folder: Path) -> None:
    bad = ["N8", "n_8", "-n8", "n8-", "n.8", "n8\n", "é", "x" * 64, "n 8", os.fsdecode(b"n\xff8")]
    for name in bad:
        (folder / f"nodes/{name}.yaml").touch()
    found = messages(open_workspace(folder))
    assert len(found) == len(bad)
    for message in found:
        message.encode("utf-8")  # what is not UTF-8 in a name is escaped
        assert message.isprintable()
        assert "is not a node id" in message


def test_what_an_editor_leaves_in_nodes_is_not_a_node(folder: Path) -> None:
    for name in ("n7.yaml~", ".n7.yaml.swp", "README.md", "n7.yaml.bak", ".yaml"):
        (folder / "nodes" / name).touch()
    assert open_workspace(folder).node_ids == ("inline", "n7")


def test_the_nodes_own_part_is_read_when_asked(folder: Path) -> None:
    workspace = open_workspace(folder)
    assert source.plain(workspace.node("n7"))["groups"] == ["b", "a"]
    assert source.plain(workspace.node("inline"))["groups"] == ["a", "b"]
