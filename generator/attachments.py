"""What a spec only refers to: files of the workspace, and secrets that are kept elsewhere."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from generator import files, formats
from generator.problem import Problem, Refused, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from generator.spec import Release, Secret, Spec

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[ \t]*[^\x00-\x1f\x7f]+")  # RFC 9110, 5.5
_LIMIT = 64 << 10  # bytes
_BINARY = 2 << 30
# In a seed with the placeholder's identity, which is committed and compared.
_NO_PROXY, _NO_HEADER = "http://placeholder.invalid:3128", "X-Placeholder: none\n"


def binary(path: Path, release: Release) -> dict[str, bytes]:
    """Return the release in a file, by the name under which onboard looks for it on the seed.

    Its digest says which architecture it is for. Raises `Refused` for what is none of the
    release's.
    """
    if release.baked:
        raise refuse("release.fetch is never: the image has the binary, and the seed carries none")
    return named(files.read(path, limit=_BINARY), str(path), release)


def named(data: bytes, source: str, release: Release) -> dict[str, bytes]:
    """Return the release's bytes by the name llmgw-ARCH; `source` is for the refusal."""
    digest = hashlib.sha256(data).hexdigest()
    for arch, wanted in release.sha256.items():
        if digest == wanted:
            return {f"llmgw-{arch}": data}
    known = ", ".join(f"{wanted} for {arch}" for arch, wanted in release.sha256.items())
    raise refuse(
        f"{source} is not release {release.version}: its digest is {digest}",
        f"release.sha256 has {known}",
    )


def fill(spec: Spec, root: Path, environ: Mapping[str, str], *, stand_in: bool) -> Spec:
    """Return the spec with what it refers to; paths are relative to the workspace `root`.

    With `stand_in` no secret is read, and a fixed text takes its place. Raises `Refused` with
    everything that is missing or no good; never with a secret's text.
    """
    kept = spec.release.ca, spec.release.headers_file, spec.proxy.http, spec.proxy.https
    if not any(kept):
        return spec
    filler = _Filler(root, environ, stand_in=stand_in)
    # A node that fetches nothing needs nothing for it.
    release = spec.release if spec.release.baked else filler.release(spec.release)
    proxy = replace(
        spec.proxy,
        http=filler.proxy("http", spec.proxy.http),
        https=filler.proxy("https", spec.proxy.https),
    )
    if filler.problems:
        raise Refused(filler.problems)
    return replace(spec, release=release, proxy=proxy)


def release(given: Release, root: Path) -> Release:
    """Return a release with its roots and headers; paths are relative to the workspace `root`.

    Raises `Refused` as `fill` does.
    """
    filler = _Filler(root, {}, stand_in=False)
    filled = filler.release(given)
    if filler.problems:
        raise Refused(filler.problems)
    return filled


class _Filler:
    def __init__(self, root: Path, environ: Mapping[str, str], *, stand_in: bool) -> None:
        self._root, self._environ, self._stand_in = root, environ, stand_in
        self.problems: list[Problem] = []

    def _wrong(self, path: str, message: str, hint: str = "") -> str:
        self.problems.append(Problem(message, hint, path=path))
        return ""

    def _read(self, path: str, name: str) -> str:
        try:
            return files.read(self._root / name, limit=_LIMIT).decode().replace("\r\n", "\n")
        except Refused as refused:
            return self._wrong(path, refused.problems[0].message)
        except UnicodeDecodeError:
            return self._wrong(path, f"{self._root / name} is not UTF-8")

    def release(self, release: Release) -> Release:
        """Return a release with what its fetch needs."""
        headers = self.headers(release.headers_file)
        return replace(release, roots=self.roots(release.ca), headers=headers)

    def roots(self, name: str) -> str:
        """Return the certificates in a file as PEM, one after the other."""
        text = self._read("release.ca", name) if name else ""
        if not text:
            return ""
        from generator import pem

        try:
            found = pem.certificates(text.encode(), str(self._root / name))
        except Refused as refused:
            return self._wrong("release.ca", refused.problems[0].message, refused.problems[0].hint)
        return pem.certificates_pem(found).decode()

    def headers(self, name: str) -> str:
        """Return the headers in a file, a line each."""
        if not name or self._stand_in:
            return _NO_HEADER if name else ""
        text = self._read("release.headers_file", name)
        lines = [line for line in text.split("\n") if line.strip()]
        for number, line in enumerate(lines, 1):
            if not _HEADER.fullmatch(line):
                where = f"{self._root / name}, line {number}"
                return self._wrong(
                    "release.headers_file", f"{where} is not a header", "such as: Name: value"
                )
        if text and not lines:
            return self._wrong("release.headers_file", f"{self._root / name} holds no header")
        return "".join(f"{line}\n" for line in lines)

    def proxy(self, name: str, value: str | Secret) -> str:
        """Return a proxy's URL, fetched from where it is kept."""
        if isinstance(value, str):
            return value
        if self._stand_in:
            return _NO_PROXY
        path = f"proxy.{name}"
        if value.env:
            text = self._environ.get(value.env)
            if text is None:
                return self._wrong(path, f"${value.env} is not set", "set it, or use {file: PATH}")
            source = f"${value.env}"
        else:
            before = len(self.problems)
            text, source = self._read(path, value.file), str(self._root / value.file)
            if len(self.problems) > before:
                return ""
        text = text.strip()
        if reason := formats.CHECKS["url-proxy"](text):
            return self._wrong(path, f"{source} holds no proxy's URL: {reason}")
        return text
