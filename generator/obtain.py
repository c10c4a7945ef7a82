"""The bytes of a release for one architecture, from a file or from where it is served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from generator import attachments, fetch, files
from generator.problem import Problem, Refused, refuse

if TYPE_CHECKING:
    from pathlib import Path

    from generator.spec import Release


def from_file(path: Path, release: Release, arch: str, target: str) -> bytes:
    """Return the release out of a file. Raises `Refused` for anything else.

    `target` is what it is for, as a message calls it.
    """
    found = attachments.named(files.read(path, limit=fetch.BINARY), str(path), release)
    data = found.get(f"llmgw-{arch}")
    if data is None:
        raise refuse(f"{path} is {', '.join(found)}, and {target} is for {arch}")
    return data


def from_server(release: Release, arch: str) -> bytes:
    """Return the release from the first of its URLs that has it, as the node would fetch it.

    The release has its roots and headers. Raises `Refused` with what each of the URLs said.
    """
    # The digest protects it, whoever sees it on the way.
    access = fetch.Access(headers=release.headers, roots=release.roots, plain=True)
    said: list[Problem] = []
    for place in release.urls:
        url, data = release.fill(place, arch), bytearray()
        try:
            found = fetch.fetch(url, access, data.extend)
        except Refused as refused:
            said += refused.problems
            continue
        if found.sha256 == release.sha256[arch]:
            return bytes(data)
        said.append(
            Problem(
                f"{fetch.shown(url)} has the digest {found.sha256}, and release.sha256 wants"
                f" {release.sha256[arch]}",
                "gen-seed pin --check holds the server against fleet.yaml",
            )
        )
    raise Refused(said)
