"""A Debian root filesystem with systemd and cloud-init, built once and kept in the cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from generator.problem import refuse

SUITES = ("bullseye", "bookworm", "trixie")  # Debian 11, 12, 13

# What a cloud image has (curl, openssl, ssh, a generated locale: without the last two
# cloud-init reports errors of its own) and what the tests use in the guest (strace, wget).
_PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "cloud-init", "ca-certificates", "curl", "wget"),
    *("openssl", "openssh-server", "locales", "iproute2", "iputils-ping", "procps", "e2fsprogs"),
    *("netbase", "strace", "sudo", "unzip", "xz-utils", "zstd", "kmod", "udev", "less"),
)
# The guest shares the host's network, so its sshd must not take the host's port, and ifupdown
# (Debian 11) would only fail. An empty machine-id and no host keys: the first boot makes them,
# as in a cloud image.
_HOOKS = (
    'sed -i "s/^# *en_US.UTF-8 /en_US.UTF-8 /" "$1/etc/locale.gen"',
    'chroot "$1" locale-gen >/dev/null',
    'echo LANG=en_US.UTF-8 >"$1/etc/default/locale"',
    'ln -s /dev/null "$1/etc/systemd/system/ssh.service"',
    'ln -sf /dev/null "$1/etc/systemd/system/ssh.socket"',
    'ln -s /dev/null "$1/etc/systemd/system/networking.service"',
    'rm -f "$1"/etc/ssh/ssh_host_* "$1/var/lib/dbus/machine-id" "$1/etc/hostname"',
    ': >"$1/etc/machine-id"',
    'mkdir -p "$1/var/log/journal"',
)


def cache() -> Path:
    """Return the folder that holds the built root filesystems."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gen-seed"


def rootfs(suite: str) -> Path:
    """Return the tree of a Debian `suite`, built now unless an earlier run left it.

    Never to be written to: a machine mounts an overlay over it. Needs root. Raises `Refused`.
    """
    recipe = "\n".join((suite, *_PACKAGES, *_HOOKS))
    tree = cache() / f"{suite}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    tree.parent.mkdir(parents=True, exist_ok=True)
    with (tree.parent / f"{suite}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the process that waited finds the tree built
        if not tree.is_dir():
            _build(suite, tree)
    return tree


def _build(suite: str, tree: Path) -> None:
    unfinished = tree.with_name(f"{suite}.building")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [
        *("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--format=directory"),
        "--include=" + ",".join(_PACKAGES),
        # An old suite's Release file has ended; its signature still holds.
        '--aptopt=Acquire::Check-Valid-Until "false"',
        *(f"--customize-hook={hook}" for hook in _HOOKS),
        *(suite, str(unfinished), f"deb {mirror()} {suite} main"),
    ]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        tail = "\n".join(done.stderr.decode(errors="replace").splitlines()[-20:])
        shutil.rmtree(unfinished, ignore_errors=True)
        raise refuse(f"mmdebstrap could not build {suite}:\n{tail}")
    unfinished.rename(tree)
    for old in tree.parent.glob(f"{suite}-*"):  # an earlier recipe's; an overlay may hold it
        if old != tree and not _mounted(old):
            shutil.rmtree(old, ignore_errors=True)


def _mounted(tree: Path) -> bool:
    return f"lowerdir={tree}," in Path("/proc/mounts").read_text(encoding="utf-8")


def mirror(apt: Path = Path("/etc/apt")) -> str:
    """Return the Debian mirror that this host's apt uses; raise `Refused` if it names none.

    Reads both forms of sources.list(5). A security archive is not a mirror of a whole suite.
    """
    sources = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*.list"))]
    lines = [line for file in sources if file.is_file() for line in file.read_text().splitlines()]
    found = [m[1] for m in (re.match(r"deb\s+(?:\[[^]]*\]\s+)?(\S+)", line) for line in lines) if m]
    for file in sorted((apt / "sources.list.d").glob("*.sources")):
        for line in file.read_text().splitlines():
            if line.lower().startswith("uris:"):
                found += line.split()[1:]
    for uri in found:
        if uri.rstrip("/").endswith("/debian"):
            return uri
    raise refuse(
        f"no Debian mirror in {apt}",
        "one of the addresses in sources.list has to end in /debian",
    )
