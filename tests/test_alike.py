"""That one seed stands for another: only where reading the other would have found nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from generator import alike, identity, render, template, verify
from generator.network import netplan
from generator.problem import Refused
from generator.resources import TEMPLATES
from generator.spec import Fabric, Release, Spec

RELEASE = Release("v0.9.1", ("https://h/{arch}",), {"amd64": "ab" * 32})
OURS = template.environment()


def spec(node: str, address: str = "10.0.0.7", **values: Any) -> Spec:
    network = netplan({"address": f"{address}/24", "mac": "52:54:00:00:00:07"}, "eth0")
    return Spec(node, "https://c:7443", address, RELEASE, **{"network": network, **values})


def seed(asked: Spec) -> render.Seed:
    return render.render(asked, identity.placeholder(asked.node_id), OURS)


def count(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the nodes are added that are read in full."""
    found: list[str] = []
    whole = verify.verify

    def noted(seed: render.Seed, asked: Spec) -> None:
        found.append(seed.node_id)
        whole(seed, asked)

    monkeypatch.setattr(verify, "verify", noted)
    return found


def test_of_a_fleet_one_is_read_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    read, checker = count(monkeypatch), alike.Checker()
    for number in range(20):
        asked = spec(f"node{number}", f"10.0.1.{number + 100}")
        checker.check(seed(asked), asked)
    assert read == ["node0"]
    # Another shape of spec is another text.
    asked = spec("node77", "10.0.1.77", fabrics=(Fabric("ib-a", ("mlx5_0",)),))
    checker.check(seed(asked), asked)
    assert read == ["node0", "node77"]


@pytest.mark.parametrize("node", ["no", "y", "null", "007", "1e3", "0x1f", "12", "e"])
def test_a_name_that_is_quoted_is_read_in_full(node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checker = alike.Checker()
    checker.check(seed(spec("n7")), spec("n7"))
    read = count(monkeypatch)
    checker.check(seed(spec(node)), spec(node))
    assert read == [node]


def test_templates_that_do_not_quote(tmp_path: Path) -> None:
    for name in ("agent.yaml.j2", "meta-data.j2", "user-data.j2"):
        text = (TEMPLATES / name).read_text("utf-8")
        for word in ("hostname", "node_id"):
            text = text.replace(f"{{{{ {word} | yaml }}}}", f"{{{{ {word} }}}}")
        (tmp_path / name).write_text(text, "utf-8")
    templates, checker = template.environment(tmp_path), alike.Checker()
    made = render.render(spec("n7"), identity.placeholder("n7"), templates)
    checker.check(made, spec("n7"))
    # A reader takes this one for nothing.
    refused(
        checker, render.render(spec("null"), identity.placeholder("null"), templates), spec("null")
    )


def refused(checker: alike.Checker, made: render.Seed, asked: Spec) -> None:
    for check in (verify.verify, checker.check):
        with pytest.raises(Refused):
            check(made, asked)


TAMPERED = [
    ("hostname: n8\n", "hostname: n7\n"),
    ("node_id: n8\n", "node_id: n9\n"),
    ("preserve_hostname: false", "preserve_hostname: true"),
    ("    #!/bin/sh\n", "    #!/bin/bash\n"),
    ("10.0.0.8", "10.0.0.7"),
    ("    -----BEGIN CERTIFICATE-----\n", "     -----BEGIN CERTIFICATE-----\n"),
    ("runcmd:\n", "runcmd:\n- [true]\n"),
    ('permissions: "0600"', 'permissions: "0644"'),
]


@pytest.mark.parametrize(("old", "new"), TAMPERED)
def test_what_is_not_right_is_found_after_one_that_was(old: str, new: str) -> None:
    checker = alike.Checker()
    checker.check(seed(spec("n7", "10.0.0.7")), spec("n7", "10.0.0.7"))
    asked = spec("n8", "10.0.0.8")
    made = seed(asked)
    checker.check(made, asked)
    assert old.encode() in made.user_data
    data = made.user_data.replace(old.encode(), new.encode(), 1)
    refused(checker, replace(made, user_data=data), asked)


def test_the_seed_of_another_node_is_found() -> None:
    checker = alike.Checker()
    asked, other = spec("n7", "10.0.0.7"), spec("n8", "10.0.0.8")
    checker.check(seed(asked), asked)
    refused(checker, seed(other), asked)
    refused(checker, seed(asked), other)
    made = seed(other)
    refused(checker, replace(made, meta_data=seed(asked).meta_data), other)
    refused(checker, replace(made, network_config=seed(asked).network_config), other)
    # A name that was put in the place of another one.
    asked = replace(asked, server="https://n7:7443")
    checker.check(seed(asked), asked)
    wrong = seed(replace(other, server="https://n8:7443"))
    refused(checker, wrong, replace(other, server="https://n7:7443"))


def test_what_was_wrong_is_wrong_again() -> None:
    checker, asked = alike.Checker(), spec("n7")
    made = seed(asked)
    wrong = replace(made, user_data=made.user_data.replace(b"hostname: n7", b"hostname: x"))
    for _ in range(2):
        refused(checker, wrong, asked)
