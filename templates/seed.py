"""What onboard leaves to python: reading a seed, and finding what else holds the node's key.

    seed.py list FILE             the list of digests of the seed in FILE, when it is whole
    seed.py show FILE PATH        one of the seed's files
    seed.py check FILE ROOT       would it be taken up by the machine at ROOT?
    seed.py stage FILE ROOT       each file of it beside its place there, as .NAME.next
    seed.py anchor FILE FOLDER    the certificates of FILE alone for a trust store's folder
    seed.py scrub ROOT all|cache  remove what else holds the node's key

FILE is user-data, plain or compressed, cloud-init's copy of it, or (for check and stage) the
answer to `onboard csr`. Run by the node's own python3, from 3.6 on, with the yaml that
cloud-init needs. What is wrong goes to stderr in one line, with nothing of any file's content.
"""

import base64
import fcntl
import gzip
import hashlib
import os
import re
import ssl
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

import yaml

Files = Dict[str, Tuple[int, bytes]]  # path without its first slash -> mode and content

LIST = "etc/llmgw/seed.sha256"
CONF, CERTIFICATE, KEY = "etc/llmgw/onboard.conf", "etc/llmgw/agent.pem", "etc/llmgw/agent-key.pem"
BORN = "etc/llmgw/.csr-key.pem"  # the key of a request, until its answer comes
OURS = re.compile(
    r"(etc/llmgw|usr/local/lib/llmgw"
    r"|etc/systemd/system(/(llmgw-agent\.service|multi-user\.target)\.d)?)"
    r"/[a-zA-Z0-9][a-zA-Z0-9._-]*"
)
# cloud-init's copies of what it read. It takes its cache for the seed and would not look at a
# new one, so the cache goes even where the rest may stay.
CACHE = "obj.pkl"
COPIES = ("user-data.txt", "user-data.txt.i", "cloud-config.txt", "scripts", CACHE)
VOLATILE = ("instance-data-sensitive.json", "combined-cloud-config.json")
# Where an installer leaves what it was given (canonical/subiquity).
INSTALLERS = ("etc/cloud/cloud.cfg.d", "var/log/installer")
# <linux/cdrom.h>
CDROMEJECT, CDROM_CLEAR_OPTIONS, CDROM_LOCKDOOR, CDO_AUTO_CLOSE = 0x5309, 0x5321, 0x5329, 1
CERTIFICATES = re.compile(
    rb"^-----BEGIN CERTIFICATE-----.*?^-----END CERTIFICATE-----\n?", re.MULTILINE | re.DOTALL
)
GZIP = b"\x1f\x8b"
LARGEST = 64 << 20  # bytes


def files(data: bytes) -> Files:
    """Return a seed's files, out of its user-data; the list of digests comes first.

    A file that the seed only lists must be on the machine already. Raises ValueError for what
    is no seed, or not a whole one.
    """
    if data[:2] == GZIP:
        data = gzip.decompress(data)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        written = yaml.load(data, loader)["write_files"]
        entries = {entry["path"].lstrip("/"): entry for entry in written}
        listed = str(entries[LIST]["content"])
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, UnicodeDecodeError):
        raise ValueError("this is no user-data of gen-seed") from None
    found = {LIST: (0o644, listed.encode())}
    for line in listed.splitlines():
        digest, _, path = line.partition("  ")
        if not OURS.fullmatch(path):
            raise ValueError("the seed's list of files has a line that is not of a file of a seed")
        if path in entries:
            content = str(entries[path]["content"]).encode()
            if hashlib.sha256(content).hexdigest() != digest:
                raise ValueError(f"{path} is not what the seed's own list of digests says")
            found[path] = (int(entries[path]["permissions"], 8), content)
    _, conf = found.get(CONF, (0, b""))
    if b"files=%d\n" % len(listed.splitlines()) not in conf:
        raise ValueError("the seed's list of files is cut off")
    return found


def answered(data: bytes, root: Path) -> Files:
    """Return what the answer to a request (a certificate and its chain, PEM) changes.

    The node's key becomes the one that was made for the request. Raises ValueError for an answer
    to something else.
    """
    if not (root / BORN).exists():
        raise ValueError("no request is open on this node; make one: onboard csr")
    key = (root / BORN).read_bytes()
    # And nothing that came along with them: all can read it there.
    data = b"".join(CERTIFICATES.findall(data.replace(b"\r", b"")))
    asked = ["-subject", "-nameopt", "RFC2253", "-startdate", "-enddate", "-pubkey"]
    told = openssl(["x509", "-noout", *asked], data)
    conf = (root / CONF).read_text(encoding="utf-8")
    node = re.findall("(?m)^seed='?(.*)-", conf)
    name = re.findall(r"(?m)^subject= *(?:.*,)?CN=([^,\n]*)", told)
    if name != node:
        raise ValueError(f"the certificate is of {''.join(name)}, and this machine is {node[0]}")
    if told[told.index("-----BEGIN") :] != openssl(["pkey", "-pubout"], key):
        raise ValueError("the certificate is not for the key of this node's request")
    answer = root / "etc/llmgw/.answer.next"
    answer.write_bytes(data)
    try:
        ca = str(root / "etc/llmgw/ca.pem")
        # Its end is looked at below, with a word of its own.
        trusted = ["-CAfile", ca, "-no_check_time", "-purpose", "sslclient"]
        openssl(["verify", *trusted, "-untrusted", str(answer), str(answer)])
    except ValueError:
        raise ValueError(
            "the certificate is not of the authority that this node trusts; give it a whole seed"
        ) from None
    finally:
        answer.unlink()
    for ours, theirs in (("not_before", "notBefore"), ("not_after", "notAfter")):
        (when,) = re.findall(f"^{theirs}=(.*)$", told, re.MULTILINE)
        if ours == "not_after" and ssl.cert_time_to_seconds(when) <= time.time():
            raise ValueError(f"the certificate ended {when}")
        conf = re.sub(f"(?m)^{ours}=.*$", f"{ours}={ssl.cert_time_to_seconds(when)}", conf)
    changed = {CERTIFICATE: (0o644, data), KEY: (0o600, key), CONF: (0o600, conf.encode())}
    listed = (root / LIST).read_text(encoding="utf-8")
    for path, (_, content) in changed.items():
        line = f"{hashlib.sha256(content).hexdigest()}  {path}"
        listed = re.sub(f"(?m)^[0-9a-f]*  {re.escape(path)}$", line, listed)
    return {LIST: (0o644, listed.encode()), **changed}


def openssl(command: List[str], stdin: bytes = b"") -> str:
    """Return what an openssl command says; ValueError when it fails."""
    done = subprocess.run(
        ["openssl", *command], check=False, input=stdin,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        # By the authority that it is given alone, and not by all that the system trusts.
        env={**os.environ, "SSL_CERT_DIR": os.devnull, "SSL_CERT_FILE": os.devnull},
    )  # fmt: skip
    if done.returncode:
        raise ValueError(f"this is no certificate that openssl {command[0]} takes")
    return done.stdout.decode()


def stage(found: Files, root: Path) -> None:
    """Write each file beside its place, whole and on the disk; the list first."""
    for name, (mode, content) in found.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        staged = path.with_name(f".{path.name}.next")
        if os.path.lexists(str(staged)):
            staged.unlink()
        descriptor = os.open(str(staged), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)


def anchor(chain: Path, folder: Path) -> None:
    """Put the certificates of a file, if any, in the place of those that were ours in a folder.

    One a file: the tools that index a store skip a file that holds two.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("llmgw-ca*.crt"):
        old.unlink()
    for number, found in enumerate(CERTIFICATES.findall(chain.read_bytes()), 1):
        name = "llmgw-ca.crt" if number == 1 else f"llmgw-ca-{number}.crt"
        (folder / name).write_bytes(found)


def scrub(root: Path, *, everything: bool) -> None:
    """Remove cloud-init's cache, and with `everything` all that else holds the node's key.

    An instance of another id is a former life of this disk: of that nothing stays anyway.
    """
    cloud = root / "var/lib/cloud"
    current = Path(os.path.realpath(str(cloud / "instance"))).name
    for folder in cloud.glob("instances/*"):
        for name in COPIES if everything or folder.name != current else (CACHE,):
            remove(folder / name)
        if everything:
            # `cloud-init query` fails where it is missing.
            os.close(os.open(str(folder / COPIES[0]), os.O_CREAT | os.O_WRONLY, 0o600))
    if not everything:
        return
    for name in VOLATILE:
        remove(root / "run/cloud-init" / name)
    # Its long lines: a short last one may stand in any file.
    key = re.findall(rb"[A-Za-z0-9+/]{40,}", (root / KEY).read_bytes())
    for start in INSTALLERS:
        for path in (root / start).rglob("*"):
            if path.is_file() and not path.is_symlink() and holds(path.read_bytes(), key):
                path.unlink()
    for label in ("cidata", "CIDATA"):
        eject(Path(os.path.realpath(str(root / "dev/disk/by-label" / label))))


def holds(data: bytes, lines: Sequence[bytes], depth: int = 3) -> bool:
    """Whether a line of a key is in the data: plain, in base64 or gzip, or one in the other."""
    # A seed of an earlier key is known by where it puts it.
    if any(line in data for line in lines) or (b"PRIVATE KEY" in data and KEY.encode() in data):
        return True
    if not depth:
        return False
    if data[:2] == GZIP:
        try:
            return holds(zlib.decompressobj(31).decompress(data, LARGEST), lines, depth - 1)
        except zlib.error:
            return False
    # Whole or in lines, which in a quoted string end in a backslash and an n.
    lined = re.sub(rb"\\[rn]", b"\n", data)
    for run in re.findall(rb"[A-Za-z0-9+/]{40}[A-Za-z0-9+/\s]*", lined):
        text = b"".join(run.split())
        if holds(base64.b64decode(text[: len(text) // 4 * 4]), lines, depth - 1):
            return True
    return False


def remove(path: Path) -> None:
    """Remove a file, or the files in a folder; neither need be there."""
    if path.is_dir() and not path.is_symlink():
        for inner in path.iterdir():
            remove(inner)
    elif os.path.lexists(str(path)):
        path.unlink()


def eject(device: Path) -> None:
    """Open an optical drive, if it can be; any other stays as it is."""
    if not re.fullmatch("sr[0-9]+", device.name):
        return
    try:
        drive = os.open(str(device), os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return
    try:
        # Else the next who opens the device would close it again.
        fcntl.ioctl(drive, CDROM_CLEAR_OPTIONS, CDO_AUTO_CLOSE)
        fcntl.ioctl(drive, CDROM_LOCKDOOR, 0)
        fcntl.ioctl(drive, CDROMEJECT)
    except OSError as error:
        sys.stdout.write(f"{device} cannot be ejected: {error.strerror}\n")
    finally:
        os.close(drive)


def main(command: str, *arguments: str) -> None:
    """Do as the command line says."""
    if command == "scrub":
        scrub(Path(arguments[0]), everything=arguments[1] == "all")
        return
    if command == "anchor":
        anchor(*map(Path, arguments))
        return
    data = Path(arguments[0]).read_bytes()
    if command in ("check", "stage"):
        root = Path(arguments[1])
        found = answered(data, root) if CERTIFICATES.search(data) else files(data)
        if command == "stage":
            stage(found, root)
    else:
        path = LIST if command == "list" else arguments[1]
        sys.stdout.buffer.write(files(data)[path][1])


if __name__ == "__main__":
    os.umask(0o022)
    try:
        main(*sys.argv[1:])
    except (OSError, EOFError, KeyError, ValueError, zlib.error) as problem:
        sys.exit(" ".join(str(problem).split()))
