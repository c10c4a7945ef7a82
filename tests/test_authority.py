from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import openssl
import pytest
import unprivileged
from cryptography.hazmat.primitives.asymmetric import ec
from openssl import DAY, NOW

from generator import authority, certificate, chain, custody, pem
from generator.problem import Refused

SOON = NOW + timedelta(
    hours=6
)  # openssl's certificates begin when they are made, in a run that may be long


def load(folder: Path) -> authority.Authority:
    loaded, warnings = authority.load(folder, SOON)
    assert not warnings
    return loaded


def issues(folder: Path, scratch: Path) -> None:
    """Assert that the authority in `folder` issues what openssl accepts."""
    identity, _ = authority.issue(load(folder), "n7", 30, SOON)
    later = str(int(SOON.timestamp()))
    said = openssl.verify(
        scratch, identity.certificate_pem, identity.roots_pem, "sslclient", "-attime", later
    )
    assert said == ""


def refused(folder: Path, *, passphrase: bytes | None = None) -> str:
    """Return what is said of the authority in `folder`: messages and hints."""
    with pytest.raises(Refused) as caught:
        authority.load(folder, SOON, (lambda: passphrase) if passphrase else None)
    return "\n".join(f"{problem.message}\n{problem.hint}" for problem in caught.value.problems)


# Forms of the key file


@pytest.mark.parametrize("kind", ["ec", "P-384", "P-521", "ed25519", "rsa"])
def test_pkcs8_as_openssl_genpkey_writes_it(kind: str, tmp_path: Path) -> None:
    key = openssl.key(kind)
    assert key.startswith(b"-----BEGIN PRIVATE KEY-----")
    issues(openssl.authority(tmp_path / "pki", key), tmp_path)


def test_sec1_with_parameters_as_openssl_ecparam_writes_it(tmp_path: Path) -> None:
    key = openssl.run("ecparam", "-name", "prime256v1", "-genkey")
    assert key.startswith(b"-----BEGIN EC PARAMETERS-----")
    issues(openssl.authority(tmp_path / "pki", key), tmp_path)


def test_pkcs1_as_openssl_and_go_write_it(tmp_path: Path) -> None:
    key = openssl.run("rsa", "-traditional", stdin=openssl.key("rsa"))
    assert key.startswith(b"-----BEGIN RSA PRIVATE KEY-----")
    issues(openssl.authority(tmp_path / "pki", key), tmp_path)


def test_crlf_text_and_a_byte_order_mark_around_pem(tmp_path: Path) -> None:
    folder = openssl.authority(tmp_path / "pki", openssl.key())
    for name in ("ca.pem", "ca-key.pem"):
        path = folder / name
        data = b"\xef\xbb\xbfBag Attributes\nlocalKeyID: 01\n" + path.read_bytes() + b"\nthe end"
        openssl.write_key(path, data.replace(b"\n", b"\r\n"))
    issues(folder, tmp_path)


def encrypted(form: str) -> bytes:
    if form == "pkcs8":
        return openssl.run("pkcs8", "-topk8", "-passout", "pass:secret", stdin=openssl.key())
    arguments = ["ec", "-aes256", "-passout", "pass:secret"]
    return openssl.run(*arguments, stdin=openssl.key())


@pytest.mark.parametrize("form", ["pkcs8", "traditional"])
def test_encrypted_key(form: str, tmp_path: Path) -> None:
    folder = openssl.authority(tmp_path / "pki", openssl.key())
    data = encrypted(form)
    openssl.write_key(
        folder / "plain.pem", openssl.run("pkey", "-passin", "pass:secret", stdin=data)
    )
    folder = openssl.authority(folder, (folder / "plain.pem").read_bytes())
    openssl.write_key(folder / "ca-key.pem", data)
    said = refused(folder)
    assert f"the private key {folder}/ca-key.pem is encrypted" in said
    assert f"openssl pkey -in {folder}/ca-key.pem" in said
    assert "the passphrase does not open" in refused(folder, passphrase=b"wrong")
    assert authority.load(folder, SOON, lambda: b"secret")[0].certificate


def test_the_hint_for_an_encrypted_key_works(tmp_path: Path) -> None:
    folder = openssl.authority(tmp_path / "my pki", openssl.key())
    plain = folder / "ca-key.pem"
    command = ["pkcs8", "-topk8", "-passout", "pass:secret"]
    openssl.write_key(plain, openssl.run(*command, stdin=plain.read_bytes()))
    hint = refused(folder).split("decrypt it: ")[1]
    hint = hint.replace("openssl pkey", "openssl pkey -passin pass:secret")
    subprocess.run(["/bin/sh", "-c", hint], check=True)
    issues(folder, tmp_path)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "holds no private key in PEM form"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "is damaged or of"),
        (b"-----BEGIN PRIVATE KEY-----\nMIIB", "holds no private key in PEM form"),
        (b"\xff\xfe-\0-\0", "holds no private key in PEM form"),
    ],
)
def test_unreadable_key(data: bytes, said: str, tmp_path: Path) -> None:
    folder = openssl.authority(tmp_path / "pki", openssl.key())
    openssl.write_key(folder / "ca-key.pem", data)
    assert said in refused(folder)


def test_a_damaged_key_is_not_quoted(tmp_path: Path) -> None:
    folder = openssl.authority(tmp_path / "pki", openssl.key())
    key = folder / "ca-key.pem"
    lines = key.read_bytes().splitlines()
    openssl.write_key(key, b"\n".join([lines[0], lines[1], lines[-1]]))
    assert lines[1][:12].decode() not in refused(folder)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"], "is RSA of 1024 bits"),
        (["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:secp256k1"], "curve secp256k1"),
        (["-algorithm", "ED448"], "Ed448"),
    ],
)
def test_kinds_of_key_that_do_not_work(arguments: list[str], kind: str, tmp_path: Path) -> None:
    folder = openssl.authority(tmp_path / "pki", openssl.key())
    openssl.write_key(folder / "ca-key.pem", openssl.run("genpkey", *arguments))
    said = refused(folder)
    assert kind in said
    assert "P-256" in said


# What the folder holds


def test_nothing_there(tmp_path: Path) -> None:
    said = refused(tmp_path / "pki")
    assert "no authority in" in said
    assert "gen-seed ca init" in said


@pytest.mark.parametrize("name", ["ca.pem", "ca-key.pem"])
def test_half_of_it_there(name: str, tmp_path: Path) -> None:
    folder = openssl.authority(tmp_path / "pki", openssl.key())
    (folder / name).unlink()
    assert f"{name} is missing" in refused(folder)


def test_key_of_another_authority(tmp_path: Path) -> None:
    folder = openssl.authority(tmp_path / "pki", openssl.key())
    openssl.write_key(folder / "ca-key.pem", openssl.key())
    assert "does not belong to any certificate" in refused(folder)


@pytest.mark.parametrize(
    ("extensions", "said"),
    [
        ("basicConstraints=critical,CA:FALSE", "is not an authority"),
        ("subjectKeyIdentifier=hash", "is not an authority"),
        ("basicConstraints=critical,CA:TRUE\nkeyUsage=critical,cRLSign", "lacks keyCertSign"),
        ("basicConstraints=critical,CA:TRUE\nextendedKeyUsage=serverAuth", "lacks clientAuth"),
    ],
)
def test_not_fit_to_issue(extensions: str, said: str, tmp_path: Path) -> None:
    assert said in refused(openssl.authority(tmp_path / "pki", openssl.key(), extensions))


def test_ended_or_not_begun(tmp_path: Path) -> None:
    folder = openssl.authority(tmp_path / "pki", openssl.key(), days=30)
    end = chain.not_after(load(folder).certificate)
    authority.load(folder, end)
    with pytest.raises(Refused, match="made by openssl ended on"):
        authority.load(folder, end + timedelta(seconds=1))
    with pytest.raises(Refused, match="made by openssl begins on"):
        authority.load(folder, NOW - DAY)


@pytest.mark.parametrize("data", [b"", b"hello", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_ca_pem_without_a_certificate(data: bytes, tmp_path: Path) -> None:
    folder = openssl.authority(tmp_path / "pki", openssl.key())
    (folder / "ca.pem").write_bytes(data)
    assert "holds no certificate in PEM form" in refused(folder)


def test_damaged_certificate(tmp_path: Path) -> None:
    folder = openssl.authority(tmp_path / "pki", openssl.key())
    lines = (folder / "ca.pem").read_text().splitlines(keepends=True)
    (folder / "ca.pem").write_text("".join(lines[:3] + lines[5:]))
    assert "certificate 1 is damaged" in refused(folder)


def test_a_serial_number_that_is_not_positive(tmp_path: Path) -> None:
    """Some old roots have it; the library warns, which would be an error here."""
    folder = openssl.authority(tmp_path / "pki", openssl.key())
    by: list[str | Path] = [
        "-key",
        folder / "ca-key.pem",
        "-config",
        folder / "openssl.cnf",
        "-extensions",
        "ext",
    ]
    openssl.run(
        "req", "-x509", *by, "-subj", "/CN=x", "-set_serial", "0", "-out", folder / "ca.pem"
    )
    issues(folder, tmp_path)


def test_both_files_bad_are_named_at_once(tmp_path: Path) -> None:
    folder = openssl.authority(tmp_path / "pki", openssl.key())
    (folder / "ca.pem").write_bytes(b"")
    openssl.write_key(folder / "ca-key.pem", b"")
    said = refused(folder)
    assert "no certificate" in said
    assert "no private key" in said


def test_files_that_are_no_files(tmp_path: Path) -> None:
    folder = openssl.authority(tmp_path / "pki", openssl.key())
    (folder / "ca-key.pem").unlink()
    os.mkfifo(folder / "ca-key.pem", 0o600)
    assert "is not a regular file" in refused(folder)


# Rollover, and an authority below another


def test_the_renewed_certificate_of_the_same_key_signs(tmp_path: Path) -> None:
    folder = openssl.authority(tmp_path / "pki", openssl.key(), days=30)
    old = (folder / "ca.pem").read_bytes()
    openssl.authority(folder, (folder / "ca-key.pem").read_bytes(), days=3000)
    (folder / "ca.pem").write_bytes(old + (folder / "ca.pem").read_bytes())
    made = load(folder)
    assert len(made.roots) == 2
    assert not authority.issue(made, "n7", 365, SOON)[1]
    issues(folder, tmp_path)


def test_several_roots_all_reach_the_node(tmp_path: Path) -> None:
    folder = openssl.authority(tmp_path / "pki", openssl.key(), subject="/CN=new")
    other = openssl.authority(tmp_path / "old", openssl.key("rsa"), subject="/CN=old")
    (folder / "ca.pem").write_bytes(
        (other / "ca.pem").read_bytes() + (folder / "ca.pem").read_bytes()
    )
    made = load(folder)
    assert [chain.name_of(root) for root in made.roots] == ["CN=old", "CN=new"]
    assert chain.name_of(made.certificate) == "CN=new"
    issues(folder, tmp_path)


def test_an_intermediate_with_its_root(tmp_path: Path) -> None:
    root = openssl.authority(tmp_path / "root", openssl.key("rsa"))
    folder = openssl.below(root, tmp_path / "between")
    assert "put the root's certificate into" in refused(folder)
    (folder / "root.pem").write_bytes((root / "ca.pem").read_bytes())
    identity, warnings = authority.issue(load(folder), "n7", 365, SOON)
    assert [chain.name_of(one) for one in identity.chain] == ["CN=n7", "CN=between"]
    assert [chain.name_of(one) for one in identity.roots] == ["CN=made by openssl"]
    assert "98 days, not 365" in warnings[0].message
    issues(folder, tmp_path)


def test_an_intermediate_and_its_root_in_one_file(tmp_path: Path) -> None:
    root = openssl.authority(tmp_path / "root", openssl.key())
    folder = openssl.below(root, tmp_path / "between")
    (folder / "ca.pem").write_bytes(
        (folder / "ca.pem").read_bytes() + (root / "ca.pem").read_bytes()
    )
    assert len(load(folder).chain) == 1
    issues(folder, tmp_path)


@pytest.mark.parametrize("kinds", ["ec ec", "rsa rsa", "ed25519 ed25519", "ec rsa", "rsa ed25519"])
def test_an_intermediate_of_another_root(kinds: str, tmp_path: Path) -> None:
    one, another = kinds.split()
    root = openssl.authority(tmp_path / "root", openssl.key(one))
    other = openssl.authority(tmp_path / "other", openssl.key(another))  # the same name
    folder = openssl.below(root, tmp_path / "between")
    (folder / "root.pem").write_bytes((other / "ca.pem").read_bytes())
    assert "does not lead to a root" in refused(folder)


def test_a_path_length_that_forbids_the_intermediate(tmp_path: Path) -> None:
    short = openssl.EXTENSIONS.replace("CA:TRUE", "CA:TRUE,pathlen:0")
    root = openssl.authority(tmp_path / "root", openssl.key(), short)
    folder = openssl.below(root, tmp_path / "between")
    (folder / "root.pem").write_bytes((root / "ca.pem").read_bytes())
    assert "allows 0 intermediates below it, not 1" in refused(folder)


# Custody


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_open_to_others_is_a_warning(mode: int, tmp_path: Path) -> None:
    folder = openssl.authority(tmp_path / "my pki", openssl.key())
    (folder / "ca-key.pem").chmod(mode)
    _, (warning,) = authority.load(folder, SOON)
    assert warning.severity == "warning"
    assert f"mode {mode:04o}" in warning.message
    subprocess.run(["/bin/sh", "-c", warning.hint], check=True)
    load(folder)


@pytest.mark.parametrize(("mode", "count"), [(0o755, 0), (0o770, 1), (0o1777, 0)])
def test_a_folder_that_others_write_to_is_a_warning(mode: int, count: int, tmp_path: Path) -> None:
    """They could put another key in the place of the one that is there."""
    folder = openssl.authority(tmp_path / "pki", openssl.key())
    folder.chmod(mode)
    _, warnings = authority.load(folder, SOON)
    assert [warning.hint for warning in warnings] == [f"chmod 700 {folder}"] * count


def git(folder: Path, *arguments: str) -> None:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.net", "-C", str(folder)]
    subprocess.run([*command, *arguments], check=True, capture_output=True)


def test_a_key_that_git_tracks_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "-q")
    folder = openssl.authority(tmp_path / "pki", openssl.key())
    load(folder)  # there, but not tracked
    git(tmp_path, "add", "pki/ca-key.pem")
    assert "git tracks the authority's key" in refused(folder)
    # As a hook of another repository would have it.
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "elsewhere/index"))
    assert "git tracks the authority's key" in refused(folder)
    monkeypatch.undo()
    # A link does not hide it.
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(folder)
    assert "git tracks the authority's key" in refused(link)
    link.unlink()
    git(folder, "rm", "-q", "--cached", "ca-key.pem")
    load(folder)


def test_asking_git_runs_nothing_that_the_workspace_names(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    folder = openssl.authority(tmp_path / "pki", openssl.key())
    git(tmp_path, "add", "pki/ca-key.pem")
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    trap.chmod(0o755)
    for name in ("core.fsmonitor", "core.pager", "core.sshCommand", "core.editor"):
        git(tmp_path, "config", name, str(trap))
    for name in ("post-index-change", "fsmonitor-watchman", "query-watchman"):
        (tmp_path / ".git/hooks" / name).symlink_to(trap)
    assert custody.tracked(folder)
    assert not (tmp_path / "ran").exists()


def test_a_repository_of_another_user_is_asked_too() -> None:
    with unprivileged.folder() as place:
        folder = openssl.authority(place / "pki", openssl.key())
        git(place, "init", "-q")
        git(place, "add", "pki/ca-key.pem")
        for path in (place, place / ".git", *(place / ".git").rglob("*")):
            os.chown(path, 65534, 65534)
        assert custody.tracked(folder)


def test_without_git_the_key_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = openssl.authority(tmp_path / "pki", openssl.key())
    (tmp_path / ".git").mkdir()
    assert not custody.tracked(folder)  # .git, but no repository
    monkeypatch.setenv("PATH", "/nonexistent")
    assert not custody.tracked(folder)


def test_a_folder_closed_to_us_says_who_may() -> None:
    with unprivileged.folder() as reachable:
        folder = openssl.authority(reachable / "pki", openssl.key())
        with unprivileged.nobody():
            said = refused(folder)
        assert said.startswith(f"cannot read {folder}/ca-key.pem: permission denied\n")
        assert "with sudo" in said
        folder.chmod(0o755)
        with unprivileged.nobody():
            said = refused(folder)
        assert said.count("permission denied") == 1


# Making one


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_modes_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        authority.create(tmp_path / "pki", NOW)
    finally:
        os.umask(before)
    modes = {
        name: stat.S_IMODE((tmp_path / "pki" / name).stat().st_mode)
        for name in (".", "ca-key.pem", "ca.pem")
    }
    assert modes == {".": 0o700, "ca-key.pem": 0o600, "ca.pem": 0o644 & ~umask}


def test_create_never_overwrites(tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    authority.create(folder, NOW)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(Refused, match="is there already"):
        authority.create(folder, NOW)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (folder / "ca-key.pem").unlink()  # perhaps kept elsewhere
    with pytest.raises(Refused, match="is there already"):
        authority.create(folder, NOW)
    assert not (folder / "ca-key.pem").exists()


def test_create_finishes_what_a_kill_left(tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    authority.create(folder, NOW)
    (folder / "ca.pem").unlink()
    key = (folder / "ca-key.pem").read_bytes()
    _, (warning,) = authority.create(folder, NOW)
    assert "used the private key that was there" in warning.message
    assert (folder / "ca-key.pem").read_bytes() == key
    issues(folder, tmp_path)


def test_create_at_any_kill_can_be_tried_again(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from datetime import datetime, UTC\n"
        "from generator import authority\n"
        "print('ready', flush=True)\n"
        "authority.create(Path(sys.argv[1]), datetime.now(UTC))"
    )
    for step in range(8):
        folder = tmp_path / f"pki{step}"
        child = subprocess.Popen(
            [sys.executable, "-c", program, str(folder)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
        )
        assert child.stdout
        assert child.stdout.readline() == b"ready\n"
        time.sleep(step * 0.0007)
        child.send_signal(signal.SIGKILL)
        child.wait(10)
        child.stdout.close()
        if not (folder / "ca.pem").exists():
            authority.create(folder, NOW)
        load(folder)


def test_create_where_the_disk_says_no(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="cannot make"):
        authority.create(tmp_path / "file" / "pki", NOW)


@pytest.mark.parametrize("name", ["", "x" * 65])
def test_create_with_a_name_that_is_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be an authority's name"):
        authority.create(tmp_path / "pki", NOW, name)
    assert not list(tmp_path.iterdir())


# Issuing


def test_the_cut_is_a_warning_that_says_when(tmp_path: Path) -> None:
    made, _ = authority.create(tmp_path / "pki", NOW, days=30)
    identity, (warning,) = authority.issue(made, "n7", 365, NOW)
    assert identity.not_after == NOW + 30 * DAY
    assert warning.severity == "warning"
    assert "n7 ends with its authority" in warning.message
    assert "30 days, not 365" in warning.message


def test_issue_is_fresh_every_time_and_writes_nothing(tmp_path: Path) -> None:
    made, _ = authority.create(tmp_path / "pki", NOW)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    one, other = (authority.issue(made, "n7", 365, NOW)[0] for _ in range(2))
    assert one.serial != other.serial
    assert one.key != other.key
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("node", ["n7\n", "n7\0", "../n7", "N7", "", "-n7", "n7-", "é", "n" * 64])
def test_y3_names_that_are_no_node_id(node: str, tmp_path: Path) -> None:
    made, _ = authority.create(tmp_path / "pki", NOW)
    with pytest.raises(Refused, match="is not a node id"):
        authority.issue(made, node, 365, NOW)


def test_t1_the_longest_node_id(tmp_path: Path) -> None:
    made, _ = authority.create(tmp_path / "pki", NOW)
    assert authority.issue(made, "n" * 63, 365, NOW)[0].node_id == "n" * 63


def test_no_key_in_a_repr(tmp_path: Path) -> None:
    made, _ = authority.create(tmp_path / "pki", NOW)
    identity, _ = authority.issue(made, "n7", 365, NOW)
    assert "key=" not in repr(made)
    assert "PRIVATE" not in repr(identity)


# Where it is


def test_the_order_in_which_an_authority_is_found(tmp_path: Path) -> None:
    environ = {"GEN_SEED_PKI": "/env"}
    assert custody.find(tmp_path, "opt", environ, "conf") == Path("opt")
    assert custody.find(tmp_path, None, environ, "conf") == Path("/env")
    assert custody.find(tmp_path, None, {"GEN_SEED_PKI": ""}, "conf") == tmp_path / "conf"
    assert custody.find(tmp_path, None, {}, "/conf") == Path("/conf")
    assert custody.find(tmp_path, None, {}, None) == Path("/etc/llmgw/pki")
    (tmp_path / "pki").mkdir()
    assert custody.find(tmp_path, None, {}, None) == tmp_path / "pki"
    assert custody.named(tmp_path, None, {}, None) is None


def test_a_key_is_written_as_pkcs8(tmp_path: Path) -> None:
    made, _ = authority.create(tmp_path / "pki", NOW)
    identity, _ = authority.issue(made, "n7", 365, NOW)
    assert identity.key
    assert identity.key.startswith(b"-----BEGIN PRIVATE KEY-----\n")
    key = pem.private_key(identity.key, "key")
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert sorted(certificate.KINDS) == ["Ed25519", "P-256", "P-384", "RSA"]
