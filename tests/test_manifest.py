"""The manifest of an out folder: what is read, and what is refused."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from racks import rows_of

from generator import journal, manifest
from generator.problem import Refused, refuse
from generator.selection import Shard

ROW = manifest.Row(
    node="n7",
    artifact="n7.iso",
    form="iso",
    sha256="ab" * 32,
    bytes=79872,
    instance_id="n7-0123456789ab",
    serial="7f",
    not_before="2026-01-01T00:00:00Z",
    not_after="2027-01-01T00:00:00Z",
    identity="issued",
    spec_sha256="cd" * 32,
    spec={"mgmt_addr": "10.0.0.107"},
    gen_seed="0.1.0",
    templates="ef" * 8,
    authority="01" * 8,
)


def put(path: Path, *rows: manifest.Row, age: int = 0) -> None:
    path.write_bytes(b"".join(manifest.line(row) + b"\n" for row in rows))
    os.utime(path, ns=(10**18 - age, 10**18 - age))


def with_node(node: str, **values: Any) -> manifest.Row:
    return manifest.Row(**{**vars(ROW), "node": node, "artifact": f"{node}.iso", **values})


def refused(folder: Path) -> str:
    with pytest.raises(Refused) as caught:
        manifest.read(folder)
    return str(caught.value)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    put(tmp_path / "manifest.jsonl", ROW)
    found = manifest.read(tmp_path)
    assert rows_of(tmp_path) == [ROW]
    assert found.get("n7") == ROW
    assert found.get("n8") is None


def test_no_manifest_and_no_folder_are_nothing(tmp_path: Path) -> None:
    assert rows_of(tmp_path) == []
    assert rows_of(tmp_path / "none") == []


def test_the_shards_are_read_as_one(tmp_path: Path) -> None:
    put(tmp_path / manifest.name(Shard(1, 2)), with_node("n9"), with_node("n10"))
    put(tmp_path / manifest.name(Shard(2, 2)), with_node("n7"))
    put(tmp_path / "manifest-old.jsonl", with_node("n1"))  # nobody's
    assert [row.node for row in rows_of(tmp_path)] == ["n10", "n7", "n9"]


def test_a_build_that_joins_them_while_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = [tmp_path / manifest.name(Shard(n, 2)) for n in (1, 2)]
    for path in shards:
        put(path, ROW)
    read_all = manifest.read_all

    def join(found: list[Path]) -> manifest.Manifest:
        put(tmp_path / "manifest.jsonl", ROW)
        for path in shards:
            path.unlink(missing_ok=True)
        return read_all(found)

    monkeypatch.setattr(manifest, "read_all", join)
    assert rows_of(tmp_path) == [ROW]


def test_the_last_row_of_the_newest_manifest_counts(tmp_path: Path) -> None:
    put(tmp_path / "manifest.jsonl", with_node("n7", serial="1"), age=10**9)
    put(
        tmp_path / "manifest-1-of-2.jsonl", with_node("n7", serial="2"), with_node("n7", serial="3")
    )
    put(tmp_path / "manifest-1-of-8.jsonl", with_node("n7", serial="4"), age=5)
    assert [row.serial for row in rows_of(tmp_path)] == ["3"]


def test_a_line_that_a_kill_cut_short_is_passed_over(tmp_path: Path) -> None:
    whole = manifest.line(ROW) + b"\n"
    for length in range(len(whole)):
        (tmp_path / "manifest.jsonl").write_bytes(whole + whole[:length])
        assert rows_of(tmp_path) == [ROW]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b'{"schema": 1, "node": "n7"}',
        json.dumps({**json.loads(manifest.line(ROW)), "bytes": "many"}).encode(),
        json.dumps({**json.loads(manifest.line(ROW)), "artifact": "n7.iso/../../x"}).encode(),
        json.dumps({**json.loads(manifest.line(ROW)), "artifact": "n7.iso; reboot"}).encode(),
        json.dumps({**json.loads(manifest.line(ROW)), "node": "../n7"}).encode(),
        json.dumps({**json.loads(manifest.line(ROW)), "form": "../etc"}).encode(),
        json.dumps({**json.loads(manifest.line(ROW)), "not_after": "soon"}).encode(),
        json.dumps(
            {**json.loads(manifest.line(ROW)), "not_after": "2027-13-01T00:00:00Z"}
        ).encode(),
        json.dumps({**json.loads(manifest.line(ROW)), "not_before": "2027-01-01"}).encode(),
        b"[" * 100_000,
    ],
)
def test_what_is_no_row_is_refused(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "manifest.jsonl"
    path.write_bytes(manifest.line(ROW) + b"\n" + line + b"\n")
    assert refused(tmp_path) == f"{path}:2: not a row of a manifest"


def test_a_newer_form_is_refused_and_a_field_more_is_not(tmp_path: Path) -> None:
    values = json.loads(manifest.line(ROW))
    path = tmp_path / "manifest.jsonl"
    path.write_text(json.dumps({**values, "colour": "red"}) + "\n", "utf-8")
    assert rows_of(tmp_path) == [ROW]
    path.write_text(json.dumps({**values, "schema": 2}) + "\n", "utf-8")
    assert "a manifest of form 2; this gen-seed knows 1" in refused(tmp_path)


def test_rows_of_what_fails_are_taken_away_again(tmp_path: Path) -> None:
    with journal.opened(tmp_path, None) as book:
        with book.adding([ROW]):
            pass
        before = (tmp_path / "manifest.jsonl").read_bytes()
        with suppress(Refused), book.adding([with_node("n8"), with_node("n9")]):
            assert manifest.read(tmp_path).nodes() == ["n7", "n8", "n9"]
            raise refuse("the ledger does not take it")
        assert (tmp_path / "manifest.jsonl").read_bytes() == before


def test_rows_are_added_behind_the_last_whole_one(tmp_path: Path) -> None:
    put(tmp_path / "manifest.jsonl", ROW)
    with (tmp_path / "manifest.jsonl").open("ab") as file:
        file.write(b'{"schema":1,"node":"n8')
    with journal.opened(tmp_path, None) as book:
        with book.adding([with_node("n3")]):
            pass
        assert manifest.read(tmp_path).nodes() == ["n3", "n7"]
        book.finish(set())
    put(tmp_path / "wanted", with_node("n3"), ROW)
    assert (tmp_path / "manifest.jsonl").read_bytes() == (tmp_path / "wanted").read_bytes()
