"""`gen-seed bake`: what all nodes share, put into an image once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from generator.cli import pki_option, say, tell, workspace_option
from generator.problem import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from generator.baked import Entry
    from generator.spec import Spec
    from generator.workspace import Workspace

_ARCHES = ("amd64", "arm64")
_FAMILIES = ("debian", "rhel", "suse", "arch")


@click.command()
@click.option("--tar", metavar="FILE|-", help="Write a tar, to be unpacked over an image.")
@click.option("--rootfs", metavar="DIR", help="Put it into an unpacked root filesystem.")
@click.option("--image", metavar="FILE", help="Put it into a disk image, raw or qcow2.")
@click.option("--arch", type=click.Choice(_ARCHES), help="Whose binary [default: the image's own].")
@click.option(
    "--family",
    type=click.Choice(_FAMILIES),
    help="Whose trust store a tar is for [default: debian].",
)
@click.option("--binary", metavar="FILE", help="The release in a file: nothing is fetched.")
@click.option(
    "--generalize",
    is_flag=True,
    help="Take away what is one machine's own, and zero what is free of a disk.",
)
@pki_option
@workspace_option
@click.pass_obj
def command(  # noqa: PLR0913, PLR0917 - an argument each option
    folder: Path,
    tar: str | None,
    rootfs: str | None,
    image: str | None,
    arch: str | None,
    family: str | None,
    binary: str | None,
    generalize: bool,  # noqa: FBT001
    pki: str | None,
) -> None:
    """Put what all nodes share into an image: the release, the units, onboard and the root.

    The release is the one of fleet.yaml, its digest checked. No identity goes into an image, and
    one that holds an identity is refused without --generalize. What is right already is left as
    it is. See docs/recipes.md.
    """
    from generator import workspace

    if sum(target is not None for target in (tar, rootfs, image)) != 1:
        raise click.UsageError("say what to write, one of: --tar FILE, --rootfs DIR, --image FILE")
    if tar is not None and generalize:
        raise click.UsageError("--generalize changes an image: it goes with --rootfs or --image")
    if tar is None and family:
        raise click.UsageError("--family is for --tar: an image says itself whose it is")
    place = workspace.open_workspace(folder)
    maker = _maker(place, pki, binary)
    if tar is not None:
        _tar(tar, maker(arch, family or "debian", "the tar"))
    elif rootfs is not None:
        _report(_rootfs(Path(rootfs), rootfs, maker, arch, clean=generalize), rootfs)
    elif image is not None:
        _image(image, maker, arch, clean=generalize)


def _maker(
    place: Workspace, pki: str | None, binary: str | None
) -> Callable[[str | None, str | None, str], Sequence[Entry]]:
    """Return what makes the files of an image for an architecture and a family."""
    from generator import attachments, baked, custody, pem, render, resolve

    spec, warnings = resolve.shared(place)
    _, roots = pem.read_trust(custody.find(place.root, pki, os.environ, place.authority_dir))
    shared = render.shared(render.environment(place.root / "templates"))
    tell(warnings)

    def made(arch: str | None, family: str | None, name: str) -> Sequence[Entry]:
        chosen = _arch(spec, arch, name)
        data = attachments.given(Path(binary or ""), spec.release, chosen)
        own = family if spec.trust == "system" else None
        return baked.entries(spec.release, chosen, data, roots, shared, own)

    return made


def _arch(spec: Spec, arch: str | None, name: str) -> str:
    known = spec.release.sha256
    if arch is None and len(known) > 1:
        raise refuse(
            f"release {spec.release.version} has binaries for {' and '.join(known)}", "--arch ARCH"
        )
    chosen = arch or next(iter(known))
    if chosen not in known:
        raise refuse(
            f"{name} is for {chosen}, and release {spec.release.version} has no digest for that",
            "add it to release.sha256",
        )
    return chosen


def _tar(output: str, made: Sequence[Entry]) -> None:
    from generator import baked, files, pack

    files.check_target(output, binary=True, secret=False, folder=False)
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    when = int(pack.moment(epoch).timestamp()) if epoch is not None else 0
    data = baked.tar(made, when)
    baked.write_tar(output, data)
    say(f"{output}: {len(made)} files, {len(data)} bytes; unpack it as root over an image")


def _rootfs(
    root: Path, name: str, maker: Callable[..., Sequence[Entry]], arch: str | None, *, clean: bool
) -> list[str]:
    from generator import bake

    if not root.is_dir():
        raise refuse(f"{name} is no folder", "a root filesystem is one; a disk image is --image")
    if root.samefile("/"):
        raise refuse("--rootfs / is this machine itself", "bake an image, and boot it")
    own = bake.arch_of(root, name)
    if arch not in (None, own):
        raise refuse(f"{name} is for {own}, not {arch}", f"leave --arch out, or --arch {own}")
    family = bake.family_of(root)
    made = maker(own, family, name)
    said = []
    for line in bake.bake(root, name, made, clean=clean):
        say(f"{name}: {line}")
        said.append(line)
    if family is None:
        say(f"{name}: it has no trust store that gen-seed knows; the agent has its own copy")
    return said


def _report(said: Sequence[str], name: str) -> None:
    if not said:
        say(f"{name}: nothing to do, it is baked already")


def _image(
    path: str, maker: Callable[..., Sequence[Entry]], arch: str | None, *, clean: bool
) -> None:
    from generator import generalize, image

    with image.copied(Path(path)) as copy:
        with image.mounted(copy.path, path, writable=True) as root:
            said = _rootfs(root, path, maker, arch, clean=clean)
            if clean:
                generalize.zero(root)
                image.trim(root)
                say(f"{path}: zeroed what is free")
        copy.keep = clean or bool(said)
    _report(said, path)
