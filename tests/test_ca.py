"""`gen-seed ca`: in this process, as ten times faster, where nothing speaks against it."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import random
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import openssl
import pytest
import unprivileged
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from fleet import CHECKOUT, Fleet
from openssl import NOW
from test_ledger import fill, full, kill, rows, together

from generator import __main__ as entry
from generator import authority, certificate, identity, ledger, pem, request
from generator.problem import Refused, refuse

__all__ = ["full"]


class Here(Fleet):
    """A workspace whose commands run in this process, through the same entry point."""

    def __call__(
        self,
        *arguments: str,
        check: bool = True,
        environ: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> subprocess.CompletedProcess[bytes]:
        assert not environ
        kept = sys.stdin, sys.stdout, sys.stderr
        err = io.BytesIO()
        with tempfile.TemporaryFile() as out:  # as in earnest: bytes go to a descriptor
            sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
            sys.stdout, sys.stderr = text, _ = io.TextIOWrapper(out), io.TextIOWrapper(err)
            try:
                with contextlib.chdir(self.root):
                    code = entry.run(list(arguments))
                sys.stdout.flush()
                sys.stderr.flush()
                out.seek(0)
                done = subprocess.CompletedProcess(arguments, code, out.read(), err.getvalue())
            finally:
                sys.stdin, sys.stdout, sys.stderr = kept
                text.detach()  # or it would close what is closed
        assert not check or code == 0, done.stderr.decode()
        return done


@pytest.fixture
def fleet(tmp_path: Path) -> Here:
    made = Here(tmp_path / "ws")
    made.root.mkdir()
    authority.create(made.pki, NOW)
    return made


def table(fleet: Here, *options: str) -> list[dict[str, str | None]]:
    answer = json.loads(fleet("ca", "list", "--format", "json", *options).stdout)
    assert answer["schema"] == 1
    found: list[dict[str, str | None]] = answer["certificates"]
    return found


# issue


def test_issue_writes_what_llmgw_does(fleet: Here) -> None:
    before = os.umask(0)
    try:
        done = fleet("ca", "issue", "n7", "--out", "n7", "--days", "9")
    finally:
        os.umask(before)
    assert done.stdout == b""
    place = fleet.root / "n7"
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (place, *place.iterdir())}
    assert modes == {"n7": 0o700, "n7.pem": 0o644, "n7-key.pem": 0o600}
    made = identity.load(place, "n7", datetime.now(UTC), fleet.pki)
    (row,) = rows(fleet.pki)
    assert (row["serial"], row["node"], row["seed"]) == (made.serial, "n7", "")
    assert made.not_after - datetime.now(UTC) < timedelta(days=9)


def test_issue_never_overwrites(fleet: Here) -> None:
    fleet("ca", "issue", "n7", "--out", ".")
    before = (fleet.root / "n7.pem").read_bytes()
    for name in ("n7-key.pem", "n7.pem"):
        done = fleet("ca", "issue", "n7", "--out", ".", check=False)
        assert done.returncode == 1
        assert f"error: {name} is there already".encode() in done.stderr
        (fleet.root / "n7-key.pem").unlink(missing_ok=True)
    assert (fleet.root / "n7.pem").read_bytes() == before
    assert len(rows(fleet.pki)) == 1


@pytest.mark.parametrize("node", ["N7", "../n7", "n7\n", "-n7", ""])
@pytest.mark.parametrize("command", ["issue", "sign"])
def test_y3_what_is_no_node_id(command: str, node: str, fleet: Here) -> None:
    more = ["--out", "x"] if command == "issue" else []
    done = fleet("ca", command, *more, "--", node, check=False)
    assert done.returncode == 1
    assert b"is not a node id" in done.stderr
    assert {path.name for path in fleet.root.iterdir()} == {"pki"}


def test_a_full_disk_leaves_no_file_and_no_row(fleet: Here, full: Path) -> None:
    fill(full)
    done = fleet("ca", "issue", "n7", "--out", str(full / "x"), check=False)
    assert done.returncode == 1
    assert b"no space left" in done.stderr
    assert rows(fleet.pki) == []
    (full / "rest").unlink()
    authority.create(full / "pki", NOW)
    with ledger.opened(full / "pki"):
        pass
    fill(full)
    done = fleet("ca", "issue", "n7", "--out", "n7", "--pki", str(full / "pki"), check=False)
    assert done.returncode == 1
    assert b"the disk does not take a row" in done.stderr
    assert not (fleet.root / "n7").exists() or list((fleet.root / "n7").iterdir()) == []


def test_a_row_that_is_not_taken_leaves_no_file(
    fleet: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise refuse("the disk is full by now")

    monkeypatch.setattr(ledger.Ledger, "record", full)
    done = fleet("ca", "issue", "n7", "--out", "n7", check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert list((fleet.root / "n7").iterdir()) == []


def test_a_read_only_folder_issues_nothing() -> None:
    with unprivileged.folder() as place:
        pki = place / "pki"
        authority.create(pki, NOW)
        for path in (pki, *pki.iterdir(), place):
            os.chown(path, 65534, 65534)
        pki.chmod(0o500)
        with unprivileged.nobody():
            made, _ = authority.load(pki, NOW)
            assert made.folder == pki
            with pytest.raises(Refused, match="permission denied"), ledger.opened(pki):
                pass
            assert ledger.reading(pki) == []
        assert sorted(path.name for path in pki.iterdir()) == ["ca-key.pem", "ca.pem"]


@pytest.mark.parametrize("spoil", ["newer", "truncated"])
def test_a_ledger_that_is_refused_issues_nothing(spoil: str, fleet: Here) -> None:
    fleet("ca", "issue", "n7", "--out", "n7")
    path = fleet.pki / "ledger.db"
    if spoil == "newer":
        import sqlite3
        from contextlib import closing

        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA user_version = 9")
    else:
        os.truncate(path, 5000)
    before = path.read_bytes()
    attempts = [["issue", "n8", "--out", "n8"], ["sign", "n8"], ["revoke", "n7"], ["crl"]]
    for arguments in [*attempts, ["list"], ["backup", "b"]]:
        stdin = request.make(ec.generate_private_key(ec.SECP256R1()), "n8")
        done = fleet("ca", *arguments, check=False, stdin=stdin)
        assert (done.returncode, done.stdout) == (1, b"")
        assert b"ledger" in done.stderr
        assert done.stderr.count(b"error: ") == 1
    assert path.read_bytes() == before
    assert sorted(p.name for p in fleet.root.rglob("*") if p.is_file()) == [
        *("ca-key.pem", "ca.pem", "ledger.db", "n7-key.pem", "n7.pem"),
    ]


# sign


def signing_request(kind: str = "ec", subject: str = "/CN=n7", *more: str) -> tuple[bytes, bytes]:
    key = openssl.key(kind)
    return key, openssl.run("req", "-new", "-key", "/dev/stdin", "-subj", subject, *more, stdin=key)


@pytest.mark.parametrize("kind", ["ec", "P-384", "ed25519", "rsa"])
def test_sign_answers_with_the_chain(kind: str, fleet: Here, tmp_path: Path) -> None:
    key, csr = signing_request(kind)
    done = fleet("ca", "sign", "n7", "--days", "9", stdin=csr)
    (leaf,) = pem.certificates(done.stdout, "answer")
    (row,) = rows(fleet.pki)
    assert int(row["serial"], 16) == leaf.serial_number
    public = openssl.run("pkey", "-pubout", stdin=key)
    spki = PublicFormat.SubjectPublicKeyInfo
    assert leaf.public_key().public_bytes(Encoding.PEM, spki) == public
    roots = (fleet.pki / "ca.pem").read_bytes()
    assert openssl.verify(tmp_path, done.stdout, roots, "sslclient") == ""
    assert "unsuitable" in openssl.verify(tmp_path, done.stdout, roots, "sslserver")


def test_t3_what_a_request_asks_for_is_not_granted(fleet: Here) -> None:
    extra = [
        "-addext",
        "basicConstraints=critical,CA:TRUE",
        "-addext",
        "extendedKeyUsage=serverAuth",
    ]
    extra += ["-addext", "subjectAltName=DNS:control-plane,IP:10.0.0.140"]
    _, csr = signing_request("ec", "/O=admins/CN=n7", *extra)
    (leaf,) = pem.certificates(fleet("ca", "sign", "n7", stdin=csr).stdout, "answer")
    assert leaf.subject.rfc4514_string() == "CN=n7"
    found = {type(one.value): one.value for one in leaf.extensions}
    assert found[x509.BasicConstraints].ca is False
    assert found[x509.SubjectAlternativeName].get_values_for_type(x509.DNSName) == ["n7"]
    assert [usage.dotted_string for usage in found[x509.ExtendedKeyUsage]] == ["1.3.6.1.5.5.7.3.2"]


def test_a_request_without_a_name_gets_the_node_s(fleet: Here) -> None:
    _, csr = signing_request("ec", "/")
    (leaf,) = pem.certificates(fleet("ca", "sign", "n7", stdin=csr).stdout, "answer")
    assert leaf.subject.rfc4514_string() == "CN=n7"


def altered(csr: bytes) -> bytes:
    """Return a request whose signature is of something else."""
    der = bytearray(openssl.run("req", "-outform", "DER", stdin=csr))
    der[der.index(b"\x0c\x02n7") + 3] = ord("8")
    return openssl.run("req", "-inform", "DER", stdin=bytes(der))


def bad_requests() -> dict[str, tuple[bytes, str]]:
    _, good = signing_request()
    weak = openssl.run("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024")
    curve = openssl.key("secp256k1")
    return {
        "nothing": (b"", "no certificate request on standard input"),
        "a key": (openssl.key(), "no certificate request on standard input"),
        "cut": (good[:200] + good[-60:], "damaged"),
        "for another": (signing_request("ec", "/CN=n8")[1], "is for 'n8', not 'n7'"),
        "two names": (signing_request("ec", "/CN=n7/CN=n7")[1], "is for 'n7', 'n7', not 'n7'"),
        "large": (b"x" * 70_000, "larger than 65536 bytes"),
        "weak": (
            openssl.run("req", "-new", "-key", "/dev/stdin", "-subj", "/CN=n7", stdin=weak),
            "the key of the certificate request is RSA of 1024 bits",
        ),
        "odd curve": (
            openssl.run("req", "-new", "-key", "/dev/stdin", "-subj", "/CN=n7", stdin=curve),
            "secp256k1",
        ),
    }


def test_requests_that_are_refused(fleet: Here) -> None:
    for name, (data, said) in bad_requests().items():
        done = fleet("ca", "sign", "n7", check=False, stdin=data)
        assert (done.returncode, done.stdout) == (1, b""), name
        assert said in done.stderr.decode(), name
    assert not (fleet.pki / "ledger.db").exists()


def test_a_request_must_show_that_its_key_is_there() -> None:
    _, good = signing_request()
    assert request.public_key(good, "n7")
    with pytest.raises(Refused, match="signature of the certificate request does not fit"):
        request.public_key(altered(good), "n8")


def forced() -> str:
    """Return the command of the line for authorized_keys in docs/authority.md."""
    text = (CHECKOUT / "docs/authority.md").read_text("utf-8")
    match = re.search(r'^restrict,command="((?:\\.|[^"\\])*)" ssh-ed25519', text, re.MULTILINE)
    assert match
    return match[1].replace('\\"', '"')


def over_ssh(fleet: Here, sent: str, csr: bytes) -> subprocess.CompletedProcess[bytes]:
    """Do what sshd does with a forced command: the user's shell, and what the client sent."""
    command = forced().replace("gen-seed -C /srv/fleet", f"{sys.executable} -m generator")
    return subprocess.run(
        ["sh", "-c", command],
        cwd=fleet.root,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT), "SSH_ORIGINAL_COMMAND": sent},
        input=csr,
        capture_output=True,
        check=False,
    )


def test_the_documented_forced_command(fleet: Here) -> None:
    _, csr = signing_request()
    done = over_ssh(fleet, "n7", csr)
    assert done.returncode == 0, done.stderr.decode()
    (leaf,) = pem.certificates(done.stdout, "answer")
    assert leaf.subject.rfc4514_string() == "CN=n7"
    (row,) = rows(fleet.pki)
    ends = datetime.fromisoformat(row["issued_at"]) + timedelta(days=90)
    assert row["not_after"][:10] == f"{ends:%Y-%m-%d}"


@pytest.mark.parametrize(
    "sent",
    [
        *("n7; touch pwned", "$(touch pwned)", "`touch pwned`", "n7 --days 9999", "--help", ""),
        *("--pki=/tmp", "-C/tmp", "../n7", "n7\nn8", "N7", "n7\t"),
    ],
)
def test_what_an_ssh_client_sends_is_a_node_id_or_nothing(sent: str, fleet: Here) -> None:
    _, csr = signing_request()
    done = over_ssh(fleet, sent, csr)
    assert done.returncode == 1
    assert done.stdout == b""
    assert b"is not a node id" in done.stderr
    assert {path.name for path in fleet.root.rglob("*")} == {"pki", "ca.pem", "ca-key.pem"}


# list, import, export


def test_list_for_persons_and_programs(fleet: Here) -> None:
    assert fleet("ca", "list").stdout == b""
    assert table(fleet) == []
    assert not (fleet.pki / "ledger.db").exists()
    fleet("ca", "issue", "n7", "--out", "a", "--days", "400")
    fleet("ca", "issue", "n7", "--out", "b", "--days", "20")
    fleet("ca", "issue", "n8", "--out", "c", "--days", "40")
    shown = fleet("ca", "list").stdout.decode().splitlines()
    assert re.split(r"  +", shown[0]) == ["NODE", "STATE", "ENDS", "DAYS", "ISSUED", "BY", "SERIAL"]
    assert [re.split(r"  +", line)[:2] for line in shown[1:]] == [
        ["n7", "superseded"],
        ["n7", "good"],
        ["n8", "good"],
    ]
    found = table(fleet)
    assert [one["node"] for one in table(fleet, "--node", "n8")] == ["n8"]
    assert [one["node"] for one in table(fleet, "--expiring", "30")] == ["n7"]
    assert len(table(fleet, "--expiring", "60")) == 2
    text = fleet("ca", "list", "--format", "csv").stdout.decode()
    read = list(csv.DictReader(io.StringIO(text)))
    assert read == [{name: value or "" for name, value in one.items()} for one in found]
    for one in found:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", one["not_after"] or "")
        assert one["revoked_at"] is None
    exported = fleet("ca", "export").stdout.decode().splitlines()
    assert [json.loads(line) for line in exported] == [{"schema": 1, **one} for one in found]


def test_import_takes_in_what_the_ledger_lost(fleet: Here) -> None:
    fleet("ca", "issue", "n7", "--out", "x")
    (before,) = table(fleet)
    (fleet.pki / "ledger.db").unlink()
    assert b"took in 1\n" in fleet("ca", "import", "x/n7.pem").stderr
    assert b"took in 0; 1 were known already" in fleet("ca", "import", "x/n7.pem").stderr
    (after,) = table(fleet)
    for name in ("serial", "node", "fingerprint", "not_before", "not_after", "issuer", "state"):
        assert after[name] == before[name]
    done = fleet("ca", "import", "x/n7.pem", "x/n7-key.pem", check=False)
    assert done.returncode == 1
    assert b"x/n7-key.pem holds no certificate" in done.stderr


# revoke, crl


def test_revoke_says_what_enforces_it_and_what_does_not(fleet: Here) -> None:
    fleet("ca", "issue", "n7", "--out", "a")
    fleet("ca", "issue", "n7", "--out", "b")
    done = fleet("ca", "revoke", "n7", "--reason", "keycompromise")
    said = done.stderr.decode()
    assert done.stdout == b""
    assert said.count("revoked ") == 2 + said.count("a revoked ")
    assert "llmgw's control plane              not known" in said
    assert "a Go program                       does not read one" in said
    assert "gen-seed ca crl > crl.pem" in said
    assert [(one["state"], one["reason"]) for one in table(fleet)] == [
        ("revoked", "keyCompromise")
    ] * 2
    again = fleet("ca", "revoke", "n7")
    assert again.stderr.count(b" already\n") == 2
    assert {one["reason"] for one in table(fleet)} == {"keyCompromise"}


def test_one_by_its_serial_number_in_any_form(fleet: Here) -> None:
    for name in ("a", "b", "c"):
        fleet("ca", "issue", "n7", "--out", name)
    one, two, three = (str(row["serial"]) for row in table(fleet))
    colons = ":".join(re.findall("..", two.zfill(len(two) + len(two) % 2)))
    for form in (one.upper(), colons.upper(), f"0x00{three}"):
        fleet("ca", "revoke", "--serial", form)
    assert [row["state"] for row in table(fleet)] == ["revoked"] * 3


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "say which: NODE, or --serial HEX"),
        (["n7", "--serial", "1"], 2, "say which"),
        (["--serial", "xyz"], 2, "is not a serial number in hex"),
        (["n7", "--reason", "certificateHold"], 2, "is not one of"),
        (["n9"], 1, "knows no certificate of node 'n9'"),
        (["--serial", "abc"], 1, "knows no certificate of serial number 'abc'"),
    ],
)
def test_what_cannot_be_revoked(arguments: list[str], code: int, said: str, fleet: Here) -> None:
    done = fleet("ca", "revoke", *arguments, check=False)
    assert (done.returncode, done.stdout) == (code, b"")
    assert said in done.stderr.decode()
    assert not (fleet.pki / "ledger.db").exists()


def test_crl_in_both_forms(fleet: Here) -> None:
    fleet("ca", "issue", "n7", "--out", "a")
    fleet("ca", "revoke", "n7")
    der = fleet("ca", "crl", "--format", "der", "--days", "7").stdout
    text = openssl.run("crl", "-inform", "DER", "-noout", "-text", stdin=der).decode()
    assert text.count("Serial Number: ") == 1
    plain = fleet("ca", "crl").stdout
    assert plain.startswith(b"-----BEGIN X509 CRL-----\n")
    numbers = [
        openssl.run("crl", *how, "-noout", "-crlnumber", stdin=data)
        for how, data in ((["-inform", "DER"], der), ([], plain))
    ]
    one, other = (int(number.decode().strip().split("=0x")[1], 16) for number in numbers)
    assert one < other
    (fleet.root / "crl.pem").write_bytes(plain)
    said = openssl.run(
        "crl", "-in", fleet.root / "crl.pem", "-noout", "-CAfile", fleet.pki / "ca.pem"
    )
    assert said == b""


def test_a_list_is_for_others_to_read(fleet: Here) -> None:
    with (fleet.root / "crl.pem").open("wb") as file:
        subprocess.run(
            [sys.executable, "-m", "generator", "ca", "crl"],
            cwd=fleet.root,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            stdout=file,
            check=True,
            capture_output=False,
            stderr=subprocess.DEVNULL,
        )
    assert stat.S_IMODE((fleet.root / "crl.pem").stat().st_mode) & 0o044


# show, backup, restore


def test_show(fleet: Here) -> None:
    fleet("ca", "issue", "n7", "--out", "a")
    (fleet.pki / "ca-key.pem").chmod(0o644)
    done = fleet("ca", "show")
    shown = done.stdout.decode()
    assert "subject     CN=llmgw CA" in shown
    assert "key     pki/ca-key.pem, P-256" in shown
    assert "issued  1 good, 0 superseded, 0 revoked, 0 expired" in shown
    assert b"hint: chmod 600 pki/ca-key.pem" in done.stderr
    facts = json.loads(fleet("ca", "show", "--format", "json").stdout)
    assert facts["schema"] == 1
    assert facts["issued"]["good"] == 1
    (row,) = facts["certificates"]
    assert (
        row["fingerprint"]
        == openssl.run("x509", "-in", fleet.pki / "ca.pem", "-noout", "-fingerprint", "-sha256")
        .decode()
        .strip()
        .split("=")[1]
        .replace(":", "")
        .lower()
    )
    (fleet.pki / "ca-key.pem").unlink()  # it is on another host
    assert b"key     none here" in fleet("ca", "show").stdout


def test_show_says_that_an_authority_has_ended(fleet: Here) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    life = certificate.Period(NOW - timedelta(days=9), NOW - timedelta(days=1))
    root = certificate.root(key, "old CA", 7, life)
    (fleet.pki / "ca.pem").write_bytes(pem.certificates_pem([root]))
    assert b"warning" in fleet("ca", "show").stderr
    assert b"the authority CN=old CA ended on" in fleet("ca", "show").stderr


def test_backup_and_restore(fleet: Here) -> None:
    fleet("ca", "issue", "n7", "--out", "a")
    assert b"the authority's key is not in it" in fleet("ca", "backup", "b.db").stderr
    assert b"PRIVATE" not in (fleet.root / "b.db").read_bytes()
    fleet("ca", "issue", "n8", "--out", "b")
    fleet("ca", "revoke", "n7")
    said = fleet("ca", "restore", "b.db").stderr
    assert b"brought 0 rows from b.db; 2 were in pki and are kept" in said
    assert [row["state"] for row in table(fleet)] == ["revoked", "good"]
    (fleet.pki / "ledger.db").write_bytes(b"gone" * 999)
    said = fleet("ca", "restore", "b.db").stderr
    assert b"warning: the damaged ledger is kept as pki/ledger.db.damaged-" in said
    assert [row["node"] for row in table(fleet)] == ["n7"]


def test_init_makes_all_that_was_asked_for(fleet: Here) -> None:
    before = os.umask(0)
    try:
        fleet("ca", "init", "--pki", "new", "--key-type", "RSA", "--name", "R", "--days", "9")
    finally:
        os.umask(before)
    made, _ = authority.load(fleet.root / "new", datetime.now(UTC))
    assert pem.kind(made.certificate.public_key()) == "RSA of 3072 bits"
    place = fleet.root / "new"
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (place, *place.iterdir())}
    assert modes == {"new": 0o700, "ca.pem": 0o644, "ca-key.pem": 0o600}
    done = fleet("ca", "init", "--pki", "new", check=False)
    assert done.returncode == 1
    assert b"new/ca.pem is there already" in done.stderr


def test_every_command_has_help(fleet: Here) -> None:
    names = ["init", "show", "issue", "sign", "list", "import", "export"]
    names += ["revoke", "crl", "backup", "restore"]
    listed = fleet("ca", "--help").stdout.decode()
    for name in names:
        assert f"\n  {name} " in listed


def test_a_full_device_on_stdout_is_told(fleet: Here) -> None:
    with Path("/dev/full").open("wb") as device:
        done = subprocess.run(
            [sys.executable, "-m", "generator", "ca", "crl"],
            cwd=fleet.root,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            stdout=device,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    assert b"cannot write standard output: no space left on device" in done.stderr


# Many


def test_serials_of_10000_issues_are_positive_and_differ(
    fleet: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each issue is real but for its signature, which would take most of a minute."""
    made, _ = authority.load(fleet.pki, NOW)
    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    leaf = authority.sign(made, public, "n7", 30, NOW)[0].chain[0]
    serials: list[int] = []

    def record(_: object, __: str, serial: int, *___: object) -> x509.Certificate:
        serials.append(serial)
        return leaf

    monkeypatch.setattr(certificate, "leaf", record)
    monkeypatch.setattr(authority, "check", lambda *_: [])
    for _ in range(10_000):
        authority.sign(made, public, "n7", 30, NOW)
    assert len(set(serials)) == 10_000
    # Positive and of at most 20 octets, RFC 5280, section 4.1.2.2; 64 random bits or more.
    assert all(0 < serial < 1 << 159 for serial in serials)
    assert sum(serial < 1 << 95 for serial in serials) == 0


ISSUING = """if True:
    import sys
    from pathlib import Path
    from generator import authority, issue, ledger
    sys.path.insert(0, "tests")
    from openssl import NOW
    folder, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(count):
        with issue.certified(issue.Issuer(folder), name, 30, NOW) as (book, (made, *_)):
            book.record([ledger.row(made, NOW, "", {})])
        print(made.serial, flush=True)
"""


def test_16_processes_issue_50_each(fleet: Here) -> None:
    started = together(ISSUING, *((fleet.pki, f"n{n}", 50) for n in range(16)))
    answers = [process.communicate(timeout=120) for process in started]
    assert [error for _, error in answers if error] == []
    told = [serial for answer, _ in answers for serial in answer.split()]
    found = [row["serial"] for row in rows(fleet.pki)]
    assert len(told) == len(set(told)) == 800
    assert sorted(told) == sorted(found)


def test_16_processes_killed_at_random_lose_nothing_that_went_out(fleet: Here) -> None:
    started = together(ISSUING, *((fleet.pki, f"n{n}", 500) for n in range(16)))
    told = set(kill(started, random.Random(5)))  # noqa: S311 - when to kill
    assert told
    fleet("ca", "issue", "n99", "--out", "x")  # it opens, and takes more
    found = [row["serial"] for row in rows(fleet.pki)]
    assert len(found) == len(set(found))
    assert told <= set(found)
    assert len(found) <= len(told) + 1 + len(started)
