"""`gen-seed pin` against release servers, good and bad: what it writes, and when it does not."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from fleet import gen_seed
from stand_in import Authority, authority

from generator import pin_plan
from generator.prove import faults
from generator.prove.servers import ReleaseServer

OLD, AMD64, ARM64 = (b"\x7fELF" + name * 9 for name in (b"old", b"amd", b"arm"))
BINARIES = {"/v0.9.2/llmgw-amd64": AMD64, "/v0.9.2/llmgw-arm64": ARM64}
# The rest of a workspace that must not be touched.
FLEET = """\
# What all share.
schema: 1
release:
  version: v0.9.1   # the newest
  url: {url}/{{version}}/llmgw-{{arch}}
  sha256:
    amd64: "{old}"  # of the makers
    arm64: "{old}"
"""


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


SUMS = f"{sha(AMD64)}  llmgw-amd64\n{sha(ARM64)} *./llmgw-arm64\n".encode()


@pytest.fixture(scope="module")
def ca() -> Authority:
    return authority()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server(ca: Authority) -> Iterator[ReleaseServer]:
    with ReleaseServer(ca, {**BINARIES, "/v0.9.2/SHA256SUMS": SUMS}) as made:
        yield made


@pytest.fixture
def root(tmp_path: Path, server: ReleaseServer, ca: Authority) -> Path:
    (tmp_path / "ca.pem").write_bytes(ca.pem)
    write(tmp_path, FLEET.format(url=server.url, old=sha(OLD)))
    return tmp_path


def write(root: Path, text: str) -> None:
    (root / "fleet.yaml").write_text(text, encoding="utf-8")


def read(root: Path) -> str:
    return (root / "fleet.yaml").read_text("utf-8")


def pin(root: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    done = gen_seed("pin", *arguments, "--ca", "ca.pem", cwd=root, check=check)
    assert b"Traceback" not in done.stderr
    assert b"s3cr3t" not in done.stdout + done.stderr
    return done


def refused(root: Path, *arguments: str) -> str:
    """Pin, which must fail and leave everything as it was; return what was said."""
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.iterdir()}
    done = pin(root, *arguments, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout == b""
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.iterdir()}
    assert after == before
    return done.stderr.decode()


# ---- what it writes ---------------------------------------------------------------------


def test_the_digests_come_from_the_checksum_file(root: Path, server: ReleaseServer) -> None:
    before = read(root)
    done = pin(root, "v0.9.2")
    assert read(root) == (
        before.replace("v0.9.1 ", "v0.9.2 ")
        .replace(f'amd64: "{sha(OLD)}"', f'amd64: "{sha(AMD64)}"')
        .replace(f'arm64: "{sha(OLD)}"', f'arm64: "{sha(ARM64)}"')
    )
    assert server.requests == ["/v0.9.2/SHA256SUMS"]
    assert done.stdout.decode().splitlines() == [
        f"{sha(AMD64)}  amd64  {server.url}/v0.9.2/llmgw-amd64",
        f"{sha(ARM64)}  arm64  {server.url}/v0.9.2/llmgw-arm64",
    ]
    assert done.stderr.decode().splitlines() == [
        f"fetched {server.url}/v0.9.2/SHA256SUMS",
        "fleet.yaml has v0.9.2",
    ]


def test_the_file_keeps_its_mode(root: Path) -> None:
    (root / "fleet.yaml").chmod(0o664)
    pin(root, "v0.9.2")
    assert (root / "fleet.yaml").stat().st_mode & 0o7777 == 0o664
    assert sorted(path.name for path in root.iterdir()) == ["ca.pem", "fleet.yaml"]


@pytest.mark.parametrize(
    "name",
    [
        *("SHA256SUMS.txt", "sha256sum.txt", "sha256sums.txt", "checksums.txt"),
        "llmgw_0.9.2_checksums.txt",
    ],
)
def test_a_checksum_file_has_many_names(root: Path, server: ReleaseServer, name: str) -> None:
    server.files[f"/v0.9.2/{name}"] = server.files.pop("/v0.9.2/SHA256SUMS")
    pin(root, "v0.9.2")
    assert sha(ARM64) in read(root)
    assert not any("llmgw-amd64" in path for path in server.requests)


@pytest.mark.parametrize("end", [".sha256", ".sha256sum"])
def test_a_checksum_file_for_each_binary(root: Path, server: ReleaseServer, end: str) -> None:
    del server.files["/v0.9.2/SHA256SUMS"]
    for path, data in BINARIES.items():
        server.files[path + end] = f"{sha(data)}\n".encode()
    done = pin(root, "v0.9.2")
    assert sha(AMD64) in read(root)
    assert b"first use" not in done.stderr
    del server.files[f"/v0.9.2/llmgw-arm64{end}"]
    write(root, FLEET.format(url=server.url, old=sha(OLD)))
    assert "error: v0.9.2 has no arm64: there is no " in refused(root, "v0.9.2")


def test_without_a_checksum_file_it_is_trusted_on_first_use(
    root: Path, server: ReleaseServer
) -> None:
    del server.files["/v0.9.2/SHA256SUMS"]
    done = pin(root, "v0.9.2", "--format", "json")
    assert b"warning: trusted on first use" in done.stderr
    assert sha(AMD64) in read(root)
    found = json.loads(done.stdout)
    assert (found["schema"], found["version"]) == (1, "v0.9.2")
    assert found["binaries"][1] == {
        "arch": "arm64",
        "url": f"{server.url}/v0.9.2/llmgw-arm64",
        "sha256": sha(ARM64),
        "source": f"{server.url}/v0.9.2/llmgw-arm64",
        "first_use": True,
        "same": None,
    }


def test_a_checksum_file_that_came_another_way(root: Path, server: ReleaseServer) -> None:
    (root / "sums").write_text(f"SHA256 (llmgw-amd64) = {sha(b'a')}\n{sha(b'b')}  llmgw-arm64\n")
    for flag in ("--checksums", "--from"):
        write(root, FLEET.format(url=server.url, old=sha(OLD)))
        pin(root, "v0.9.2", flag, "sums")
        assert (sha(b"a") in read(root), sha(b"b") in read(root)) == (True, True)
    assert server.requests == []


def test_a_checksum_file_at_another_url(root: Path, server: ReleaseServer) -> None:
    server.files["/sums/v0.9.2"] = SUMS
    pin(root, "v0.9.2", "--from", f"{server.url}/sums/{{version}}")
    assert server.requests == ["/sums/v0.9.2"]
    assert sha(AMD64) in read(root)


def test_from_another_server(root: Path, ca: Authority, server: ReleaseServer) -> None:
    with ReleaseServer(ca, {"/x/SHA256SUMS": SUMS}) as other:
        pin(root, "v0.9.2", "--from", f"{other.url}/x/llmgw-{{arch}}")
    assert server.requests == []
    assert f"  url: {other.url}/x/llmgw-{{arch}}\n" in read(root)


def test_binaries_on_this_disk(root: Path, server: ReleaseServer) -> None:
    for path, data in BINARIES.items():
        (root / Path(path).name).write_bytes(data)
    done = pin(root, "v0.9.2", "--from", "llmgw-{arch}")
    assert b"trusted on first use" in done.stderr
    assert f"  url: {server.url}/{{version}}/llmgw-{{arch}}\n" in read(root)
    assert sha(AMD64) in read(root)
    assert server.requests == []


def beside(root: Path, place: str, sums: str, arm64: bytes) -> None:
    """Put binaries into a workspace, and what a checksum file says of them."""
    said: dict[Path, str] = {}
    for arch, stated in {"amd64": AMD64, "arm64": arm64}.items():
        file, sum_file = (root / part.format(arch=arch) for part in (place, sums))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(AMD64 if arch == "amd64" else ARM64)
        said[sum_file] = said.get(sum_file, "") + f"{sha(stated)}  {file.name}\n"
    for path, text in said.items():
        path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("place", "sums"),
    [
        ("./rel #1/llmgw-{arch}", "./rel #1/SHA256SUMS"),
        ("llmgw-{arch}", "checksums.txt"),
        ("rel/{arch}/llmgw", "rel/{arch}/SHA256SUMS"),
        ("rel/llmgw-{arch}", "rel/llmgw-{arch}.sha256"),
    ],
)
def test_a_checksum_file_beside_binaries_on_this_disk(root: Path, place: str, sums: str) -> None:
    beside(root, place, sums, ARM64)
    done = pin(root, "v0.9.2", "--from", place)
    assert b"first use" not in done.stderr
    assert (sha(AMD64) in read(root), sha(ARM64) in read(root)) == (True, True)
    pin(root, "--check", "--from", place)
    beside(root, place, sums, b"x")
    done = pin(root, "--check", "--from", place, check=False)
    assert done.returncode == 1
    said = f"error: {place} in {sums} has the digest {sha(b'x')}, and {sha(ARM64)} is pinned"
    assert said.format(arch="arm64") in done.stderr.decode()


def test_an_architecture_without_a_checksum_file(root: Path) -> None:
    beside(root, "rel/{arch}/llmgw", "rel/{arch}/SHA256SUMS", ARM64)
    (root / "rel/arm64/SHA256SUMS").unlink()
    said = pin(root, "v0.9.2", "--from", "rel/{arch}/llmgw", check=False).stderr.decode()
    assert "error: v0.9.2 has no arm64: there is no rel/arm64/SHA256SUMS" in said


def test_a_first_release(root: Path, server: ReleaseServer) -> None:
    write(root, "# nothing yet\n")
    pin(root, "v0.9.2", "--from", f"{server.url}/{{version}}/llmgw-{{arch}}")
    assert read(root) == (
        "# nothing yet\nrelease:\n  version: v0.9.2\n"
        f'  url: "{server.url}/{{version}}/llmgw-{{arch}}"\n'
        f"  sha256:\n    amd64: {quoted(sha(AMD64))}\n    arm64: {quoted(sha(ARM64))}\n"
    )


def quoted(digest: str) -> str:
    return digest if digest[0].isalpha() else f'"{digest}"'


def test_a_first_release_for_one_architecture(root: Path, server: ReleaseServer) -> None:
    write(root, f'release: {{url: "{server.url}/{{version}}/llmgw-{{arch}}"}}\n')
    server.files["/v0.9.2/SHA256SUMS"] = SUMS.splitlines(keepends=True)[0]
    pin(root, "v0.9.2")
    assert (sha(AMD64) in read(root), "arm64" in read(root)) == (True, False)
    del server.files["/v0.9.2/SHA256SUMS"], server.files["/v0.9.2/llmgw-amd64"]
    write(root, f'release: {{url: "{server.url}/{{version}}/llmgw-{{arch}}"}}\n')
    pin(root, "v0.9.2")
    assert (sha(ARM64) in read(root), "amd64" in read(root)) == (True, False)


def test_a_version_in_so_many_words(root: Path, server: ReleaseServer) -> None:
    sums = SUMS.replace(b"llmgw-", b"llmgw_0.9.2_")
    server.files = {"/v0.9.2/SHA256SUMS": sums}
    text = FLEET.format(url=server.url, old=sha(OLD)).replace(
        "{version}/llmgw-", "v0.9.1/llmgw_0.9.1_"
    )
    write(
        root, text.replace("  sha256:", "  archive: tar.gz\n  member: llmgw-0.9.1/llmgw\n  sha256:")
    )
    pin(root, "v0.9.2")
    assert f"  url: {server.url}/v0.9.2/llmgw_0.9.2_{{arch}}\n" in read(root)
    assert "  member: llmgw-0.9.2/llmgw\n" in read(root)


def test_the_next_mirror_is_asked_when_one_does_not_answer(
    root: Path, ca: Authority, server: ReleaseServer
) -> None:
    with ReleaseServer(ca, {}) as gone:
        pass
    text = FLEET.format(url=gone.url, old=sha(OLD))
    write(
        root,
        text.replace(
            "  sha256:", f'  urls: ["{server.url}/{{version}}/llmgw-{{arch}}"]\n  sha256:'
        ),
    )
    pin(root, "v0.9.2")
    assert sha(AMD64) in read(root)
    server.faults[:] = [faults.status(HTTPStatus.INTERNAL_SERVER_ERROR)]
    said = refused(root, "v0.9.3")
    assert said.count("error: ") == 2
    # A checksum file that is not there is told once, not for each mirror.
    assert refused(root, "v0.9.3", "--from", f"{server.url}/none").count("error: ") == 1


def test_the_examples_digests_are_none(root: Path, server: ReleaseServer) -> None:
    write(root, FLEET.format(url=server.url, old="0" * 64).replace("v0.9.1", "v0.9.2"))
    pin(root, "v0.9.2")
    assert sha(AMD64) in read(root)


def test_the_same_again_changes_nothing(root: Path) -> None:
    pin(root, "v0.9.2")
    before = (root / "fleet.yaml").stat()
    pin(root, "v0.9.2")
    after = (root / "fleet.yaml").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


# ---- when it writes nothing --------------------------------------------------------------


def test_another_digest_under_the_same_version(root: Path, server: ReleaseServer) -> None:
    pin(root, "v0.9.2")
    server.files["/v0.9.2/SHA256SUMS"] = SUMS.replace(sha(ARM64).encode(), sha(b"evil").encode())
    said = refused(root, "v0.9.2")
    assert "error: fleet.yaml:8:12: release.sha256.arm64: " in said
    assert f"v0.9.2 is pinned with {sha(ARM64)}, and now it is {sha(b'evil')}" in said
    assert "a release does not change" in said
    # Neither with another source.
    (root / "sums").write_bytes(server.files["/v0.9.2/SHA256SUMS"])
    assert "is pinned with" in refused(root, "v0.9.2", "--checksums", "sums")


@pytest.mark.parametrize(
    ("sums", "said"),
    [
        (b"<!DOCTYPE html><html>log in</html>", "is a web page, and no checksum file"),
        (b"", "has no SHA-256 digest"),
        (SUMS.replace(b"llmgw", b"other"), "has no digest for llmgw-amd64"),
        (SUMS.splitlines()[0], "error: v0.9.2 has no arm64: "),
        (SUMS + f"{sha(b'x')}  llmgw-amd64\n".encode(), "has several digests for llmgw-amd64"),
    ],
)
def test_a_wrong_checksum_file(root: Path, server: ReleaseServer, sums: bytes, said: str) -> None:
    server.files["/v0.9.2/SHA256SUMS"] = sums
    assert said in refused(root, "v0.9.2")


def test_an_architecture_that_is_not_there(root: Path, server: ReleaseServer) -> None:
    server.files["/v0.9.2/SHA256SUMS"] = SUMS.splitlines(keepends=True)[0]
    said = refused(root, "v0.9.2")
    assert f"error: v0.9.2 has no arm64: {server.url}/v0.9.2/SHA256SUMS has no digest" in said
    assert "it has: llmgw-amd64; a release without arm64: take arm64 out of release.sha256" in said
    del server.files["/v0.9.2/SHA256SUMS"], server.files["/v0.9.2/llmgw-arm64"]
    assert f"the server answers 404 for {server.url}/v0.9.2/llmgw-arm64" in refused(root, "v0.9.2")


def test_a_certificate_that_has_ended(root: Path, ca: Authority) -> None:
    with ReleaseServer(ca, {"/v0.9.2/SHA256SUMS": SUMS}, life=timedelta(days=-1)) as server:
        write(root, FLEET.format(url=server.url, old=sha(OLD)))
        said = refused(root, "v0.9.2")
    assert f"cannot fetch {server.url}/v0.9.2/SHA256SUMS: certificate has expired" in said


def test_a_root_that_nobody_knows(root: Path, server: ReleaseServer) -> None:
    done = gen_seed("pin", "v0.9.2", cwd=root, check=False)
    assert done.returncode == 1
    assert b"--ca FILE, or release.ca in fleet.yaml" in done.stderr
    assert server.requests == []
    write(root, read(root).replace("  sha256:", "  ca: ca.pem\n  sha256:"))
    gen_seed("pin", "v0.9.2", cwd=root)
    write(root, FLEET.format(url=server.url, old=sha(OLD)))
    gen_seed("pin", "v0.9.2", cwd=root, environ={"SSL_CERT_FILE": str(root / "ca.pem")})
    assert sha(AMD64) in read(root)


def test_a_redirect_to_another_host(root: Path, ca: Authority, server: ReleaseServer) -> None:
    with ReleaseServer(ca, {"/store?X-Signature=s3cr3t": SUMS}) as other:
        server.faults[:] = [faults.redirect(f"{other.url}/store?X-Signature=s3cr3t")]
        done = pin(root, "v0.9.2")
        said = f"fetched {server.url}/v0.9.2/SHA256SUMS, which sent on to {other.url}/store\n"
        assert said in done.stderr.decode()
        assert sha(AMD64) in read(root)
        server.faults[:] = [faults.redirect(other.url.replace("https", "http") + "/store?s3cr3t")]
        assert "sends on to http://" in refused(root, "v0.9.3")
        # Where it sends on to has a login, or nothing.
        server.faults[:] = [faults.redirect(f"{other.url}/login")]
        other.files["/login"] = b"<html>"
        assert "is a web page" in refused(root, "v0.9.3")


def test_a_token_that_is_needed(root: Path, ca: Authority, server: ReleaseServer) -> None:
    need = faults.needs("Authorization", "Bearer s3cr3t")
    server.faults[:] = [need]
    assert "if it wants a token: --header-file FILE" in refused(root, "v0.9.2")
    (root / "headers").write_text("Authorization: Bearer s3cr3t\n")
    with ReleaseServer(ca, {"/x": SUMS}) as other:
        server.faults[:] = [faults.redirect(f"{other.url}/x")]
        pin(root, "v0.9.2", "--header-file", "headers")
        assert server.headers[-1]["Authorization"] == "Bearer s3cr3t"
        assert "Authorization" not in other.headers[-1]
    assert sha(AMD64) in read(root)
    (root / "headers").write_text("s3cr3t\n")
    assert "headers, line 1 is not a header" in refused(root, "v0.9.2", "--header-file", "headers")


def test_the_nodes_token_goes_to_the_nodes_server_only(
    root: Path, ca: Authority, server: ReleaseServer
) -> None:
    (root / "headers").write_text("Authorization: Bearer s3cr3t\n")
    text = read(root).replace("  sha256:", "  headers_file: headers\n  sha256:")
    write(root, text)
    pin(root, "v0.9.2")
    assert server.headers[-1]["Authorization"] == "Bearer s3cr3t"
    with ReleaseServer(ca, {"/x/SHA256SUMS": SUMS}) as other:
        pin(root, "v0.9.2", "--from", f"{other.url}/x/llmgw-{{arch}}")
        assert "Authorization" not in other.headers[-1]


def test_a_slow_server(root: Path, server: ReleaseServer) -> None:
    server.faults[:] = [faults.stall(20)]
    assert "the server said nothing for 1 seconds" in refused(root, "v0.9.2", "--timeout", "1")
    server.faults[:] = [faults.slow(3)]
    pin(root, "v0.9.2", "--timeout", "2")
    assert sha(AMD64) in read(root)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (faults.status(HTTPStatus.SERVICE_UNAVAILABLE), "the server answers 503 for"),
        (faults.cut, "was cut off after"),
        (faults.loop, "sends on and on"),
    ],
)
def test_a_server_that_is_not_well(
    root: Path, server: ReleaseServer, fault: faults.Fault, said: str
) -> None:
    server.faults[:] = [fault]
    assert said in refused(root, "v0.9.2")


def test_a_page_is_no_binary(root: Path, server: ReleaseServer) -> None:
    del server.files["/v0.9.2/SHA256SUMS"]
    for body, said in [(b"\n<html>", "is a web page, and no binary"), (b"", "is empty")]:
        server.files["/v0.9.2/llmgw-arm64"] = body
        assert said in refused(root, "v0.9.2")


def test_a_signed_url_is_not_told(root: Path, server: ReleaseServer) -> None:
    text = FLEET.format(url=server.url, old=sha(OLD))
    write(root, text.replace("llmgw-{arch}", "llmgw-{arch}?sig=s3cr3t"))
    assert "the server answers 404" in refused(root, "v0.9.2")
    assert server.requests[0] == "/v0.9.2/SHA256SUMS?sig=s3cr3t"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FLEET.replace("{url}", "http://127.0.0.1:1"), "is not fetched over http"),
        (FLEET.replace("llmgw-{{arch}}", "llmgw"), "release.url has no {arch}"),
        ("schema: 1\n", "fleet.yaml has no release.url"),
        ("defaults:\n  release: {{version: v1}}\n", "the release is under defaults"),
        ("release: 7\n", "release: "),
        ("release: [\n", "not YAML"),
    ],
)
def test_a_fleet_that_cannot_be_pinned(root: Path, text: str, said: str) -> None:
    write(root, text.format(url="https://127.0.0.1:1", old=sha(OLD)))
    assert said in refused(root, "v0.9.2")


def test_no_fleet(root: Path) -> None:
    (root / "fleet.yaml").unlink()
    assert "gen-seed init makes one" in refused(root, "v0.9.2")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ((), 2, "which VERSION?"),
        (("v0.9.2", "--from", "x", "--checksums", "y"), 2, "not with --checksums"),
        (("no version",), 1, "'no version' is not a version"),
        (("v0.9.2", "--from", "https://h o/{arch}"), 1, "is not a URL"),
        (("v0.9.2", "--checksums", "none"), 1, "cannot read none"),
        (("v0.9.2", "--check"), 1, "v0.9.1 is pinned, and not v0.9.2"),
    ],
)
def test_what_cannot_be_asked(
    root: Path, server: ReleaseServer, arguments: tuple[str, ...], status: int, said: str
) -> None:
    done = pin(root, *arguments, check=False)
    assert (done.returncode, said in done.stderr.decode()) == (status, True), done.stderr
    assert server.requests == []


def test_a_fleet_that_is_edited_meanwhile(root: Path, server: ReleaseServer) -> None:
    edited = read(root) + "authority: {dir: pki}\n"

    def edit(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        write(root, edited)
        faults.slow(0)(handler, body)

    server.faults[:] = [edit]
    done = pin(root, "v0.9.2", check=False)
    assert done.returncode == 1
    assert b"was changed while the release was fetched" in done.stderr
    assert read(root) == edited


# ---- what is pinned, and what there is -----------------------------------------------------


def test_check_says_that_all_is_well(root: Path, server: ReleaseServer) -> None:
    pin(root, "v0.9.2")
    before = (read(root), (root / "fleet.yaml").stat().st_mtime_ns)
    done = pin(root, "--check")
    assert done.stdout.decode().count(sha(AMD64)) == 2  # the checksum file and the binary
    assert "/v0.9.2/llmgw-arm64" in server.requests
    assert (read(root), (root / "fleet.yaml").stat().st_mtime_ns) == before
    found = json.loads(pin(root, "--check", "--format", "json").stdout)["binaries"]
    assert [row["same"] for row in found] == [True] * 4


@pytest.mark.parametrize("path", ["/v0.9.2/llmgw-arm64", "/v0.9.2/SHA256SUMS"])
def test_check_sees_what_was_replaced(root: Path, server: ReleaseServer, path: str) -> None:
    pin(root, "v0.9.2")
    before = read(root)
    server.files[path] = server.files[path].replace(sha(ARM64).encode(), sha(b"x").encode())
    server.files[path] = (
        server.files[path].replace(b"arm", b"bad") if "arm64" in path else server.files[path]
    )
    done = pin(root, "v0.9.2", "--check", check=False)
    assert done.returncode == 1
    assert done.stderr.count(b"error: ") == 1
    assert f"and {sha(ARM64)} is pinned" in done.stderr.decode()
    assert read(root) == before


def test_check_looks_at_every_mirror(root: Path, ca: Authority) -> None:
    with ReleaseServer(ca, {**BINARIES, "/v0.9.2/llmgw-amd64": b"stale"}) as mirror:
        pin(root, "v0.9.2")
        more = f'  urls: ["{mirror.url}/{{version}}/llmgw-{{arch}}"]\n  sha256:'
        write(root, read(root).replace("  sha256:", more))
        done = pin(root, "--check", check=False)
        assert done.returncode == 1
        said = f"error: {mirror.url}/v0.9.2/llmgw-amd64 has the digest {sha(b'stale')}"
        assert said in done.stderr.decode()
        assert done.stderr.count(b"error: ") == 1


def test_check_reads_the_checksum_file_that_it_is_given(root: Path, server: ReleaseServer) -> None:
    pin(root, "v0.9.2")
    for path, data in BINARIES.items():
        (root / Path(path).name).write_bytes(data)
    (root / "good").write_bytes(SUMS)
    (root / "bad").write_bytes(SUMS.replace(sha(ARM64).encode(), sha(b"x").encode()))
    (root / "short").write_bytes(SUMS.splitlines()[0])
    said = f"llmgw-arm64 in bad has the digest {sha(b'x')}, and {sha(ARM64)} is pinned"
    for place in (("--from", "llmgw-{arch}"), ()):
        server.requests.clear()
        found = json.loads(
            pin(root, "--check", *place, "--checksums", "good", "--format", "json").stdout
        )["binaries"]
        assert [(row["source"] == "good", row["same"]) for row in found] == [
            *[(True, True)] * 2,
            *[(False, True)] * 2,
        ]
        assert "/v0.9.2/SHA256SUMS" not in server.requests
        for name, why in [("none", "cannot read none"), ("bad", said), ("short", "has no arm64")]:
            done = pin(root, "--check", *place, "--checksums", name, check=False)
            assert (done.returncode, why in done.stderr.decode()) == (1, True), done.stderr
            assert done.stderr.count(b"error: ") == 1
    # --from without {arch} is such a file too.
    assert said in pin(root, "--check", "--from", "bad", check=False).stderr.decode()


def test_check_wants_something_pinned(root: Path) -> None:
    write(root, "schema: 1\n")
    assert "nothing is pinned" in refused(root, "--check")


def test_a_version_that_is_a_part_of_another() -> None:
    renewed = pin_plan.renewed
    assert renewed("https://10.0.9.1/v0.9.12/0.9.1", "0.9.1", "0.9.2") == (
        "https://10.0.9.1/v0.9.12/0.9.2"
    )
    assert renewed("https://h/v0.9.1/x", "v0.9.1", "v0.9.1-rc1") == "https://h/v0.9.1-rc1/x"
    assert renewed("https://h/1/x", "v1", "v2") == "https://h/1/x"
