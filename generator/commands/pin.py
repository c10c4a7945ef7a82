"""`gen-seed pin`: a release's version and digests, written into fleet.yaml."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from generator.options import format_option, number_option, say, show_json, tell, workspace_option
from generator.problem import Problem, Refused, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from generator.fetch import Access
    from generator.located import Located
    from generator.pin import Digest, Wanted
    from generator.workspace import Workspace

_FLEET = 16 << 20  # bytes


@click.command()
@click.argument("version", metavar="[VERSION]", required=False)
@click.option(
    "--from",
    "source",
    metavar="URL|FILE",
    help="With {arch}: the binaries. Without: a checksum file [default: release.url].",
)
@click.option("--checksums", metavar="FILE", help="A checksum file that came another way.")
@click.option("--header-file", metavar="FILE", help="Request headers, such as a token.")
@click.option("--ca", metavar="FILE", help="Roots of a private server.")
@number_option("--timeout", "SECONDS", 30, 3600, "How long a server may say nothing.")
@click.option("--check", is_flag=True, help="Say whether what is pinned is what there is.")
@format_option("text", "json")
@workspace_option
@click.pass_obj
def command(  # noqa: PLR0913, PLR0917 - an argument each option
    folder: Path,
    version: str | None,
    source: str | None,
    checksums: str | None,
    header_file: str | None,
    ca: str | None,
    timeout: int,
    check: bool,  # noqa: FBT001
    report: str,
) -> None:
    """Write a release's VERSION and digests into fleet.yaml.

    The digests are those of the checksum file beside the binaries (SHA256SUMS, checksums.txt,
    NAME.sha256 and the like), or of --checksums. Where there is none, the binaries are fetched,
    and trusted on first use. The rest of fleet.yaml stays as it is. Another digest for the
    version that is pinned already is refused.

    With --check nothing is written: every binary is fetched and held against its digest, and
    exit status 1 means that one is another.
    """
    from generator import files, pin, pin_check, pin_edit, pin_plan, workspace
    from generator import source as yaml_source

    path = folder / "fleet.yaml"
    before = files.read(path, limit=_FLEET) if path.exists() else b""
    place = workspace.open_workspace(folder)
    old = _release(place)
    values = yaml_source.plain(old) if old else {}
    pinned = pin_plan.pinned(values)
    if check and not pinned:
        raise refuse("nothing is pinned", "gen-seed pin VERSION does that")
    version = version or (values.get("version") if check else None)
    if not version:
        raise click.UsageError("which VERSION? (with --check: the one that is pinned)")
    if check and version != values.get("version"):
        raise refuse(f"{values.get('version', 'nothing')} is pinned, and not {version}")
    binaries = source if source and "{arch}" in source else ""
    if source and not binaries and checksums:
        raise click.UsageError("--from without {arch} is a checksum file: not with --checksums")
    wanted = pin_plan.plan(
        values, version, binaries, checksums or ("" if binaries else source or "")
    )
    access = _access(folder, values, wanted, header_file, ca, timeout)
    if check:
        rows, problems = pin_check.check(pinned, wanted, access, say)
        _show(version, rows, report, pinned)
        tell(problems)
        if problems:
            raise click.exceptions.Exit(1)
        return
    found = pin.find(wanted, access, say)
    pin_plan.refuse_changed(old, version, found)
    if files.read(path, limit=_FLEET) != before:
        raise refuse(f"{path} was changed while the release was fetched", "try again")
    url = binaries if pin.is_url(binaries) else ""
    changes = pin_plan.changes(values, version, url, found)
    if changes:
        document = yaml_source.plain(place.fleet)
        _write(path, pin_edit.edit(before, str(path), document, changes))
    _show(version, found, report, {})
    tell(_first_use(found))
    say(f"{path} has {version}")


def _release(place: Workspace) -> Located | None:
    """Return what fleet.yaml says of the release; raise `Refused` where pin cannot work on it."""
    from generator import source

    if not (place.root / "fleet.yaml").exists():
        raise refuse(f"there is no {place.root / 'fleet.yaml'}", "gen-seed init makes one")
    if place.problems:
        raise Refused(place.problems)
    other = source.at(place.fleet, "defaults", "release")
    if other:
        hint = "move it to release, at the top level: what is under defaults would win over it"
        raise refuse("the release is under defaults, and pin writes it below", hint, other.mark)
    return source.at(place.fleet, "release")


def _access(  # noqa: PLR0913, PLR0917 - where it is from
    folder: Path,
    values: Mapping[str, Any],
    wanted: Wanted,
    header_file: str | None,
    ca: str | None,
    timeout: int,
) -> Access:
    """Return what the servers are asked with: from the flags, or else as the nodes do it."""
    from dataclasses import replace

    from generator import attachments, fetch, pin, pin_plan
    from generator.spec import Release

    own = {urlsplit(place).netloc for place in pin_plan.places(values)}
    asked = {urlsplit(p).netloc for p in (*wanted.places, wanted.sums) if pin.is_url(p)}
    headers = header_file and str(Path(header_file).absolute())
    if not headers and asked <= own:  # the token of one server is none of another's business
        headers = values.get("headers_file")
    roots = ca and str(Path(ca).absolute())
    given = Release("", (), {}, ca=roots or values.get("ca", ""), headers_file=headers or "")
    try:
        filled = attachments.release(given, folder)
    except Refused as refused:
        raise Refused(replace(problem, path="") for problem in refused.problems) from None
    return fetch.Access(filled.headers, filled.roots, timeout)


def _write(path: Path, data: bytes) -> None:
    """Put new content into a file that keeps its owner and its mode."""
    from generator import files

    state = path.stat()
    files.write_atomic(path, data, state.st_mode & 0o777)
    # As it was, whatever the umask is and whoever runs this.
    with suppress(OSError):
        os.chown(path, state.st_uid, state.st_gid)
        path.chmod(state.st_mode & 0o7777)


def _show(version: str, rows: Sequence[Digest], report: str, pinned: Mapping[str, str]) -> None:
    """Print what was found; `pinned` is what it is held against, if it is."""
    found = [
        {
            "arch": row.arch,
            "url": row.place,
            "sha256": row.sha256,
            "source": row.source,
            "first_use": row.first_use,
            "same": row.sha256 == pinned[row.arch] if pinned else None,
        }
        for row in rows
    ]
    if report == "json":
        show_json(version=version, binaries=found)
        return
    for row in rows:
        click.echo(f"{row.sha256}  {row.arch}  {row.place}")


def _first_use(rows: Sequence[Digest]) -> list[Problem]:
    if not any(row.first_use for row in rows):
        return []
    return [
        Problem(
            "trusted on first use: no checksum file says what these binaries should be",
            "compare the digests with what the makers publish; --checksums FILE does it for you",
            severity="warning",
        )
    ]
