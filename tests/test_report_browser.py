"""The report's page in Chromium: it asks for nothing, complains of nothing, and can be searched."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import browser
import pytest
from fleet import Fleet
from test_ledger import row
from test_report import CASE, give_ledger

from generator.chain import when

pytestmark = pytest.mark.browser
NODES = 2000
FLEET = {
    "schema": 1,
    "defaults": {
        "server": "https://control.example.net:7443",
        "engines": {"llamacpp": {"bin": "/opt/llama.cpp/llama-server"}},
    },
    "release": {
        "version": "v0.9.1",
        "url": "https://git.example.net/llmgw-linux-{arch}",
        "sha256": {"amd64": "0123456789abcdef" * 4},
    },
    "groups": {
        "a": {"fabrics": [{"name": "ib", "hcas": ["mlx5_0"]}]},
        "b": {"fabrics": [{"name": "ib", "hcas": ["mlx5_0", "mlx5_1"]}]},
        "c": {"fabrics": [{"name": "IB", "hcas": ["mlx5_0"]}]},
    },
}


def write_large(fleet: Fleet, count: int) -> None:
    """Write a fleet whose node n1 is in group b, n2 in c, n3 in a; n7 and each 100th end soon."""
    nodes = {
        f"n{n}": {"mgmt_addr": f"10.0.{n >> 8}.{n & 255}", "groups": ["abc"[n % 3]]}
        for n in range(1, count + 1)
    }
    fleet.write(fleet=json.dumps(FLEET | {"nodes": nodes}))
    now = datetime.now(UTC)
    rows = []
    for n in range(1, count + 1):
        end = now + timedelta(days=9 if n == 7 or n % 100 == 0 else 40 + n % 320)
        start = end - timedelta(days=365)
        dates = {"not_before": when(start), "not_after": when(end), "issued_at": when(start)}
        rows.append(row(n, node=f"n{n}", **dates))
    give_ledger(fleet.pki, *rows)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fleet = Fleet(tmp_path_factory.mktemp("large"))
    write_large(fleet, NODES)
    fleet("report", "-o", "fleet.html")
    return fleet.root / "fleet.html"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    with browser.page(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def page(chromium: browser.Page, large: Path) -> browser.Page:
    """The page of the large fleet, newly opened in a wide window."""
    chromium.requests.clear()
    chromium.logged.clear()
    chromium.call("Emulation.setEmulatedMedia", media="", features=[])
    window(chromium, 1400)
    chromium.open("about:blank")
    chromium.open(large.as_uri())
    return chromium


def window(page: browser.Page, width: int) -> None:
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=900,
        deviceScaleFactor=1,
        mobile=width < 500,
    )


def type_in(page: browser.Page, text: str) -> None:
    """Type into the search box in the place of what is there, as a keyboard does."""
    page.run("document.querySelector('input').focus(); document.querySelector('input').select()")
    page.call("Input.insertText", text=text)


def shown(page: browser.Page, selector: str) -> list[str]:
    """Return the texts of the elements that are not hidden, once none is to be added."""
    busy = "document.querySelector('main').ariaBusy === 'true'"
    page.run(f"(async () => {{ while ({busy}) await new Promise(requestAnimationFrame); }})()")
    script = f"[...document.querySelectorAll({json.dumps(selector)})]"
    found = page.run(f"{script}.filter(e => e.checkVisibility()).map(e => e.textContent)")
    assert isinstance(found, list)
    return found


def box(page: browser.Page, selector: str) -> tuple[float, float, float, float]:
    """Return where an element is in the window: left, right, top, bottom, in pixels."""
    script = f"document.querySelector('{selector}').getBoundingClientRect()"
    left, right, top, bottom = page.run(f"(b => [b.left, b.right, b.top, b.bottom])({script})")
    return left, right, top, bottom


def nodes(page: browser.Page) -> list[str]:
    return shown(page, "#nodes tbody th")


def click(page: browser.Page, section: str, text: str) -> None:
    """Click the first link with this text in a section."""
    links = f"document.querySelectorAll('#{section} a')"
    go(page, f"[...{links}].find(a => a.innerText === {json.dumps(text)}).click()")


def go(page: browser.Page, action: str) -> None:
    """Do what changes the address, and wait until the page has heard of it."""
    heard = "addEventListener('hashchange', () => done(), {once: true})"
    page.run(f"new Promise(done => {{ {heard}; {action} }})")


def test_it_asks_for_nothing_and_complains_of_nothing(page: browser.Page, large: Path) -> None:
    for text in ("n7", "group:a", "zzz", ""):
        type_in(page, text)
    click(page, "groups", "a")
    window(page, 390)
    page.call("Page.printToPDF")
    asked = [url for url in page.requests if not url.startswith("about:")]
    assert (asked, page.logged) == ([large.as_uri()], [])


def test_the_browser_would_let_it_ask_for_nothing(page: browser.Page) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        page.run(
            "document.body.insertAdjacentHTML('beforeend',"
            f" '<img src={url}/image onerror=this.remove()><p style=\"color: red\">')"
        )
        request = f"fetch('{url}/fetched', {{signal: AbortSignal.timeout(2000)}})"
        tried = page.run(f"{request}.then(() => 'done', () => 'refused')")
        assert tried == "refused"
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    told = [entry["entry"]["text"] for entry in page.logged if "entry" in entry]
    for what in (f"{url}/image", f"{url}/fetched", "inline style", "inline event handler"):
        assert [text for text in told if "Content Security Policy" in text and what in text], told


def test_words_find_nodes_that_have_all_of_them(page: browser.Page) -> None:
    everything = nodes(page)
    assert everything == [f"n{n}" for n in range(1, NODES + 1)]
    type_in(page, "n77")
    found = ["n77", *(f"n{n}" for n in range(770, 780))]
    assert nodes(page) == found
    assert shown(page, "output") == [f"11 of {NODES}"]
    type_in(page, "  N77   10.0.3.9 ")
    assert nodes(page) == ["n777"]
    type_in(page, "nowhere")
    assert (nodes(page), shown(page, "section")) == ([], [])
    type_in(page, "")
    assert nodes(page) == everything
    assert len(shown(page, "section")) == 7


def test_a_name_finds_only_what_it_names(page: browser.Page) -> None:
    for text, groups in (
        ("fabric:ib", "ab"),
        ("fabric:IB", "c"),
        ("fabric:ib=mlx5_0", "a"),
        ("hca:mlx5_1 group:b", "b"),
        ("fabric:i", ""),
    ):
        type_in(page, text)
        assert len(nodes(page)) == sum("abc"[n % 3] in groups for n in range(1, NODES + 1)), text
    type_in(page, "node:n7")
    assert nodes(page) == ["n7"]


def test_each_link_shows_as_many_nodes_as_it_says(page: browser.Page) -> None:
    row = "(e.querySelector('.count') ?? e.querySelector('svg + a') ?? e)"
    links = page.run(
        "[...document.querySelectorAll('.shares tbody tr, .states a, li:has(a)')].map(e =>"
        f" [(e.querySelector('a') ?? e).hash, {row}.innerText.match(/[0-9]+$/)[0]])"
    )
    assert len(links) > 15
    for fragment, count in links:
        if page.run("location.hash") != fragment:
            go(page, f"location.hash = {json.dumps(fragment)}")
        assert shown(page, "output") == [f"{count} of {NODES}"], fragment


def test_a_link_can_be_followed_gone_back_from_and_sent_to_somebody(
    page: browser.Page, large: Path
) -> None:
    click(page, "groups", "b")
    assert page.run("document.querySelector('input').value") == "group:b"
    assert [text.strip()[:5] for text in shown(page, "section")] == ["Nodes"]
    type_in(page, "")
    click(page, "groups", "b")
    assert shown(page, "output") == [f"667 of {NODES}"]
    go(page, "history.back()")
    assert len(shown(page, "section")) == 7
    page.open("about:blank")
    page.open(f"{large.as_uri()}#q=certificate%3Asoon")
    assert nodes(page) == ["n7", *(f"n{n}" for n in range(100, NODES + 1, 100))]


@pytest.mark.parametrize("width", [1400, 390, 320])
def test_it_fits_the_window(page: browser.Page, width: int) -> None:
    window(page, width)
    page.run("document.querySelector('#nodes').scrollIntoView()")
    assert page.run("document.documentElement.scrollWidth") <= width
    for place in ("h2", "tbody tr:nth-child(3) th", "tbody tr:nth-child(3) td:last-child"):
        left, right, top, _ = box(page, f"#nodes {place}")
        assert 0 <= left < right <= width
        assert top >= box(page, "form")[3]  # which stays at the top, and must not hide it


def test_it_is_dark_where_that_is_asked_for_but_not_on_paper(page: browser.Page) -> None:
    def colours() -> Any:
        style = "getComputedStyle(document.body)"
        return page.run(f"[{style}.backgroundColor, {style}.color]")

    light = colours()
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.call("Emulation.setEmulatedMedia", features=dark)
    assert colours() != light
    page.call("Emulation.setEmulatedMedia", media="print", features=dark)
    assert colours() == light


def test_what_was_found_is_printed_and_nothing_else(page: browser.Page) -> None:
    page.call("Emulation.setEmulatedMedia", media="print")
    assert shown(page, "nav, form") == []
    page.call("Emulation.setEmulatedMedia", media="")
    type_in(page, "n77")
    page.call("Emulation.setEmulatedMedia", media="print")
    assert len(shown(page, "form")) == 1
    assert len(nodes(page)) == 11


def test_without_javascript_all_is_there_but_the_search(page: browser.Page, large: Path) -> None:
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.open(large.as_uri())
        assert shown(page, "form") == []
        assert len(nodes(page)) == NODES
    finally:
        page.call("Emulation.setScriptExecutionDisabled", value=False)


def test_a_warning_is_found_by_its_node_and_by_its_text(
    chromium: browser.Page, tmp_path: Path
) -> None:
    fleet = Fleet(Path(shutil.copytree(CASE, tmp_path / "ws")))
    fleet("report", "-o", "fleet.html", "--pki", "nowhere")
    chromium.open((fleet.root / "fleet.html").as_uri())
    assert len(shown(chromium, "article")) == 2
    type_in(chromium, "node:wrong")
    assert (len(shown(chromium, "article")), nodes(chromium)) == (2, [])
    type_in(chromium, "<SCRIPT> fabric name")
    assert len(shown(chromium, "article")) == 1
