"""The formats that the schemas name, checked here and nowhere else.

jsonschema leaves a format unchecked when some other package is missing, and checks it
differently from version to version. Each check takes the text and returns why it is
refused, empty when it is not: ``"'10.0.0.256' is not an IP address: " + reason``.
"""

from __future__ import annotations

import ipaddress
import re
import string
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_HOST = re.compile(r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.?)+\Z", re.IGNORECASE)
_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2})*\Z", re.IGNORECASE)
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|µs|ms|s|m|h))+\Z")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f-\xa0]|[\u2028-\u2029]|[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]|[\u2028-\u2029]|[\ud800-\udfff]")
_PLACEHOLDERS = {"version", "arch"}
_PORTS = 65535
_MAC_BYTES, _INFINIBAND_BYTES = 6, 20


def seconds(duration: str) -> float:
    """Return a Go duration (``1m30s``) in seconds; it must have passed its check."""
    parts = re.findall(r"([0-9.]+)([a-zµ]+)", duration)
    return float(sum(float(number) * _UNITS[unit] for number, unit in parts))


def placeholders(url: str) -> list[str]:
    """Return the names in braces in a release's URL; raise `ValueError` for a stray brace."""
    names = []
    for _, name, spec, conversion in string.Formatter().parse(url):
        if name is not None:
            names.append(
                name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
            )
    if "{{" in url or "}}" in url:
        raise ValueError(url)
    return names


def _duration(text: str) -> str:
    if not _DURATION.match(text):
        return "a number with a unit, such as 500ms, 60s or 1m30s"
    # Go's time.ParseDuration counts nanoseconds in 63 bits.
    if not 0 < seconds(text) < 9.2e9:  # noqa: PLR2004
        return "it must be more than nothing and less than 292 years"
    return ""


def _ip(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        if ":" in text:
            return "IPv6 has up to eight groups of hexadecimal digits with ':' between them"
        return "IPv4 has four numbers from 0 to 255 with '.' between them"
    return "without a zone ('%')" if "%" in text else ""


def _ip_interface(text: str) -> str:
    address, slash, prefix = text.partition("/")
    if _ip(address):
        return _ip(address)
    bits = 128 if ":" in address else 32
    if not slash or not re.fullmatch(r"0|[1-9][0-9]{0,2}", prefix) or int(prefix) > bits:
        return f"it ends in '/' and a prefix length up to {bits}"
    return ""


def _destination(text: str) -> str:
    if text == "default":
        return ""
    if _ip_interface(text):
        return _ip_interface(text)
    network = ipaddress.ip_interface(text).network
    if str(network.network_address) != str(ipaddress.ip_interface(text).ip):
        return f"it has bits behind its prefix, {network} has not"
    return ""


def _host(text: str) -> str:
    if not _ip(text) or text == "auto":
        return ""
    last = text.rstrip(".").rpartition(".")[2]
    if last.isdecimal() or ":" in text:
        return _ip(text)
    return _host_name(text)


def _host_name(text: str) -> str:
    if not _HOST.match(text) or text.endswith(".") or _bad_dots(text):
        return "letters, digits and '-' in parts of up to 63 between dots"
    return ""


def _bad_dots(text: str) -> bool:
    return any(len(part) > 63 or not part for part in text.split("."))  # noqa: PLR2004


def _url(text: str, schemes: tuple[str, ...]) -> str:
    scheme = text.partition("://")[0]
    if scheme not in schemes or "://" not in text:
        return f"it starts with {' or '.join(f'{name}://' for name in schemes)}"
    if _UNPRINTABLE.search(text) or not text.isascii():
        return "white space and letters beyond ASCII are written as %20 and the like"
    authority = re.split(r"[/?#]", text.partition("://")[2], maxsplit=1)[0]
    if "@" in authority:
        return "a user or password does not belong into it"
    if authority.count(":") > 1 and not authority.startswith("["):
        return f"an IPv6 address stands in brackets, such as {scheme}://[fd00::1]:7443"
    return _authority(authority)


def _authority(text: str) -> str:
    parts = re.fullmatch(r"(?:\[(?P<v6>[^\]]*)\]|(?P<name>[^:\[\]]*))(?P<port>:.*)?", text)
    if not parts:
        return "its host cannot be told from its port"
    v6, name, port = parts["v6"], parts["name"], parts["port"]
    if v6 is None:
        bad = not name or name == "auto" or bool(_host(name))
    else:
        bad = bool(_ip(v6)) or ":" not in v6
    if bad:
        return "its host is neither a name nor an IP address"
    if port and not (re.fullmatch(r":[0-9]{1,5}", port) and 0 < int(port[1:]) <= _PORTS):
        return f"its port is a number from 1 to {_PORTS}"
    return ""


def _url_https(text: str) -> str:
    reason = _url(text, ("https",))
    if not reason and ("?" in text or "#" in text):
        return "nothing with '?' or '#'"
    return reason


def _url_release(text: str) -> str:
    try:
        names = placeholders(text)
    except ValueError:
        return "a brace that is not closed, or not opened"
    unknown = [name for name in names if name not in _PLACEHOLDERS]
    if unknown:
        return f"{{{unknown[0]}}} is filled in by nobody, only {{version}} and {{arch}} are"
    if "#" in text:
        return "nothing with '#'"
    return _url(text.replace("{version}", "v").replace("{arch}", "a"), ("https", "http"))


def _url_proxy(text: str) -> str:
    if re.search(r"['\"\\$`]", text):
        return "quotes, '$' and the like are written as %27 and the like"
    # A proxy, unlike a server, is often given with a user and a password.
    scheme, separator, rest = text.partition("://")
    host = rest.rpartition("@")[2].rstrip("/")
    return _url(f"{scheme}{separator}{host}", ("http", "https"))


def _no_proxy(text: str) -> str:
    if text == "*":
        return "a proxy that is never used is left out"
    if "/" in text:
        return _ip_interface(text)
    return _host(text.removeprefix("."))


def _member(text: str) -> str:
    try:
        unknown = [name for name in placeholders(text) if name not in _PLACEHOLDERS]
    except ValueError:
        return "a brace that is not closed, or not opened"
    if unknown:
        return f"{{{unknown[0]}}} is filled in by nobody, only {{version}} and {{arch}} are"
    if text.startswith(("/", "-")) or ".." in text.split("/"):
        return "a path from the archive's top, without '..'"
    return "no control characters" if _CONTROL.search(text) else ""


def _local_path(text: str) -> str:
    if not text or _CONTROL.search(text):
        return "no control characters" if text else "it is empty"
    return ""


def _absolute_path(text: str) -> str:
    if not text.startswith("/"):
        return "it starts with '/'"
    if _CONTROL.search(text):
        return "no control characters"
    if ".." in text.split("/"):
        return "no '..'"
    return ""


def _interface(text: str) -> str:
    if len(text) > 15:  # noqa: PLR2004 - IFNAMSIZ less the final NUL (Linux, if.h)
        return f"it has {len(text)} characters, at most 15"
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", text) or text in (".", ".."):
        return "letters, digits, '_', '.', '-'"
    return ""


def _mac(text: str) -> str:
    count = text.count(":") + 1
    if not _MAC.match(text) or count not in (_MAC_BYTES, _INFINIBAND_BYTES):
        return "six bytes of two hexadecimal digits with ':' between them"
    if count == _INFINIBAND_BYTES:
        # netplan and systemd match six bytes only (canonical/cloud-init#3474, netplan#283).
        return "the 20 bytes of an InfiniBand address cannot be matched, its name or driver can"
    return ""


CHECKS: Mapping[str, Callable[[str], str]] = {
    "absolute-path": _absolute_path,
    "absolute-path-or-empty": lambda text: _absolute_path(text) if text else "",
    "duration-go": _duration,
    "host": _host,
    "host-name": _host_name,
    "interface": _interface,
    "ip-address": _ip,
    "ip-interface": _ip_interface,
    "local-path": _local_path,
    "mac": _mac,
    "member": _member,
    "no-proxy": _no_proxy,
    "route-destination": _destination,
    "url-https": _url_https,
    "url-proxy": _url_proxy,
    "url-release": _url_release,
}
