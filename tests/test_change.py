"""onboard given another seed: whole or not at all, whatever happens in the middle.

On a folder that stands for the node's root; the real machines are in test_change_boot.py.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

import pytest
from stand_in import (
    BINARY,
    CONF,
    DASH,
    FIRST,
    SHELLS,
    SUMS,
    SYSTEMCTL,
    Node,
    authority,
    available,
    files_of,
    node_at_rest,
    node_in,
    release_of,
    user_data,
)

from generator import certificate, chain, pem, request, spec

BETTER = b"#!/bin/sh\n# better\n"
BROKEN = b"#!/bin/sh\n# broken\n"
APPLIED = "var/lib/llmgw-onboard/applied"
INCOMING = "var/lib/llmgw-onboard/incoming"
COPY = "var/lib/cloud/instance/cloud-config.txt"
# Another of everything: server, fabric, release, and a file that the first has not.
SECOND = replace(
    FIRST,
    server="https://other.example",
    fabrics=(spec.Fabric("ib-b", ("mlx5_0",)),),
    release=release_of(BETTER, "v2"),
    proxy=spec.Proxy(https="http://proxy.example:3128"),
)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node that is what its first seed says."""
    return node_at_rest(tmp_path)


def apply(node: Node, text: str, *arguments: str) -> str:
    """Give the node a seed as its operator does; return what is said when it is refused."""
    (node.root / "seed").write_text(text)
    node.install("systemctl", SYSTEMCTL + '[ "$1" != start ] || exit 0\n')
    # Nobody answers here: the unit is run below.
    waits = (node.root / "usr/local/lib/llmgw/onboard").read_text()
    script = node.root / "impatient"
    script.write_text(waits.replace('-ge "$wait_limit"', "-ge 0"))
    done = subprocess.run(
        [*node.shell, str(script), "apply", str(node.root / "seed"), *arguments],
        env=node.environ, text=True, check=False, timeout=60,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return "" if "no verdict after" in done.stdout else done.stdout


def tree(node: Node) -> dict[str, tuple[int, int]]:
    """Return what is on the node's disk: inode and time of change of each file."""
    places = [node.root / name for name in ("etc", "usr", "var")]
    files = [path for place in places for path in place.rglob("*") if not path.is_dir()]
    return {
        str(path.relative_to(node.root)): (path.lstat().st_ino, path.lstat().st_ctime_ns)
        for path in files
    }


def is_this(node: Node, files: Mapping[str, str]) -> bool:
    """Whether every file on the node is that of a seed."""
    return all(
        (node.root / path[1:]).exists() and (node.root / path[1:]).read_text() == content
        for path, content in files.items()
    )


def staged(node: Node) -> list[str]:
    """Return what a change leaves when it has not come to its end."""
    left = [name for name in tree(node) if name.endswith((".next", ".commit", ".new"))]
    return left + [name for name in (INCOMING,) if (node.root / name).exists()]


def test_a_new_seed_is_taken_up_without_a_reboot(node: Node) -> None:
    files = files_of(SECOND)
    (node.root / "release").write_bytes(BETTER)
    (node.root / "calls").unlink()
    assert apply(node, user_data(files)) == ""
    node.onboard()
    assert is_this(node, files)
    assert node.binary.read_bytes() == BETTER
    assert node.bin() == ["llmgw"]
    assert staged(node) == []
    assert node.status()["release"] == "v2"
    assert node.verdict() == "ok"
    assert "restart --no-block llmgw-agent.service\n" in node.calls()
    modes = {path: (node.root / path[1:]).stat().st_mode & 0o777 for path in files}
    assert modes["/etc/llmgw/agent-key.pem"] == modes["/etc/llmgw/proxy.env"] == 0o600
    # And back: what only the second has goes.
    (node.root / "release").write_bytes(BINARY)
    apply(node, user_data(files_of(FIRST)))
    node.onboard()
    assert is_this(node, files_of(FIRST))
    assert not (node.root / "etc/llmgw/proxy.env").exists()
    assert (node.root / APPLIED).read_text().partition("\n")[2] == (node.root / SUMS).read_text()


@pytest.mark.parametrize("wrap", [str.encode, lambda text: gzip.compress(text.encode())])
def test_on_standard_input_plain_or_compressed(node: Node, wrap: object) -> None:
    assert callable(wrap)
    done = subprocess.run(
        node.command("apply", "-"), env=node.environ, input=wrap(user_data(files_of(FIRST))),
        stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    assert done.stdout == b"onboard: nothing to do: this machine is what that seed says\n"


def test_the_same_seed_again_writes_nothing(node: Node) -> None:
    before, calls = tree(node), node.calls()
    assert "nothing to do" in apply(node, user_data(files_of(FIRST)))
    assert tree(node) == before
    assert node.calls() == calls


# mv counts its calls and, at the last one that is allowed, takes the whole of onboard with it.
CUT = """\
n=$(cat "$LLMGW_ROOT/moves" 2>/dev/null || echo 0)
echo $((n + 1)) >"$LLMGW_ROOT/moves"
[ "$n" != "$(cat "$LLMGW_ROOT/limit")" ] || kill -9 0
exec /bin/mv "$@"
"""


def test_p1_a_power_cut_at_any_rename_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    """And no agent in between: `finish` runs before it starts."""
    old, new = files_of(FIRST), files_of(SECOND)
    outcomes = set()
    for limit in range(100):
        node = node_in(tmp_path / str(limit), DASH)
        node.onboard()
        (node.root / "release").write_bytes(BETTER)
        apply(node, user_data(new))
        node.install("mv", CUT)
        (node.root / "limit").write_text(str(limit))
        with subprocess.Popen(
            node.command("run"), env=node.environ, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            assert process.stdout
            for line in process.stdout:
                if b"not yet: " in line:  # all renames are done
                    os.killpg(process.pid, 9)
        (node.root / "stand-ins/mv").unlink()
        moves = int((node.root / "moves").read_text())
        node.ask("finish")
        binary = node.binary.read_bytes()
        assert (is_this(node, old) and binary == BINARY) != (
            is_this(node, new) and binary == BETTER
        )
        outcomes.add(binary)
        node.onboard()
        assert is_this(node, new), limit
        assert node.binary.read_bytes() == BETTER
        assert node.bin() == ["llmgw"]
        assert staged(node) == []
        shutil.rmtree(node.root)
        if moves <= limit:
            break
    assert limit > len(new)
    assert outcomes == {BINARY, BETTER}


def test_a_full_disk_leaves_the_old(node: Node) -> None:
    apply(node, user_data(files_of(SECOND)))
    before = {k: v for k, v in tree(node).items() if k.startswith("etc")}
    blocked = node.root / "etc/llmgw/.proxy.env.next"
    blocked.mkdir()
    said = node.onboard("next try")
    assert "waiting: files: cannot take up the new seed: " in said
    blocked.rmdir()
    assert {k: v for k, v in tree(node).items() if k.startswith("etc")} == before


def test_the_agent_goes_on_when_it_reads_nothing_that_changed(node: Node) -> None:
    (node.root / "calls").unlink()
    asked = replace(FIRST, onboard=spec.Onboard(wait="300s"))
    apply(node, user_data(files_of(asked)))
    node.onboard()
    assert is_this(node, files_of(asked))
    assert "restart" not in node.calls()


@pytest.mark.parametrize("field", ["fabrics", "server", "release"])
def test_the_agent_starts_anew_for_what_it_reads(node: Node, field: str) -> None:
    (node.root / "calls").unlink()
    (node.root / "release").write_bytes(BETTER if field == "release" else BINARY)
    apply(node, user_data(files_of(replace(FIRST, **{field: getattr(SECOND, field)}))))
    node.onboard()
    assert node.calls().count("restart --no-block llmgw-agent.service\n") == 1


def test_what_somebody_edited_is_kept_beside_and_said(node: Node) -> None:
    agent = node.root / "etc/llmgw/agent.yaml"
    agent.write_text("edited\n")
    (node.root / "etc/llmgw/agent-key.pem").write_text("another key\n")
    apply(node, user_data(files_of(SECOND)))
    node.onboard("next try")  # the release is not there: nothing has happened yet
    assert agent.read_text() == "edited\n"
    (node.root / "release").write_bytes(BETTER)
    node.onboard()
    kept = list(agent.parent.glob("*.before-*"))
    assert [path.read_text() for path in kept] == ["edited\n"]
    told = f"/etc/llmgw/agent.yaml had been edited on this node: kept as {kept[0]}"
    assert node.status()["notes"] == [told]
    assert f"note: {told}\n" in node.ask("status").stdout


def test_what_onboard_filled_in_is_nobodys_edit(node: Node) -> None:
    asked = replace(FIRST, server="https://127.0.0.1:7443", mgmt_addr="auto")
    for turn in (asked, replace(asked, fabrics=SECOND.fabrics)):
        apply(node, user_data(files_of(turn)))
        node.onboard()
        assert 'mgmt_addr: "127.0.0.1"\n' in (node.root / "etc/llmgw/agent.yaml").read_text()
        assert node.status()["notes"] == []
    assert staged(node) == []


def test_an_older_seed_is_applied_and_said(node: Node) -> None:
    files = files_of(SECOND)
    conf = files[f"/{CONF}"]
    begun = next(line for line in conf.splitlines() if line.startswith("not_before="))
    files[f"/{CONF}"] = conf.replace(begun, "not_before=915148800")
    (node.root / "release").write_bytes(BETTER)
    apply(node, user_data(files))
    node.onboard()
    assert is_this(node, files)
    (note,) = node.status()["notes"]
    assert note.startswith("an older seed: its certificate starts 1999-01-01T00:00:00Z, that of")


REFUSED = {
    "another node's": (
        user_data(files_of(replace(FIRST, node_id="n8"))),
        "that is the seed of n8, and this machine is n7",
    ),
    "with work for cloud-init": (
        user_data(files_of(replace(FIRST, cloud_config=MappingProxyType({"timezone": "Etc/UTC"})))),
        "which cloud-init does at a boot: attach it and reboot, or add --without-cloud-init",
    ),
    "no YAML": ("{", "this is no user-data of gen-seed"),
    "empty": ("", "this is no user-data of gen-seed"),
    "another tool's": ("#cloud-config\nhostname: n7\n", "this is no user-data of gen-seed"),
    "changed on its way": (
        user_data(files_of(SECOND)).replace("other.example", "evil.example"),
        "is not what the seed's own list of digests says",
    ),
    "for a place that is not ours": (
        user_data(files_of(FIRST) | {"/etc/passwd": "root::0:0::/:/bin/sh\n"}),
        "the seed's list of files has a line that is not of a file of a seed",
    ),
    "out of a place that is ours": (
        user_data(files_of(FIRST) | {"/etc/llmgw/../passwd": "x"}),
        "the seed's list of files has a line that is not of a file of a seed",
    ),
    "ended": (
        user_data(
            files_of(FIRST)
            | {f"/{CONF}": "seed=n7-0\nfiles=10\nnot_before=0\nnot_after=946684800\n"},
        ),
        "the certificate of that seed ended 2000-01-01T00:00:00Z",
    ),
    "no answer to a request": (
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "no request is open on this node; make one: onboard csr",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_seed_that_is_refused_changes_nothing(node: Node, case: str) -> None:
    text, told = REFUSED[case]
    before, calls = tree(node), node.calls()
    said = apply(node, text)
    assert told in said
    assert "Traceback" not in said
    after = tree(node)
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert changed == set()
    assert node.calls() == calls
    assert list((node.root / "run/llmgw-onboard").glob("given*")) == []


def test_all_but_cloud_inits_work_can_be_applied(node: Node) -> None:
    asked = replace(SECOND, cloud_config=MappingProxyType({"timezone": "Etc/UTC"}))
    (node.root / "release").write_bytes(BETTER)
    before = (node.root / APPLIED).read_text().splitlines()[0]
    assert apply(node, user_data(files_of(asked)), "--without-cloud-init") == ""
    node.onboard()
    assert is_this(node, files_of(asked))
    # By this its bootcmd knows whose files are in place: cloud-init is where it was.
    assert (node.root / APPLIED).read_text().splitlines()[0] == before


def test_cloud_init_has_read_another_seed(node: Node) -> None:
    copy = node.root / COPY
    copy.parent.mkdir(parents=True)
    copy.write_text(user_data(files_of(SECOND)))
    (node.root / "release").write_bytes(BETTER)
    assert "applied already" not in node.onboard()
    assert is_this(node, files_of(SECOND))
    # What `apply` brings since then is not undone because the seed is still attached.
    (node.root / "release").write_bytes(BINARY)
    apply(node, user_data(files_of(FIRST)))
    node.onboard()
    node.accept()
    assert "applied already" in node.onboard("")
    assert is_this(node, files_of(FIRST))


@pytest.mark.parametrize("text", ["#cloud-config\n{}\n", "{", "", "\0"])
def test_cloud_init_has_read_something_else(node: Node, text: str) -> None:
    copy = node.root / COPY
    copy.parent.mkdir(parents=True)
    copy.write_text(text)
    assert "applied already" in node.onboard("")
    assert is_this(node, files_of(FIRST))


# The agent of the broken release comes back again and again; any other stays up.
FRAGILE = """\
[ "$1" = show ] || echo "$*" >>"$LLMGW_ROOT/calls"
broken=$(grep -c broken "$LLMGW_ROOT/usr/local/bin/llmgw")
case "$*" in
  *NRestarts*) echo NRestarts=$((broken * 3)) ;;
  *MainPID*) [ "$broken" = 1 ] && echo MainPID=0 || echo MainPID=42 ;;
  *ActiveState*) echo ActiveState=active ;;
  *Result*) echo Result=exit-code ;;
  *ExecMainStatus*) echo ExecMainStatus=3 ;;
esac
"""


def test_a_release_that_does_not_stay_up_is_taken_back(node: Node) -> None:
    files = files_of(replace(SECOND, release=release_of(BROKEN, "v2")))
    (node.root / "release").write_bytes(BROKEN)
    apply(node, user_data(files))
    node.install("systemctl", FRAGILE)
    node.onboard()
    assert node.binary.read_bytes() == BINARY
    assert is_this(node, files)
    status = node.status()
    assert (status["state"], status["release"]) == ("started", "v1")
    (note,) = status["notes"]
    assert note == (
        "release v2: the agent does not stay up (exit-code, exit status 3);"
        " see: journalctl -u llmgw-agent; went back to v1"
    )
    assert node.verdict() == f"failed: release: {note}"
    # The next boot leaves it so.
    node.accept()
    before = node.calls()
    assert "applied already" in node.onboard("")
    assert node.calls() == before
    # The same release with other settings is not tried again, as long as nobody asks.
    again = files_of(replace(SECOND, release=release_of(BROKEN, "v2"), fabrics=()))
    apply(node, user_data(again))
    node.install("systemctl", FRAGILE)
    node.onboard()
    assert is_this(node, again)
    assert (node.binary.read_bytes(), node.verdict()) == (BINARY, "ok")
    assert "release v2 was given up" in node.status()["notes"][0]
    # Asked: its seed once more.
    assert apply(node, user_data(again)) == ""
    node.install("systemctl", FRAGILE)
    node.onboard()
    assert node.binary.read_bytes() == BINARY
    assert node.verdict().startswith("failed: release: release v2: the agent does not stay up")
    # And a better one is taken.
    (node.root / "release").write_bytes(BETTER)
    apply(node, user_data(files_of(replace(SECOND, release=release_of(BETTER, "v3")))))
    node.install("systemctl", FRAGILE)
    node.onboard()
    assert node.binary.read_bytes() == BETTER
    assert (node.status()["release"], node.status()["notes"]) == ("v3", [])


def test_a_first_release_that_does_not_stay_up_has_none_before_it(tmp_path: Path) -> None:
    node = node_in(tmp_path, DASH)
    node.write({CONF: files_of(replace(FIRST, release=release_of(BROKEN, "v1")))[f"/{CONF}"]})
    (node.root / "release").write_bytes(BROKEN)
    node.install("systemctl", FRAGILE)
    assert "waiting: agent: the agent does not stay up" in node.onboard("next try")
    assert node.binary.read_bytes() == BROKEN


needs_openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")


@needs_openssl
def test_a_key_is_born_on_the_node_and_never_leaves_it(node: Node) -> None:
    (node.root / "stand-ins/openssl").unlink()
    ca = authority()
    node.write(ca.identity())
    (node.root / APPLIED).write_text("n7-0\n" + (node.root / SUMS).read_text())
    old = (node.root / "etc/llmgw/agent-key.pem").read_bytes()
    # A request that is open stays open: its answer may be on its way.
    first, asked = (node.ask("csr").stdout for _ in range(2))
    assert chain.same_key(*(request.public_key(text.encode(), "n7") for text in (first, asked)))
    key = node.root / "etc/llmgw/.csr-key.pem"
    born = key.read_bytes()
    assert key.stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE" not in asked.encode()
    public = request.public_key(asked.encode(), "n7")
    other = authority("another")
    life = certificate.period(datetime.now(UTC), 30)
    answers = {}
    for by in (ca, other):
        made = certificate.leaf(public, "n7", 77, life, by.certificate, by.key)
        answers[by.certificate] = pem.certificates_pem([made]).decode()
    strange = ca.identity()["etc/llmgw/agent.pem"].decode()
    before = tree(node)
    assert "is not for the key of this node's request" in apply(node, strange)
    assert "not of the authority that this node trusts" in apply(node, answers[other.certificate])
    # It brings no agent.yaml that an edited one could make way for.
    agent = node.root / "etc/llmgw/agent.yaml"
    text = agent.read_text()
    agent.write_text("edited\n")
    said = apply(node, answers[ca.certificate])
    assert "edited on this node, or lost: etc/llmgw/agent.yaml; give it a whole seed" in said
    agent.write_text(text)
    assert set(tree(node)) == set(before)
    # By mail, say, and with more in it than was asked for.
    mailed = f"Certificate:\n{answers[ca.certificate]}{born.decode()}".replace("\n", "\r\n")
    assert apply(node, mailed) == ""
    node.onboard()
    assert (node.root / "etc/llmgw/agent.pem").read_text() == answers[ca.certificate]
    assert (node.root / "etc/llmgw/agent-key.pem").read_bytes() == born != old
    assert not key.exists()
    conf = node.conf()
    assert int(conf["not_before"]) == int(life.not_before.timestamp())
    assert int(conf["not_after"]) == int(life.not_after.timestamp())
    assert staged(node) == []
    assert "no request is open" in apply(node, answers[ca.certificate])


def plant(node: Node, key: bytes) -> dict[str, bool]:
    """Put copies of the key where others leave them; return which of them must go."""
    text = b"#cloud-config\nwrite_files:\n- content: |\n" + b"".join(
        b"    " + line + b"\n" for line in key.splitlines()
    )
    mail = b"Content-Transfer-Encoding: base64\r\n\r\n" + base64.encodebytes(text)
    copies = {
        "etc/cloud/cloud.cfg.d/99-installer.cfg": text,
        "etc/cloud/cloud.cfg.d/98-quoted.cfg": json.dumps({"userdata_raw": text.decode()}).encode(),
        "etc/cloud/cloud.cfg.d/97-base64.cfg": b"user_data: " + base64.b64encode(text) + b"\n",
        "etc/cloud/cloud.cfg.d/96-mail.cfg": json.dumps({"userdata_raw": mail.decode()}).encode(),
        "var/log/installer/autoinstall-user-data": text,
        "var/log/installer/wrapped": base64.encodebytes(gzip.compress(text)),
        "var/log/installer/log.gz": gzip.compress(text),
        "run/cloud-init/instance-data-sensitive.json": text,
        "run/cloud-init/combined-cloud-config.json": text,
    }
    for instance in ("n7-1", "n6-old"):
        for name in ("user-data.txt.i", "cloud-config.txt", "obj.pkl", "scripts/part-001"):
            copies[f"var/lib/cloud/instances/{instance}/{name}"] = text
    kept = {
        "etc/cloud/cloud.cfg.d/90_dpkg.cfg": b"datasource_list: [NoCloud, None]\n",
        "etc/cloud/cloud.cfg.d/95-noise.cfg": b"A" * 5000 + b"\n\x1f\x8b",
        "var/log/installer/media-info": b"Ubuntu-Server 24.04\n",
        "run/cloud-init/instance-data.json": b"{}",
        "var/lib/cloud/instances/n7-1/sem/config_write_files": b"",
        "var/lib/cloud/seed/nocloud/user-data": text,
    }
    for name, data in (copies | kept).items():
        path = node.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (node.root / "var/lib/cloud/instance").symlink_to("instances/n7-1")
    return dict.fromkeys(copies, True) | dict.fromkeys(kept, False)


def with_key(tmp_path: Path) -> Node:
    node = node_in(tmp_path, DASH)
    node.write(authority().identity())
    return node


def test_x1_every_other_copy_of_the_key_goes(tmp_path: Path) -> None:
    node = with_key(tmp_path)
    goes = plant(node, (node.root / "etc/llmgw/agent-key.pem").read_bytes())
    node.onboard()
    assert {name: not (node.root / name).exists() for name in goes} == goes
    # `cloud-init query` fails without this one.
    asked = node.root / "var/lib/cloud/instance/user-data.txt"
    assert (asked.read_bytes(), asked.stat().st_mode & 0o777) == (b"", 0o600)
    # At a later boot cloud-init has read the seed again.
    node.accept()
    (node.root / "var/lib/cloud/instance/user-data.txt").write_text("the key again")
    node.onboard("")
    assert asked.read_bytes() == b""


def test_x1_scrubbing_can_be_left_out(tmp_path: Path) -> None:
    node = with_key(tmp_path)
    node.configure(scrub="no")
    goes = plant(node, (node.root / "etc/llmgw/agent-key.pem").read_bytes())
    node.onboard()
    gone = {name for name in goes if not (node.root / name).exists()}
    # Its cache, or it would not look at a new seed; and a former life of this disk.
    cache = {"var/lib/cloud/instances/n7-1/obj.pkl"}
    assert gone == cache | {name for name in goes if "/n6-old/" in name}


@pytest.mark.parametrize("state", ["inactive", "activating"])
def test_nothing_goes_while_cloud_init_needs_it(tmp_path: Path, state: str) -> None:
    node = with_key(tmp_path)
    goes = plant(node, (node.root / "etc/llmgw/agent-key.pem").read_bytes())
    job = "Job=7" if state == "inactive" else "Job="
    asked = f'case "$*" in *cloud-final*Job*|*Job*cloud-final*) echo {job}; exit ;; '
    asked += f"*cloud-final*) echo ActiveState={state}; exit ;; esac\n"
    node.install("systemctl", asked + SYSTEMCTL)
    # It would look again after a second: that is where it is stopped.
    node.install(
        "sleep", 'case "$1" in 1) ls "$LLMGW_ROOT/var/lib/llmgw-onboard/applied" 2>&1;; esac'
    )
    node.onboard("/applied\n")
    assert all((node.root / name).exists() for name in goes)
    # Once it waits for us, it has read them.
    (node.root / "run/llmgw-onboard/waiting").touch()
    node.onboard("not yet: ")
    assert {name: not (node.root / name).exists() for name in goes} == goes


def test_cloud_init_can_be_switched_off_for_good(node: Node) -> None:
    off = node.root / "etc/cloud/cloud-init.disabled"
    assert not off.exists()
    off.parent.mkdir()
    asked = replace(FIRST, onboard=spec.Onboard(disable_cloud_init=True))
    apply(node, user_data(files_of(asked)))
    node.onboard()
    assert off.exists()


def test_l1_another_nodes_seed_leaves_nothing_of_the_first(node: Node) -> None:
    """cloud-init has written the files of n8 over those of n7, as it does for a new instance."""
    before = (node.root / APPLIED).read_text().splitlines()[0]
    plant(node, (node.root / "etc/llmgw/agent-key.pem").read_bytes())
    old = node.root / "var/lib/cloud/instances" / before / "sem"
    old.mkdir(parents=True)
    agent = node.root / "etc/llmgw/agent.yaml"
    shutil.copy(agent, f"{agent}.before-20260101T000000Z")
    (node.root / "etc/llmgw/.csr-key.pem").write_text("a key of n7's\n")
    (node.root / "etc/llmgw/release-ca.pem").write_text("n7's own\n")
    applied = node.root / APPLIED
    applied.write_text(
        applied.read_text() + f"{hashlib.sha256().hexdigest()}  etc/llmgw/release-ca.pem\n"
    )
    node.ask("keep", "n8")
    (node.root / SUMS).touch()
    files = files_of(replace(FIRST, node_id="n8"))
    node.write({path[1:]: content for path, content in files.items()})
    node.onboard()
    assert node.status()["notes"] == ["this disk was the node n7"]
    left = sorted(path.name for path in (node.root / "etc/llmgw").iterdir())
    assert left == sorted(
        ["seed.sha256", *(path.rpartition("/")[2] for path in files if "/etc/llmgw/" in path)]
    )
    assert not old.exists()
    assert applied.read_text().startswith("n8-")


def test_an_edit_is_kept_before_cloud_init_writes_over_it(node: Node) -> None:
    agent = node.root / "etc/llmgw/agent.yaml"
    agent.write_text("edited\n")
    assert node.ask("keep", "n7").returncode == 0
    (kept,) = agent.parent.glob("*.before-*")
    assert kept.read_text() == "edited\n"


def test_the_old_seed_again_ends_one_that_waits(node: Node) -> None:
    """Attached again, or applied again: it must not be taken up when its release appears."""
    copy = node.root / COPY
    copy.parent.mkdir(parents=True)
    old, new = user_data(files_of(FIRST)), user_data(files_of(SECOND))
    copy.write_text(old)
    node.onboard("")
    (node.root / "release").unlink()
    copy.write_text(new)
    node.onboard("next try")
    assert node.status()["release"] == "v1"  # the one that runs
    copy.write_text(old)
    (node.root / "release").write_bytes(BETTER)
    assert "applied already" in node.onboard()
    (node.root / "release").unlink()
    apply(node, new)
    node.onboard("next try")
    assert "nothing to do" not in apply(node, old)
    (node.root / "release").write_bytes(BETTER)
    node.onboard()
    assert is_this(node, files_of(FIRST))
    assert staged(node) == []


def test_what_the_new_seed_does_not_say_is_not_taken_from_the_old(node: Node) -> None:
    """Its release has no digest for this machine: the old one's must not do for it."""
    (node.root / "release").write_bytes(BETTER)
    files = files_of(SECOND)
    conf = files[f"/{CONF}"].splitlines(keepends=True)
    files[f"/{CONF}"] = "".join(line for line in conf if not line.startswith("sha256_"))
    apply(node, user_data(files))
    assert "release v2 has no digest for this machine's" in node.onboard("next try")
    assert is_this(node, files_of(FIRST))


def test_l1_what_waited_on_the_first_is_not_taken_up_by_its_clone(node: Node) -> None:
    (node.root / "release").unlink()
    apply(node, user_data(files_of(SECOND)))
    node.onboard("next try")
    files = files_of(replace(FIRST, node_id="n8"))
    copy = node.root / COPY
    copy.parent.mkdir(parents=True)
    copy.write_text(user_data(files))
    sums = json.loads(user_data(files).partition("\n")[2])["write_files"][-1]["content"]
    for path, content in {**files, f"/{SUMS}": sums}.items():
        (node.root / path[1:]).write_text(content)
    (node.root / "release").write_bytes(BETTER)
    node.onboard()
    assert is_this(node, files)


def test_two_broken_releases_go_back_to_the_same_one(node: Node) -> None:
    for version in ("v2", "v3"):
        broken = BROKEN + version.encode()
        (node.root / "release").write_bytes(broken)
        seed = replace(SECOND, release=release_of(broken, version))
        apply(node, user_data(files_of(seed)))
        node.install("systemctl", FRAGILE)
        node.onboard()
        assert (node.binary.read_bytes(), node.status()["release"]) == (BINARY, "v1")
    # A better one ends what was said of them.
    (node.root / "release").write_bytes(BETTER)
    better = user_data(files_of(replace(SECOND, release=release_of(BETTER, "v4"))))
    apply(node, better)
    node.onboard()
    assert "nothing to do" in apply(node, better)


def test_an_edit_that_the_agent_may_have_read_is_undone_in_it_too(node: Node) -> None:
    (node.root / "etc/llmgw/agent.yaml").write_text("edited\n")
    (node.root / "calls").unlink()
    apply(node, user_data(files_of(replace(FIRST, onboard=spec.Onboard(wait="300s")))))
    node.onboard()
    assert "restart --no-block llmgw-agent.service\n" in node.calls()


def test_the_same_seed_mends_a_file_that_is_gone(node: Node) -> None:
    (node.root / "etc/llmgw/agent.yaml").unlink()
    assert apply(node, user_data(files_of(FIRST))) == ""
    node.onboard()
    assert is_this(node, files_of(FIRST))


def test_another_nodes_seed_is_refused_before_the_first_is_applied(tmp_path: Path) -> None:
    node = node_in(tmp_path, DASH)
    said = apply(node, user_data(files_of(replace(FIRST, node_id="n8"))))
    assert "that is the seed of n8, and this machine is n7" in said


@pytest.mark.parametrize("shell", available())
def test_x1_an_apply_that_is_broken_off_leaves_no_key(tmp_path: Path, shell: str) -> None:
    """Ctrl-C, or the terminal gone, while it reads; one at a time is at work."""
    node = node_in(tmp_path, SHELLS[shell])
    with subprocess.Popen(
        node.command("apply", "-"), env=node.environ, stdin=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdin
        process.stdin.write(user_data(files_of(SECOND)).encode()[:5000])
        process.stdin.flush()
        given = tmp_path / "run/llmgw-onboard/given"
        deadline = time.monotonic() + 60
        while not given.exists() or not given.stat().st_size:
            assert time.monotonic() < deadline
        assert "another apply is at work" in apply(node, user_data(files_of(SECOND)))
        os.killpg(process.pid, signal.SIGHUP)
    assert list(given.parent.glob("given*")) == []


def test_the_root_leaves_the_system_when_the_agent_alone_shall_trust_it(node: Node) -> None:
    root = node.root / "usr/local/share/ca-certificates/llmgw-ca.crt"
    assert root.exists()
    apply(node, user_data(files_of(replace(FIRST, trust="agent"))))
    node.onboard()
    assert not root.exists()
    assert "update-ca-certificates --fresh\n" in node.calls()
