"""`gen-seed inspect`: what a seed holds."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from generator.options import format_option, pki_option, show_json, tell, workspace_option

if TYPE_CHECKING:
    from generator.inspection import Inspection
    from generator.unpack import Unpacked


_COMPRESSED = (b"\x1f\x8b", b"\xfd7zXZ\0")  # gzip, xz


@click.command()
@click.argument("file", metavar="FILE|-")
@format_option("text", "json")
@pki_option
@workspace_option
@click.pass_obj
def command(folder: Path, file: str, report: str, pki: str | None) -> None:
    """Show what a seed holds and whether it is consistent.

    FILE is an ISO, a FAT image, a folder, or user-data; - reads stdin. The private key is never
    shown. FILE may as well be what gen-seed bake has made: a tar, a root filesystem, or an image.
    Exit status 1 means that something is wrong.
    """
    from generator import inspection, unpack

    if file != "-" and (kind := _image_kind(Path(file))):
        _image(file, kind, report)
        return
    if file == "-":
        seed = unpack.from_bytes(sys.stdin.buffer.read(), "standard input")
    else:
        seed = unpack.unpack(Path(file))
    found = inspection.inspect(seed, datetime.now(UTC))
    facts = _facts(seed, found) | {"ledger": _ledger(folder, pki, found)}
    if report == "json":
        problems = [{"message": p.message, "hint": p.hint} for p in found.problems]
        show_json(seeds=[{"file": file, **facts, "problems": problems}])
    else:
        click.echo("\n".join(_lines(file, facts)))
    tell(found.problems)
    if found.problems:
        raise click.exceptions.Exit(1)


def _image_kind(path: Path) -> str:
    """Return what kind of image a file is, in words; nothing for what may be a seed."""
    import tarfile

    from generator import disk, vfat

    if path.is_dir():
        return "root filesystem" if (path / "etc").is_dir() or (path / "usr").is_dir() else ""
    if not path.is_file():
        return ""  # who reads it will say so
    try:
        with path.open("rb") as file:
            head = file.read(40 << 10)
    except OSError:
        return ""
    if head[257:262] == b"ustar" or (head.startswith(_COMPRESSED) and tarfile.is_tarfile(path)):
        return "tar"
    if head[32769:32774] == b"CD001" or vfat.is_vfat(head):
        return ""
    kind = disk.kind(path)
    return f"{kind} image" if kind else ""


def _image(file: str, kind: str, report: str) -> None:
    from generator import examination, image, tree

    path = Path(file)
    if kind == "tar":
        found = examination.examine(tree.Tar(path))
    elif kind == "root filesystem":
        found = examination.examine(tree.Folder(path))
    else:
        with image.read_only(path) as root:
            found = examination.examine(tree.Folder(root))
    if report == "json":
        show_json(images=[{"file": file, "kind": kind, **found.facts()}])
    else:
        click.echo("\n".join([f"{file}: {kind}", *found.lines()]))
    tell(found.problems)
    if found.problems:
        raise click.exceptions.Exit(1)


def _facts(seed: Unpacked, found: Inspection) -> dict[str, Any]:
    """Return everything that is known, as JSON has it."""
    sizes = {name: len(data) for name, data in seed.artifacts.items()} | dict(seed.others)
    return {
        "kind": seed.kind,
        "label": seed.label,
        "bytes": seed.size,
        "artifacts": [{"name": name, "bytes": size} for name, size in sizes.items()],
        "node_id": found.node_id,
        "hostname": found.hostname,
        "instance_id": found.instance_id,
        "files": [{"path": path, "bytes": len(data)} for path, data in found.files.items()],
        "has_key": found.has_key,
        "certificate": _certificate(found),
        "release": {
            "version": found.release,
            "binaries": [
                {"arch": arch, "urls": found.urls.get(arch, "").split(), "sha256": digest}
                for arch, digest in found.digests.items()
            ],
        },
    }


def _certificate(found: Inspection) -> dict[str, str] | None:
    from generator import chain

    made = found.identity
    if made is None:
        return None
    return {
        "subject": chain.name_of(made.chain[0]),
        "issuer": " ".join(made.chain[0].issuer.rfc4514_string().split()),
        "serial": made.serial,
        "fingerprint": made.fingerprint,
        "not_before": chain.when(made.not_before),
        "not_after": chain.when(made.not_after),
    }


def _ledger(folder: Path, pki: str | None, found: Inspection) -> dict[str, str] | None:
    """Return the ledger's row for the certificate; None where there is no ledger or no row."""
    from generator import custody, ledger, workspace

    if found.identity is None:
        return None
    configured = workspace.open_workspace(folder).authority_dir
    place = custody.find(folder, pki, os.environ, configured)
    return ledger.look_up(place, found.identity.serial)


def _lines(file: str, facts: dict[str, Any]) -> list[str]:
    label = f", label {facts['label']}" if facts["label"] is not None else ""
    lines = [f"{file}: {facts['kind']}{label}, {facts['bytes']} bytes"]
    lines += [f"  {row['name']:<16}{row['bytes']:>9} bytes" for row in facts["artifacts"]]
    names = ("node_id", "hostname", "instance_id")
    lines += [f"{name.replace('_', ' '):<13}{facts[name]}" for name in names if facts[name]]
    if made := facts["certificate"]:
        lines += [
            f"certificate  {made['subject']}, issued by {made['issuer']}",
            f"             serial {made['serial']}",
            f"             from {made['not_before']} to {made['not_after']}",
            f"             {'with its' if facts['has_key'] else 'without the'} private key",
        ]
        row = facts["ledger"]
        lines.append(
            f"ledger       issued {row['issued_at']} by {row['issued_by']} on {row['issued_from']}"
            if row
            else "ledger       nothing known of this certificate"
        )
    release = facts["release"]
    if release["version"]:
        lines.append(f"release      {release['version']}")
    for row in release["binaries"]:
        lines += [f"  {row['arch']:<11}{' '.join(row['urls'])}"]
        lines += [f"  {'':<11}sha256 {row['sha256']}"]
    if facts["files"]:
        lines.append("writes")
        lines += [f"  {row['path']:<60}{row['bytes']:>7} bytes" for row in facts["files"]]
    return lines
