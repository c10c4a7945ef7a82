"""Whether what is pinned still is what the server gives."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from generator import pin
from generator.problem import Problem, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from generator.fetch import Access
    from generator.pin import Digest, Wanted


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
) -> Iterator[Callable[[], Sequence[Digest]]]:
    first = replace(wanted, places=wanted.places[:1])
    yield lambda: pin.stated(first, access, say)
    for place in wanted.places:
        for arch in wanted.architectures:

            def look(arch: str = arch, file: str = wanted.fill(place, arch)) -> Sequence[Digest]:
                return [pin.fetched(arch, file, access, say)]

            yield look
