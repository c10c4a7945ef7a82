"""A spec as fields by path, without its secrets: what a manifest keeps, and what a diff names.

A secret is kept as a keyed digest. The key is made from the seed, which holds a private key and
the secret itself: who has the manifest alone cannot try out guesses, and who has the seed need
not.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from generator.spec import Release, Spec

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARK = "hmac"


@dataclass(frozen=True)
class Field:
    """A field that differs: its path, and what it was and is, None where left at its default.

    Both are None where `secret`.
    """

    path: str
    before: Any = None
    after: Any = None
    secret: bool = False


def of(spec: Spec, whole: Spec, key: bytes | None) -> dict[str, Any]:
    """Return the fields that are not left at their defaults; of secrets their marks.

    `whole` is the spec with its attachments. Without a `key` secrets are left out.
    """
    found = {path: value for path, value in _public(spec) if _defaults().get(path, _NONE) != value}
    if whole.release.roots:
        text = whole.release.roots.encode()
        found["content of release.ca"] = hashlib.sha256(text).hexdigest()[:16]
    if key is not None:
        found |= {path: _mark(value, key) for path, value in _private(spec, whole)}
    return found


def digest(fields: Mapping[str, Any]) -> str:
    """Return 64 hex digits that differ where the fields do."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def without_secrets(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields but for the marks."""
    return {path: value for path, value in fields.items() if not _is_mark(value)}


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Field, ...]:
    """Return the fields in which two specs differ, by path."""
    # As the manifest's reader sees them: a tuple is a list there.
    after = json.loads(json.dumps(after))
    paths = sorted({*before, *after})
    return tuple(
        _field(path, before.get(path), after.get(path))
        for path in paths
        if before.get(path) != after.get(path)
    )


def _field(path: str, before: Any, after: Any) -> Field:
    if _is_mark(before) or _is_mark(after):
        return Field(path, secret=True)
    return Field(path, before, after)


def _is_mark(value: Any) -> bool:
    return isinstance(value, Mapping) and _MARK in value


_NONE = object()


@cache
def _defaults() -> dict[str, Any]:
    return dict(_public(Spec("", "", "", Release("", (), {}))))


def _public(spec: Spec) -> Iterator[tuple[str, Any]]:
    for name, value in vars(spec).items():
        if name == "proxy":
            yield "proxy.no_proxy", list(spec.proxy.no_proxy)
            for way in ("http", "https"):
                url = getattr(spec.proxy, way)
                if isinstance(url, str) and "@" not in url:
                    yield f"proxy.{way}", url
        elif name == "release":
            kept = {k: v for k, v in vars(value).items() if k not in ("roots", "headers", "urls")}
            yield from _flat("release", kept)
            if not _has_query(spec):
                yield "release.urls", list(value.urls)
        elif name not in ("node_id", "cloud_config"):
            yield from _flat(name, value)


def _private(spec: Spec, whole: Spec) -> Iterator[tuple[str, Any]]:
    """Give what may be a secret, or hold one: a password, a token."""
    for key, value in spec.cloud_config.items():
        yield f"cloud_config.{key}", value
    for way in ("http", "https"):
        url = getattr(spec.proxy, way)
        if not isinstance(url, str) or "@" in url:
            yield f"proxy.{way}", getattr(whole.proxy, way)
    if whole.release.headers:
        yield "content of release.headers_file", whole.release.headers
    if _has_query(spec):
        yield "release.urls", list(spec.release.urls)


def _has_query(spec: Spec) -> bool:
    return any("?" in url for url in spec.release.urls)


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if value is None or isinstance(value, str | int):  # nearly all
        yield path, value
        return
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(f"{path}.{key}", item)
    else:
        yield path, _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if is_dataclass(value):
        return {key: _plain(item) for key, item in vars(value).items()}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _mark(value: Any, key: bytes) -> dict[str, str]:
    text = json.dumps(value, sort_keys=True, default=dict).encode()
    return {_MARK: hmac.digest(key, text, "sha256").hex()[:32]}
