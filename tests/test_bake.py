"""What all nodes share, in a tar, in a root filesystem and in a disk image; never an identity."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import io
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fleet import CHECKOUT, on_terminal, write_fleet
from images import (
    BINARY,
    NEWER,
    SERVER,
    disk_of,
    fleet_in,
    mounted,
    needs_disks,
    needs_root,
    release,
    rootfs_in,
    state,
)

from generator import authority, baked, disk, generalize
from generator.__main__ import run
from generator.prove.servers import ReleaseServer
from generator.tree import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet import Fleet

# DESIGN's table of what lands on a node, as far as all nodes share it.
FILES = {
    "/etc/llmgw/baked.json": 0o644,
    "/etc/llmgw/ca.pem": 0o644,
    "/etc/systemd/system/llmgw-agent.service": 0o644,
    "/etc/systemd/system/llmgw-onboard.service": 0o644,
    "/etc/systemd/system/multi-user.target.d/llmgw-onboard.conf": 0o644,
    "/usr/local/bin/llmgw": 0o755,
    "/usr/local/lib/llmgw/onboard": 0o755,
    "/usr/local/lib/llmgw/seed.py": 0o644,
    "/usr/local/share/ca-certificates/llmgw-ca.crt": 0o644,
}
KEY = "etc/llmgw/agent-key.pem"
BIN = "usr/local/bin/llmgw"


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return fleet_in(tmp_path / "site")


def bake(fleet: Fleet, *arguments: str, check: bool = True) -> str:
    """Bake with the binary at hand; return what was said."""
    done = fleet("bake", "--binary", "llmgw", *arguments, check=check)
    assert (done.returncode == 0) == check, done.stderr.decode()
    return done.stderr.decode()


# ---- a tar ----


def test_a_tar_is_the_same_everywhere_and_roots(fleet: Fleet, tmp_path: Path) -> None:
    bake(fleet, "--tar", str(tmp_path / "a.tar"))
    elsewhere = {"TZ": "Asia/Tokyo", "LC_ALL": "C", "SOURCE_DATE_EPOCH": "0"}
    again = fleet("bake", "--tar", "-", "--binary", "llmgw", environ=elsewhere).stdout
    assert (tmp_path / "a.tar").read_bytes() == again
    assert (tmp_path / "a.tar").stat().st_mode & 0o777 == 0o644
    with tarfile.open(fileobj=io.BytesIO(again)) as archive:
        heads = archive.getmembers()
    files = {f"/{head.name}": head.mode for head in heads if head.isfile()}
    assert files == FILES
    assert {(head.uid, head.gid, head.uname, head.mtime) for head in heads} == {(0, 0, "root", 0)}
    assert [head.name for head in heads] == sorted(head.name for head in heads)
    # An entry for /etc or /usr/local/bin would set the mode that they have in the image.
    folders = {head.name: head.mode for head in heads if head.isdir()}
    own = ("etc/llmgw", "etc/systemd/system/multi-user.target.d", "usr/local/lib/llmgw")
    assert folders == dict.fromkeys(own, 0o755)


def test_a_tar_has_no_terminal_and_no_place_for_a_name(fleet: Fleet) -> None:
    status, _, said = on_terminal("bake", "--tar", "-", "--binary", "llmgw", cwd=fleet.root)
    assert status == 1
    assert said == (
        "error: binary data is not written to a terminal\n"
        "  hint: redirect it, > FILE, or write it with --tar FILE\n"
    )
    assert bake(fleet, "--tar", "", check=False).startswith("error: --tar names no file\n")


def test_source_date_epoch_dates_a_tar(fleet: Fleet) -> None:
    dated = fleet(
        "bake", "--tar", "-", "--binary", "llmgw", environ={"SOURCE_DATE_EPOCH": "1700000000"}
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(dated)) as archive:
        assert {head.mtime for head in archive} == {1700000000}


@needs_root
def test_a_tar_unpacks_to_the_right_owners_and_modes(fleet: Fleet, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True, mode=0o750)
    (root / "usr/local/bin").mkdir(parents=True)
    (root / "usr/local/bin").chmod(0o2775)  # as Debian 11 has it, with the group staff
    bake(fleet, "--tar", str(tmp_path / "a.tar"))
    subprocess.run(["tar", "-xpf", tmp_path / "a.tar", "-C", root], check=True, umask=0o077)
    states = {path: (root / path[1:]).lstat() for path in FILES}
    assert {path: it.st_mode & 0o7777 for path, it in states.items()} == FILES
    assert {(it.st_uid, it.st_gid) for it in states.values()} == {(0, 0)}
    assert (root / "etc").stat().st_mode & 0o7777 == 0o750
    assert (root / "usr/local/bin").stat().st_mode & 0o7777 == 0o2775
    assert (root / "etc/llmgw").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    ("family", "folder"),
    [
        ("rhel", "etc/pki/ca-trust/source/anchors"),
        ("suse", "etc/pki/trust/anchors"),
        ("arch", "etc/ca-certificates/trust-source/anchors"),
    ],
)
def test_the_root_goes_where_the_family_takes_it_from(
    fleet: Fleet, family: str, folder: str
) -> None:
    made = fleet("bake", "--tar", "-", "--binary", "llmgw", "--family", family).stdout
    with tarfile.open(fileobj=io.BytesIO(made)) as archive:
        names = archive.getnames()
    assert f"{folder}/llmgw-ca.crt" in names
    assert "usr/local/share/ca-certificates/llmgw-ca.crt" not in names


def test_with_trust_agent_the_root_goes_into_no_store(fleet: Fleet) -> None:
    content = json.loads((fleet.root / "fleet.yaml").read_text())
    content["defaults"]["trust"] = "agent"
    fleet.write(fleet=json.dumps(content))
    made = fleet("bake", "--tar", "-", "--binary", "llmgw").stdout
    with tarfile.open(fileobj=io.BytesIO(made)) as archive:
        assert not [name for name in archive.getnames() if name.endswith(".crt")]


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_the_binary_comes_out_of_an_archive(fleet: Fleet, kind: str) -> None:
    packed = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(packed, "w") as bundle:
            bundle.writestr("llmgw-v0.9.1/llmgw", BINARY)
    else:
        with tarfile.open(fileobj=packed, mode="w:gz") as bundle:
            head = tarfile.TarInfo("./llmgw-v0.9.1/llmgw")
            head.size = len(BINARY)
            bundle.addfile(head, io.BytesIO(BINARY))
    release(fleet, packed.getvalue())
    content = json.loads((fleet.root / "fleet.yaml").read_text())
    content["release"] |= {"archive": kind, "member": "llmgw-{version}/llmgw"}
    fleet.write(fleet=json.dumps(content))
    made = fleet("bake", "--tar", "-", "--binary", "llmgw").stdout
    with tarfile.open(fileobj=io.BytesIO(made)) as archive:
        files = {head.name: archive.extractfile(head) for head in archive if head.isfile()}
        texts = {name: file.read() for name, file in files.items() if file}
    assert texts["usr/local/bin/llmgw"] == BINARY
    # onboard looks there for which binary came out of which archive.
    digests = [hashlib.sha256(data).hexdigest() for data in (packed.getvalue(), BINARY)]
    assert (
        texts["var/lib/llmgw-onboard/installed"].decode() == " ".join([*digests, "v0.9.1"]) + "\n"
    )
    content["release"]["member"] = "another"
    fleet.write(fleet=json.dumps(content))
    assert "error: another is not in the release's archive" in bake(
        fleet, "--tar", "-", check=False
    )


def packed(kind: str) -> bytes:
    """Return a zip that is encrypted, or packed in an unknown way, by what its heads say."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as bundle:
        bundle.writestr("llmgw", BINARY)
    data = bytearray(made.getvalue())
    for head, flags in ((0, 6), (data.index(b"PK\x01\x02"), 8)):
        if kind == "encrypted":
            data[head + flags] |= 1
        else:
            data[head + flags + 2] = 93
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        packed("encrypted"),
        packed("zstd"),
        gzip.compress(BINARY),
        lzma.compress(BINARY * 900)[:60] + b"damaged",
        b"no archive",
    ],
    # By themselves they would have gzip's time in them, and differ from process to process.
    ids=["encrypted", "zstd", "gzip", "damaged xz", "none"],
)
def test_an_archive_that_cannot_be_unpacked_is_told(fleet: Fleet, data: bytes) -> None:
    release(fleet, data)
    content = json.loads((fleet.root / "fleet.yaml").read_text())
    content["release"] |= {"archive": "zip", "member": "llmgw"}
    fleet.write(fleet=json.dumps(content))
    said = bake(fleet, "--tar", "-", check=False)
    assert said.startswith("error: the release's archive cannot be unpacked\n  hint: ")


def test_another_binary_is_refused_and_writes_nothing(fleet: Fleet, tmp_path: Path) -> None:
    (fleet.root / "llmgw").write_bytes(b"another")
    said = bake(fleet, "--tar", str(tmp_path / "a.tar"), check=False)
    assert "error: llmgw is not release v0.9.1: its digest is" in said
    assert not (tmp_path / "a.tar").exists()


def test_what_is_wrong_with_the_release_of_all_nodes_is_told(fleet: Fleet) -> None:
    fleet.write(fleet='schema: 1\ndefaults: {server: "https://h", mgmt_addr: 10.0.0.7}\n')
    assert "fleet.yaml:2:11: release: fleet.yaml has no release" in bake(
        fleet, "--tar", "-", check=False
    )
    fleet.write(fleet="schema: 1\nrelease: {version: v1, sha256: {}}\n")
    assert "fleet.yaml:2:32: release.sha256: " in bake(fleet, "--tar", "-", check=False)
    fleet.write(fleet="schema: 1\nrelease: {version: v1}\n")
    said = bake(fleet, "--tar", "-", check=False)
    assert "fleet.yaml's release has no url" in said
    assert "fleet.yaml's release has no sha256" in said


def test_an_architecture_must_be_chosen_and_known(fleet: Fleet) -> None:
    content = json.loads((fleet.root / "fleet.yaml").read_text())
    content["release"]["sha256"]["arm64"] = "cd" * 32
    fleet.write(fleet=json.dumps(content))
    said = bake(fleet, "--tar", "-", check=False)
    assert "has binaries for amd64 and arm64: which one is the tar for" in said
    assert "\n  hint: --arch amd64\n" in said
    bake(fleet, "--tar", "-", "--arch", "amd64")
    said = bake(fleet, "--tar", "-", "--arch", "arm64", check=False)
    assert "error: llmgw is llmgw-amd64, and the tar is for arm64" in said


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--tar", "a", "--rootfs", "b"),
        ("--tar", "a", "--generalize"),
        ("--image", "a", "--family", "suse"),
    ],
)
def test_wrong_usage(fleet: Fleet, arguments: tuple[str, ...]) -> None:
    assert fleet("bake", *arguments, check=False).returncode == 2


# ---- a root filesystem ----


@needs_root
def test_baking_twice_changes_nothing(fleet: Fleet, tmp_path: Path) -> None:
    root = rootfs_in(tmp_path / "root")
    said = bake(fleet, "--rootfs", str(root))
    assert all(f"put {path}\n" in said for path in FILES)
    states = {path: (root / path[1:]).lstat() for path in FILES}
    assert {path: it.st_mode & 0o7777 for path, it in states.items()} == FILES
    before = state(root)
    assert bake(fleet, "--rootfs", str(root)) == f"{root}: nothing to do, it is baked already\n"
    assert state(root) == before


@needs_root
def test_a_newer_release_leaves_only_the_newer(fleet: Fleet, tmp_path: Path) -> None:
    old, new = rootfs_in(tmp_path / "old"), rootfs_in(tmp_path / "new")
    # What an earlier bake put where this one puts nothing: of two roots, and out of an archive.
    bake(fleet, "--rootfs", str(old))
    note = json.loads((old / "etc/llmgw/baked.json").read_text())
    for path in (
        "usr/local/share/ca-certificates/llmgw-ca-2.crt",
        "var/lib/llmgw-onboard/installed",
        "etc/passwd",
    ):
        (old / path).parent.mkdir(parents=True, exist_ok=True)
        (old / path).write_text("of an earlier bake")
        note["files"].append({"path": f"/{path}", "mode": "0644", "sha256": "ab" * 32})
    (old / "etc/llmgw/baked.json").write_text(json.dumps(note))
    release(fleet, NEWER)
    bake(fleet, "--rootfs", str(old))
    # A note can have only that taken away which a bake may have put there.
    assert (old / "etc/passwd").read_text() == "of an earlier bake"
    (old / "etc/passwd").unlink()
    (old / "var/lib/llmgw-onboard").rmdir()
    bake(fleet, "--rootfs", str(new))
    files = [{path: digest for path, (*_, digest) in state(r).items()} for r in (old, new)]
    assert files[0] == files[1]
    assert (old / "usr/local/bin/llmgw").read_bytes() == NEWER


@needs_root
def test_a_bake_that_was_cut_short_is_done_again(fleet: Fleet, tmp_path: Path) -> None:
    root = rootfs_in(tmp_path / "root")
    bake(fleet, "--rootfs", str(root))
    whole = {path: digest for path, (*_, digest) in state(root).items()}
    (root / "etc/llmgw/baked.json").write_bytes(b'{"format"')
    (root / "usr/local/bin/llmgw").write_bytes(b"half")
    (root / "etc/llmgw/ca.pem").chmod(0o600)
    for path in ("etc/llmgw/.ca.pem", "etc/llmgw/.baked.json", "usr/local/bin/.llmgw"):
        write(root, {f"{path}.0123456789ab.tmp": "half"})
    said = bake(fleet, "--rootfs", str(root))
    assert said.count(": put ") == 3
    assert said.count(", of a bake that was cut short\n") == 3
    assert {path: digest for path, (*_, digest) in state(root).items()} == whole
    assert (root / "etc/llmgw/ca.pem").stat().st_mode & 0o777 == 0o644


@needs_root
def test_no_link_leads_out_of_the_tree(fleet: Fleet, tmp_path: Path) -> None:
    root, outside = rootfs_in(tmp_path / "root"), tmp_path / "outside"
    (outside / "llmgw").mkdir(parents=True)
    (outside / "llmgw/agent-key.pem").write_text("of this machine")
    (root / "etc").rename(root / "real")
    (root / "etc").symlink_to(outside)  # absolute: in the image it leads to nothing
    (root / outside.relative_to("/")).parent.mkdir(parents=True)
    (root / outside.relative_to("/")).symlink_to("/../../../real")
    (root / "usr/local").symlink_to("../../../../../../var/local")
    (root / "real/llmgw").mkdir()
    (root / "real/llmgw/ca.pem").symlink_to(outside / "llmgw/agent-key.pem")
    (root / "real/ssh").symlink_to("/etc/ssh")  # a loop: it is the same place
    (root / "real/machine-id").symlink_to(outside / "llmgw/agent-key.pem")
    bake(fleet, "--rootfs", str(root), "--generalize")
    assert [path.name for path in outside.rglob("*")] == ["llmgw", "agent-key.pem"]
    assert (outside / "llmgw/agent-key.pem").read_text() == "of this machine"
    assert not (root / "real/llmgw/ca.pem").is_symlink()
    assert (root / "var/local/bin/llmgw").read_bytes() == BINARY
    assert (root / "real/llmgw/baked.json").exists()


@needs_root
def test_a_loop_of_links_is_told(fleet: Fleet, tmp_path: Path) -> None:
    root = rootfs_in(tmp_path / "root")
    (root / "usr/local").symlink_to("/usr/local")
    said = bake(fleet, "--rootfs", str(root), check=False)
    assert f"error: cannot find {root}/usr/local/bin/llmgw: too many links in" in said


@needs_root
def test_a_folder_where_a_file_belongs_is_told(fleet: Fleet, tmp_path: Path) -> None:
    root = rootfs_in(tmp_path / "root")
    (root / "usr/local/bin/llmgw").mkdir(parents=True)
    said = bake(fleet, "--rootfs", str(root), check=False)
    assert f"error: {root}/usr/local/bin/llmgw is a folder" in said


@needs_root
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: (root / "bin/dash").unlink(), "is no root filesystem: it has no /bin/sh"),
        (lambda root: (root / "bin/dash").write_bytes(b"#!/bin/sh\n" * 9), "is for no arch"),
        (lambda root: (root / "bin/dash").write_bytes(b""), "is no root filesystem"),
    ],
)
def test_what_is_no_root_filesystem_is_refused(
    fleet: Fleet, tmp_path: Path, spoil: Any, message: str
) -> None:
    root = rootfs_in(tmp_path / "root")
    spoil(root)
    before = state(root)
    assert message in bake(fleet, "--rootfs", str(root), check=False)
    assert state(root) == before


@needs_root
def test_the_architecture_is_the_images_own(fleet: Fleet, tmp_path: Path) -> None:
    arm, amd = rootfs_in(tmp_path / "arm", machine=183), rootfs_in(tmp_path / "amd")
    said = bake(fleet, "--rootfs", str(arm), check=False)
    assert f"error: {arm} is for arm64, and release v0.9.1 has no digest for that" in said
    said = bake(fleet, "--rootfs", str(amd), "--arch", "arm64", check=False)
    assert f"error: {amd} is for amd64, not arm64" in said


@needs_root
def test_nobody_but_root_changes_a_tree(
    fleet: Fleet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It would else take an identity away, and fail with the first file that it puts there."""
    root = rootfs_in(tmp_path / "root")
    write(root, OWN)
    before = state(root)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    command = ["-C", str(fleet.root), "bake", "--binary", str(fleet.root / "llmgw"), "--generalize"]
    assert run([*command, "--rootfs", str(root)]) == 1
    assert "error: --rootfs takes root" in capsys.readouterr().err
    assert state(root) == before


@needs_root
def test_this_machine_is_no_image(fleet: Fleet) -> None:
    assert "--rootfs / is this machine itself" in bake(fleet, "--rootfs", "/", check=False)


# ---- an identity ----

OWN = {
    KEY: "a private key",
    "etc/llmgw/agent.pem": "a certificate",
    "etc/llmgw/onboard.conf": "seed=n7",
    "etc/llmgw/agent.yaml.before-n7": "node_id: n7",
    "var/lib/llmgw-onboard/applied": "n7",
    "var/lib/cloud/instances/n7/user-data.txt": "#cloud-config\n- path: /etc/llmgw/agent-key.pem",
    "var/lib/cloud/seed/nocloud/user-data": "#cloud-config\n- path: /etc/llmgw/agent-key.pem",
}
# And what else one machine alone must have.
MACHINES = {
    "etc/ssh/ssh_host_ed25519_key": "a host key",
    "etc/ssh/ssh_host_ed25519_key.pub": "its public half",
    "var/lib/cloud/instances/n7/sem/config_ssh": "",
    "var/lib/cloud/data/instance-id": "n7",
    "var/log/cloud-init.log": "a log",
    "var/log/cloud-init-output.log": "a log",
    "etc/cloud/cloud.cfg.d/99-installer.cfg": "datasource_list: [None]",
    "etc/cloud/cloud-init.disabled": "",
    "etc/netplan/50-cloud-init.yaml": "network: {}",
    "etc/hostname": "n7",
    "var/lib/systemd/random-seed": "random",
    "var/lib/dhcp/dhclient.eth0.leases": "a lease",
    "var/log/journal/0123456789abcdef/system.journal": "a journal",
    "etc/systemd/system/multi-user.target.wants/llmgw-agent.service": "",
    "var/lib/llmgw-agent/state": "a state",
    "usr/local/bin/.llmgw.before": "the release before",
    "usr/local/lib/llmgw/onboard.before-20260901T120000Z": "an edited one",
    "etc/systemd/system/llmgw-agent.service.before-20260901T120000Z": "an edited one",
    "etc/systemd/system/.llmgw-agent.service.next": "half a change",
}
KEPT = {
    "etc/ssh/sshd_config": "a setting",
    "etc/cloud/cloud.cfg": "a setting",
    "etc/netplan/01-site.yaml": "network: {}",
    "etc/systemd/system/multi-user.target.wants/ssh.service": "",
    "var/log/dpkg.log": "a log",
}


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@needs_root
@pytest.mark.parametrize("name", OWN)
def test_an_image_with_an_identity_is_refused(fleet: Fleet, tmp_path: Path, name: str) -> None:
    root = rootfs_in(tmp_path / "root")
    write(root, {name: OWN[name]})
    before = state(root)
    said = bake(fleet, "--rootfs", str(root), check=False)
    assert f"error: {root} holds a node's identity: /{name}\n  hint: --generalize" in said
    assert OWN[KEY] not in said
    assert state(root) == before


@needs_root
@pytest.mark.parametrize("place", ["nocloud/user-data", "config_drive/openstack/latest/user_data"])
def test_a_packed_seed_is_an_identity(fleet: Fleet, tmp_path: Path, place: str) -> None:
    root = rootfs_in(tmp_path / "root")
    path = root / "var/lib/cloud/seed" / place
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(b"#cloud-config\n- path: /etc/llmgw/agent-key.pem"))
    said = bake(fleet, "--rootfs", str(root), check=False)
    assert f"holds a node's identity: /{path.relative_to(root)}\n" in said
    assert inspected(fleet, root)["identity"] == [f"/{path.relative_to(root)}"]


@needs_root
def test_generalize_takes_away_what_is_one_machines_own(fleet: Fleet, tmp_path: Path) -> None:
    root, new = rootfs_in(tmp_path / "root"), rootfs_in(tmp_path / "new")
    write(root, OWN | MACHINES | KEPT)
    for path in ("etc/machine-id", "var/lib/dbus/machine-id"):
        write(root, {path: "0123456789abcdef0123456789abcdef\n"})
    (root / "etc/machine-id").chmod(0o444)
    said = bake(fleet, "--rootfs", str(root), "--generalize")
    for name in (*OWN, *MACHINES):
        assert not os.path.lexists(root / name), name
    assert "a private key" not in said
    for what in ("the node's identity", "cloud-init's state", "SSH host keys", "the hostname"):
        assert f"{root}: took away {what}" in said
    for path in ("etc/machine-id", "var/lib/dbus/machine-id"):
        assert (root / path).read_bytes() == b""
    assert (root / "etc/machine-id").stat().st_mode & 0o777 == 0o444
    assert {name: (root / name).read_text() for name in KEPT} == KEPT
    bake(fleet, "--rootfs", str(new))
    for name in (path[1:] for path in FILES):
        assert (root / name).read_bytes() == (new / name).read_bytes()
    assert "nothing to do" in bake(fleet, "--rootfs", str(root))


@needs_root
def test_an_image_with_the_authoritys_key_is_refused_whatever_is_asked(
    fleet: Fleet, tmp_path: Path
) -> None:
    root = rootfs_in(tmp_path / "root")
    write(root, {"etc/llmgw/pki/ca-key.pem": "the authority's key"})
    before = state(root)
    said = bake(fleet, "--rootfs", str(root), "--generalize", check=False)
    assert f"{root} holds the authority's key: /etc/llmgw/pki/ca-key.pem" in said
    assert state(root) == before


# ---- a disk image ----


def test_partition_tables_are_read(tmp_path: Path) -> None:
    """Against sfdisk(8), which wrote them."""
    tables = {
        "gpt": "label: gpt\nsize=4MiB\nsize=8MiB\nsize=16MiB\n",
        "mbr": "label: dos\nsize=4MiB\nsize=4MiB\nsize=4MiB\ntype=5\nsize=8MiB\nsize=16MiB\n",
    }
    if not any(os.access(f"{folder}/sfdisk", os.X_OK) for folder in ("/sbin", "/usr/sbin")):
        pytest.skip("no sfdisk")
    for name, script in tables.items():
        path = tmp_path / name
        with path.open("wb") as file:
            file.truncate(64 << 20)
        subprocess.run(["sfdisk", "-q", path], input=script.encode(), check=True)
        listed = subprocess.run(["sfdisk", "-J", path], check=True, capture_output=True)
        parts = json.loads(listed.stdout)["partitiontable"]["partitions"]
        wanted = [(p["start"] * 512, p["size"] * 512) for p in parts if p["type"] != "5"]
        with path.open("r+b") as file:
            for start, _ in wanted[1:]:  # all but the first have an ext4
                file.seek(start + 0x438)
                file.write(b"\x53\xef")
            assert disk.is_raw(file)
            assert disk.file_systems(file) == wanted[1:], name


@pytest.mark.parametrize("data", [b"", b"\0" * 70000, b"\x55\xaa" * 300, b"EFI PART" * 600])
def test_what_is_no_disk_is_refused(fleet: Fleet, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "disk").write_bytes(data)
    said = bake(fleet, "--image", str(tmp_path / "disk"), check=False)
    assert "disk is no disk image" in said or "disk has no root file system" in said
    assert (tmp_path / "disk").read_bytes() == data
    assert sorted(p.name for p in tmp_path.iterdir()) == ["disk", "site"]


def test_what_is_no_file_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    fifo, missing = str(tmp_path / "fifo"), str(tmp_path / "missing")
    assert f"{fifo} is no disk image" in bake(fleet, "--image", fifo, check=False)
    assert f"cannot read {missing}: no such file" in bake(fleet, "--image", missing, check=False)
    said = fleet("inspect", fifo, check=False).stderr
    assert f"{fifo} is not a regular file" in said.decode()


def key_in(path: Path, key: str) -> bool:
    return key.encode() in path.read_bytes()


@needs_disks
@pytest.mark.parametrize("form", ["raw", "qcow2", "partitioned"])
def test_a_disk_is_baked_and_generalized(fleet: Fleet, tmp_path: Path, form: str) -> None:
    offset = 0
    raw, target = tmp_path / "disk.raw", tmp_path / "disk.raw"
    if form == "partitioned":
        offset = 5 << 20
        with raw.open("wb") as file:
            file.truncate(80 << 20)
        script = b"label: gpt\nsize=4MiB\nsize=66MiB\n"
        subprocess.run(["sfdisk", "-q", raw], input=script, check=True)
    disk_of(rootfs_in(tmp_path / "tree"), raw, offset=offset)
    secrets = [f"the key number {number} of a node" for number in range(9)]
    with mounted(raw, offset) as root:
        write(root, {f"{KEY}.{number}": text * 9 for number, text in enumerate(secrets)})
        os.sync()
        for number in range(6):
            (root / f"{KEY}.{number}").unlink()
    assert all(key_in(raw, secret) for secret in secrets)  # deleted, and still there
    if form == "qcow2":
        target = tmp_path / "disk.qcow2"
        subprocess.run(["qemu-img", "convert", "-O", "qcow2", raw, target], check=True)
    target.chmod(0o640)
    before = target.read_bytes()
    assert "holds a node's identity" in bake(fleet, "--image", str(target), check=False)
    assert target.read_bytes() == before
    said = bake(fleet, "--image", str(target), "--generalize")
    assert f"{target}: zeroed what is free" in said
    assert disk.kind(target) == ("qcow2" if form == "qcow2" else "raw")
    assert target.stat().st_mode & 0o777 == 0o640
    once = target.read_bytes()
    assert "nothing to do" in bake(fleet, "--image", str(target))
    assert target.read_bytes() == once
    if form == "qcow2":
        subprocess.run(["qemu-img", "convert", "-O", "raw", target, raw], check=True)
    assert not any(key_in(raw, secret) for secret in secrets)
    with mounted(raw, offset, "ro,noload") as root:
        states = {path: (root / path[1:]).lstat() for path in FILES}
    assert {path: it.st_mode & 0o7777 for path, it in states.items()} == FILES
    told = fleet("inspect", str(target)).stdout.decode()
    assert f"{target}: {'qcow2' if form == 'qcow2' else 'raw'} image\n" in told
    assert "identity     none\n" in told
    left = {path.name for path in tmp_path.iterdir()} - {"disk.raw.mnt"}
    assert left == {"site", "tree", "disk.raw", target.name}


@contextmanager
def looked_at(folder: Path) -> Iterator[None]:
    """Open each loop device of a file in `folder` for a while, as udev does with a new one."""
    done = threading.Event()

    def look() -> None:
        seen: set[Path] = set()
        while not done.wait(0.0005):
            for backing in set(Path("/sys/block").glob("loop*/loop/backing_file")) - seen:
                with suppress(OSError):
                    if str(folder) in backing.read_text():
                        seen.add(backing)
                        device = os.open(f"/dev/{backing.parts[3]}", os.O_RDONLY)
                        done.wait(0.5)
                        os.close(device)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@needs_disks
def test_a_device_that_udev_looks_at_is_waited_for(fleet: Fleet, tmp_path: Path) -> None:
    raw = disk_of(rootfs_in(tmp_path / "tree"), tmp_path / "disk.raw")
    with looked_at(tmp_path):
        bake(fleet, "--image", str(raw))
    assert fleet("inspect", str(raw)).returncode == 0


@needs_disks
def test_a_disk_that_somebody_uses_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    raw = disk_of(rootfs_in(tmp_path / "tree"), tmp_path / "disk.raw")
    before = raw.read_bytes()
    with mounted(raw, how="ro,noload"):
        said = bake(fleet, "--image", str(raw), check=False)
        assert f"error: {raw} is mounted\n  hint: unmount it: umount /dev/loop" in said
    with raw.open("rb") as file:  # as qemu holds the disk of a machine
        fcntl.lockf(file, fcntl.LOCK_SH, 1, 201)
        assert f"error: {raw} is in use\n" in bake(fleet, "--image", str(raw), check=False)
    assert fleet("inspect", str(raw), check=False).stderr.startswith(b"error: it is not baked")
    assert raw.read_bytes() == before
    bake(fleet, "--image", str(raw))


@needs_disks
def test_a_disk_that_has_no_room_to_be_zeroed_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    raw = disk_of(rootfs_in(tmp_path / "tree"), tmp_path / "disk.raw")
    with contained(tmp_path / "small", "size=40M") as small:
        subprocess.run(["cp", "--sparse=always", raw, small], check=True)
        said = bake(fleet, "--image", f"{small}/disk.raw", "--generalize", check=False)
        assert "to zero what is free of it takes " in said
        assert [path.name for path in small.iterdir()] == ["disk.raw"]
        assert (small / "disk.raw").read_bytes() == raw.read_bytes()
        bake(fleet, "--image", f"{small}/disk.raw")


@needs_disks
def test_an_xfs_whose_twin_is_mounted_here_is_baked(fleet: Fleet, tmp_path: Path) -> None:
    """As on a machine that was made from the same image."""
    if not shutil.which("mkfs.xfs") or "\txfs\n" not in Path("/proc/filesystems").read_text():
        pytest.skip("no XFS")
    raw, twin = tmp_path / "disk.raw", tmp_path / "twin.raw"
    with raw.open("wb") as file:
        file.truncate(400 << 20)
    subprocess.run(["mkfs.xfs", "-q", raw], check=True)
    with mounted(raw) as root:
        shutil.copytree(rootfs_in(tmp_path / "tree"), root, symlinks=True, dirs_exist_ok=True)
    subprocess.run(["cp", "--sparse=always", raw, twin], check=True)
    with mounted(twin):
        bake(fleet, "--image", str(raw))
        assert b"identity     none\n" in fleet("inspect", str(raw)).stdout


@contextmanager
def contained(folder: Path, options: str) -> Iterator[Path]:
    """Yield a folder of its own size."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@needs_disks
def test_why_the_kernel_cannot_mount_is_told(fleet: Fleet, tmp_path: Path) -> None:
    raw = disk_of(rootfs_in(tmp_path / "tree"), tmp_path / "disk.raw")
    script = (
        '#!/bin/sh\n[ "$1" = --make-rprivate ] || { echo "mount: no loop device"; exit 32; } >&2\n'
    )
    write(tmp_path / "stand-ins", {"mount": script})
    (tmp_path / "stand-ins/mount").chmod(0o755)
    environ = {"PATH": f"{tmp_path}/stand-ins:{os.environ['PATH']}"}
    said = fleet("inspect", str(raw), check=False, environ=environ).stderr.decode()
    assert "can mount by itself (mount failed: mount: no loop device)\n" in said


@needs_disks
def test_a_disk_with_a_var_of_its_own_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    tree = rootfs_in(tmp_path / "tree")
    write(tree, {"etc/fstab": "LABEL=root / ext4 defaults 0 1\nLABEL=var /var ext4 defaults 0 2\n"})
    raw = disk_of(tree, tmp_path / "disk.raw")
    before = raw.read_bytes()
    said = bake(fleet, "--image", str(raw), check=False)
    assert "has a file system of its own for /var" in said
    assert raw.read_bytes() == before


# ---- reading back ----


def inspected(fleet: Fleet, target: Path) -> dict[str, Any]:
    done = fleet("inspect", str(target), "--format", "json", check=False)
    found = json.loads(done.stdout)
    assert found["schema"] == 1
    (row,) = found["images"]
    assert (done.returncode == 1) == bool(row["problems"])
    assert isinstance(row, dict)
    return row


@needs_root
def test_what_was_baked_is_read_back(fleet: Fleet, tmp_path: Path) -> None:
    root = rootfs_in(tmp_path / "root")
    bake(fleet, "--rootfs", str(root))
    bake(fleet, "--tar", str(tmp_path / "a.tar"))
    whole = tmp_path / "whole.tar"
    subprocess.run(["tar", "-cf", whole, "-C", root, "."], check=True)
    rows = [inspected(fleet, path) for path in (root, tmp_path / "a.tar", whole)]
    assert [row["kind"] for row in rows] == ["root filesystem", "tar", "tar"]
    digest = hashlib.sha256(BINARY).hexdigest()
    for row in rows:
        assert row["release"] == {"version": "v0.9.1", "arch": "amd64", "sha256": digest}
        assert {file["path"] for file in row["files"]} == FILES.keys() - {baked.NOTE}
        assert (row["format"], row["identity"], row["problems"]) == (1, [], [])


@needs_root
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda root: (root / "usr/local/bin/llmgw").write_bytes(b"x"),
            "/usr/local/bin/llmgw is not",
        ),
        (lambda root: (root / "etc/llmgw/ca.pem").unlink(), "/etc/llmgw/ca.pem is missing"),
        (lambda root: (root / "etc/llmgw/ca.pem").chmod(0o666), "is root's with mode 0666, not"),
        (lambda root: os.chown(root / "etc/llmgw/ca.pem", 1, 1), "is somebody else's with mode"),
        (lambda root: (root / "etc/llmgw/baked.json").unlink(), "it is not baked"),
        (lambda root: (root / "etc/llmgw/baked.json").write_text("{}"), "baked.json is damaged"),
    ],
)
def test_a_change_of_what_was_baked_is_found(
    fleet: Fleet, tmp_path: Path, spoil: Any, message: str
) -> None:
    root = rootfs_in(tmp_path / "root")
    bake(fleet, "--rootfs", str(root))
    spoil(root)
    (problem,) = inspected(fleet, root)["problems"]
    assert message in problem["message"]


@needs_root
def test_an_identity_is_read_back_and_not_shown(fleet: Fleet, tmp_path: Path) -> None:
    root = rootfs_in(tmp_path / "root")
    bake(fleet, "--rootfs", str(root))
    write(root, {KEY: "a private key"})
    assert inspected(fleet, root)["identity"] == [f"/{KEY}"]
    assert b"a private key" not in fleet("inspect", str(root)).stdout


@needs_root
def test_a_note_of_a_newer_gen_seed_is_left_alone(fleet: Fleet, tmp_path: Path) -> None:
    root = rootfs_in(tmp_path / "root")
    write(root, {"etc/llmgw/baked.json": '{"format": 2}'})
    before = state(root)
    for command in (("bake", "--binary", "llmgw", "--rootfs"), ("inspect",)):
        said = fleet(*command, str(root), check=False)
        assert b"/etc/llmgw/baked.json has format 2, and this gen-seed reads 1" in said.stderr
    assert state(root) == before


@needs_root
def test_what_an_image_says_cannot_talk_to_the_terminal(fleet: Fleet, tmp_path: Path) -> None:
    root = rootfs_in(tmp_path / "root")
    bake(fleet, "--rootfs", str(root))
    note = (root / "etc/llmgw/baked.json").read_text()
    write(root, {"etc/llmgw/baked.json": note.replace("v0.9.1", r"v\u001b[2J\nidentity none")})
    (problem,) = inspected(fleet, root)["problems"]
    assert problem["message"] == "/etc/llmgw/baked.json is damaged"
    name = os.fsdecode(b"own \xff\x1b[2J\n")
    write(root, {f"etc/llmgw/{name}": ""})
    told = fleet("inspect", str(root), check=False).stdout.decode()
    assert told.endswith("identity     /etc/llmgw/own   [2J \n")
    assert "identity: /etc/llmgw/own   [2J \n" in bake(fleet, "--rootfs", str(root), check=False)


@pytest.mark.parametrize("how", ["gz", "xz"])
def test_a_compressed_tar_is_read_back(fleet: Fleet, tmp_path: Path, how: str) -> None:
    bake(fleet, "--tar", str(tmp_path / "a.tar"))
    data = (tmp_path / "a.tar").read_bytes()
    whole = gzip.compress(data) if how == "gz" else lzma.compress(data)
    target = tmp_path / f"a.tar.{how}"
    target.write_bytes(whole)
    assert inspected(fleet, target)["release"]["version"] == "v0.9.1"
    target.write_bytes(whole[: len(whole) // 2])
    done = fleet("inspect", str(target), check=False)
    assert done.stderr.decode() == f"error: {target} is no tar, or it is damaged\n"


def test_a_pattern_finds_only_what_is_in_the_tree(tmp_path: Path) -> None:
    root = rootfs_in(tmp_path / "root")
    write(root, {"var/lib/a/1": "", "var/lib/b/2": "", "var/lib/b/c/3": ""})
    (root / "var/lib/out").symlink_to("/etc")
    (root / "etc/4").touch()
    found = Folder(root).find("/var/lib/*/*")
    assert found[:3] == ["/var/lib/a/1", "/var/lib/b/2", "/var/lib/b/c"]
    assert found[3:] == ["/var/lib/out/4", "/var/lib/out/os-release"]
    assert Folder(root).find("/var/lib/nothing/*") == []


@needs_disks
def test_zeroing_reaches_every_free_block(tmp_path: Path) -> None:
    """By itself: that zeros can be given back afterwards is no part of it."""
    raw = disk_of(rootfs_in(tmp_path / "tree"), tmp_path / "disk.raw")
    secret = b"the key of a node"
    with mounted(raw) as root:
        # What is free lies in many pieces: a file that fills them needs tables of its own, and
        # these take blocks too.
        for number in range(4000):
            (root / f"{number}").write_bytes(secret * 100 if number % 2 else bytes(1700))
        with suppress(OSError), (root / "keys").open("wb", buffering=0) as file:
            while file.write(secret * 1000):
                pass  # until the disk is full of it
    with mounted(raw) as root:
        for path in [*root.glob("*[13579]"), root / "keys"]:
            path.unlink()
        generalize.zero(root)
        assert [path.name for path in root.iterdir() if path.name.startswith(".")] == []
    assert raw.read_bytes().count(secret) == 0


# ---- from a server ----


@pytest.fixture
def served(fleet: Fleet) -> Iterator[ReleaseServer]:
    ca, _ = authority.load(fleet.pki, datetime.now(UTC))
    with ReleaseServer(ca, {"/llmgw": BINARY, "/other": NEWER}) as server:
        write_fleet(fleet, SERVER, f"{server.url}/llmgw", BINARY)
        yield server


def test_the_release_is_fetched_as_the_spec_says(fleet: Fleet, served: ReleaseServer) -> None:
    """With a root of the server's own, a token, and a mirror after one that has another binary."""
    bundle = {"SSL_CERT_FILE": str(fleet.pki / "ca.pem")}
    said = fleet("bake", "--tar", "-", check=False).stderr.decode()
    assert f"error: cannot fetch {served.url}/llmgw: " in said
    assert "release.ca in fleet.yaml" in said
    plain = fleet("bake", "--tar", "-", environ=bundle).stdout
    assert plain == fleet("bake", "--tar", "-", "--binary", "llmgw").stdout
    content = json.loads((fleet.root / "fleet.yaml").read_text())
    shutil.copy(fleet.pki / "ca.pem", fleet.root / "release-ca.pem")
    (fleet.root / "token").write_text("X-Token: hunter2\n")
    place = content["release"].pop("url")
    urls = [place.replace("llmgw", name) for name in ("missing", "other", "llmgw")]
    content["release"] |= {"urls": urls, "ca": "release-ca.pem", "headers_file": "token"}
    fleet.write(fleet=json.dumps(content))
    served.requests.clear()
    assert fleet("bake", "--tar", "-").stdout == plain
    assert served.requests == ["/missing", "/other", "/llmgw"]
    content["release"]["urls"] = urls[:2]
    fleet.write(fleet=json.dumps(content))
    said = fleet("bake", "--tar", "-", check=False).stderr.decode()
    assert f"error: the server answers 404 for {urls[0]}" in said
    assert f"error: {urls[1]} has the digest {hashlib.sha256(NEWER).hexdigest()}, and " in said
    assert "hunter2" not in said


def test_a_release_that_cannot_be_fetched_changes_nothing(
    fleet: Fleet, served: ReleaseServer, tmp_path: Path
) -> None:
    root = rootfs_in(tmp_path / "root")
    before = state(root)
    served.files.clear()
    done = fleet(
        "bake", "--rootfs", str(root), check=False,
        environ={"SSL_CERT_FILE": str(fleet.pki / "ca.pem")},
    )  # fmt: skip
    assert (done.returncode, state(root)) == (1, before)


# Stand-ins of libguestfs's: they mount what the kernel can, and end some time after.
GUESTMOUNT = """\
echo "$*" >>"$SAID"
[ "$1 $2 $4" = "--format=raw -a -i" ] && [ "$6" = --pid-file ] || exit 1
until mount -w -o loop "$3" "$8"; do sleep 0.1; done  # udev may look at bake's own device yet
sleep 600 >/dev/null 2>&1 & echo $! >"$7"
"""
GUESTUNMOUNT = """\
umount "$1"
(sleep 1; kill "$(cat "${1%/*}/pid")"; echo ended >>"$SAID") >/dev/null 2>&1 &
"""
SPARSIFY = 'echo "sparsify $*" >>"$SAID"\n'


@needs_disks
def test_libguestfs_does_what_the_kernel_cannot(fleet: Fleet, tmp_path: Path) -> None:
    tree = rootfs_in(tmp_path / "tree")
    write(tree, {"etc/fstab": "LABEL=var /var ext4 defaults 0 2\n", KEY: "a private key"})
    raw = disk_of(tree, tmp_path / "disk.raw")
    stand_ins = tmp_path / "stand-ins"
    for name, text in {
        "guestmount": GUESTMOUNT,
        "guestunmount": GUESTUNMOUNT,
        "virt-sparsify": SPARSIFY,
    }.items():
        write(stand_ins, {name: f"#!/bin/sh\n{text}"})
        (stand_ins / name).chmod(0o755)
    environ = {"PATH": f"{stand_ins}:{os.environ['PATH']}", "SAID": str(tmp_path / "said")}
    arguments = ("bake", "--binary", "llmgw", "--image", str(raw))
    fleet(*arguments, "--generalize", environ=environ)
    with mounted(raw, how="ro,noload") as root:
        assert (root / BIN).read_bytes() == BINARY
        assert not (root / KEY).exists()
    first, *rest = (tmp_path / "said").read_text().splitlines()
    assert " --rw --pid-file " in first
    # The image is taken only when libguestfs is done with it.
    assert [line.partition(" ")[0] for line in rest] == ["ended", "sparsify"]
    assert rest[1].startswith("sparsify --quiet --in-place --format raw ")
    told = fleet("inspect", str(raw), environ=environ).stdout
    assert b"identity     none\n" in told
    assert " --ro --pid-file " in (tmp_path / "said").read_text()


@needs_disks
def test_a_kill_leaves_the_old_image_and_no_mount(fleet: Fleet, tmp_path: Path) -> None:
    raw = disk_of(rootfs_in(tmp_path / "tree"), tmp_path / "disk.raw")
    before = raw.read_bytes()
    command = [sys.executable, "-m", "generator", "bake", "--image", str(raw), "--generalize"]
    # fstrim is the last that works on the copy: one that does not end keeps bake there.
    write(tmp_path / "stand-ins", {"fstrim": f"#!/bin/sh\necho $$ >{tmp_path}/here\nsleep 600\n"})
    (tmp_path / "stand-ins/fstrim").chmod(0o755)
    with subprocess.Popen(
        [*command, "--binary", "llmgw"],
        cwd=fleet.root,
        env={
            **os.environ,
            "PYTHONPATH": str(CHECKOUT),
            "PATH": f"{tmp_path}/stand-ins:{os.environ['PATH']}",
            "TMPDIR": str(tmp_path),
        },
        start_new_session=True,
    ) as process:
        while not (tmp_path / "here").exists() and process.poll() is None:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert raw.read_bytes() == before
    assert "gen-seed-image-" not in Path("/proc/mounts").read_text()
    (left,) = tmp_path.glob(".disk.raw.*")
    left.with_suffix(".qcow2").touch()
    with left.open("rb") as file:  # as somebody has it who works on it
        fcntl.flock(file, fcntl.LOCK_EX)
        bake(fleet, "--image", str(raw))
        assert sorted(tmp_path.glob(".disk.raw.*")) == [left.with_suffix(".qcow2"), left]
    bake(fleet, "--image", str(raw), "--generalize")
    assert raw.read_bytes() != before
    assert list(tmp_path.glob(".disk.raw.*")) == []
