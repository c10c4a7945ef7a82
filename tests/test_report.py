"""`gen-seed report`: what the page is made from, the page itself, and the command.

How it behaves in a browser is tried in test_report_browser.py.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet, gen_seed
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ledger import row

from generator import ledger, page, report, standing
from generator.chain import when
from generator.problem import Mark, Problem
from generator.resolve import Outcome, examine
from generator.spec import Fabric, Release, Spec
from generator.workspace import open_workspace

HERE = Path(__file__).parent
CASE = HERE / "report"
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
RECORD = os.environ.get("GEN_SEED_RECORD")
RELEASE = Release("v1", ("https://h.example/{arch}",), {"amd64": "ab" * 32})


def spec(node_id: str, **other: Any) -> Spec:
    values = {"server": "https://c.example", "mgmt_addr": "10.0.0.7", "release": RELEASE, **other}
    return Spec(node_id=node_id, **values)


def made(
    *specs: Spec,
    ids: tuple[str, ...] = (),
    problems: tuple[Problem, ...] = (),
    rows: tuple[ledger.Row, ...] | None = (),
    end: datetime | None = None,
) -> report.Report:
    outcome = Outcome({one.node_id: one for one in specs}, problems)
    issued = None if rows is None else standing.standings(rows, NOW)
    return report.make((*outcome.specs, *ids), outcome, issued, end, NOW)


def issued(number: int, node: str, ends: int, *, days: int = 365, **other: str) -> ledger.Row:
    """Return the row of a certificate of `days` that ends in `ends` days."""
    end = NOW + timedelta(days=ends)
    start = end - timedelta(days=days)
    dates = {"not_before": when(start), "not_after": when(end), "issued_at": when(start)}
    return row(number, node=node, **dates | other)


# ---- what the page is made from ----


def test_nodes_stand_in_the_order_that_a_person_counts_in() -> None:
    found = made(*map(spec, ("n10", "n9", "a", "n1-10", "n1-9")), ids=("n2",))
    assert [node.node_id for node in found.nodes] == ["a", "n1-9", "n1-10", "n9", "n10"]
    assert found.wrong == ("n2",)


def test_each_state_of_a_nodes_certificate() -> None:
    rows = (
        issued(1, "n1", 200),
        issued(2, "n2", 29),
        issued(3, "n3", -1),
        issued(4, "n4", 200, revoked_at=when(NOW)),
        issued(6, "n6", 29, days=60),  # short-lived: its last third is its last 20 days
        issued(7, "n7", 19, days=60),
    )
    found = made(*(spec(f"n{n}") for n in range(1, 8)), rows=rows)
    states = [(node.certificate and node.certificate.state) for node in found.nodes]
    assert states == ["good", "soon", "expired", "revoked", "none", "good", "soon"]
    assert found.states == {"good": 2, "soon": 2, "expired": 1, "revoked": 1, "none": 1}
    first = found.nodes[0].certificate
    assert first == report.Certificate("good", when(NOW + timedelta(days=200)), 200)


def test_the_certificate_that_counts_is_the_good_one_or_else_the_last() -> None:
    rows = (
        issued(1, "n1", 100),
        issued(2, "n1", 200),
        issued(3, "n1", 300, revoked_at=when(NOW)),
        issued(4, "n2", -100),
        issued(5, "n2", 50, revoked_at=when(NOW)),
    )
    one, two = made(spec("n1"), spec("n2"), rows=rows).nodes
    assert one.certificate == report.Certificate("good", when(NOW + timedelta(days=200)), 200)
    assert two.certificate == report.Certificate("revoked", when(NOW + timedelta(days=50)), 50)


def test_what_still_works_beside_them_is_counted_and_named() -> None:
    rows = (
        issued(1, "n1", 100),
        issued(2, "n1", 200),
        issued(3, "gone", 100),
        issued(4, "over", -1),
        issued(5, "wrong", 100),
    )
    found = made(spec("n1"), ids=("wrong",), rows=rows)
    assert (found.superseded, found.strangers) == (1, ("gone",))


def test_the_time_line_has_now_and_the_authoritys_end_and_says_what_it_leaves_out() -> None:
    ends = enumerate((10, 12, -95, 15, 300), 1)
    rows = (
        *(issued(n, f"n{n}", days) for n, days in ends),
        issued(6, "n6", 5, revoked_at=when(NOW)),
    )
    specs = [spec(f"n{n}") for n in range(1, 8)]
    found = made(*specs, rows=rows, end=datetime(2036, 1, 2, tzinfo=UTC))
    assert found.months == (
        report.Month("2026-08", 0, {"expired": ("n3",)}, now=False, authority=False),
        report.Month("2026-11", 2, {}, now=True, authority=False),
        report.Month("2026-12", 0, {"soon": ("n1", "n2", "n4")}, now=False, authority=False),
        report.Month("2027-09", 8, {"good": ("n5",)}, now=False, authority=False),
        report.Month("2036-01", 99, {}, now=False, authority=True),
    )
    assert found.months[2].count == 3


def test_without_a_ledger_nothing_is_said_of_certificates() -> None:
    found = made(spec("n1"), rows=None, end=NOW)
    assert (found.nodes[0].certificate, found.states, found.months) == (None, {}, ())


def test_fabrics_are_told_by_the_hcas_that_nodes_hang_on() -> None:
    both, one = Fabric("ib-a", ("mlx5_0", "mlx5_1")), Fabric("ib-a", ("mlx5_0",))
    other = Fabric("ib-b", ("mlx5_1",))
    found = made(
        spec("n1", fabrics=(both,)),
        spec("n2", fabrics=(one, other)),
        spec("n3", fabrics=(both,)),
        spec("n4"),
    )
    assert [(share.name, share.detail, share.nodes) for share in found.fabrics] == [
        ("ib-a", ("mlx5_0",), ("n2",)),
        ("ib-a", ("mlx5_0", "mlx5_1"), ("n1", "n3")),
        ("ib-b", ("mlx5_1",), ("n2",)),
    ]


def test_a_release_is_its_version_its_digests_and_its_hosts() -> None:
    url = "https://git.example/a?token=secret"
    releases = {
        "n1": replace(RELEASE, urls=(url, "https://mirror.example/{version}")),
        "n2": replace(RELEASE, sha256={"amd64": "cd" * 32}),
        "n3": replace(RELEASE, fetch="never"),
        "n4": RELEASE,
        "n5": replace(RELEASE, version="v0.10", sha256={"arm64": "ef" * 32, "amd64": "01" * 32}),
    }
    found = made(*(spec(node_id, release=one) for node_id, one in releases.items()))
    assert [(share.name, " ".join(share.detail), share.nodes) for share in found.releases] == [
        ("v0.10", "amd64 010101010101… arm64 efefefefefef… from h.example", ("n5",)),
        ("v1", "amd64 abababababab… from git.example, mirror.example", ("n1",)),
        ("v1", "amd64 abababababab… from h.example", ("n4",)),
        ("v1", "amd64 abababababab… in the image", ("n3",)),
        ("v1", "amd64 cdcdcdcdcdcd… from h.example", ("n2",)),
    ]


def test_a_word_finds_exactly_the_nodes_of_its_share() -> None:
    found = report_of_the_case()
    shares = (*found.servers, *found.groups, *found.fabrics, *found.releases)
    assert len(shares) == 1 + 2 + 2 + 3
    for share in shares:
        having = tuple(node.node_id for node in found.nodes if share.word in node.words)
        assert having == share.nodes


def test_a_problem_concerns_the_node_whose_file_it_is_in() -> None:
    problems = (
        Problem("a", where=Mark("ws/nodes/n7.yaml", 1, 1, 2)),
        Problem("b", where=Mark("ws/fleet.yaml", 1, 1, 2), nodes=("n1", "n2")),
        Problem("c", where=Mark("fleet.yaml", 1, 1, 2)),
        Problem("d"),
    )
    found = made(problems=problems)
    assert [nodes for _, nodes in found.problems] == [("n7",), ("n1", "n2"), (), ()]


# ---- the page ----


class Skeleton(HTMLParser):
    """All of a page that is markup: elements and attributes, and the text of its script."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.values: dict[str, list[str]] = {}
        self.inside: dict[str, list[str]] = {"style": [], "script": []}
        self._last = ""
        self.feed(data.decode())
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._last = tag
        self.tags.append((tag, tuple(name for name, _ in attributes)))
        for name, value in attributes:
            self.values.setdefault(name, []).append(value or "")

    def handle_endtag(self, _: str) -> None:
        self._last = ""

    def handle_data(self, data: str) -> None:
        if self._last in self.inside:
            self.inside[self._last].append(data)


def report_of_the_case() -> report.Report:
    place = open_workspace(CASE)
    rows = [issued(n, f"n{n}", ends) for n, ends in enumerate((-3, 3, 5, 45, 200, 201, 202), 1)]
    rows += [issued(20, "n4", 40), issued(21, "gone", 9)]
    rows += [issued(22, "n8", 100, revoked_at=when(NOW))]
    end = datetime(2036, 11, 27, tzinfo=UTC)
    return report.make(place.node_ids, examine(place), standing.standings(rows, NOW), end, NOW)


def test_the_page_is_as_recorded() -> None:
    rendered = page.render(report_of_the_case()).decode().replace(f"{CASE}/", "")
    golden = CASE / "fleet.html"
    if RECORD:
        golden.write_text(rendered, "utf-8")
        pytest.fail("recorded: look at it, then run the test again")
    assert rendered == golden.read_text("utf-8")


def test_the_page_loads_nothing_and_tells_the_browser_so() -> None:
    found = Skeleton(page.render(report_of_the_case()))
    names = set(found.values)
    assert names.isdisjoint({"src", "srcset", "action", "style", "background", "data", "poster"})
    assert not [name for name in names if name.startswith("on")]
    assert {value for value in found.values["href"] if not value.startswith("#")} == {"data:,"}
    (style,), (script,) = found.inside["style"], found.inside["script"]
    assert not re.search(r"url\(|@import|image-set|expression", style)
    assert not re.search(r"fetch|XMLHttp|import|WebSocket|sendBeacon|innerHTML|https?:", script)
    policy = next(value for value in found.values["content"] if "default-src" in value)
    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{digest(style)}'",
        f"script-src 'sha256-{digest(script)}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)//",
    "--><img src=x onerror=alert(1)>",
    "\"' onmouseover=alert(1) x='",
    "</td></tr></table><style>*{display:none}",
    "{{ 7*7 }}{% raw %}",
    "&lt;b&gt; &#60;script&#62;",
    "javascript:alert(1)",
    "\x1b[31m \x00 \u202e",
)


def all_texts(text: str) -> report.Report:
    """Return a report in which everything that is text is this one."""
    release = Release(text, (f"https://h/{text}",), {text: text})
    one = spec(
        "first",
        server=text,
        mgmt_addr=text,
        groups=(text,),
        fabrics=(Fabric(text, (text,)),),
        release=release,
    )
    problem = Problem(text, text, Mark(text, 1, 1, 2, text), text, nodes=(text,) * 9)
    rows = (issued(1, "first", 5), issued(2, text, 9), issued(3, f"{text}2", 9))
    return made(one, replace(one, node_id=text), ids=("wrong",), problems=(problem,), rows=rows)


@pytest.mark.parametrize("text", HOSTILE)
def test_whatever_a_text_is_it_stays_text(text: str) -> None:
    assert same_skeleton(text)


@settings(max_examples=30)
@given(st.text(min_size=1).filter(lambda text: text not in ("first", "wrong")))
def test_any_text_stays_text(text: str) -> None:
    assert same_skeleton(text)


def same_skeleton(text: str) -> bool:
    found, plain = Skeleton(page.render(all_texts(text))), Skeleton(page.render(all_texts("x")))
    return (found.tags, found.inside) == (plain.tags, plain.inside)


# ---- the command ----


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    shutil.copytree(CASE, tmp_path / "ws")
    return Fleet(tmp_path / "ws")


def files_of(root: Path) -> Mapping[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def give_ledger(pki: Path, *rows: ledger.Row) -> None:
    pki.mkdir(exist_ok=True)
    with ledger.opened(pki) as book:
        book.record(rows)


def test_it_writes_a_page_for_all_to_read_and_changes_nothing_else(
    fleet: Fleet, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    later = {"not_after": when(now + timedelta(days=9)), "issued_at": when(now)}
    give_ledger(fleet.pki, row(1, node="n7", not_before=when(now), **later))
    before = files_of(fleet.root)
    done = fleet("report", "-o", str(tmp_path / "fleet.html"))
    assert files_of(fleet.root) == before
    assert done.stdout == b""
    assert done.stderr.decode() == (
        "nodes in the report: 11; left out, because wrong: 1\n"
        "certificates: by the ledger in pki\n"
        "problems that it names: 2; gen-seed validate shows where they are\n"
    )
    text = (tmp_path / "fleet.html").read_text("utf-8")
    assert "<title>Fleet of 11 nodes, " in text
    assert "Left out, because their specs are wrong: <strong>wrong</strong>" in text
    assert ">n7</th><td>10.0.0.7</td>" in text
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "fleet.html").stat().st_mode & 0o777 == 0o644 & ~umask


def test_the_same_moment_gives_the_same_bytes_on_stdout_and_in_a_file(
    fleet: Fleet, tmp_path: Path
) -> None:
    give_ledger(fleet.pki, issued(1, "n1", 9), issued(2, "n2", -9))
    pages = []
    for number, environ in enumerate(
        [{"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo"}, {"PYTHONHASHSEED": "2", "LC_ALL": "C"}]
    ):
        moment = {"SOURCE_DATE_EPOCH": str(int(NOW.timestamp())), **environ}
        file = tmp_path / f"{number}.html"
        fleet("report", "-o", str(file), environ=moment)
        pages += [file.read_bytes(), fleet("report", environ=moment).stdout]
        pages.append(fleet("report", "-o", "-", environ=moment).stdout)
    assert len(set(pages)) == 1
    assert b"on 2026-11-30, 12:00 UTC" in pages[0]
    assert fleet("report", check=False, environ={"SOURCE_DATE_EPOCH": "x"}).returncode == 1


def test_no_authority_is_needed_and_the_page_says_what_it_does_not_know(fleet: Fleet) -> None:
    done = fleet("report", "--pki", "nowhere")
    assert b"certificates: no ledger in nowhere" in done.stderr
    assert b"Without a ledger, what was issued is not known." in done.stdout


def test_a_ledger_that_cannot_be_read_is_a_warning(fleet: Fleet) -> None:
    fleet.pki.mkdir()
    (fleet.pki / "ledger.db").write_bytes(b"no database" * 100)
    done = fleet("report")
    page_ = done.stdout.decode()
    said = done.stderr.decode()
    assert "warning: the ledger pki/ledger.db" in said
    assert "certificates: the ledger in pki cannot be read" in said
    assert "There is no ledger" not in page_
    assert "Without a ledger, what was issued is not known." in page_
    assert re.search(r'<strong class="soon">warning</strong>\s+the ledger pki/ledger.db', page_)


def test_a_ledger_of_an_older_gen_seed_is_read_and_left_as_it_is(fleet: Fleet) -> None:
    from test_standing import FORMAT_1

    fleet.pki.mkdir()
    with sqlite3.connect(fleet.pki / "ledger.db") as connection:
        connection.executescript(FORMAT_1)
    connection.close()
    before = files_of(fleet.pki)
    assert b"none issued: 11" in fleet("report").stdout
    assert files_of(fleet.pki) == before


def test_nothing_that_the_workspace_names_is_run(fleet: Fleet) -> None:
    text = (fleet.root / "fleet.yaml").read_text("utf-8")
    fleet.write(fleet=f"{text}authority: {{dir: trust, command: [sh, -c, 'touch ran']}}\n")
    fleet("report")
    assert not (fleet.root / "ran").exists()


def test_when_no_node_is_right_the_last_page_stays(fleet: Fleet) -> None:
    page_ = fleet.root / "fleet.html"
    page_.write_bytes(b"the last")
    fleet.write(fleet="schema: 1\nfleet: x\n")
    done = fleet("report", "-o", "fleet.html", check=False)
    assert done.returncode == 1
    assert b"error: fleet.yaml:2:1: fleet: " in done.stderr
    assert page_.read_bytes() == b"the last"
    assert sorted(path.name for path in fleet.root.iterdir()) == [
        "fleet.html",
        "fleet.yaml",
        "nodes",
    ]


def test_where_there_are_no_nodes_the_last_page_stays(tmp_path: Path) -> None:
    page_ = tmp_path / "fleet.html"
    page_.write_bytes(b"the last")
    done = gen_seed("report", "--pki", ".", "-o", "fleet.html", cwd=tmp_path, check=False)
    assert (done.returncode, page_.read_bytes()) == (1, b"the last")
    assert b"there are no nodes in ." in done.stderr


def test_a_target_that_cannot_be_is_refused_before_anything_is_read(fleet: Fleet) -> None:
    done = fleet("report", "-o", "no/such/fleet.html", check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"there is no folder no/such" in done.stderr


def test_hostile_names_of_files_and_values_stay_text(tmp_path: Path) -> None:
    root = tmp_path / "<b onclick=alert(1)>\udcff"
    shutil.copytree(CASE, root)
    (root / "nodes/<img src=x onerror=alert(1)>.yml").write_text("x")
    (root / "nodes/<svg onload=alert(1)>.yaml").write_text("x")
    server = "https://h.example/\"'><script>alert(1)</script>"
    content = f"server: {json.dumps(server)}\nmgmt_addr: 10.0.0.99\n"
    (root / "nodes/hard.yaml").write_text(content)
    done = gen_seed("-C", str(root), "report", "--pki", "nowhere", cwd=tmp_path)
    found = Skeleton(done.stdout)
    tags = {tag for tag, _ in found.tags}
    assert tags.isdisjoint({"img", "b"})
    assert [tag for tag, _ in found.tags].count("script") == 1
    assert not [name for name in found.values if name.startswith("on")]
    assert b"&lt;img src=x onerror=alert(1)&gt;.yml" in done.stdout
    assert b"https://h.example/&#34;&#39;&gt;&lt;script&gt;" in done.stdout


def test_no_secret_is_in_the_page_or_said(fleet: Fleet) -> None:
    secrets = {
        "SECRET_URL_TOKEN",
        "SECRET_PROXY_PASSWORD",
        "SECRET_FROM_FILE",
        "SECRET_FROM_ENV",
        "SECRET_HEADER",
        "SECRET_HASH",
        "SECRET_OF_A_WRONG_NODE",
    }
    (fleet.root / "proxy").write_text("http://u:SECRET_FROM_FILE@p.example:3128\n")
    (fleet.root / "headers").write_text("Authorization: SECRET_HEADER\n")
    fleet.write(
        n1x="mgmt_addr: 10.0.1.1\n"
        "proxy: {http: 'http://u:SECRET_PROXY_PASSWORD@p.example:3128', https: {file: proxy}}\n"
        "release: {headers_file: headers, urls: ['https://h/{arch}?key=SECRET_URL_TOKEN']}\n"
        "cloud_config: {users: [{name: a, hashed_passwd: SECRET_HASH}]}\n",
        n2x="mgmt_addr: 10.0.1.2\nproxy: {https: {env: SECRET_PROXY}}\n",
        n3x="mgmt_addr: 10.0.1\ncloud_config: {password: SECRET_OF_A_WRONG_NODE}\n",
    )
    fleet("ca", "init", "--pki", "pki")
    done = fleet("report", environ={"SECRET_PROXY": "http://u:SECRET_FROM_ENV@p.example"})
    text = (done.stdout + done.stderr).decode()
    assert ">n1x<" in text
    assert ">n2x<" in text
    assert [word for word in secrets if word in text] == []
    assert "PRIVATE KEY" not in text
