"""The ISO as other programs read it: isoinfo, xorriso, blkid and pycdlib."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from generator import identity, pack
from generator.problem import Refused

if TYPE_CHECKING:
    from pathlib import Path

WHEN = datetime(2026, 9, 1, 12, 0, 30, tzinfo=UTC)
ARTIFACTS = {
    # Longer in bytes than in characters: pycdlib takes a length, and its own example the wrong one.
    "user-data": "#cloud-config\nnote: Zürich, 東京 🙂\n".encode(),
    "meta-data": b"instance-id: n7-1\nlocal-hostname: n7\n",
    "network-config": b"version: 2\n",
}


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(autouse=True)
def nothing_laid_out() -> None:
    pack.layout.cache_clear()


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "n7.iso"
    path.write_bytes(pack.iso(ARTIFACTS, WHEN))
    return path


@needs("isoinfo")
@pytest.mark.parametrize("names", ["-R", "-J"])
def test_i1_i2_names_and_every_byte(image: Path, names: str) -> None:
    listed = output("isoinfo", names, "-f", "-i", str(image)).split()
    assert sorted(listed) == ["/meta-data", "/network-config", "/user-data"]
    for name, data in ARTIFACTS.items():
        read = ["isoinfo", names, "-i", str(image), "-x", f"/{name}"]
        assert subprocess.run(read, check=True, capture_output=True).stdout == data


@needs("isoinfo")
def test_x2_files_are_closed_to_all_but_their_owner(image: Path) -> None:
    listed = output("isoinfo", "-R", "-l", "-i", str(image))
    modes = re.findall(r"^(\S+)\s+1\s+0\s+0\s.*\] +(\S+) *$", listed, re.MULTILINE)
    assert sorted(modes) == [("-r--------", name) for name in sorted(ARTIFACTS)]


@needs("xorriso")
def test_xorriso_reads_names_sizes_and_bytes(image: Path, tmp_path: Path) -> None:
    target = tmp_path / "read"
    output("xorriso", "-osirrox", "on", "-indev", str(image), "-extract", "/", str(target))
    assert {path.name: path.read_bytes() for path in target.iterdir()} == ARTIFACTS
    assert {path.stat().st_mode & 0o777 for path in target.iterdir()} == {0o400}


@needs("blkid")
def test_i3_the_label_is_exactly_cidata(image: Path) -> None:
    found = output("blkid", "-p", "-o", "export", str(image)).split("\n")
    assert "LABEL=cidata" in found
    assert "TYPE=iso9660" in found


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/St_Johns"])
def test_i5_same_bytes_at_any_time_in_any_zone(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = pack.iso(ARTIFACTS, WHEN)
    monkeypatch.setenv("TZ", zone)
    monkeypatch.setattr(time, "time", lambda: 2e9)
    pack.layout.cache_clear()
    time.tzset()
    try:
        assert pack.iso(ARTIFACTS, WHEN) == first
    finally:
        monkeypatch.undo()
        time.tzset()


def test_i5_the_date_is_the_one_that_was_given() -> None:
    assert b"2026090112003000" in pack.iso(ARTIFACTS, WHEN)
    assert pack.iso(ARTIFACTS, WHEN.replace(year=2027)) != pack.iso(ARTIFACTS, WHEN)


@needs("xorriso")
@pytest.mark.parametrize("size", [0, 1, 2047, 2048, 2049, 70_000])
def test_a_seed_as_long_as_another_is_laid_out_as_that_was(size: int, tmp_path: Path) -> None:
    first, second = ({**ARTIFACTS, "user-data": sign * size} for sign in (b"a", b"b"))
    alone = pack.iso(second, WHEN)
    pack.layout.cache_clear()
    assert pack.iso(first, WHEN) != alone or not size
    assert pack.iso(second, WHEN) == alone
    assert pack.layout.cache_info().hits == 1
    image, target = tmp_path / "n8.iso", tmp_path / "read"
    image.write_bytes(alone)
    output("xorriso", "-osirrox", "on", "-indev", str(image), "-extract", "/", str(target))
    assert {path.name: path.read_bytes() for path in target.iterdir()} == second


def test_the_clock_of_pycdlib_is_given_back() -> None:
    from pycdlib import dates

    pack.iso(ARTIFACTS, WHEN)
    assert vars(dates)["time"] is time


def test_the_date_comes_from_the_identity_or_the_epoch() -> None:
    stand_in = identity.placeholder("n7")
    assert pack.date(stand_in, None) == stand_in.not_before
    assert pack.date(stand_in, "1000000000") == datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)


@pytest.mark.parametrize("epoch", ["", "today", "-1", "1e9", "99999999999", "9" * 30, "0x10"])
def test_an_epoch_that_is_none_is_refused(epoch: str) -> None:
    with pytest.raises(Refused, match="SOURCE_DATE_EPOCH"):
        pack.date(identity.placeholder("n7"), epoch)
