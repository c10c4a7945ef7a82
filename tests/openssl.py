"""The openssl command, as the second opinion on what we write and the source of odd files."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)
EXTENSIONS = """\
basicConstraints=critical,CA:TRUE
keyUsage=critical,keyCertSign,cRLSign
subjectKeyIdentifier=hash
"""


def run(*arguments: str | Path, stdin: bytes = b"") -> bytes:
    """Run ``openssl`` and return its output; a failure of it fails the test."""
    done = subprocess.run(["openssl", *arguments], input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def verify(folder: Path, chain: bytes, roots: bytes, purpose: str, *more: str) -> str:
    """Return "" where ``openssl verify -x509_strict`` accepts the chain's leaf, else why not."""
    leaf, untrusted, anchors = folder / "leaf.pem", folder / "chain.pem", folder / "roots.pem"
    leaf.write_bytes(chain)  # openssl takes the first certificate of this file
    untrusted.write_bytes(chain)
    anchors.write_bytes(roots)
    command = [
        "openssl",
        "verify",
        "-x509_strict",
        "-no-CApath",
        "-no-CAstore",
        "-purpose",
        purpose,
    ]
    command += ["-CAfile", str(anchors), "-untrusted", str(untrusted), *more, str(leaf)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def authority(
    folder: Path,
    key: bytes,
    extensions: str = EXTENSIONS,
    subject: str = "/CN=made by openssl",
    days: int = 3650,
    config: str = "",
) -> Path:
    """Write ca-key.pem and a self-signed ca.pem into `folder`."""
    folder.mkdir(mode=0o700, exist_ok=True)
    write_key(folder / "ca-key.pem", key)
    settings = folder / "openssl.cnf"
    settings.write_text(f"{config}\n[req]\ndistinguished_name=dn\n[dn]\n[ext]\n{extensions}\n")
    command: list[str | Path] = ["req", "-x509", "-new", "-key", folder / "ca-key.pem"]
    command += ["-config", settings, "-extensions", "ext", "-utf8"]
    command += ["-subj", subject, "-days", str(days), "-out", folder / "ca.pem"]
    run(*command)
    return folder


def key(kind: str = "ec") -> bytes:
    """Return a new private key: ec (P-256), P-384, P-521, ed25519, rsa."""
    options = {
        "ec": ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
        "rsa": ["RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
        "ed25519": ["ED25519"],
    }
    fallback = ["EC", "-pkeyopt", f"ec_paramgen_curve:{kind}"]
    return run("genpkey", "-algorithm", *options.get(kind, fallback))


def write_key(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(data)


def below(root: Path, folder: Path, extensions: str = EXTENSIONS) -> Path:
    """Make an intermediate below the authority in `root`, its certificate alone in ca.pem."""
    folder.mkdir(mode=0o700)
    write_key(folder / "ca-key.pem", key())
    settings = folder / "ext.cnf"
    settings.write_text(f"{extensions}\nauthorityKeyIdentifier=keyid\n")
    name = ["-subj", f"/CN={folder.name}"]
    request = run("req", "-new", "-key", folder / "ca-key.pem", *name)
    by: list[str | Path] = ["-CA", root / "ca.pem", "-CAkey", root / "ca-key.pem"]
    by += ["-set_serial", "7", "-days", "99"]
    signed = run("x509", "-req", *by, "-extfile", settings, stdin=request)
    (folder / "ca.pem").write_bytes(signed)
    return folder
