from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from generator import reference, schema
from generator.cli import gen_seed
from generator.problem import Refused

SPEC = Path(__file__).parent.parent / "docs/spec.md"
MARKER = "tests/test_reference.py -->\n\n"


def test_docs_spec_is_what_the_schemas_say() -> None:
    head, marker, body = SPEC.read_text("utf-8").partition(MARKER)
    if os.environ.get("GEN_SEED_RECORD"):
        SPEC.write_text(head + marker + reference.markdown(), "utf-8")
        pytest.fail("recorded: read the difference, then run again without GEN_SEED_RECORD")
    assert body == reference.markdown()


def test_every_property_is_in_the_reference() -> None:
    text = reference.markdown()
    for name, part in schema.load("node")["properties"].items():
        assert f"| `{name}" in text
        for inner in part.get("properties", {}):
            assert f"`{name}.{inner}`" in text


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("fabrics[].hcas", "fabrics[].hcas: a list, each an HCA name\n"),
        ("fabrics[0].hcas[1]", "fabrics[0].hcas[1]: an HCA name\n  The name under /sys/class/inf"),
        ("network.ethernets.eth0.dhcp4", "network.ethernets.eth0.dhcp4: true or false\n"),
        ("network.address", "an address with its prefix length, or a list\n"),
        ("groups", "groups: a list, each a lower-case DNS label\n"),
        ("defaults.server", "defaults.server: an HTTPS URL\n"),
        ("nodes.n7.identity.days", ": a whole number from 1 to 3650\n"),
        ("", "fields:\n    schema"),
        ("fleet", "    authority"),
    ],
)
def test_explain(path: str, said: str) -> None:
    assert said in reference.explain(path)


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("fabrics[].hca", "did you mean 'hcas'?"),
        ("sever", "did you mean 'server'?"),
        ("server.x", "the fields there are none"),
        ("discovery.zzz", "the fields there are nvidia_smi, ib_root, prefer_nvml, skip_gpus"),
    ],
)
def test_explain_knows_no_such_field(path: str, hint: str) -> None:
    with pytest.raises(Refused) as caught:
        reference.explain(path)
    assert caught.value.problems[0].hint == hint


def test_the_commands_print_them() -> None:
    explained = CliRunner().invoke(gen_seed, ["explain", "fabrics[].hcas"])
    assert explained.output == reference.explain("fabrics[].hcas")
    printed = CliRunner().invoke(gen_seed, ["schema", "fleet"])
    assert json.loads(printed.output) == schema.bundled("fleet")
