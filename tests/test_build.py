"""Many nodes at once: what is made, what is left as it is, and that it is all or none."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import unprivileged
from fleet import CHECKOUT, Fleet
from hypothesis import given
from hypothesis import strategies as st
from racks import check_manifest, check_whole, edit, plain, racks, rows_of, tree
from specs import NAME

from generator import jobs, journal, ledger, manifest, selection
from generator.problem import Refused
from generator.resources import TEMPLATES
from generator.selection import Shard

COUNT = 12
CHECK = ("--identity", "placeholder", "--check")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return racks(tmp_path_factory.mktemp("build") / "ws", COUNT).root


@pytest.fixture
def fleet(kept: Path, tmp_path: Path) -> Fleet:
    return Fleet(Path(shutil.copytree(kept, tmp_path / "ws")))


@pytest.fixture
def out(fleet: Fleet) -> Path:
    return fleet.root / "out"


def said(fleet: Fleet, *arguments: str, code: int = 0) -> str:
    done = fleet(*arguments, check=False)
    assert done.returncode == code, done.stderr.decode()
    assert done.stdout == b""
    return done.stderr.decode()


def issued(fleet: Fleet) -> int:
    return len(ledger.reading(fleet.pki))


def test_every_node_gets_its_seed_and_its_row(fleet: Fleet, out: Path) -> None:
    assert f"out: {COUNT} made, 0 unchanged" in said(fleet, "build", "--all")
    assert check_whole(fleet, out) == COUNT
    check_manifest(out, COUNT)
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    assert stat.S_IMODE((out / "manifest.jsonl").stat().st_mode) == 0o600
    names = {f"n{n}.iso" for n in range(COUNT)} | {"manifest.jsonl"}
    assert {path.name for path in out.iterdir()} == names
    row = manifest.read(out).get("n7")
    assert row
    entry = ledger.reading(fleet.pki, "node", "n7")[0]
    assert (row.serial, row.not_before, row.not_after) == (
        entry.serial,
        entry.not_before,
        entry.not_after,
    )
    assert row.spec["groups"] == ["right"]
    assert fleet("inspect", "out/n7.iso").returncode == 0


def test_a_second_run_changes_nothing_and_only_the_changed_is_made_again(
    fleet: Fleet, out: Path
) -> None:
    said(fleet, "build", "--all")
    before = tree(out)
    assert f"out: 0 made, {COUNT} unchanged" in said(fleet, "build", "--all")
    assert tree(out) == before
    fleet.write(n3="mgmt_addr: 10.0.9.3\n", new="mgmt_addr: 10.0.9.9\n")
    (out / "n5.iso").unlink()
    (out / "n6.iso").write_bytes(b"\0" * (out / "n6.iso").stat().st_size)
    (out / "n8.iso").write_bytes(b"")
    fleet("ca", "revoke", "n9")
    talk = said(fleet, "build", "--all", "-v")
    made = {line.partition(":")[0] for line in talk.splitlines() if "certificate " in line}
    assert made >= {"n3", "n5", "n6", "n8", "n9", "new"}
    assert f"6 made, {COUNT - 5} unchanged" in talk
    after = tree(out)
    assert {name for name in after if after[name] != before.get(name)} == {
        *(f"{node}.iso" for node in ("n3", "n5", "n6", "n8", "n9", "new")),
        "manifest.jsonl",
    }
    check_manifest(out, COUNT + 1)
    assert check_whole(fleet, out) == COUNT + 1


def test_what_a_seed_was_made_with_counts_as_well(fleet: Fleet) -> None:
    said(fleet, "build", "n1", "n2")
    rows = issued(fleet)
    said(fleet, "build", "n1", "n2")
    assert issued(fleet) == rows
    # A template that is overridden, and is the same: nothing has changed.
    (fleet.root / "templates").mkdir()
    own = fleet.root / "templates/meta-data.j2"
    own.write_bytes((TEMPLATES / "meta-data.j2").read_bytes())
    assert "0 made, 2 unchanged" in said(fleet, "build", "n1", "n2")
    own.write_bytes(own.read_bytes() + b"# ours\n")
    assert "2 made, 0 unchanged" in said(fleet, "build", "n1", "n2")
    # An authority that is another one.
    shutil.rmtree(fleet.pki)
    fleet("ca", "init")
    assert "2 made, 0 unchanged" in said(fleet, "build", "n1", "n2")
    # A ledger that has lost a certificate.
    (fleet.pki / "ledger.db").unlink()
    assert "2 made, 0 unchanged" in said(fleet, "build", "n1", "n2")
    # Another gen-seed.
    edit(fleet, "out/manifest.jsonl", '"gen_seed":"0.', '"gen_seed":"9.')
    assert "2 made, 0 unchanged" in said(fleet, "build", "n1", "n2")


def test_a_certificate_that_ends_soon_is_made_again(fleet: Fleet, out: Path) -> None:
    edit(fleet, "fleet.yaml", "defaults:", "defaults:\n  identity: {days: 1}")
    said(fleet, "build", "n1", "n2")
    first = (out / "n1.iso").read_bytes()
    text = (out / "manifest.jsonl").read_text("utf-8").splitlines()
    row = json.loads(text[0])
    row["not_after"] = row["not_before"]
    (out / "manifest.jsonl").write_text("\n".join([json.dumps(row), text[1], ""]), "utf-8")
    assert "1 made, 1 unchanged" in said(fleet, "build", "n1", "n2")
    assert (out / "n1.iso").read_bytes() != first


def test_fresh_issues_again(fleet: Fleet, out: Path) -> None:
    said(fleet, "build", "--all")
    before = tree(out)
    assert f"{COUNT} made, 0 unchanged" in said(fleet, "build", "--all", "--fresh")
    assert issued(fleet) == 2 * COUNT
    assert all(tree(out)[name] != data for name, data in before.items())
    assert check_whole(fleet, out) == COUNT


def test_the_stored_identities_give_the_same_bytes(fleet: Fleet, out: Path) -> None:
    said(fleet, "build", "--all", "--reuse", "--jobs", "3")
    before = tree(out)
    assert issued(fleet) == COUNT
    assert len(list((fleet.pki / "identities").glob("n*.pem"))) == COUNT
    assert "0 made" in said(fleet, "build", "--all", "--reuse")
    shutil.rmtree(out)
    assert f"{COUNT} made" in said(fleet, "build", "--all", "--reuse", "--jobs", "1")
    assert tree(out) == before
    assert issued(fleet) == COUNT
    # One that was renewed elsewhere is taken up.
    fleet("n7", "--renew", "-o", "elsewhere.iso")
    assert f"1 made, {COUNT - 1} unchanged" in said(fleet, "build", "--all", "--reuse")
    assert (out / "n7.iso").read_bytes() == (fleet.root / "elsewhere.iso").read_bytes()


@pytest.mark.parametrize("form", ["iso", "dir", "user-data"])
def test_one_job_eight_jobs_and_eight_shards_give_the_same_bytes(fleet: Fleet, form: str) -> None:
    options = ("--all", "--identity", "placeholder", "--as", form)
    said(fleet, "build", *options, "-d", "one", "--jobs", "1")
    said(fleet, "build", *options, "-d", "eight", "--jobs", "8")
    one = tree(fleet.root / "one")
    assert len(one) > COUNT
    assert tree(fleet.root / "eight") == one
    for number in range(1, 9):
        said(fleet, "build", *options, "-d", "shards", "--shard", f"{number}/8")
    shards = tree(fleet.root / "shards")
    seeds = {name: data for name, data in shards.items() if "manifest" not in name}
    assert seeds == {name: data for name, data in one.items() if "manifest" not in name}
    assert rows_of(fleet.root / "shards") == rows_of(fleet.root / "one")
    # A build of all joins the manifests of the shards.
    said(fleet, "build", *options, "-d", "shards")
    assert tree(fleet.root / "shards") == one


@pytest.mark.parametrize(("items", "children"), [(1, 1), (3, 3), (9, 4)])
def test_there_are_no_more_processes_than_have_something_to_do(items: int, children: int) -> None:
    run = jobs.run(lambda item: (item, os.getpid()), range(items), 4)
    first = next(run)
    assert len(multiprocessing.active_children()) == children
    found = [first, *run]
    assert [item for item, _ in found] == list(range(items))
    assert len({process for _, process in found}) == children
    assert multiprocessing.active_children() == []


def test_a_seed_is_what_gen_seed_node_makes(fleet: Fleet) -> None:
    said(fleet, "build", "n7", "--identity", "placeholder", "--as", "iso")
    alone = fleet("n7", "--identity", "placeholder").stdout
    assert (fleet.root / "out/n7.iso").read_bytes() == alone


@given(st.lists(NAME, max_size=60), st.integers(1, 12))
def test_shards_part_a_fleet(nodes: list[str], count: int) -> None:
    shards = [Shard(number, count) for number in range(1, count + 1)]
    assert all(sum(shard.has(node) for shard in shards) == 1 for node in nodes)


def test_a_shard_is_the_same_everywhere_and_for_ever() -> None:
    # printf n7 | sha256sum: 6f5eba2319bd7584…; that by 8 leaves 4.
    assert 0x6F5EBA2319BD7584 % 8 == 4
    assert [n for n in range(1, 9) if Shard(n, 8).has("n7")] == [5]
    sizes = [sum(Shard(k, 8).has(f"n{n}") for n in range(8000)) for k in range(1, 9)]
    assert max(sizes) - min(sizes) < 200


@pytest.mark.parametrize("text", ["", "3", "0/0", "0/8", "9/8", "3/-8", "a/b", "1/1000001", "٣/٨"])
def test_what_is_no_shard(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as 3/8|counted from"):
        selection.shard(text)


def test_which_nodes(fleet: Fleet, out: Path) -> None:
    assert "2 made" in said(fleet, "build", "n1", "n2", "n1")
    assert f"{COUNT // 2} made, 0 unchanged" in said(fleet, "build", "--group", "left", "--fresh")
    assert set(manifest.read(out).nodes()) == {"n1", *(f"n{n}" for n in range(0, COUNT, 2))}
    shards = [plain(fleet, "build", "--shard", f"{n}/3", "-d", "s") for n in (1, 2, 3)]
    assert sorted(row["node"] for rows in shards for row in rows) == sorted(
        f"n{n}" for n in range(COUNT)
    )


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ([], 2, "name nodes, or say --all"),
        (["n1", "--all"], 2, "name nodes, or say --all"),
        (["--all", "--shard", "0/0"], 2, "'0/0' is no shard: shards are counted from 1/N to N/N"),
        (["--all", "--shard", "x"], 2, "'x' is no shard: such as 3/8"),
        (["--all", "--jobs", "0"], 2, "0 is not in the range"),
        (["--all", "--fresh", "--reuse"], 2, "--fresh issues certificates, --reuse takes stored"),
        (["--all", "--fresh", "--identity", "placeholder"], 2, "neither fresh nor stored"),
        (["--all", "--check"], 2, "add --identity placeholder"),
        (["--all", *CHECK, "--format", "json"], 2, "--check prints a diff: neither --format json"),
        (["--all", *CHECK, "-v"], 2, "--check prints a diff: neither --format json nor -v"),
        (["n1", "--group", "left"], 2, "name nodes, or a group"),
        (["n1", "--shard", "1/2"], 2, "name nodes, or a shard"),
        (["--all", "--pki", "nowhere"], 1, "no authority in nowhere: ca.pem is missing"),
        (["--all", "--group", "lift"], 1, "no group 'lift' in fleet.yaml"),
        (["n77"], 1, "no node 'n77'"),
        (["--all", "-d", "fleet.yaml"], 1, "fleet.yaml is a file, and a folder is to be written"),
        (["--all", "--as", "network-config"], 1, "has no network-config"),
    ],
)
def test_what_is_refused_makes_nothing(
    fleet: Fleet, arguments: list[str], code: int, text: str
) -> None:
    before = tree(fleet.root)
    assert text in said(fleet, "build", *arguments, code=code)
    assert tree(fleet.root) == before
    assert not (fleet.root / "out").exists()


def test_no_node_at_all(tmp_path: Path) -> None:
    fleet = racks(tmp_path / "ws", 0)
    assert "there are no nodes in ." in said(fleet, "build", "--all", code=1)
    assert not (fleet.root / "out").exists()


def test_a_shard_without_nodes_is_no_failure(tmp_path: Path) -> None:
    fleet = racks(tmp_path / "ws", 1)
    empty = next(n for n in (1, 2) if not Shard(n, 2).has("n0"))
    assert "0 made, 0 unchanged" in said(fleet, "build", "--shard", f"{empty}/2")


# Wrong nodes


def test_nothing_is_made_where_one_node_is_wrong(fleet: Fleet) -> None:
    fleet.write(n3="mgmt_addr: 10.0.9\n", n4="mgmt_addr: 10.0.0.5\ncolour: red\n")
    before = tree(fleet.root)
    talk = said(fleet, "build", "--all", code=1)
    assert "nodes/n3.yaml:1:12: mgmt_addr" in talk
    assert "nodes/n4.yaml:2:1: colour" in talk
    assert tree(fleet.root) == before
    talk = said(fleet, "build", "--all", "--keep-going", code=1)
    assert "nodes/n3.yaml:1:12: mgmt_addr" in talk
    assert f"out: {COUNT - 2} made, 0 unchanged, 2 refused" in talk
    assert check_whole(fleet, fleet.root / "out") == COUNT - 2


def test_what_two_nodes_cannot_both_have(fleet: Fleet) -> None:
    fleet.write(n3="mgmt_addr: 10.0.0.5\n")
    talk = said(fleet, "build", "--all", code=1)
    assert "10.0.0.5 is the mgmt_addr of 2 nodes" in talk
    assert not (fleet.root / "out").exists()
    # Neither is right.
    talk = said(fleet, "build", "--all", "--keep-going", code=1)
    assert f"out: {COUNT - 2} made, 0 unchanged, 2 refused" in talk
    assert "n3" not in manifest.read(fleet.root / "out").nodes()
    assert "1 made" in said(fleet, "build", "n3")  # by itself it is


def test_a_node_that_is_given_twice(fleet: Fleet) -> None:
    edit(fleet, "fleet.yaml", "groups:", "nodes:\n  n3: {mgmt_addr: 10.0.7.7}\ngroups:")
    for more in ([], ["--keep-going"]):  # what is wrong with fleet.yaml is wrong for all
        assert "n3 is here and in nodes/n3.yaml" in said(fleet, "build", "--all", *more, code=1)
    assert not (fleet.root / "out").exists()


def test_a_template_that_fails_for_one_node(fleet: Fleet) -> None:
    (fleet.root / "templates").mkdir()
    text = "instance-id: {{ instance_id }}\nlocal-hostname: {{ hostname | replace('n9', 'x') }}\n"
    (fleet.root / "templates/meta-data.j2").write_text(text, "utf-8")
    talk = said(fleet, "build", "--all", code=1)
    assert "n9: rendered meta-data.local-hostname is not what the spec asks for" in talk
    assert not (fleet.root / "out").exists()
    assert issued(fleet) == 0
    talk = said(fleet, "build", "--all", "--keep-going", code=1)
    assert f"{COUNT - 1} made, 0 unchanged, 1 refused" in talk


def test_somebody_elses_authority_signs_and_fails_for_one_node(fleet: Fleet, out: Path) -> None:
    shutil.copytree(fleet.pki, fleet.root / "theirs")
    sign = f"{sys.executable} -m generator ca sign --pki theirs $NODE"
    command = f"[ $NODE != n2 ] || exit 3; exec {sign}"
    edit(fleet, "fleet.yaml", "groups:", f"authority: {{command: [sh, -c, '{command}']}}\ngroups:")
    nodes = ("n1", "n2", "n3")
    talk = said(fleet, "build", *nodes, code=1)
    assert "authority.command failed: exit status 3" in talk
    assert "nodes: n2" in talk
    assert rows_of(out) == []
    talk = said(fleet, "build", *nodes, "--keep-going", "--jobs", "2", code=1)
    assert "authority.command failed: exit status 3" in talk
    assert "out: 2 made, 0 unchanged, 1 refused" in talk
    assert check_whole(fleet, out) == 2


def test_an_identity_that_another_process_stores_meanwhile(fleet: Fleet, out: Path) -> None:
    shutil.copytree(fleet.pki, fleet.root / "theirs")
    (fleet.pki / "identities").mkdir(0o700)
    store = "[ $NODE != n2 ] || touch pki/identities/n2.pem"
    sign = f"{store}; exec {sys.executable} -m generator ca sign --pki theirs $NODE"
    edit(fleet, "fleet.yaml", "groups:", f"authority: {{command: [sh, -c, '{sign}']}}\ngroups:")
    talk = said(fleet, "build", "n1", "n2", "--reuse", "--jobs", "1", code=1)
    assert "pki/identities/n2.pem was stored by another process" in talk
    assert issued(fleet) == 0
    assert not (fleet.pki / "identities/n1.pem").exists()
    assert rows_of(out) == []


def test_a_secret_that_is_missing(fleet: Fleet) -> None:
    fleet.write(n3="mgmt_addr: 10.0.0.3\nproxy: {https: {env: NO_SUCH_VARIABLE}}\n")
    talk = said(fleet, "build", "--all", code=1)
    assert "proxy.https: $NO_SUCH_VARIABLE is not set\n  nodes: n3" in talk
    assert issued(fleet) == 0


def test_the_answer_for_programs(fleet: Fleet) -> None:
    fleet.write(n3="mgmt_addr: 10.0.9\n")
    said(fleet, "build", "n1")
    done = fleet("build", "n1", "n2", "n3", "--keep-going", "--format", "json", check=False)
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert answer["schema"] == 1
    states = {row["node"]: row["state"] for row in answer["nodes"]}
    assert states == {"n1": "unchanged", "n2": "made", "n3": "refused"}
    row = answer["nodes"][1]
    known = manifest.read(fleet.root / "out").get("n2")
    assert known
    assert (row["sha256"], row["bytes"], row["serial"]) == (known.sha256, known.bytes, known.serial)
    assert answer["nodes"][2]["artifact"] is None


# The folder


def test_one_folder_has_seeds_of_one_kind(fleet: Fleet, out: Path) -> None:
    said(fleet, "build", "n1")
    before = tree(out)
    assert "out holds seeds as iso, not as dir" in said(fleet, "build", "n1", "--as", "dir", code=1)
    placeholder = ("build", "n1", "--as", "iso", "--identity", "placeholder")
    assert "out holds seeds with certificates, not placeholders" in said(
        fleet, *placeholder, code=1
    )
    assert tree(out) == before
    said(fleet, *placeholder, "-d", "snap")
    assert "snap holds seeds with placeholders, not certificates" in said(
        fleet, "build", "n1", "-d", "snap", code=1
    )


def test_a_node_that_is_no_more(fleet: Fleet, out: Path) -> None:
    said(fleet, "build", "--all")
    (fleet.root / "nodes/n3.yaml").unlink()
    assert "n3 is no node any more: rm -r out/n3.iso" in said(fleet, "build", "--all")
    for part in (["--all"], ["--shard", "1/1"]):
        assert "n3" not in said(fleet, "build", *part, "--group", "left")
    assert "n3" in manifest.read(out).nodes()
    shutil.copytree(out, fleet.root / "an out")
    assert "rm -r 'an out/n3.iso'\n" in said(fleet, "build", "--all", "-d", "an out")
    (out / "n3.iso").unlink()
    assert "n3" not in said(fleet, "build", "--all")
    assert "n3" not in manifest.read(out).nodes()
    check_manifest(out, COUNT - 1)


def test_a_folder_that_is_a_symbolic_link(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (fleet.root / "out").symlink_to(tmp_path / "far")
    said(fleet, "build", "--all")
    assert check_whole(fleet, tmp_path / "far") == COUNT


def test_a_folder_that_is_a_link_to_nothing(fleet: Fleet, out: Path) -> None:
    out.symlink_to("nowhere")
    for command in (["build", "--all"], ["diff"]):
        assert "out is a link to nothing, and a folder is" in said(fleet, *command, code=1)
    assert issued(fleet) == 0
    assert not out.exists()


def test_a_seed_that_is_a_symbolic_link_is_replaced_not_followed(fleet: Fleet, out: Path) -> None:
    victim = fleet.root / "victim"
    victim.write_text("mine", "utf-8")
    out.mkdir()
    (out / "n3.iso").symlink_to(victim)
    said(fleet, "build", "n3")
    assert victim.read_text("utf-8") == "mine"
    assert not (out / "n3.iso").is_symlink()
    (fleet.root / "d").mkdir()
    (fleet.root / "d/n3").symlink_to(fleet.root)
    assert "d/n3 is a symbolic link" in said(fleet, "build", "n3", "-d", "d", "--as", "dir", code=1)


def test_something_else_in_the_place_of_a_seed(fleet: Fleet, out: Path) -> None:
    (out / "n3.iso").mkdir(parents=True)
    talk = said(fleet, "build", "--all", code=1)
    assert "out/n3.iso is a folder, and a file is to be written" in talk
    assert issued(fleet) == 0
    assert [path.name for path in out.iterdir()] == ["n3.iso"]


def test_a_folder_in_the_place_of_a_part(fleet: Fleet) -> None:
    said(fleet, "build", "--all", "-d", "d", "--as", "dir")
    (fleet.root / "d/n3/user-data").unlink()
    (fleet.root / "d/n3/user-data").mkdir()
    before = tree(fleet.root)
    talk = said(fleet, "build", "--all", "-d", "d", "--as", "dir", code=1)
    assert "d/n3/user-data is a folder, and a file is to be written" in talk
    assert tree(fleet.root) == before


def test_a_manifest_that_is_damaged(fleet: Fleet, out: Path) -> None:
    said(fleet, "build", "--all")
    with (out / "manifest.jsonl").open("r+b") as file:
        file.seek(3)
        file.write(b"\xff")
    before = tree(out)
    for command in (["build", "--all"], ["diff"]):
        talk = said(fleet, *command, code=1)
        assert "out/manifest.jsonl:1: not a row of a manifest" in talk
    assert tree(out) == before
    (out / "manifest.jsonl").unlink()
    assert f"{COUNT} made" in said(fleet, "build", "--all")


def test_a_folder_that_may_not_be_written() -> None:
    with unprivileged.folder() as place:
        (place / "out").mkdir(mode=0o755)
        with unprivileged.nobody(), pytest.raises(Refused) as caught:
            journal.opened(place / "out", None).__enter__()
        assert "cannot make " in str(caught.value)
        assert str(caught.value).endswith("/out/.manifest.tmp: permission denied")
        assert not any((place / "out").iterdir())


def test_without_a_standard_error(tmp_path: Path) -> None:
    fleet = racks(tmp_path / "ws", 200)  # so many that there would be a bar
    command = f"{sys.executable} -m generator build --all 2>&-"
    environ = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    subprocess.run(["sh", "-c", command], cwd=fleet.root, env=environ, check=True, timeout=100)
    assert check_whole(fleet, fleet.root / "out") == 200


def test_two_builds_at_once_make_each_seed_once(fleet: Fleet, out: Path) -> None:
    command = [sys.executable, "-m", "generator", "build", "--all"]
    environ = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    running = [
        subprocess.Popen(command, cwd=fleet.root, env=environ, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    talk = "".join(process.communicate(timeout=100)[1].decode() for process in running)
    assert [process.returncode for process in running] == [0, 0, 0], talk
    assert issued(fleet) == COUNT
    assert talk.count(f"out: {COUNT} made, 0 unchanged") == 1
    assert talk.count(f"out: 0 made, {COUNT} unchanged") == 2
    check_manifest(out, COUNT)


def test_nothing_of_a_secret_is_in_the_manifest(fleet: Fleet, out: Path) -> None:
    secret = "correct-horse"  # noqa: S105
    fleet.write(
        n3=f"""\
mgmt_addr: 10.0.0.3
proxy: {{https: {{env: PROXY}}, http: {{file: http}}}}
release: {{headers_file: headers, url: "https://h/{{arch}}?token={secret}"}}
cloud_config: {{chpasswd: {{list: "root:{secret}"}}, {secret}: 1}}
"""
    )
    (fleet.root / "headers").write_text(f"X-Token: {secret}\n", "utf-8")
    (fleet.root / "http").write_text(f"http://u:{secret}@proxy:3128\n", "utf-8")
    environ = {"PROXY": f"http://u:{secret}@proxy:3128"}
    done = fleet("build", "n3", "-v", "--format", "json", environ=environ)
    text = (out / "manifest.jsonl").read_text("utf-8")
    for told in (text, done.stdout.decode(), done.stderr.decode()):
        assert secret not in told.replace(f"cloud_config.{secret}", "")
        assert "PRIVATE KEY" not in told
    row = manifest.read(out).get("n3")
    assert row
    marks = {path for path, value in row.spec.items() if isinstance(value, dict)}
    assert marks == {
        *("proxy.http", "proxy.https", "release.urls", "content of release.headers_file"),
        *("cloud_config.chpasswd", f"cloud_config.{secret}"),
    }
    # The same secret of two nodes cannot be told to be the same, nor be tried out.
    fleet.write(n4=(fleet.root / "nodes/n3.yaml").read_text("utf-8").replace("0.3", "0.4"))
    fleet("build", "n4", environ=environ)
    other = manifest.read(out).get("n4")
    assert other
    assert all(row.spec[path] != other.spec[path] for path in marks)
