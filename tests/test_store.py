"""The identity store: the same identity again, and never two."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import openssl
import pytest
import unprivileged
from fleet import CHECKOUT, Fleet
from openssl import DAY, NOW
from test_cli import FLEET
from test_ledger import fill, full

from generator import authority, cli, identity, issue, ledger, pem, resolve, standing, store
from generator import workspace as workspaces
from generator.problem import Refused
from generator.spec import Spec

__all__ = ["full"]


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    made = Fleet(tmp_path / "ws")
    made.root.mkdir()
    made.write(fleet=FLEET, n7="mgmt_addr: 10.0.0.107\n", n8="mgmt_addr: 10.0.0.108\n")
    authority.create(made.pki, NOW)
    return made


@pytest.fixture
def spec(fleet: Fleet) -> Spec:
    return resolve.resolve(workspaces.open_workspace(fleet.root), "n7", frozenset())[0]


def obtain(
    fleet: Fleet, spec: Spec, days: float = 0, wanted: issue.Wanted | None = None
) -> issue.Obtained:
    """Get an identity `days` from now, and let it count as issued."""
    now = NOW + days * DAY
    with issue.obtain(
        spec, wanted or issue.Wanted(reuse=True), issue.Issuer(fleet.pki), now
    ) as made:
        made.commit()
    return made


def refused(fleet: Fleet, spec: Spec, days: float = 0) -> str:
    with pytest.raises(Refused) as caught:
        obtain(fleet, spec, days)
    return "\n".join(f"{problem.message}\n{problem.hint}" for problem in caught.value.problems)


def states(fleet: Fleet) -> list[str]:
    return [one.state for one in standing.standings(ledger.reading(fleet.pki), NOW)]


def test_the_stored_identity_is_taken_again(fleet: Fleet, spec: Spec) -> None:
    first = obtain(fleet, spec)
    assert first.origin.endswith(f"kept in {fleet.pki}/identities/n7.pem")
    again = obtain(fleet, spec, days=300)
    assert again.identity == first.identity
    assert again.origin == f"reused from {fleet.pki}/identities/n7.pem"
    assert again.notes == ()
    assert len(ledger.reading(fleet.pki)) == 1


def at(monkeypatch: pytest.MonkeyPatch, moment: object) -> None:
    class Clock:
        @staticmethod
        def now(_: object) -> object:
            return moment

    monkeypatch.setattr(cli, "datetime", Clock)


def test_byte_identical_isos_a_month_apart(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    images = []
    for days in (0, 31, 300):
        at(monkeypatch, NOW + days * DAY)
        file = fleet.root / f"{days}.iso"
        cli.gen_seed.main(
            ["-C", str(fleet.root), "n7", "--reuse", "-o", str(file)], standalone_mode=False
        )
        images.append(file.read_bytes())
    assert len(set(images)) == 1
    assert len(ledger.reading(fleet.pki)) == 1


def test_byte_identical_isos_of_runs_at_once(fleet: Fleet) -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "generator", "n7", "--reuse", "-o", f"{n}.iso"],
            cwd=fleet.root,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            stderr=subprocess.DEVNULL,
        )
        for n in range(6)
    ]
    assert [run.wait(60) for run in runs] == [0] * 6
    assert len({(fleet.root / f"{n}.iso").read_bytes() for n in range(6)}) == 1
    assert len(ledger.reading(fleet.pki)) == 1


def test_without_locks_two_still_cannot_store_two(
    fleet: Fleet, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network shares have none: then link(2) decides."""

    def none(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", none)
    issuer = issue.Issuer(fleet.pki)
    with (
        issue.obtain(spec, issue.Wanted(reuse=True), issuer, NOW) as one,
        issue.obtain(spec, issue.Wanted(reuse=True), issuer, NOW) as other,
    ):
        one.commit()
        with pytest.raises(Refused, match="was stored by another process"):
            other.commit()
    assert obtain(fleet, spec).identity == one.identity


def test_a_lock_that_is_held_for_too_long(tmp_path: Path) -> None:
    with (
        store.locked(tmp_path / "s", 5),
        pytest.raises(Refused, match=r"another process has held .*\.lock"),
        store.locked(tmp_path / "s", 0.2),
    ):
        pass


def test_near_its_end_it_warns_and_after_it_refuses(fleet: Fleet, spec: Spec) -> None:
    first = obtain(fleet, spec)
    assert obtain(fleet, spec, 334).notes == ()
    (warning,) = obtain(fleet, spec, 336).notes
    assert "the stored identity of n7 ends in 29 days" in warning.message
    assert "gen-seed n7 --renew" in warning.hint
    assert obtain(fleet, spec, 365).identity == first.identity
    said = refused(fleet, spec, 365.01)
    assert "n7.pem ended on" in said
    assert "gen-seed n7 --renew" in said
    assert len(ledger.reading(fleet.pki)) == 1


def test_another_only_when_it_is_asked_for(fleet: Fleet, spec: Spec) -> None:
    first = obtain(fleet, spec)
    renewed = obtain(fleet, spec, 1, issue.Wanted(renew=True, revoke_previous=True))
    assert renewed.identity.serial != first.identity.serial
    assert obtain(fleet, spec, 2).identity == renewed.identity
    assert states(fleet) == ["revoked", "good"]
    assert [path.name for path in (fleet.pki / "identities").iterdir() if path.name[0] != "."] == [
        "n7.pem"
    ]


def test_a_revoked_one_is_refused(fleet: Fleet, spec: Spec) -> None:
    obtain(fleet, spec)
    with ledger.opened(fleet.pki) as book:
        book.revoke(issue.revocation(NOW), "node", "n7")
    said = refused(fleet, spec)
    assert "n7.pem was revoked on" in said
    assert "--renew" in said


def test_reuse_and_revoke_the_others(fleet: Fleet, spec: Spec) -> None:
    obtain(fleet, spec, 0, issue.Wanted())
    kept = obtain(fleet, spec)
    obtain(fleet, spec, 0, issue.Wanted())
    done = obtain(fleet, spec, 0, issue.Wanted(reuse=True, revoke_previous=True))
    assert done.identity == kept.identity
    assert "revoked 2 earlier certificates" in done.talk[0]
    assert states(fleet) == ["revoked", "good", "revoked"]


def test_p2_the_fate_of_the_earlier_certificate_is_told(fleet: Fleet, spec: Spec) -> None:
    first = obtain(fleet, spec, 0, issue.Wanted())
    assert first.talk == ()
    again = obtain(fleet, spec, 0, issue.Wanted())
    assert "the earlier certificate keeps working until" in again.talk[0]
    assert first.identity.serial in again.talk[1]
    last = obtain(fleet, spec, 0, issue.Wanted(revoke_previous=True))
    assert "revoked 2 earlier certificates" in last.talk[0]
    assert states(fleet) == ["revoked", "revoked", "good"]


def test_one_that_the_ledger_lost_is_a_warning_with_the_cure(fleet: Fleet, spec: Spec) -> None:
    obtain(fleet, spec)
    (fleet.pki / "ledger.db").unlink()
    (warning,) = obtain(fleet, spec).notes
    assert "is not in the ledger" in warning.message
    fleet("ca", "import", warning.hint.removeprefix("gen-seed ca import "))
    assert obtain(fleet, spec).notes == ()


def test_the_store_needs_no_key_of_the_authority(fleet: Fleet, spec: Spec) -> None:
    first = obtain(fleet, spec)
    (fleet.pki / "ca-key.pem").unlink()
    assert obtain(fleet, spec).identity == first.identity


def test_another_nodes_or_a_broken_file(fleet: Fleet, spec: Spec) -> None:
    obtain(fleet, spec)
    file = fleet.pki / "identities/n7.pem"
    data = file.read_bytes()
    file.write_bytes(data[: len(data) - 60])
    assert "holds no private key" in refused(fleet, spec)
    other, _ = authority.issue(authority.load(fleet.pki, NOW)[0], "n8", 9, NOW)
    file.write_bytes(other.certificate_pem + (other.key or b""))
    assert "has the common name 'n8', not 'n7'" in refused(fleet, spec)


@pytest.mark.parametrize("umask", [0, 0o077])
def test_modes_whatever_the_umask(umask: int, fleet: Fleet, spec: Spec) -> None:
    before = os.umask(umask)
    try:
        obtain(fleet, spec)
        obtain(fleet, spec, 0, issue.Wanted(renew=True))
    finally:
        os.umask(before)
    place = fleet.pki / "identities"
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (place, *place.iterdir())}
    assert modes == {"identities": 0o700, "n7.pem": 0o600, ".lock": 0o600}
    (place / "n7.pem").chmod(0o640)
    (warning,) = obtain(fleet, spec).notes
    assert "is open to others than its owner (mode 0640)" in warning.message


def test_what_root_makes_in_anothers_folder_is_theirs(fleet: Fleet, spec: Spec) -> None:
    with unprivileged.folder():  # root only
        pass
    os.chown(fleet.pki, 65534, 65534)
    obtain(fleet, spec)
    found = {
        path.name: (path.stat().st_uid, path.stat().st_gid)
        for path in fleet.pki.rglob("*")
        if not path.name.startswith("ca")
    }
    assert found == dict.fromkeys(("ledger.db", "identities", "n7.pem", ".lock"), (65534, 65534))


# Encrypted with the authority's passphrase


def test_encrypted_where_the_authority_is(spec: Spec, tmp_path: Path) -> None:
    pki = tmp_path / "secret"
    authority.create(pki, NOW, passphrase=b"correct horse")
    asked = []

    def ask() -> bytes:
        asked.append(1)
        return b"correct horse"

    wanted = issue.Wanted(reuse=True, identities=tmp_path / "ids")
    made = []
    for _ in range(2):
        with issue.obtain(spec, wanted, issue.Issuer(pki, ask), NOW) as one:
            one.commit()
            made.append(one.identity)
    assert made[0] == made[1]
    assert asked
    data = (tmp_path / "ids/n7.pem").read_bytes()
    assert data.count(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") == 1
    assert data.count(b"PRIVATE KEY") == 2
    opened = openssl.run("pkey", "-passin", "pass:correct horse", stdin=data)
    assert opened == made[0].key
    with (
        pytest.raises(Refused, match="the passphrase does not open"),
        issue.obtain(spec, wanted, issue.Issuer(pki, lambda: b"wrong"), NOW),
    ):
        pass


# What cannot be written


def test_a_full_disk_issues_nothing(fleet: Fleet, spec: Spec, full: Path) -> None:
    fill(full)
    wanted = issue.Wanted(reuse=True, identities=full / "ids")
    with pytest.raises(Refused, match="no space left"):
        obtain(fleet, spec, 0, wanted)
    assert ledger.reading(fleet.pki) == []
    (full / "rest").unlink()
    (full / "ids").mkdir(0o700, exist_ok=True)
    (full / "ids/.lock").touch(0o600)
    fill(full)
    with pytest.raises(Refused, match="no space left"):
        obtain(fleet, spec, 0, wanted)
    assert ledger.reading(fleet.pki) == []
    assert [path.name for path in (full / "ids").iterdir()] == [".lock"]


def test_a_store_that_cannot_be_written_issues_nothing(fleet: Fleet, spec: Spec) -> None:
    (fleet.root / "file").touch()
    with pytest.raises(Refused, match="cannot write"):
        obtain(fleet, spec, 0, issue.Wanted(reuse=True, identities=fleet.root / "file/ids"))
    assert ledger.reading(fleet.pki) == []


def test_an_identity_that_is_not_committed_is_not_kept(fleet: Fleet, spec: Spec) -> None:
    """As when what is rendered is refused."""
    wanted, issuer = issue.Wanted(reuse=True), issue.Issuer(fleet.pki)
    with pytest.raises(OSError, match="refused"), issue.obtain(spec, wanted, issuer, NOW):
        raise OSError("refused")
    assert ledger.reading(fleet.pki) == []
    assert [path.name for path in (fleet.pki / "identities").iterdir()] == [".lock"]


# Kills

KILLED = """if True:
    import sys
    from datetime import timedelta
    from pathlib import Path
    from generator import issue, resolve, workspace
    sys.path.insert(0, "tests")
    from openssl import NOW
    root, out = Path(sys.argv[1]), Path(sys.argv[2])
    spec, _ = resolve.resolve(workspace.open_workspace(root), "n7", frozenset())
    print("ready", flush=True)
    for number in range(1000):
        wanted = issue.Wanted(renew=number % 2 == 0, reuse=True)
        with issue.obtain(spec, wanted, issue.Issuer(root / "pki"), NOW) as made:
            made.commit()
        (out / made.identity.serial).touch()
"""


def test_whatever_reached_an_output_is_in_the_ledger_after_kills(
    fleet: Fleet, spec: Spec, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", KILLED, str(fleet.root), str(out)],
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
        )
        for _ in range(4)
    ]
    for run in runs:
        assert run.stdout
        assert run.stdout.readline() == b"ready\n"
    deadline = time.monotonic() + 60
    while not list(out.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.01)
    for run in runs:
        time.sleep(0.07)
        run.send_signal(signal.SIGKILL)
    for run in runs:
        run.communicate(timeout=20)
    told = {path.name for path in out.iterdir()}
    assert told
    known = {row.serial for row in ledger.reading(fleet.pki)}
    assert told <= known
    kept = obtain(fleet, spec).identity
    assert kept.serial in known
    assert identity.check(kept, NOW) == []
    obtain(fleet, spec, 0, issue.Wanted(renew=True))
    names = {path.name for path in (fleet.pki / "identities").iterdir()}
    assert names == {".lock", "n7.pem"}  # what the kills left is swept


def test_the_key_is_in_the_seed_and_in_the_store_only(fleet: Fleet) -> None:
    fleet("n7", "--reuse", "-o", "n7.iso")
    key = pem.private_key((fleet.pki / "identities/n7.pem").read_bytes(), "key")
    lines = pem.key_pem(key).split(b"\n")[1:-2]
    found = {
        path.relative_to(fleet.root).as_posix()
        for path in fleet.root.rglob("*")
        if path.is_file() and lines[0] in path.read_bytes()
    }
    assert found == {"n7.iso", "pki/identities/n7.pem"}
    fleet("n7", "-o", "n7.iso")
    shutil.rmtree(fleet.pki / "identities")
    secret = [
        path.name
        for path in fleet.root.rglob("*")
        if path.is_file() and b"PRIVATE KEY" in path.read_bytes()
    ]
    assert sorted(secret) == ["ca-key.pem", "n7.iso"]


@pytest.mark.parametrize(
    "options",
    [
        ["--identity", "placeholder", "--reuse"],
        ["--identity", "x", "--renew"],
        ["--identity", "x", "--revoke-previous"],
        ["--identity", "x", "--identities", "y"],
        ["--identities", "y"],
    ],
)
def test_options_that_exclude_each_other_are_wrong_usage(options: list[str], fleet: Fleet) -> None:
    done = fleet("n7", *options, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"error: --identit")
