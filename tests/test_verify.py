"""What a template or a value could spoil is found before anything is issued."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import yaml

from generator import identity, schema, spec
from generator.problem import Refused
from generator.render import Seed, render
from generator.template import environment
from generator.verify import agent_config, verify

if TYPE_CHECKING:
    from pathlib import Path

RELEASE = spec.Release("v0.9.1", ("https://git.example.net/{version}/{arch}",), {"amd64": "a" * 64})
SPEC = spec.Spec("n7", "https://10.0.0.140:7443", "10.0.0.107", RELEASE)
PLACEHOLDER = identity.placeholder("n7")


def rendered(asked: spec.Spec = SPEC, overrides: Path | None = None) -> Seed:
    return render(asked, PLACEHOLDER, environment(overrides))


def test_agent_yaml_is_what_the_script_wrote() -> None:
    """For: --node n7 --addr 10.0.0.107 --server … --fabric ib-a:mlx5_0,mlx5_1 --vllm-bin …"""
    asked = replace(
        SPEC,
        fabrics=(spec.Fabric("ib-a", ("mlx5_0", "mlx5_1")),),
        engines=spec.Engines(vllm=spec.Vllm(bin="/opt/vllm/bin/vllm")),
    )
    text = next(f.content for f in rendered(asked).files if f.path == "/etc/llmgw/agent.yaml")
    assert list(yaml.safe_load(text).items()) == [
        ("node_id", "n7"),
        ("server", "https://10.0.0.140:7443"),
        (
            "tls",
            {
                "ca": "/etc/llmgw/ca.pem",
                "cert": "/etc/llmgw/agent.pem",
                "key": "/etc/llmgw/agent-key.pem",
            },
        ),
        ("mgmt_addr", "10.0.0.107"),
        ("mgmt_interface", "eth0"),
        ("heartbeat_interval", "5s"),
        ("reconnect_base", "1s"),
        ("reconnect_max", "30s"),
        ("fabrics", [{"name": "ib-a", "hcas": ["mlx5_0", "mlx5_1"]}]),
        (
            "discovery",
            {
                "nvidia_smi": "",
                "ib_root": "/sys/class/infiniband",
                "prefer_nvml": False,
                "skip_gpus": False,
            },
        ),
        (
            "engines",
            {
                "llamacpp": {"bin": "", "parallel": 4},
                "vllm": {"bin": "/opt/vllm/bin/vllm", "launch_mode": "ray"},
                "sglang": {"python": ""},
            },
        ),
        (
            "supervisor",
            {
                "work_dir": "/var/lib/llmgw-agent",
                "log_lines": 512,
                "stop_timeout": "60s",
                "health_interval": "2s",
            },
        ),
    ]


def test_two_fabrics_are_two_fabrics() -> None:
    fabrics = (spec.Fabric("ib-a", ("mlx5_0",)), spec.Fabric("ib-b", ("mlx5_1", "mlx5_2")))
    assert agent_config(replace(SPEC, fabrics=fabrics))["fabrics"] == [
        {"name": "ib-a", "hcas": ["mlx5_0"]},
        {"name": "ib-b", "hcas": ["mlx5_1", "mlx5_2"]},
    ]
    verify(rendered(replace(SPEC, fabrics=fabrics)), replace(SPEC, fabrics=fabrics))


HARD = [
    *("x\nruncmd:\n - touch /pwn", "a: b", "'", '"', "%n %h", "$(id) `id`", "{{ 7*7 }}", "${HOME}"),
    *("Zürich 東京 🙂", " both ends ", "no", "1e3", "007", "#", "x\ty", "\u2028", "\x85", "\x7f"),
]


@pytest.mark.parametrize("value", [*HARD, "long " * 5000])
def test_r1_a_value_arrives_as_it_is(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the schema may let through: quoting does not rely on it."""
    monkeypatch.setattr(schema, "problems", lambda *_: [])
    asked = replace(
        SPEC,
        server=value,
        mgmt_interface=value,
        engines=spec.Engines(vllm=spec.Vllm(bin=value)),
        release=replace(RELEASE, urls=(value,), version=value),
        fabrics=(spec.Fabric(value, (value,)),),
        cloud_config={
            "runcmd": [value, [value, value]],
            "timezone": value,
            value: {value: [value]},
        },
        network={"version": 2, "ethernets": {value: {"addresses": [value]}}},
    )
    seed = rendered(asked)
    verify(seed, asked)
    assert yaml.safe_load(seed.network_config or b"") == asked.network


def test_r4_r6_the_first_line_and_the_line_ends() -> None:
    seed = rendered()
    assert seed.user_data.startswith(b"#cloud-config\n")
    assert b"\r" not in b"".join(seed.artifacts().values())


def test_m1_m2_meta_data_always_has_both_ids() -> None:
    meta_data = yaml.safe_load(rendered().artifacts()["meta-data"])
    assert meta_data == {"instance-id": rendered().instance_id, "local-hostname": "n7"}


def test_p1_the_instance_id_changes_only_with_what_cloud_init_would_do_again() -> None:
    same = [
        replace(SPEC, server="https://other:7443"),
        replace(SPEC, release=replace(RELEASE, version="v2")),
        replace(SPEC, fabrics=(spec.Fabric("ib-a", ("mlx5_0",)),)),
        replace(SPEC, identity=spec.Lifetime(7)),
    ]
    other = [
        replace(SPEC, node_id="n8"),
        replace(SPEC, network={"version": 2}),
        replace(SPEC, cloud_config={"timezone": "Etc/UTC"}),
    ]
    assert {rendered(asked).instance_id for asked in same} == {rendered().instance_id}
    assert len({rendered(asked).instance_id for asked in [SPEC, *other]}) == 4


def test_r2_every_command_is_a_string_or_a_list() -> None:
    asked = replace(SPEC, cloud_config={"runcmd": ["echo a: b"], "bootcmd": [["echo", "a: b"]]})
    config = yaml.safe_load(rendered(asked).user_data)
    commands = config["runcmd"] + config["bootcmd"]
    assert all(isinstance(command, str | list) for command in commands)
    assert config["runcmd"][1:] == ["echo a: b", ["/usr/local/lib/llmgw/onboard", "wait"]]
    assert config["bootcmd"][1] == ["echo", "a: b"]


def test_the_operators_files_come_after_ours() -> None:
    theirs = {"path": "/etc/motd", "content": "hello\n"}
    asked = replace(SPEC, cloud_config={"write_files": [theirs]})
    verify(rendered(asked), asked)
    files = yaml.safe_load(rendered(asked).user_data)["write_files"]
    assert files[-1] == theirs
    assert files[-2]["path"] == "/etc/llmgw/seed.sha256"


SPOILT = {
    "agent.yaml.j2": ("node_id: {{ node_id | yaml }}", "node_id: n8", "agent.yaml.node_id is not"),
    "user-data.j2": ("#cloud-config\n", "\n#cloud-config\n", "does not begin with the line"),
    "meta-data.j2": (
        "local-hostname: {{ hostname | yaml }}\n",
        "",
        "meta-data lacks 'local-hostname'",
    ),
    "network-config.j2": (
        "{{ network | yaml_lines }}",
        "network: {}",
        "network-config lacks 'version'",
    ),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_template_that_says_something_else_is_refused(name: str, tmp_path: Path) -> None:
    from generator.resources import TEMPLATES

    old, new, message = SPOILT[name]
    text = (TEMPLATES / name).read_text()
    assert old in text
    (tmp_path / name).write_text(text.replace(old, new))
    asked = replace(SPEC, network={"version": 2})
    with pytest.raises(Refused, match=message):
        verify(rendered(asked, tmp_path), asked)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("bootcmd:\n{{ bootcmd | yaml_lines }}", "", "user-data bootcmd does not guard"),
        ("hostname: {{", "fqdn: other.example\nhostname: {{", "user-data has a stray 'fqdn'"),
        ("{{ preserve_hostname | yaml }}", "true", "user-data preserve_hostname is not"),
    ],
)
def test_user_data_that_leaves_something_out_is_refused(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    from generator.resources import TEMPLATES

    text = (TEMPLATES / "user-data.j2").read_text()
    assert old in text
    (tmp_path / "user-data.j2").write_text(text.replace(old, new, 1))
    with pytest.raises(Refused, match=message):
        verify(rendered(overrides=tmp_path), SPEC)


@pytest.mark.parametrize("name", ["agent.yml.j2", "onboard", "units"])
def test_an_override_that_would_not_be_used_is_refused(name: str, tmp_path: Path) -> None:
    if name == "onboard":
        (tmp_path / name).symlink_to("nowhere")
    else:
        (tmp_path / name).touch()
    with pytest.raises(Refused, match=r"overrides no template|cannot read"):
        environment(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("extra: 1\n", "agent.yaml has a stray 'extra'"),
        ("supervisor: 1\n", "agent.yaml"),
        ("{{ nothing }}\n", "template agent.yaml.j2 cannot be rendered: 'nothing' is undefined"),
        ("{% if %}\n", r"template .*agent.yaml.j2:\d+: "),
        ("{{ ().__class__.__base__ }}\n", "agent.yaml.j2 cannot be rendered: access to attribute"),
        ("\x00\n", "agent.yaml is not"),
        ('{{ "a".split("") }}\n', "agent.yaml.j2 cannot be rendered: empty separator"),
        ("{% include 'agent.yaml.j2' %}\n", "agent.yaml.j2 cannot be rendered: maximum recursion"),
    ],
)
def test_a_template_that_is_broken_is_refused(line: str, message: str, tmp_path: Path) -> None:
    from generator.resources import TEMPLATES

    text = (TEMPLATES / "agent.yaml.j2").read_text()
    (tmp_path / "agent.yaml.j2").write_text(text + line)
    with pytest.raises(Refused, match=message):
        verify(rendered(overrides=tmp_path), SPEC)


def test_c4_no_certificate_goes_by_way_of_cloud_inits_own_module() -> None:
    assert not {"ca_certs", "ca-certs"} & yaml.safe_load(rendered().user_data).keys()


def test_mime_in_a_note_is_not_read_as_mail() -> None:
    mail = "MIME-Version: 1.0\n"
    notes = {"note": mail, "Mime-Version": [mail.strip()], "bootcmd": [f"echo {mail}\n{mail}"]}
    asked = replace(
        SPEC, engines=spec.Engines(vllm=spec.Vllm("/mime-version:")), cloud_config=notes
    )
    verify(rendered(asked), asked)


def test_a_template_that_makes_mail_of_it_is_refused(tmp_path: Path) -> None:
    from generator.resources import TEMPLATES

    text = (TEMPLATES / "user-data.j2").read_text()
    (tmp_path / "user-data.j2").write_text(
        text.replace("#cloud-config\n", "#cloud-config\n# MIME-Version: 1\n")
    )
    with pytest.raises(Refused, match="mime-version"):
        verify(rendered(overrides=tmp_path), SPEC)
