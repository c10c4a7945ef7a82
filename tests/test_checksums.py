"""Checksum files as they are found beside releases."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generator.checksums import parse
from generator.problem import Refused

A, B = ("ab" * 32, "cd" * 32)
URL = "https://h/v1/llmgw-linux-amd64?token=s3cr3t"


def digest(text: str, url: str = URL) -> str:
    return parse(text.encode(), "SUMS").digest(url)


def refusal(text: str | bytes, url: str = URL) -> tuple[str, str]:
    with pytest.raises(Refused) as caught:
        parse(text if isinstance(text, bytes) else text.encode(), "SUMS").digest(url)
    (problem,) = caught.value.problems
    return problem.message, problem.hint


@pytest.mark.parametrize(
    "line",
    [
        f"{A}  llmgw-linux-amd64",
        f"{A} *llmgw-linux-amd64",
        f"{A} llmgw-linux-amd64",
        f"{A}\tllmgw-linux-amd64",
        f"{A}  ./llmgw-linux-amd64",
        f"{A}  dist/bin/llmgw-linux-amd64",
        f"{A}  dist\\llmgw-linux-amd64",
        f"{A.upper()}  llmgw-linux-amd64",
        f"SHA256 (llmgw-linux-amd64) = {A}",
        f"SHA256(llmgw-linux-amd64)= {A}",
        f"SHA2-256(dist/llmgw-linux-amd64)= {A.upper()}",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line_in_each_usual_form(line: str, end: str) -> None:
    other = f"{B}  llmgw-linux-arm64"
    text = f"# sums{end}{end}{other}{end}{line}{end}"
    assert digest(text) == A
    assert digest(text, "https://h/llmgw-linux-arm64") == B
    assert digest(f"\ufeff{line}") == A


def test_a_file_with_a_digest_and_no_name() -> None:
    assert digest(f"{A}\n") == A
    assert digest(f"{A}  -\n") == A


def test_other_digests_in_the_file_are_not_taken() -> None:
    text = f"SHA512 (llmgw-linux-amd64) = {A}{A}\nMD5 (llmgw-linux-amd64) = {A[:32]}\n"
    assert digest(f"{text}SHA256 (llmgw-linux-amd64) = {B}\n") == B
    assert refusal(text)[0] == "SUMS has no SHA-256 digest; its digests have 32 digits"
    assert "have 128 digits" in refusal(f"{A}{A}  llmgw-linux-amd64\n")[0]
    # 64 digits, and still no SHA-256.
    assert "no SHA-256 digest" in refusal(f"SHA512-256 (llmgw-linux-amd64) = {A}\n")[0]


def test_a_signed_file() -> None:
    text = f"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n{A}  llmgw-linux-amd64\n"
    assert digest(f"{text}-----BEGIN PGP SIGNATURE-----\n\niQ==\n") == A


def test_the_folder_tells_two_of_one_name_apart() -> None:
    text = f"{A}  linux/amd64/llmgw\n{B}  linux/arm64/llmgw\n"
    assert digest(text, "https://h/v1/linux/arm64/llmgw") == B
    assert refusal(text, "https://h/llmgw")[0] == "SUMS has no digest for llmgw"
    twice = f"{A}  llmgw\n{B}  llmgw\n"
    assert refusal(twice, "https://h/llmgw")[0] == "SUMS has several digests for llmgw"
    assert digest(f"{A}  a/llmgw\n{A}  b/llmgw\n", "https://h/llmgw") == A


def test_the_checksum_file_of_something_else() -> None:
    message, hint = refusal(f"{A}  other-linux-amd64\n{B}  other-linux-arm64\n")
    assert message == "SUMS has no digest for llmgw-linux-amd64"
    assert hint == "it has: other-linux-amd64, other-linux-arm64"
    # A longer name is another.
    assert refusal(f"{A}  llmgw-linux-amd64.tar.gz\n")[1] == "it has: llmgw-linux-amd64.tar.gz"


@pytest.mark.parametrize("page", ["<!DOCTYPE html><html>", "  \n<html>log in</html>", "<?xml?>"])
def test_a_web_page(page: str) -> None:
    message, hint = refusal(f"{page}\n{A}  llmgw-linux-amd64\n")
    assert message == "SUMS is a web page, and no checksum file"
    assert "--header-file" in hint


@pytest.mark.parametrize("data", [b"", b"\x7fELF\0\xff" * 99, b"not found\n", b'{"a": 1}'])
def test_no_checksum_file(data: bytes) -> None:
    assert refusal(data)[0] == "SUMS has no SHA-256 digest"


@settings(deadline=None)
@given(st.binary(max_size=2000))
def test_whatever_comes_is_read_or_refused(data: bytes) -> None:
    try:
        found = parse(data, "SUMS").digest(URL)
    except Refused:
        return
    assert len(found) == 64


@settings(deadline=None)
@given(st.lists(st.text("abc-._", min_size=1, max_size=9), unique=True, min_size=1))
def test_what_sha256sum_would_print_is_found(names: list[str]) -> None:
    names = [name for name in names if name.strip(".")] or ["x"]
    sums = {name: hashlib.sha256(name.encode()).hexdigest() for name in names}
    text = "".join(f"{value}  {name}\n" for name, value in sums.items())
    for name, value in sums.items():
        assert digest(text, f"https://h/{name}") == value
