"""`gen-seed bake`: what all nodes share, put into an image once."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from generator.options import pki_option, say, tell, workspace_option
from generator.problem import Refused, refuse
from generator.spec import ARCHITECTURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from generator.baked import Entry
    from generator.workspace import Workspace

_PATIENCE = 120  # seconds for an engine's help text
_FAMILIES = ("debian", "rhel", "suse", "arch")


@click.command()
@click.option("--tar", metavar="FILE|-", help="Write a tar, to be unpacked over an image.")
@click.option("--rootfs", metavar="DIR", help="Put it into an unpacked root filesystem.")
@click.option("--image", metavar="FILE", help="Put it into a disk image, raw or qcow2.")
@click.option(
    "--arch",
    type=click.Choice(ARCHITECTURES),
    help="Whose binary; for --tar needed where the release has several [default: the image's own].",
)
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
@click.option("--strict", is_flag=True, help="Fail where an engine lacks a flag of llmgw's.")
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
    strict: bool,  # noqa: FBT001
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
    if tar is not None and strict:
        raise click.UsageError("--strict is for the engines in an image: with --rootfs or --image")
    if tar is None and family:
        raise click.UsageError("--family is for --tar: an image says itself whose it is")
    place = workspace.open_workspace(folder)
    oven = _Oven(place, pki, binary, arch, clean=generalize, strict=strict)
    if tar is not None:
        oven.tar(tar, family or "debian")
    elif rootfs is not None:
        if os.geteuid():  # half of it would be done before the first chown fails
            hint = "run gen-seed with sudo, or unpack what --tar FILE writes"
            raise refuse("--rootfs takes root: the files of an image are root's", hint)
        oven.report(rootfs, oven.rootfs(Path(rootfs), rootfs))
    elif image is not None:
        oven.image(image)


class _Oven:
    """What goes into an image, and how; one run makes one image."""

    def __init__(  # noqa: PLR0913 - as the command line says
        self,
        place: Workspace,
        pki: str | None,
        binary: str | None,
        arch: str | None,
        *,
        clean: bool,
        strict: bool,
    ) -> None:
        from generator import attachments, custody, pem, render, resolve, template

        self._spec, warnings = resolve.shared(place)
        folder = custody.find(place.root, pki, os.environ, place.authority_dir)
        _, self._roots = pem.read_trust(folder)
        self._shared = render.shared(template.environment(place.root / "templates"))
        self._release = self._spec.release
        if binary is None:
            self._release = attachments.release(self._release, place.root)
        self._binary, self._arch, self._clean, self._strict = binary, arch, clean, strict
        tell(warnings)

    def _made(self, name: str, arch: str | None, family: str | None) -> Sequence[Entry]:
        """Return the files of an image for an architecture and a family."""
        from generator import baked, obtain

        release, known = self._release, self._release.sha256
        if arch is None and len(known) > 1:
            raise refuse(
                f"release {release.version} has binaries for {' and '.join(known)}: which one is"
                f" {name} for",
                f"--arch {next(iter(known))}",
            )
        chosen = arch or next(iter(known))
        if chosen not in known:
            raise refuse(
                f"{name} is for {chosen}, and release {release.version} has no digest for that",
                "add it to release.sha256",
            )
        if self._binary is None:
            data = obtain.from_server(release, chosen)
        else:
            data = obtain.from_file(Path(self._binary), release, chosen, name)
        own = family if self._spec.trust == "system" else None
        return baked.entries(release, chosen, data, self._roots, self._shared, own)

    def tar(self, output: str, family: str) -> None:
        """Write a tar."""
        from generator import baked, files, pack

        files.check_target(output, binary=True, secret=False, folder=False, option="--tar")
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        when = int(pack.moment(epoch).timestamp()) if epoch is not None else 0
        made = self._made("the tar", self._arch, family)
        data = baked.tar(made, when)
        if output == "-":
            files.put_stdout(data)
        else:
            files.write_atomic(Path(output), data, 0o644)  # nothing in it is secret
        say(f"{output}: {len(made)} files, {len(data)} bytes; unpack it as root over an image")

    def rootfs(self, root: Path, name: str) -> bool:
        """Change a root filesystem, called `name`; tell whether there was anything to change."""
        from generator import bake

        if not root.is_dir():
            raise refuse(f"{name} is no folder", "a root filesystem is one; a disk is --image")
        if root.samefile("/"):
            raise refuse("--rootfs / is this machine itself", "bake an image, and boot it")
        own = bake.arch_of(root, name)
        if self._arch not in (None, own):
            hint = f"leave --arch out, or --arch {own}"
            raise refuse(f"{name} is for {own}, not {self._arch}", hint)
        bake.check(root, name, clean=self._clean)
        family = bake.family_of(root)
        made = self._made(name, own, family)
        self._engines(root)
        changed = False
        for line in bake.bake(root, made, clean=self._clean):
            say(f"{name}: {line}")
            changed = True
        if family is None:
            say(f"{name}: it has no trust store that gen-seed knows; the agent has its own copy")
        return changed

    def _engines(self, root: Path) -> None:
        """Ask the engines of an image whether they take llmgw's flags."""
        from generator import engine_ask

        try:
            verdicts = engine_ask.examine(root, self._spec.engines, _PATIENCE)
        except Refused as refused:
            found = list(refused.problems)
        else:
            for verdict in verdicts:
                say(f"{verdict.engine}: {verdict.asked}: {verdict.state}")
            found = [problem for verdict in verdicts for problem in verdict.problems]
        if self._strict and found:
            raise Refused(found)
        tell(replace(problem, severity="warning") for problem in found)

    def image(self, path: str) -> None:
        """Change a disk image."""
        from generator import generalize, image, mounting

        with image.copied(Path(path)) as copy:
            with mounting.mounted(copy.path, path, writable=True) as there:
                zeroes = self._clean and not there.by_libguestfs
                if zeroes:
                    image.check_room(copy.path, path)
                changed = self.rootfs(there.root, path)
                if zeroes:
                    generalize.zero(there.root)
                    mounting.trim(there.root)
            if self._clean and there.by_libguestfs:
                mounting.sparsify(copy.path)
            if self._clean:
                say(f"{path}: zeroed what is free")
            copy.keep = self._clean or changed
        self.report(path, copy.keep)

    @staticmethod
    def report(name: str, changed: bool) -> None:  # noqa: FBT001
        """Say so where nothing was changed."""
        if not changed:
            say(f"{name}: nothing to do, it is baked already")
