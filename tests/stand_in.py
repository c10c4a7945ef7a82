"""A folder that stands for a node's root, with onboard in it, and an authority to go with it.

What onboard calls and a build machine has not (systemctl, the trust commands of other families)
are stand-ins written from their documentation; the real ones are met in the tests that boot.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from generator import certificate, identity, pem, spec
from generator.render import render
from generator.resources import TEMPLATES
from generator.template import environment

SCRIPT = TEMPLATES / "onboard"
DASH = ["dash"]
SHELLS = {"dash": DASH, "busybox": ["busybox", "sh"], "bash": ["bash", "--posix"]}
BINARY = b"#!/bin/sh\n"
SHA256 = hashlib.sha256(BINARY).hexdigest()
CONF = "etc/llmgw/onboard.conf"
SUMS = "etc/llmgw/seed.sha256"

SYSTEMCTL = """\
[ "$1" = show ] || echo "$*" >>"$LLMGW_ROOT/calls"
case "$*" in
  *MainPID*) echo MainPID=42 ;;
  *ActiveState*) echo ActiveState=active ;;
esac
"""
# curl stands in for the network: it copies what the release server would give.
CURL = """\
echo "$*" >>"$LLMGW_ROOT/calls"
while [ "$1" != --output ]; do shift; done
cp "$LLMGW_ROOT/release" "$2" || { echo "curl: (7) Failed to connect" >&2; exit 7; }
"""


@dataclass(frozen=True)
class Node:
    """A node's root folder, and a PATH of stand-ins before the host's own commands."""

    root: Path
    shell: list[str]

    def install(self, name: str, text: str) -> None:
        path = self.root / "stand-ins" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)

    def lacks(self, *names: str) -> None:
        """Make the host's own commands all but these."""
        host = self.root / "host"
        host.mkdir()
        for name in names:
            (self.root / "stand-ins" / name).unlink(missing_ok=True)
        for folder in ("/usr/bin", "/usr/sbin", "/bin", "/sbin"):
            for command in Path(folder).iterdir():
                if command.name not in names and not (host / command.name).is_symlink():
                    (host / command.name).symlink_to(command)

    @property
    def environ(self) -> dict[str, str]:
        host = self.root / "host"
        commands = str(host) if host.exists() else "/usr/sbin:/usr/bin:/sbin:/bin"
        return {"LLMGW_ROOT": str(self.root), "PATH": f"{self.root}/stand-ins:{commands}"}

    def command(self, *arguments: str) -> list[str]:
        return [*self.shell, str(self.root / "usr/local/lib/llmgw/onboard"), *arguments]

    def ask(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run one of onboard's commands to its end."""
        return subprocess.run(
            self.command(*arguments), env=self.environ, text=True, check=False, input=stdin,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
        )  # fmt: skip

    def onboard(self, until: str = "not yet: ") -> str:
        """Run `onboard run` until it has said `until`, or else ends; return what it said.

        What it says last where there is no control plane is that this has not yet answered.
        """
        said = ""
        with subprocess.Popen(
            self.command("run"), env=self.environ, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        ) as process:  # fmt: skip
            deadline = threading.Timer(60, os.killpg, (process.pid, signal.SIGKILL))
            deadline.start()
            assert process.stdout
            for line in process.stdout:
                said += line
                if until and until in line:
                    os.killpg(process.pid, signal.SIGKILL)
                    break
            process.wait()
            assert deadline.is_alive(), f"not within 60 s: {until or 'its end'}\n{said}"
            deadline.cancel()
        assert until in said, said
        return said

    def status(self, folder: str = "var/lib") -> dict[str, Any]:
        found = json.loads((self.root / folder / "llmgw-onboard/status.json").read_text())
        assert isinstance(found, dict)
        return found

    def accept(self) -> None:
        """Have the status say that the control plane has accepted the node."""
        file = self.root / "var/lib/llmgw-onboard/status.json"
        file.write_text(json.dumps(self.status() | {"accepted": "yes"}))

    def verdict(self) -> str:
        return (self.root / "run/llmgw-onboard/verdict").read_text().strip()

    def calls(self) -> str:
        path = self.root / "calls"
        return path.read_text() if path.exists() else ""

    @property
    def binary(self) -> Path:
        return self.root / "usr/local/bin/llmgw"

    def bin(self) -> list[str]:
        """Return what stands where the binary belongs."""
        return sorted(path.name for path in self.binary.parent.iterdir())

    def write(self, files: Mapping[str, bytes | str]) -> None:
        """Write files of the seed, by their path, and have its list of digests say so."""
        sums = self.root / SUMS
        paths = [line.split("  ")[1] for line in sums.read_text().splitlines()]
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        paths += [name for name in files if name not in paths]
        if len(paths) != int(self.conf()["files"]):
            self._set(files=str(len(paths)))
        digests = [hashlib.sha256((self.root / path).read_bytes()).hexdigest() for path in paths]
        sums.write_text("".join(f"{d}  {p}\n" for d, p in zip(digests, paths, strict=True)))

    def conf(self) -> dict[str, str]:
        lines = (self.root / CONF).read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def configure(self, **values: str) -> None:
        """Change onboard.conf, as a seed made so would have it."""
        self._set(**values)
        self.write({})

    def _set(self, **values: str) -> None:
        lines = (self.root / CONF).read_text().splitlines()
        kept = [line for line in lines if line.partition("=")[0] not in values]
        changed = [f"{name}={value}" for name, value in values.items()]
        (self.root / CONF).write_text("\n".join([*kept, *changed, ""]))


def release_of(binary: bytes, version: str) -> spec.Release:
    digest = hashlib.sha256(binary).hexdigest()
    url = "https://h.example/{version}/{arch}"
    return spec.Release(version, (url,), {"amd64": digest, "arm64": digest})


FIRST = spec.Spec("n7", "https://h.example", "10.0.0.7", release_of(BINARY, "v1"))


@functools.cache
def _seed() -> dict[str, str]:
    return files_of(FIRST)


def files_of(asked: spec.Spec) -> dict[str, str]:
    """Return the files of a seed whose certificate is good today, without their list."""
    rendered = render(asked, identity.placeholder(asked.node_id), environment())
    files = {f.path: f.content for f in rendered.files}
    files.pop("/etc/llmgw/seed.sha256")
    conf = files[f"/{CONF}"]
    files[f"/{CONF}"] = conf.replace("not_after=9", "not_after=99")  # in the year 2269
    script = files["/usr/local/lib/llmgw/onboard"]
    files["/usr/local/lib/llmgw/onboard"] = script.replace("\nstay_up=10 ", "\nstay_up=2 ")
    assert files["/usr/local/lib/llmgw/onboard"] != script
    return files


def user_data(files: Mapping[str, str]) -> str:
    """Return a user-data that writes these files, by their path, and their list of digests."""
    sums = "".join(
        f"{hashlib.sha256(content.encode()).hexdigest()}  {path[1:]}\n"
        for path, content in files.items()
    )
    modes = {path: "0600" for path in files if path.endswith(("key.pem", ".conf", ".env"))}
    entries = [
        {"path": path, "permissions": modes.get(path, "0644"), "content": content}
        for path, content in {**files, f"/{SUMS}": sums}.items()
    ]
    return "#cloud-config\n" + json.dumps({"write_files": entries}, indent=1)


def node_in(root: Path, shell: list[str]) -> Node:
    """Return a node whose seed has been written, with a certificate that is good today."""
    made = Node(root, shell)
    (root / "etc/llmgw").mkdir(parents=True)
    (root / CONF).write_text(_seed()[f"/{CONF}"])
    (root / SUMS).touch()
    made.write({path[1:]: content for path, content in _seed().items()})
    (root / "release").write_bytes(BINARY)
    (root / "run/systemd/system").mkdir(parents=True)
    made.install("systemctl", SYSTEMCTL)
    made.install("curl", CURL)
    made.install("openssl", "exit 0")
    made.install("sleep", "exec /bin/sleep 0.02")
    made.install("blkid", "exit 2")
    made.install("update-ca-certificates", 'echo update-ca-certificates "$@" >>"$LLMGW_ROOT/calls"')
    return made


def node_at_rest(root: Path) -> Node:
    """Return a node that is what its first seed says."""
    made = node_in(root, DASH)
    made.onboard()
    made.accept()
    return made


@dataclass(frozen=True)
class Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return pem.certificates_pem([self.certificate])

    def identity(self, name: str = "n7") -> dict[str, bytes]:
        """Return the identity files of a node, by their path."""
        key = ec.generate_private_key(ec.SECP256R1())
        life = certificate.period(datetime.now(UTC), 1)
        serial = x509.random_serial_number()
        made = certificate.leaf(key.public_key(), name, serial, life, self.certificate, self.key)
        return {
            "etc/llmgw/ca.pem": self.pem,
            "etc/llmgw/agent.pem": pem.certificates_pem([made]),
            "etc/llmgw/agent-key.pem": key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        }


def authority(name: str = "a test's authority") -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    life = certificate.period(datetime.now(UTC), 2)
    return Authority(certificate.root(key, name, x509.random_serial_number(), life), key)


def archive(kind: str, member: str, content: bytes = BINARY) -> bytes:
    file = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(file, "w") as made:
            made.writestr(member, content)
            made.writestr("README", "x")
    else:
        compression: Literal["w:gz", "w:xz"] = "w:gz" if kind == "tar.gz" else "w:xz"
        with tarfile.open(fileobj=file, mode=compression) as bundle:
            for name, data in ((member, content), ("README", b"x")):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                bundle.addfile(info, io.BytesIO(data))
    return file.getvalue()


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Keep even root from writing to a folder, which is made where it is missing."""
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "--bind", path, path], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", path], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def available() -> list[str]:
    """Return the shells that this host has."""
    return [name for name in SHELLS if shutil.which(SHELLS[name][0])]
