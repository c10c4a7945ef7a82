"""What pin looks for, by what fleet.yaml says of the release, and what it then changes there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from generator import pin, schema, source
from generator.located import Located
from generator.problem import Mark, Problem, Refused, refuse
from generator.spec import ARCHITECTURES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from generator.pin import Digest, Wanted


def places(release: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a release's URLs, in the order in which they are tried."""
    first = (release["url"],) if "url" in release else ()
    return (*first, *release.get("urls", ()))


def pinned(release: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests that are pinned, in lower case; empty where it is an example's.

    >>> pinned({"sha256": {"amd64": "AB" * 32, "arm64": "0" * 64}})["arm64"]
    ''
    """
    given = {arch: digest.lower() for arch, digest in release.get("sha256", {}).items()}
    return {arch: "" if len(set(digest)) == 1 else digest for arch, digest in given.items()}


def plan(release: Mapping[str, Any], version: str, binaries: str, sums: str) -> Wanted:
    """Return what is to be looked for.

    `binaries` are where --from says, with {arch}, or empty; `sums` is a checksum file's place, or
    empty. Raises `Refused` for what cannot be looked for.
    """
    _valid("version", version)
    if pin.is_url(binaries):
        _valid("url", binaries)
    old = release.get("version", "")
    known = tuple(renewed(place, old, version) for place in places(release))
    found = (binaries,) if binaries else known
    if not found:
        raise refuse(
            "where are the binaries? fleet.yaml has no release.url",
            "--from https://HOST/PATH/{version}/llmgw-linux-{arch}",
        )
    if not known and not pin.is_url(binaries):
        raise refuse("fleet.yaml has no release.url, from which nodes fetch", "write it there")
    architectures = tuple(pinned(release)) or ARCHITECTURES
    if len(architectures) > 1 and not all("{arch}" in place for place in found):
        raise refuse("release.url has no {arch}, and there are two", "put {arch} where it goes")
    return pin.Wanted(version, found, architectures, not pinned(release), sums)


def renewed(text: str, old: str, new: str) -> str:
    """Return a URL, or the member, that has the version in so many words, with the new one.

    >>> renewed("https://h/v0.9.1/llmgw_0.9.1_{arch}-0.9.12", "v0.9.1", "v0.10.0")
    'https://h/v0.10.0/llmgw_0.10.0_{arch}-0.9.12'
    """
    for before, after in {old: new, old.removeprefix("v"): new.removeprefix("v")}.items():
        if "." in before:  # a single number may be anything
            whole = rf"(?<![0-9A-Za-z.]){re.escape(before)}(?![0-9]|\.[0-9])"
            text = re.sub(whole, after, text)
    return text


def _valid(name: str, value: str) -> None:
    # A URL is not shown: it may hold a signature.
    mark = Mark("", 1, 1, 1, value if name == "version" else "")
    given = Located({"release": Located({name: Located(value, mark)}, mark)}, mark)
    if wrong := schema.problems(given, "fleet"):
        raise Refused(Problem(problem.message, problem.hint) for problem in wrong)


def refuse_changed(old: Located | None, version: str, found: Sequence[Digest]) -> None:
    """Raise `Refused` for another digest of the version that `old`, the release, has pinned."""
    release = source.plain(old) if old else {}
    if old is None or version != release.get("version"):
        return
    before = pinned(release)
    wrong = []
    for row in found:
        if before.get(row.arch, "") not in ("", row.sha256):
            located = source.at(old, "sha256", row.arch)
            message = f"{version} is pinned with {before[row.arch]}, and now it is {row.sha256}"
            hint = (
                f"a release does not change: somebody replaced it. {row.source} says so; ask who"
                " made the release before a node gets it. Nothing was written"
            )
            path = f"release.sha256.{row.arch}"
            wrong.append(Problem(message, hint, located.mark if located else None, path))
    if wrong:
        raise Refused(wrong)


def changes(
    release: Mapping[str, Any], version: str, url: str, found: Sequence[Digest]
) -> dict[tuple[str | int, ...], str]:
    """Return what of the release is another now, by its path; `url` is a new one, or empty."""
    old = release.get("version", "")
    new: dict[tuple[str | int, ...], str] = {("version",): version}
    if url:
        new["url",] = url
    new |= {
        path: renewed(_at(release, path), old, version)
        for path in _literal(release)
        if path not in new
    }
    new |= {("sha256", row.arch): row.sha256 for row in found}
    return {path: value for path, value in new.items() if _at(release, path) != value}


def _literal(release: Mapping[str, Any]) -> list[tuple[str | int, ...]]:
    """Return the paths of what may have the version in so many words."""
    paths: list[tuple[str | int, ...]] = [(name,) for name in ("url", "member") if name in release]
    return paths + [("urls", number) for number in range(len(release.get("urls", ())))]


def _at(release: Any, path: tuple[str | int, ...]) -> Any:
    found = release
    for step in path:
        if isinstance(found, dict) and step not in found:
            return None
        found = found[step]
    return found.lower() if path[0] == "sha256" else found
