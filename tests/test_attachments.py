"""What a spec refers to is read late, checked, and never shown."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from generator import attachments, identity, spec
from generator.problem import Refused

if TYPE_CHECKING:
    from pathlib import Path

RELEASE = spec.Release("v1", ("https://h",), {"amd64": hashlib.sha256(b"binary").hexdigest()})
SPEC = spec.Spec("n7", "https://h", "10.0.0.7", RELEASE)
PROXY = "http://user:hunter2@proxy.example.net:3128"


def filled(root: Path, environ: dict[str, str] | None = None, **parts: Any) -> spec.Spec:
    asked = replace(
        SPEC,
        release=replace(RELEASE, **{k: v for k, v in parts.items() if k in ("ca", "headers_file")}),
        proxy=spec.Proxy(**{k: v for k, v in parts.items() if k in ("http", "https")}),
    )
    return attachments.fill(asked, root, environ or {}, stand_in=bool(parts.get("stand_in")))


def test_a_secret_comes_from_a_file_or_a_variable(tmp_path: Path) -> None:
    (tmp_path / "proxy").write_text(f"{PROXY}\n")
    asked: dict[str, Any] = {"http": spec.Secret(file="proxy"), "https": spec.Secret(env="WAY")}
    made = filled(tmp_path, {"WAY": PROXY}, **asked)
    assert (made.proxy.http, made.proxy.https) == (PROXY, PROXY)
    assert "hunter2" not in repr(made)


def test_headers_are_kept_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "headers").write_bytes(b"Authorization: Bearer hunter2\r\n\r\nX-A: b\r\n")
    made = filled(tmp_path, headers_file="headers")
    assert made.release.headers == "Authorization: Bearer hunter2\nX-A: b\n"
    assert "hunter2" not in repr(made)


def test_roots_are_kept_as_certificates_alone(tmp_path: Path) -> None:
    roots = identity.placeholder("n7").roots_pem
    (tmp_path / "ca.pem").write_bytes(b"a comment\r\n" + roots.replace(b"\n", b"\r\n"))
    assert filled(tmp_path, ca="ca.pem").release.roots.encode() == roots


def test_with_a_stand_in_no_secret_is_read(tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "http": spec.Secret(file="none"),
        "headers_file": "none",
        "stand_in": True,
    }
    made = filled(tmp_path, **asked)
    assert made.proxy.http == "http://placeholder.invalid:3128"
    assert made.release.headers == "X-Placeholder: none\n"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no file": ({"http": spec.Secret(file="none")}, "cannot read .*none: no such file"),
    "no variable": ({"https": spec.Secret(env="NONE")}, r"\$NONE is not set"),
    "no URL": ({"http": spec.Secret(file="secret")}, "secret holds no proxy's URL: it starts"),
    "no header": ({"headers_file": "secret"}, "secret, line 1 is not a header"),
    "nothing": ({"headers_file": "empty"}, "empty holds no header"),
    "no roots": ({"ca": "secret"}, "secret holds no certificate in PEM form"),
    "no UTF-8": ({"headers_file": "latin"}, "latin is not UTF-8"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_good_is_named_and_not_shown(case: str, tmp_path: Path) -> None:
    parts, message = WRONG[case]
    (tmp_path / "secret").write_text("hunter2 hunter2\n")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "latin").write_bytes(b"X: \xfc\n")
    with pytest.raises(Refused, match=message) as refused:
        filled(tmp_path, **parts)
    assert "hunter2" not in repr(refused.value.problems)


def test_all_that_is_missing_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        filled(tmp_path, http=spec.Secret(file="a"), ca="b", headers_file="c")
    paths = {problem.path for problem in refused.value.problems}
    assert paths == {"proxy.http", "release.ca", "release.headers_file"}


def test_a_binary_is_known_by_its_digest(tmp_path: Path) -> None:
    (tmp_path / "llmgw").write_bytes(b"binary")
    assert attachments.binary(tmp_path / "llmgw", RELEASE) == {"llmgw-amd64": b"binary"}
    (tmp_path / "llmgw").write_bytes(b"another")
    with pytest.raises(Refused, match="is not release v1: its digest is"):
        attachments.binary(tmp_path / "llmgw", RELEASE)


def test_a_node_that_fetches_nothing_is_given_nothing_for_it(tmp_path: Path) -> None:
    never = replace(RELEASE, fetch="never", ca="missing.pem", headers_file="missing")
    asked = replace(SPEC, release=never)
    assert attachments.fill(asked, tmp_path, {}, stand_in=False).release == never
    (tmp_path / "llmgw").write_bytes(b"binary")
    with pytest.raises(Refused, match=r"release\.fetch is never: the image has the binary"):
        attachments.binary(tmp_path / "llmgw", never)
