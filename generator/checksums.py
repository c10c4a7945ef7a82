"""Checksum files in their usual forms: SHA256SUMS, NAME.sha256, and the BSD and OpenSSL ways."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from generator.problem import refuse, some

_GNU = re.compile(r"([0-9A-Fa-f]{32,})(?:[ \t]+\*?(\S.*))?")
_BSD = re.compile(r"(SHA[0-9-]+|MD5) ?\((.+)\) ?= ?([0-9A-Fa-f]{32,})")
_SHA256 = ("SHA256", "SHA2-256")
_DIGITS = 64


@dataclass(frozen=True)
class Checksums:
    """What a checksum file says: pairs of a path, as it is written there, and a digest.

    `source` is what the file is called in a message. A file with a digest and no name, as some
    NAME.sha256 are, has an empty path.
    """

    source: str
    entries: tuple[tuple[str, str], ...]

    def digest(self, url: str) -> str:
        """Return the digest of the file at a URL, or path; raise `Refused` where there is none.

        Its name counts, and, where several have that name, the folders before it.
        """
        path = unquote(urlsplit(url).path) if "://" in url else url
        name = PurePosixPath(path).name
        if [entry for entry, _ in self.entries] in ([""], ["-"]):
            return self.entries[0][1]
        named = [(entry, d) for entry, d in self.entries if PurePosixPath(entry).name == name]
        if len({digest for _, digest in named}) > 1:
            named = [(entry, d) for entry, d in named if f"/{path}".endswith(f"/{entry}")]
        found = {digest for _, digest in named}
        if len(found) > 1:
            raise refuse(f"{self.source} has several digests for {name}", "it names no one file")
        if not found:
            listed = some([entry for entry, _ in self.entries if entry]) or "no names"
            raise refuse(f"{self.source} has no digest for {name}", f"it has: {listed}")
        return found.pop()


def parse(data: bytes, source: str) -> Checksums:
    """Return what a checksum file says; raise `Refused` for what is none.

    >>> parse(b"SHA256 (dist/llmgw) = " + b"AB" * 32, "SHA256SUMS").digest("https://h/llmgw")[:4]
    'abab'
    """
    text = data.decode("utf-8-sig", "replace")
    if text.lstrip()[:1] == "<":
        hint = "a server that wants a login answers so: --header-file FILE, or --checksums FILE"
        raise refuse(f"{source} is a web page, and no checksum file", hint)
    digests = [found for line in text.splitlines() if (found := _line(line.strip()))]
    entries = tuple((name, digest.lower()) for name, digest in digests if len(digest) == _DIGITS)
    if not entries:
        other = f"; its digests have {len(digests[0][1])} digits" if digests else ""
        raise refuse(
            f"{source} has no SHA-256 digest{other}",
            "sha256sum prints such a file: 64 hexadecimal digits, and a name",
        )
    return Checksums(source, entries)


def _line(line: str) -> tuple[str, str] | None:
    """Return name and digest of a line, of whatever kind the digest is; else None."""
    if found := _BSD.fullmatch(line):
        kind, name, digest = found.groups()
        return (_plain(name), digest if kind in _SHA256 else digest[:32])
    if found := _GNU.fullmatch(line):
        return _plain(found[2] or ""), found[1]
    return None


def _plain(name: str) -> str:
    return name.replace("\\", "/").removeprefix("./")
