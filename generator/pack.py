"""A seed becomes what is handed over: one of its texts, a folder, or a NoCloud ISO."""

from __future__ import annotations

import io
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from generator.problem import refuse

if TYPE_CHECKING:
    from generator.identity import Identity
    from generator.render import Seed

Packed = bytes | Mapping[str, bytes | None]
"""The bytes of one file, or the files of a folder by name (None: must not be there)."""

_LABEL = "cidata"  # in lower case: cloud-init before 19.1 knows no other
# Rock Ridge modes need the file type's bits: with 0400 alone, Linux answers EIO.
_FILE_MODE = 0o100400
_SECTOR = 2048  # bytes


def pack(
    seed: Seed, form: str, when: datetime, carried: Mapping[str, bytes] | None = None
) -> Packed:
    """Return the seed in the form that --as names; `when` dates what has dates inside.

    `carried` are files that an ISO or a folder takes along.

    Raises `Refused` where the seed has no such artifact.
    """
    artifacts = {**seed.artifacts(), **(carried or {})}
    if form == "iso":
        return iso(artifacts, when)
    if form == "dir":
        return {"network-config": None, **artifacts}
    if form not in artifacts:
        raise refuse(
            f"{seed.node_id} has no {form}: its spec has no network",
            "without one, cloud-init asks DHCP on the first interface",
        )
    return artifacts[form]


def iso(artifacts: Mapping[str, bytes], when: datetime) -> bytes:
    """Return an ISO 9660 image with Rock Ridge and Joliet names, labelled ``cidata``.

    The same artifacts and the same `when` give the same bytes in every time zone.
    """
    head, starts, size = layout(tuple((name, len(data)) for name, data in artifacts.items()), when)
    parts, at = [head], len(head)
    for start, data in zip(starts, artifacts.values(), strict=True):
        if data:
            parts += [bytes(start - at), data]
            at = start + len(data)
    return b"".join([*parts, bytes(size - at)])


@lru_cache(maxsize=128)
def layout(sizes: tuple[tuple[str, int], ...], when: datetime) -> tuple[bytes, list[int], int]:
    """Return what is before the files (name, bytes) of an image, where each begins, and its size.

    Most seeds of a fleet are as long as some other, and to lay out an image takes longer than to
    make all that is in it.
    """
    import pycdlib

    image = pycdlib.PyCdlib()
    packed = io.BytesIO()
    with _fixed_clock(when):
        image.new(
            interchange_level=1, sys_ident="LINUX", vol_ident=_LABEL, joliet=3, rock_ridge="1.09"
        )
        for number, (name, size) in enumerate(sizes):
            image.add_fp(
                io.BytesIO(bytes(size)),
                size,
                # Readers use the other two names; this one only has to be short and unique.
                iso_path=f"/FILE{number}.;1",
                rr_name=name,
                joliet_path=f"/{name}",
                file_mode=_FILE_MODE,
            )
        # In memory, because pycdlib seeks in what it writes to; a pipe cannot.
        image.write_fp(packed)
        records = [image.get_record(joliet_path=f"/{name}") for name, _ in sizes]
        starts = [record.extent_location() * _SECTOR for record in records]
    image.close()
    whole = packed.getvalue()
    filled = [start for start, (_, size) in zip(starts, sizes, strict=True) if size]
    return whole[: min(filled, default=len(whole))], starts, len(whole)


def date(identity: Identity, epoch: str | None) -> datetime:
    """Return what dates a seed: `epoch` (SOURCE_DATE_EPOCH, in s), else its identity's start.

    Never the clock, so that the same spec and identity give the same bytes at any time.
    """
    return identity.not_before if epoch is None else moment(epoch)


def moment(epoch: str) -> datetime:
    """Return what SOURCE_DATE_EPOCH says. Raises `Refused` where that is no date."""
    try:
        # int() takes more than digits: spaces, underscores, other alphabets' numbers.
        number = int(epoch) if re.fullmatch("[0-9]{1,12}", epoch) else -1
        when = datetime.fromtimestamp(number, UTC)
    except (ValueError, OverflowError, OSError):
        when = None
    # ISO 9660 counts years in a byte from 1900 (ECMA-119, 9.1.5), Unix seconds from 1970.
    if when is None or not 1970 <= when.year <= 2155:  # noqa: PLR2004 - said above
        raise refuse(f"SOURCE_DATE_EPOCH is {epoch!r}", "set it to seconds since 1970, or unset it")
    return when


_clock_lock = threading.Lock()


@contextmanager
def _fixed_clock(when: datetime) -> Iterator[None]:
    """Give pycdlib another clock: it has no parameter for the dates that it writes."""
    import pycdlib.dates
    import pycdlib.headervd
    import pycdlib.pycdlib

    seconds = when.timestamp()
    fixed = SimpleNamespace(**vars(time))
    fixed.time = lambda: seconds
    fixed.localtime = time.gmtime
    modules: list[Any] = [pycdlib.dates, pycdlib.headervd, pycdlib.pycdlib]
    with _clock_lock:
        for module in modules:
            module.time = fixed
        try:
            yield
        finally:
            for module in modules:
                module.time = time
