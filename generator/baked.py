"""What all nodes share, as it lies in an image, and the note of it that the image keeps."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import hashes

from generator import __version__, pem
from generator.problem import refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cryptography import x509

    from generator.render import File
    from generator.spec import Release

FORMAT = 1
NOTE = "/etc/llmgw/baked.json"
BINARY = "/usr/local/bin/llmgw"
# onboard's own note: which binary came out of the archive whose digest the seed has.
INSTALLED = "/var/lib/llmgw-onboard/installed"
ANCHORS = {
    "debian": "/usr/local/share/ca-certificates",
    "rhel": "/etc/pki/ca-trust/source/anchors",
    "suse": "/etc/pki/trust/anchors",
    "arch": "/etc/ca-certificates/trust-source/anchors",
}
"""Where a family's trust store takes anchors from; Alpine's is Debian's. As in onboard."""
_ANCHOR = "llmgw-ca"
# RuntimeError is a zip's that is encrypted, or packed in a way that Python has no words for.
_DAMAGED = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(OSError, EOFError, RuntimeError),
)
# What a folder's mode may be set to, because nobody else has anything in it.
OURS = frozenset(
    (
        *("/etc/llmgw", "/etc/systemd/system/multi-user.target.d"),
        *("/usr/local/lib/llmgw", "/var/lib/llmgw-onboard"),
    )
)


@dataclass(frozen=True)
class Entry:
    """A file of an image, owned by root."""

    path: str
    mode: int
    data: bytes

    @property
    def sha256(self) -> str:
        """The digest of its content, 64 hex digits."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True)
class Note:
    """What baked.json says: who baked what. `files` maps paths to modes (octal) and digests."""

    format: int
    gen_seed: str
    version: str
    arch: str
    sha256: str
    roots: tuple[str, ...]
    files: Mapping[str, tuple[str, str]]


def entries(  # noqa: PLR0913, PLR0917 - what an image is made from
    release: Release,
    arch: str,
    given: bytes,
    roots: Sequence[x509.Certificate],
    shared: Iterable[File],
    family: str | None,
) -> tuple[Entry, ...]:
    """Return the files of an image, the note last.

    `given` is what the release's URL gives for `arch`, its digest checked; `family` is one of
    `ANCHORS`, or None where the root goes into no trust store. Raises `Refused` where an archive
    has no such member.
    """
    binary = given
    if release.archive:
        binary = _member(given, release.fill(release.member, arch))
    made = [
        Entry(BINARY, 0o755, binary),
        Entry("/etc/llmgw/ca.pem", 0o644, pem.certificates_pem(roots)),
        *(Entry(file.path, file.mode, file.content.encode()) for file in shared),
    ]
    if release.archive:
        line = f"{release.sha256[arch]} {made[0].sha256} {release.version}\n"
        made.append(Entry(INSTALLED, 0o644, line.encode()))
    if family:
        made += anchors(ANCHORS[family], roots)
    return (*made, _note(release, arch, roots, made))


def anchors(folder: str, roots: Sequence[x509.Certificate]) -> list[Entry]:
    """Return a file for each root: what indexes a store skips a file that holds two."""
    names = [f"{_ANCHOR}.crt", *(f"{_ANCHOR}-{n}.crt" for n in range(2, len(roots) + 1))]
    pairs = zip(names, roots, strict=True)
    return [Entry(f"{folder}/{name}", 0o644, pem.certificates_pem([root])) for name, root in pairs]


def is_anchor(path: str) -> bool:
    """Tell whether `path` is that of an anchor of ours."""
    folder, _, name = path.rpartition("/")
    return folder in ANCHORS.values() and name.startswith(_ANCHOR) and name.endswith(".crt")


def _note(
    release: Release, arch: str, roots: Sequence[x509.Certificate], made: Iterable[Entry]
) -> Entry:
    note = {
        "format": FORMAT,
        "gen_seed": __version__,
        "release": {"version": release.version, "arch": arch, "sha256": release.sha256[arch]},
        "roots": [root.fingerprint(hashes.SHA256()).hex() for root in roots],
        "files": [{"path": e.path, "mode": f"{e.mode:04o}", "sha256": e.sha256} for e in made],
    }
    return Entry(NOTE, 0o644, f"{json.dumps(note, indent=1)}\n".encode())


def read_note(data: bytes) -> Note | None:
    """Return what a baked.json says, None where it is damaged, or has what no bake writes.

    Raises `Refused` for one that a newer gen-seed wrote.
    """
    try:
        told: dict[str, Any] = json.loads(data)
        number = told["format"]
        if number != FORMAT:
            raise refuse(
                f"{NOTE} has format {number!r}, and this gen-seed reads {FORMAT}",
                "use the gen-seed that baked the image, or a newer one",
            )
        release = told["release"]
        version, arch, sha256 = (str(release[key]) for key in ("version", "arch", "sha256"))
        head = (str(told["gen_seed"]), version, arch, sha256)
        roots = tuple(map(str, told["roots"]))
        files = [(str(r["path"]), str(r["mode"]), str(r["sha256"])) for r in told["files"]]
        # Whoever made the image wrote this: it could tell our terminal to do things.
        if not "".join((*head, *roots, *(word for row in files for word in row))).isprintable():
            return None
        said = {path: (mode, digest) for path, mode, digest in files}
        return Note(number, head[0], version, arch, sha256, roots, said)
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def tar(made: Iterable[Entry], when: int) -> bytes:
    """Return the files as a tar, sorted, root's; `when` (s since 1970) dates every entry.

    Of folders it has only those that are ours: an entry for /etc would change its mode.
    """
    packed = io.BytesIO()
    by_path = {entry.path: entry for entry in made}
    folders = {path for path in OURS if any(p.startswith(f"{path}/") for p in by_path)}
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted({*folders, *by_path}):
            head = tarfile.TarInfo(path.lstrip("/"))
            head.uname = head.gname = "root"
            head.mtime = when
            if path in folders:
                head.type, head.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(head)
            else:
                head.size, head.mode = len(by_path[path].data), by_path[path].mode
                archive.addfile(head, io.BytesIO(by_path[path].data))
    return packed.getvalue()


def _member(archive: bytes, member: str) -> bytes:
    """Return one member of an archive, by its name or by ./ and its name, as onboard takes it."""
    names = (member, f"./{member}")
    try:
        if zipfile.is_zipfile(io.BytesIO(archive)):
            with zipfile.ZipFile(io.BytesIO(archive)) as bundle:
                found = [bundle.read(name) for name in bundle.namelist() if name in names]
        else:
            with tarfile.open(fileobj=io.BytesIO(archive)) as tape:
                heads = [head for head in tape if head.isfile() and head.name in names]
                found = [file.read() for head in heads if (file := tape.extractfile(head))]
    except _DAMAGED as error:
        raise refuse(
            "the release's archive cannot be unpacked",
            "it is damaged, encrypted, or neither a tar nor a zip: try it by hand",
        ) from error
    if not found:
        raise refuse(f"{member} is not in the release's archive", "release.member names it")
    return found[0]
