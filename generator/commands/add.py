"""`gen-seed add`: the flags of the onboarding script, written as a node's file."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from generator.cli import RESERVED
from generator.options import say, tell, workspace_option
from generator.problem import Refused, refuse

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from generator.problem import Problem
    from generator.workspace import Workspace

_FABRIC_HCAS = "mlx5_0,mlx5_1"  # what the script took --fabric NAME alone to mean


def _gone(instead: str) -> Any:
    """Return the callback of a flag that lost its meaning: it says what took its place."""

    def refuse(_: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise click.UsageError(f"{parameter.opts[0]} has no meaning here: {instead}")

    return refuse


@click.command()
@click.option("--node", required=True, metavar="ID", help="Node id, hostname and common name.")
@click.option("--addr", required=True, metavar="HOST", help="Where engines are reachable.")
@click.option("--server", required=True, metavar="URL", help="The control plane's endpoint.")
@click.option(
    "--fabric",
    "fabrics",
    multiple=True,
    metavar="NAME[:HCA,HCA…]",
    help=f"A fabric and the HCAs on it [default: {_FABRIC_HCAS}]; repeat it for each fabric.",
)
@click.option("--mgmt-addr", metavar="ADDR", help="Where engines are reachable, if not --addr.")
@click.option("--mgmt-if", metavar="NAME", help="The interface NCCL bootstraps over.")
@click.option("--llamacpp-bin", metavar="PATH", help="llama-server.")
@click.option("--vllm-bin", metavar="PATH", help="The vllm entry point.")
@click.option("--sglang-python", metavar="PATH", help="The interpreter of SGLang's virtualenv.")
@click.option("--nvidia-smi", metavar="PATH", help="nvidia-smi, when it is not on PATH.")
@click.option("--ib-root", metavar="DIR", help="The sysfs InfiniBand directory.")
@click.option("--pki", hidden=True, callback=_gone("gen-seed NODE --pki DIR"), expose_value=False)
@click.option(
    "--binary",
    hidden=True,
    callback=_gone("the node fetches the release that fleet.yaml names, and checks its digest"),
    expose_value=False,
)
@click.option(
    "--ssh-user",
    hidden=True,
    callback=_gone("nothing is done over SSH; attach the seed to the machine"),
    expose_value=False,
)
@workspace_option
@click.pass_obj
def command(folder: Path, /, node: str, **flags: Any) -> None:
    """Write nodes/ID.yaml from the flags of the onboarding script.

    Nothing is overwritten. The file is checked as it will be when its seed is made; what is
    equal to the defaults in fleet.yaml may be taken out of it.
    """
    from generator import emit, files, workspace

    path = folder / "nodes" / f"{node}.yaml"
    place = workspace.open_workspace(folder)
    spec = _spec(**flags)
    line = "# yaml-language-server: $schema=../schemas/node.schema.json\n"
    data = f"{line if (folder / 'schemas').is_dir() else ''}{emit.dump(spec)}".encode()
    rest = _check(place, node, data, path, spec.keys())
    files.make_folder(path.parent, 0o755)
    files.create(path, data, 0o644)
    tell(rest)
    say(f"made {path}; next: gen-seed {node} > {node}.iso")


def _check(
    place: Workspace, node: str, data: bytes, path: Path, written: Collection[str]
) -> list[Problem]:
    """Refuse what is wrong with a node's file before it is there; return what else is.

    What is wrong elsewhere, such as a release that fleet.yaml does not have yet, keeps no node
    from being added.
    """
    from generator import resolve, schema, source, workspace

    if not workspace.is_node_id(node):
        place.node(node)  # says what a node id is
    if node in place.node_ids:
        raise refuse(f"there is a node {node} already", "gen-seed add never changes one")
    own = source.parse(data, str(path))
    if wrong := schema.problems(own, "node"):
        raise Refused(wrong)
    try:
        _, problems = resolve.resolve(place.with_node(node, own), node, RESERVED)
    except Refused as refused:
        problems = refused.problems
    ours = [
        p for p in problems if p.severity == "error" and re.split(r"[.\[]", p.path)[0] in written
    ]
    if ours:
        raise Refused(ours)
    return [replace(problem, severity="warning") for problem in problems]


def _spec(  # noqa: PLR0913, PLR0917 - the script's flags
    addr: str,
    server: str,
    fabrics: tuple[str, ...],
    mgmt_addr: str | None,
    mgmt_if: str | None,
    llamacpp_bin: str | None,
    vllm_bin: str | None,
    sglang_python: str | None,
    nvidia_smi: str | None,
    ib_root: str | None,
) -> dict[str, Any]:
    """Return the spec that the flags describe; what is not given is left to its default."""
    engines = {
        "llamacpp": {"bin": llamacpp_bin},
        "vllm": {"bin": vllm_bin},
        "sglang": {"python": sglang_python},
    }
    spec = {
        "mgmt_addr": mgmt_addr or addr,
        "mgmt_interface": mgmt_if,
        "server": server,
        "fabrics": [_fabric(text) for text in fabrics],
        "engines": engines,
        "discovery": {"nvidia_smi": nvidia_smi, "ib_root": ib_root},
    }
    kept = _given(spec)
    assert isinstance(kept, dict)  # noqa: S101 - mgmt_addr is always there
    return kept


def _fabric(text: str) -> dict[str, Any]:
    name, colon, hcas = text.partition(":")
    return {"name": name, "hcas": (hcas if colon else _FABRIC_HCAS).split(",")}


def _given(value: Any) -> Any:
    """Return a value without what is None, and without what that leaves empty."""
    if not isinstance(value, dict):
        return value or None
    kept = {key: item for key, part in value.items() if (item := _given(part)) is not None}
    return kept or None
