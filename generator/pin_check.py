"""Whether what is pinned still is what the server gives."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from generator import pin
from generator.pin import Digest
from generator.problem import Problem, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from generator.fetch import Access
    from generator.pin import Wanted


def check(
    pinned: Mapping[str, str], wanted: Wanted, access: Access, say: Callable[[str], None]
) -> tuple[list[Digest], list[Problem]]:
    """Return what each place gives now, and what is wrong with it.

    Every binary at every place is fetched, and the checksum file where there is one. `pinned`
    maps architectures to digests.
    """
    rows: list[Digest] = []
    problems: list[Problem] = []
    for look in _looks(wanted, access, say):
        try:
            rows += look()
        except Refused as refused:
            problems += refused.problems
    for row in rows:
        if row.sha256 != pinned[row.arch]:
            what = row.place if row.first_use else f"{row.place} in {row.source}"
            problems.append(
                Problem(
                    f"{what} has the digest {row.sha256}, and {pinned[row.arch]} is pinned",
                    "it was replaced, and nodes refuse it: ask who made the release",
                )
            )
    return rows, problems


def _looks(
    wanted: Wanted, access: Access, say: Callable[[str], None]
) -> Iterator[Callable[[], list[Digest]]]:
    first = replace(wanted, places=wanted.places[:1])
    if pin.is_url(first.places[0]):
        yield lambda: list(pin.listed(first, pin.beside(first, access, say)))
    for place in wanted.places:
        for arch in wanted.architectures:
            file = wanted.fill(place, arch)

            def look(arch: str = arch, file: str = file) -> list[Digest]:
                digest = pin.digest_of(file, access, say)
                return [Digest(arch, pin.told(file), digest, pin.told(file), first_use=True)]

            yield look
