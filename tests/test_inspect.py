"""inspect reads what gen-seed and others make, and finds what was planted."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fleet import gen_seed

from generator import authority, inspection, pack, spec, unpack, vfat
from generator.identity import Identity
from generator.problem import Refused
from generator.render import Seed, render
from generator.template import environment

NOW = datetime(2026, 9, 1, 12, tzinfo=UTC)
RELEASE = spec.Release("v0.9.1", ("https://h.example/{version}/{arch}",), {"amd64": "ab" * 32})
SPEC = spec.Spec("n7", "https://h.example:7443", "10.0.0.107", RELEASE, network={"version": 2})


@dataclass(frozen=True)
class Made:
    """Two authorities, and a seed of n7 from the first."""

    ours: authority.Authority
    theirs: authority.Authority
    identity: Identity

    def seed(self, who: Identity | None = None) -> Seed:
        return render(SPEC, who or self.identity, environment())

    def issue(self, node: str, ca: authority.Authority | None = None) -> Identity:
        return authority.issue(ca or self.ours, node, 365, NOW)[0]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    root = tmp_path_factory.mktemp("pki")
    ours, _ = authority.create(root / "ours", NOW)
    theirs, _ = authority.create(root / "theirs", NOW, name="another authority")
    return Made(ours, theirs, authority.issue(ours, "n7", 365, NOW)[0])


def problems(data: bytes, now: datetime = NOW) -> list[str]:
    found = inspection.inspect(unpack.from_bytes(data, "n7.iso"), now)
    return [problem.message for problem in found.problems]


def iso(seed: Seed, **changed: bytes | None) -> bytes:
    artifacts = {**seed.artifacts(), **{k.replace("_", "-"): v for k, v in changed.items()}}
    return pack.iso({k: v for k, v in artifacts.items() if v is not None}, NOW)


def test_a_sound_seed_has_no_problem_in_any_form(made: Made, tmp_path: Path) -> None:
    seed = made.seed()
    assert problems(iso(seed)) == []
    assert problems(seed.user_data) == []
    for name, data in seed.artifacts().items():
        (tmp_path / name).write_bytes(data)
    found = inspection.inspect(unpack.unpack(tmp_path), NOW)
    assert (found.problems, found.node_id, found.hostname) == ([], "n7", "n7")
    assert (found.release, found.digests) == ("v0.9.1", {"amd64": "ab" * 32})
    assert found.identity
    assert found.identity.serial == made.identity.serial


@pytest.mark.parametrize("encode", [gzip.compress, lambda d: base64.b64encode(gzip.compress(d))])
def test_compressed_user_data_is_read(made: Made, encode: Callable[[bytes], bytes]) -> None:
    assert problems(iso(made.seed(), user_data=encode(made.seed().user_data))) == []


def changed_byte(seed: Seed) -> bytes:
    at = seed.user_data.index(b"BEGIN CERTIFICATE", seed.user_data.index(b"agent.pem")) + 200
    other = b"A" if seed.user_data[at : at + 1] != b"A" else b"B"
    return seed.user_data[:at] + other + seed.user_data[at + 1 :]


def with_label(image: bytes, label: bytes) -> bytes:
    return image[:32808] + label.ljust(6) + image[32814:]


def swap(seed: Seed, old: bytes, new: bytes) -> bytes:
    assert old in seed.user_data
    return seed.user_data.replace(old, new, 1)


PLANTED: dict[str, tuple[Callable[[Made], bytes], str]] = {
    "another node's key": (
        lambda made: iso(made.seed(replace(made.identity, key=made.issue("n8").key))),
        "agent.pem and the private key do not belong together",
    ),
    "another authority's certificate": (
        lambda made: iso(made.seed(replace(made.issue("n7", made.theirs), roots=made.ours.roots))),
        "agent.pem does not lead to a root",
    ),
    "another hostname": (
        lambda made: iso(
            made.seed(), user_data=swap(made.seed(), b"hostname: n7", b"hostname: n8")
        ),
        "node_id of agent.yaml is 'n7'",
    ),
    "another node's certificate": (
        lambda made: iso(made.seed(replace(made.issue("n8"), node_id="n7"))),
        "agent.pem has the common name 'n8', not 'n7'",
    ),
    "a changed byte": (
        lambda made: iso(made.seed(), user_data=changed_byte(made.seed())),
        "/etc/llmgw/agent.pem is not what seed.sha256 says",
    ),
    "a wrong label": (
        lambda made: with_label(iso(made.seed()), b"SEED"),
        "the label is 'SEED', not 'cidata'",
    ),
    "no meta-data": (lambda made: iso(made.seed(), meta_data=None), "meta-data is missing"),
    "no user-data": (lambda made: iso(made.seed(), user_data=None), "user-data is missing"),
    "no instance-id": (
        lambda made: iso(made.seed(), meta_data=b"local-hostname: n7\n"),
        "meta-data has no instance-id",
    ),
    "no header": (
        lambda made: iso(made.seed(), user_data=made.seed().user_data[1:]),
        "user-data does not begin with the line #cloud-config",
    ),
    "no YAML": (
        lambda made: iso(made.seed(), user_data=b"#cloud-config\na: [\n"),
        "user-data is not a YAML map",
    ),
    "no digest": (
        lambda made: iso(made.seed(), user_data=swap(made.seed(), b"sha256_amd64=", b"sha_=")),
        "the release has no digest",
    ),
    "somebody else's": (
        lambda _: b"#cloud-config\npackages: [vim]\n",
        "user-data onboards no node",
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(made: Made, fault: str) -> None:
    plant, message = PLANTED[fault]
    said = problems(plant(made))
    assert any(message in line for line in said), said


def test_a_certificate_that_has_ended_is_found(made: Made) -> None:
    said = problems(iso(made.seed()), NOW + timedelta(days=366))
    assert said == ["agent.pem ended on 2027-09-01T12:00:00Z"]


@pytest.mark.parametrize("keep", [-1, -2048, 40000])
def test_a_truncated_iso_is_found(made: Made, keep: int) -> None:
    with pytest.raises(Refused, match=r"n7.iso: the ISO is cut short"):
        unpack.from_bytes(iso(made.seed())[:keep], "n7.iso")


@pytest.mark.parametrize("data", [b"", b"hello", b"\0" * 100_000, b"\x7fELF"])
def test_what_is_no_seed_is_refused(data: bytes) -> None:
    with pytest.raises(Refused, match="x is no seed"):
        unpack.from_bytes(data, "x")


needs_fat = pytest.mark.skipif(
    not (shutil.which("mkfs.vfat") and shutil.which("mcopy")), reason="no dosfstools, or no mtools"
)


@needs_fat
@pytest.mark.parametrize(("kib", "bits"), [(256, 12), (16384, 16), (40000, 32)])
def test_a_fat_image_is_read(made: Made, tmp_path: Path, kib: int, bits: int) -> None:
    image = tmp_path / "n7.img"
    with image.open("wb") as file:
        file.truncate(kib * 1024)
    subprocess.run(
        ["mkfs.vfat", "-F", str(bits), "-n", "CIDATA", image], check=True, capture_output=True
    )
    for name, data in made.seed().artifacts().items():
        (tmp_path / name).write_bytes(data)
        subprocess.run(
            ["mcopy", "-i", image, tmp_path / name, f"::{name}"], check=True, capture_output=True
        )
    seed = unpack.unpack(image)
    assert (seed.kind, seed.label, seed.artifacts) == (
        "FAT image",
        "CIDATA",
        made.seed().artifacts(),
    )
    assert inspection.inspect(seed, NOW).problems == []
    with pytest.raises(ValueError, match="cut short"):
        vfat.read(image.read_bytes()[:-1])


@needs_fat
def test_a_damaged_fat_image_ends_in_a_refusal(made: Made, tmp_path: Path) -> None:
    image = tmp_path / "n7.img"
    with image.open("wb") as file:
        file.truncate(256 * 1024)
    subprocess.run(
        ["mkfs.vfat", "-F", "12", "-n", "CIDATA", image], check=True, capture_output=True
    )
    (tmp_path / "user-data").write_bytes(made.seed().user_data)
    subprocess.run(
        ["mcopy", "-i", image, tmp_path / "user-data", "::user-data"],
        check=True,
        capture_output=True,
    )
    data = image.read_bytes()
    for at in range(0, 4096, 7):  # the boot sector and the table, which are all numbers
        broken = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        with suppress(Refused):
            unpack.from_bytes(broken, "x")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    gen_seed("init", ".", "--new-ca", cwd=tmp_path)
    gen_seed("n7", "-o", "n7.iso", cwd=tmp_path)
    return tmp_path


def test_the_command_in_text_and_json_never_shows_the_key(workspace: Path) -> None:
    user_data = unpack.unpack(workspace / "n7.iso").artifacts["user-data"].decode()
    lines = [line.strip() for line in user_data.splitlines()]
    secret = lines[lines.index("-----BEGIN PRIVATE KEY-----") + 1 :][:3]
    text = gen_seed("inspect", "n7.iso", cwd=workspace).stdout.decode()
    data = gen_seed("inspect", "n7.iso", "--format", "json", cwd=workspace).stdout.decode()
    assert not [line for line in secret if line in text + data]
    assert "ledger       issued 20" in text
    found = json.loads(data)
    assert found["schema"] == 1
    (row,) = found["seeds"]
    assert (row["node_id"], row["problems"], row["label"]) == ("n7", [], "cidata")
    assert row["ledger"]["serial"] == row["certificate"]["serial"]


def test_stdin_is_read_and_a_fault_is_1(workspace: Path) -> None:
    image = (workspace / "n7.iso").read_bytes()
    (workspace / "n7.iso").write_bytes(with_label(image, b"SEED"))
    done = gen_seed("inspect", "n7.iso", cwd=workspace, check=False)
    assert done.returncode == 1
    assert b"error: the label is 'SEED', not 'cidata'\n  hint: " in done.stderr
    piped = gen_seed("inspect", "-", cwd=workspace, check=False, stdin=image)
    assert piped.returncode == 0
    assert piped.stdout.startswith(b"-: ISO, label cidata, ")


def test_a_certificate_that_the_ledger_does_not_know(workspace: Path) -> None:
    (workspace / "pki/ledger.db").unlink()
    said = gen_seed("inspect", "n7.iso", cwd=workspace).stdout
    assert b"ledger       nothing known of this certificate" in said
    assert not (workspace / "pki/ledger.db").exists()


def test_a_seed_for_a_baked_image_is_smaller_and_sound(made: Made) -> None:
    release = replace(RELEASE, fetch="never")
    seed = render(replace(SPEC, release=release), made.identity, environment())
    whole = made.seed()
    assert [file.path for file in seed.files] == [file.path for file in whole.files]
    assert len(seed.user_data) < len(whole.user_data) / 2
    assert b"onboard run" not in seed.user_data
    assert problems(iso(seed)) == []
    # What is not in the image must be in the seed, whatever the seed says of itself.
    lost = swap(seed, b"path: /etc/llmgw/agent.yaml", b"path: /etc/llmgw/agent.yml")
    assert "/etc/llmgw/agent.yaml is missing" in problems(iso(seed, user_data=lost))
    other = swap(whole, b"path: /usr/local/lib/llmgw/onboard", b"path: /usr/local/lib/llmgw/other")
    assert "/usr/local/lib/llmgw/onboard is missing" in problems(iso(whole, user_data=other))
