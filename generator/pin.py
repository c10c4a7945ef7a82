"""The digests of a release, from its checksum file or else from its binaries themselves."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit, urlunsplit

from generator import checksums, fetch, files
from generator.fetch import Failed
from generator.problem import Problem, Refused, refuse
from generator.spec import Release

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from generator.checksums import Checksums
    from generator.fetch import Access, Fetched

# What makers of releases call their checksum files, beside {name}, the binary's.
_BESIDE = (
    *("SHA256SUMS", "SHA256SUMS.txt", "sha256sum.txt", "sha256sums.txt", "checksums.txt"),
    "{stem}_{number}_checksums.txt",  # goreleaser
)
_EACH = ("{name}.sha256", "{name}.sha256sum")
# Buckets answer 403 for what is not there.
_ABSENT = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE, HTTPStatus.FORBIDDEN)


@dataclass(frozen=True)
class Wanted:
    """A release that is to be looked for.

    `places` are URLs, or paths, of its binaries, with {version} and {arch}; `sums` is the URL or
    path of a checksum file, empty for one beside the binaries. Each of `architectures` must be
    there, or, with `some`, one of them.
    """

    version: str
    places: tuple[str, ...]
    architectures: tuple[str, ...]
    some: bool = False
    sums: str = ""

    def fill(self, text: str, arch: str) -> str:
        """Return a URL or path with version and architecture filled in."""
        return Release(self.version, (), {}).fill(text, arch)


@dataclass(frozen=True)
class Digest:
    """A binary's digest: `source` says where it is from; `first_use`, from the binary itself."""

    arch: str
    place: str
    sha256: str
    source: str
    first_use: bool


def is_url(place: str) -> bool:
    """Tell a URL from a path."""
    return "://" in place


def find(wanted: Wanted, access: Access, say: Callable[[str], None]) -> tuple[Digest, ...]:
    """Return the digests of a release, from the first of its places that answers.

    What is fetched, and where redirects led, is said. Raises `Refused`.
    """
    failed: list[Problem] = []
    for place in wanted.places:
        try:
            one = replace(wanted, places=(place,))
            return tuple(stated(one, access, say) or _first_use(one, access, say))
        except Failed as failure:
            failed += failure.problems
    raise Refused(dict.fromkeys(failed))  # a checksum file's failure once, not for each place


def stated(wanted: Wanted, access: Access, say: Callable[[str], None]) -> Sequence[Digest]:
    """Return what a checksum file says of the binaries at the one place; nothing where none is.

    It is the file that was asked for, or else one beside the binaries. Raises `Refused` for
    what it lacks.
    """
    if not wanted.sums:
        return tuple(_listed(wanted, _beside(wanted, access, say)))
    arch = wanted.architectures[0]
    sums = _read(wanted.fill(wanted.sums, arch), access, say)
    return tuple(_listed(wanted, dict.fromkeys(wanted.architectures, sums)))


def _beside(wanted: Wanted, access: Access, say: Callable[[str], None]) -> Mapping[str, Checksums]:
    """Return the checksum file beside the binaries, by architecture; nothing where none is."""
    (place,) = wanted.places
    binaries = {arch: wanted.fill(place, arch) for arch in wanted.architectures}
    read = cache(lambda name: _at(name, access, say))
    for patterns in (*zip(_BESIDE, strict=True), _EACH):
        each: dict[str, Checksums] = {}
        for arch, file in binaries.items():  # each architecture may have a folder of its own
            found = (read(_sibling(file, pattern, wanted)) for pattern in patterns)
            if first := next(filter(None, found), None):
                each[arch] = first
        if not each:
            continue
        if not wanted.some and (lacking := binaries.keys() - each.keys()):
            arch = min(lacking)
            name = _sibling(binaries[arch], patterns[0], wanted)
            raise _lacks(wanted, arch, f"there is no {_told(name)}")
        return each
    return {}


def _sibling(place: str, pattern: str, wanted: Wanted) -> str:
    """Return the URL, or path, of a checksum file beside a binary; what follows a '?' is kept."""
    parts = urlsplit(place) if is_url(place) else SplitResult("", "", place, "", "")
    folder, slash, name = parts.path.rpartition("/")
    stem = name.replace("_", "-").partition("-")[0]
    file = pattern.format(name=name, stem=stem, number=wanted.version.removeprefix("v"))
    path = f"{folder}{slash}{file}"
    return urlunsplit(parts._replace(path=path)) if is_url(place) else path


def _at(place: str, access: Access, say: Callable[[str], None]) -> Checksums | None:
    if not is_url(place) and not os.path.lexists(place):
        return None
    try:
        return _read(place, access, say)
    except Failed as failure:
        if failure.status in _ABSENT:
            return None
        raise


def _read(place: str, access: Access, say: Callable[[str], None]) -> Checksums:
    if not is_url(place):
        return checksums.parse(files.read(Path(place)), place)
    data, found = fetch.text(place, access)
    say(_came(place, found))
    return checksums.parse(data, fetch.shown(place))


def _came(url: str, found: Fetched) -> str:
    host = urlsplit(fetch.shown(url)).netloc
    elsewhere = f", which sent on to {found.place}" if urlsplit(found.place).netloc != host else ""
    return f"fetched {fetch.shown(url)}{elsewhere}"


def _listed(wanted: Wanted, sums: Mapping[str, Checksums]) -> Iterator[Digest]:
    """Yield what checksum files say of the binaries; raise `Refused` for what they lack."""
    (place,) = wanted.places
    refusals: list[Problem] = []
    found = 0
    for arch, file_sums in sums.items():
        file = wanted.fill(place, arch)
        try:
            digest = file_sums.digest(file)
        except Refused as refused:
            refusals += _lacks(wanted, arch, "", refused.problems[0]).problems
            continue
        found += 1
        yield Digest(arch, _told(file), digest, file_sums.source, first_use=False)
    if refusals and not (wanted.some and found):
        raise Refused(refusals)


def _lacks(wanted: Wanted, arch: str, reason: str, problem: Problem | None = None) -> Refused:
    reason = problem.message if problem else reason
    hint = f"{problem.hint}; " if problem and problem.hint else ""
    return refuse(
        f"{wanted.version} has no {arch}: {reason}",
        f"{hint}a release without {arch}: take {arch} out of release.sha256 in fleet.yaml",
    )


def _first_use(wanted: Wanted, access: Access, say: Callable[[str], None]) -> Iterator[Digest]:
    (place,) = wanted.places
    found, absent = 0, None
    for arch in wanted.architectures:
        try:
            digest = fetched(arch, wanted.fill(place, arch), access, say)
        except Failed as failure:
            if not (wanted.some and failure.status == HTTPStatus.NOT_FOUND):
                raise
            absent = failure
            continue
        found += 1
        yield digest
    if absent and not found:
        raise absent


def fetched(arch: str, place: str, access: Access, say: Callable[[str], None]) -> Digest:
    """Return the digest of a binary at a URL or path, by itself. Raises `Refused`."""
    start = bytearray()
    if is_url(place):

        def take(piece: bytes) -> None:
            if not start:
                start.extend(piece[:64])

        found = fetch.fetch(place, access, take)
        say(_came(place, found))
        digest = found.sha256
    else:
        data = files.read(Path(place), limit=fetch.BINARY)
        start.extend(data[:64])
        digest = hashlib.sha256(data).hexdigest()
    if not start.strip() or start.lstrip().startswith(b"<"):
        what = "a web page" if start.strip() else "empty"
        hint = "a server that wants a login answers so: --header-file FILE"
        raise refuse(f"{_told(place)} is {what}, and no binary", hint)
    return Digest(arch, _told(place), digest, _told(place), first_use=True)


def _told(place: str) -> str:
    """Return a URL or path as it may be told."""
    return fetch.shown(place) if is_url(place) else place
