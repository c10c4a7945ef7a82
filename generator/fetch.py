"""Fetching over HTTP: bounded, over TLS, and with no secret in what is told of it."""

from __future__ import annotations

import hashlib
import http.client
import os
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from generator.problem import Problem, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

BINARY = 2 << 30  # bytes, the most that a release may have
_TEXT = 4 << 20  # bytes
_TEXT_TIME = 120  # seconds that a text may take in all; a binary may take as long as it moves
_PIECE = 1 << 16
_DENIED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class Failed(Refused):
    """Nothing was fetched; `status` is the server's answer, 0 where there was none."""

    def __init__(self, message: str, hint: str = "", status: int = 0) -> None:
        super().__init__([Problem(message, hint)])
        self.status = status


@dataclass(frozen=True)
class Access:
    """What a private server wants, and how patient we are.

    `headers` are lines (``Name: value``) for this server and no other; `roots` PEM of what is
    trusted beside the system's roots (or those of $SSL_CERT_FILE). A transfer that stands still
    for `stall` seconds has failed. With `plain`, for what a digest protects, http:// is taken.
    """

    headers: str = field(default="", repr=False)
    roots: str = ""
    stall: float = 30
    plain: bool = False


@dataclass(frozen=True)
class Fetched:
    """What came: its digest (64 hex digits), its bytes, and where from after all redirects."""

    sha256: str
    size: int
    place: str


def shown(url: str) -> str:
    """Return a URL as it may be told: what follows a '?' may be a signature.

    >>> shown("https://u:p@h.example:8443/llmgw?X-Signature=secret")
    'https://h.example:8443/llmgw'
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def text(url: str, access: Access) -> tuple[bytes, Fetched]:
    """Return a small file and what is known of it. Raises `Failed`."""
    data = bytearray()
    found = fetch(url, access, data.extend, most=_TEXT, within=_TEXT_TIME)
    return bytes(data), found


def fetch(
    url: str,
    access: Access,
    take: Callable[[bytes], Any],
    *,
    most: int = BINARY,
    within: float | None = None,
) -> Fetched:
    """Hand a file to `take`, piece by piece, and return what it was.

    Redirects are followed, but never from https to http, and `headers` go to no other host.
    `most` is in bytes, `within` the seconds that all may take. Raises `Failed`; what `take` got
    until then is to be thrown away.
    """
    redirects = _Redirects(url, access)
    try:
        request = _request(url, access)
        with _opener(access, redirects).open(request, timeout=access.stall) as answer:
            return _read(answer, url, take, most, within)
    except urllib.error.HTTPError as error:
        error.close()
        raise _status(redirects.told(), error.code, access) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _failure(redirects, error, access) from None


def _request(url: str, access: Access) -> urllib.request.Request:
    if urlsplit(url).scheme not in _schemes(access):
        raise Failed(f"{shown(url)} is not fetched over {urlsplit(url).scheme}", "it takes https")
    if "@" in urlsplit(url).netloc:
        hint = "a header has it, such as Authorization: Basic …, in --header-file FILE"
        raise Failed(f"{shown(url)} has a user or a password before its host", hint)
    pairs = dict(line.split(":", 1) for line in access.headers.splitlines() if ":" in line)
    headers = {"User-Agent": "gen-seed"} | {name: value.strip() for name, value in pairs.items()}
    return urllib.request.Request(url, headers=headers)  # noqa: S310 - checked above


def _schemes(access: Access) -> tuple[str, ...]:
    return ("https", "http") if access.plain else ("https",)


def _opener(access: Access, redirects: _Redirects) -> urllib.request.OpenerDirector:
    bundle = os.environ.get("SSL_CERT_FILE")
    if bundle and not os.access(bundle, os.R_OK):  # OpenSSL would trust nobody and not say why
        raise Failed(f"$SSL_CERT_FILE is {bundle}, which cannot be read")
    context = ssl.create_default_context()
    if access.roots:
        context.load_verify_locations(cadata=access.roots)
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), redirects)


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = 5

    def __init__(self, url: str, access: Access) -> None:
        self._start, self._access, self.last = url, access, url

    def told(self) -> str:
        """Return what was asked for, and where another host was asked in its place."""
        first, last = shown(self._start), shown(self.last)
        elsewhere = urlsplit(first).netloc != urlsplit(last).netloc
        return f"{first}, which sent on to {last}" if elsewhere else first

    def redirect_request(self, req: Any, *rest: Any) -> Any:
        target = urljoin(req.full_url, rest[-1])
        old, new = urlsplit(req.full_url), urlsplit(target)
        if new.scheme not in _schemes(self._access) or (old.scheme, new.scheme) == (
            "https",
            "http",
        ):
            rest[0].close()
            raise Failed(
                f"{shown(self._start)} sends on to {shown(target)}, which is not https",
                "nothing is fetched from there",
            )
        self.last = target
        following = super().redirect_request(req, *rest)
        if following and (old.scheme, old.netloc) != (new.scheme, new.netloc):
            following.headers = {"User-agent": "gen-seed"}
        return following


def _read(
    answer: Any, url: str, take: Callable[[bytes], Any], most: int, within: float | None
) -> Fetched:
    deadline = time.monotonic() + within if within else None
    length = answer.headers.get("Content-Length", "")
    digest, size = hashlib.sha256(), 0
    while piece := answer.read1(_PIECE):
        size += len(piece)
        if size > most or (length.isdigit() and int(length) > most):
            raise Failed(f"{shown(url)} is larger than {most} bytes")
        if deadline and time.monotonic() > deadline:
            raise Failed(f"{shown(url)} is not here after {within:g} seconds", "try again later")
        digest.update(piece)
        take(piece)
    if length.isdigit() and size != int(length):
        raise Failed(f"{shown(url)} was cut off after {size} of {length} bytes", "try again")
    return Fetched(digest.hexdigest(), size, shown(answer.geturl()))


def _status(file: str, code: int, access: Access) -> Failed:
    if code in _DENIED:
        hint = (
            "the server does not take what is in the header file"
            if access.headers
            else "if it wants a token: --header-file FILE, or release.headers_file in fleet.yaml"
        )
    elif code == HTTPStatus.NOT_FOUND:
        hint = "see whether the release is there, and under this name"
    elif HTTPStatus.MULTIPLE_CHOICES <= code < HTTPStatus.BAD_REQUEST:
        return Failed(f"{file} sends on and on, or nowhere", "see with curl -IL", code)
    else:
        hint = "try again later"
    return Failed(f"the server answers {code} for {file}", hint, code)


def _failure(redirects: _Redirects, error: Exception, access: Access) -> Failed:
    """Return why there was no answer, in words of ours: a server's own might be anything."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    told = partial(Failed, f"cannot fetch {redirects.told()}: {_reason(reason, access)}")
    if isinstance(reason, ssl.SSLCertVerificationError):
        if "expired" in reason.verify_message:
            return told("whoever runs the server has to renew its certificate; nothing is trusted")
        return told("for a server with a root of its own: --ca FILE, or release.ca in fleet.yaml")
    way = f" by the proxy of ${proxy}" if (proxy := _proxy(redirects.last)) else ""
    return told(f"see whether the server can be reached from here{way}, and try again")


def _proxy(url: str) -> str:
    """Return the variable that names the proxy for a URL, empty where there is none."""
    parts = urlsplit(url)
    wanted = urllib.request.getproxies().get(parts.scheme)
    taken = wanted and not urllib.request.proxy_bypass(parts.netloc)
    return f"{parts.scheme}_proxy" if taken else ""


def _reason(error: object, access: Access) -> str:
    match error:
        case TimeoutError():
            reason = f"the server said nothing for {access.stall:g} seconds"
        case ssl.SSLCertVerificationError():
            reason = error.verify_message.lower()
        case ssl.SSLError():
            reason = f"no TLS with it ({(error.reason or 'it failed').lower().replace('_', ' ')})"
        case OSError() if error.strerror:
            reason = error.strerror.lower()
        case OSError() if str(error).startswith("Tunnel"):
            reason = "the proxy does not let it through"
        case ConnectionError() | http.client.IncompleteRead():
            reason = "the server hung up"
        case _:
            reason = "its answer is no HTTP"
    return reason
