"""A Debian root filesystem with systemd and cloud-init, built once and kept in the cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from generator.problem import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

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
# What a virtual machine needs besides: a kernel with its initrd, as in Debian's cloud images,
# and something that asks for an address. Without acceleration update-ca-certificates would take
# more than a minute for the public roots, which nobody needs there.
_KERNEL_PACKAGES = ("linux-image-cloud-amd64", "initramfs-tools")
_KERNEL_HOOKS = (
    'chroot "$1" systemctl enable systemd-networkd',
    'sed -i "s/^[^#!]/!&/" "$1/etc/ca-certificates.conf"',
    'chroot "$1" update-ca-certificates --fresh >/dev/null',
)

# What the official cloud images set up a network with, for a guest that has one of its own.
# Debian 11's has no resolvconf, and its resolv.conf is nobody's (canonical/cloud-init#3486).
_IFUPDOWN = ("ifupdown", "isc-dhcp-client")
_NETPLAN = ("netplan.io", "systemd-resolved")
_NETWORK_HOOKS = (
    'rm "$1/etc/systemd/system/networking.service"',
    'rm -f "$1/etc/resolv.conf"',
    '[ ! -e "$1/usr/sbin/netplan" ] || ln -s /run/systemd/resolve/resolv.conf "$1/etc/resolv.conf"',
)


def cache() -> Path:
    """Return the folder that holds the built root filesystems."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gen-seed"


def rootfs(suite: str, *, kernel: bool = False, network: bool = False) -> Path:
    """Return the tree of a Debian `suite`, built now unless an earlier run left it.

    With `kernel` it has one, and its initrd, in /boot (amd64 only): for qemu.py.
    With `network` it has what sets up a network of its own: never for one that it shares.
    Never to be written to: a machine mounts an overlay over it. Needs root. Raises `Refused`.
    """
    parts: list[tuple[str, Sequence[str], Sequence[str]]] = [(suite, _PACKAGES, _HOOKS)]
    if kernel:
        parts.append(("+kernel", _KERNEL_PACKAGES, _KERNEL_HOOKS))
    if network:
        tools = _IFUPDOWN if suite == "bullseye" else _NETPLAN
        parts.append(("+network", tools, _NETWORK_HOOKS))
    name = "".join(name for name, _, _ in parts)
    packages = [package for _, some, _ in parts for package in some]
    hooks = [hook for _, _, some in parts for hook in some]
    recipe = "\n".join((suite, *packages, *hooks))
    tree = cache() / f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    tree.parent.mkdir(parents=True, exist_ok=True)
    with (tree.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the process that waited finds the tree built
        if not tree.is_dir():
            _build(suite, tree, packages, hooks)
            for old in tree.parent.glob(f"{name}-*"):  # an earlier recipe's, maybe still in use
                if old != tree and not _mounted(old):
                    shutil.rmtree(old, ignore_errors=True)
    return tree


def _build(suite: str, tree: Path, packages: Sequence[str], hooks: Sequence[str]) -> None:
    unfinished = tree.with_name(f"{tree.name}.building")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [
        *("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--format=directory"),
        "--include=" + ",".join(packages),
        # An old suite's Release file has ended; its signature still holds.
        '--aptopt=Acquire::Check-Valid-Until "false"',
        *(f"--customize-hook={hook}" for hook in hooks),
        *(suite, str(unfinished), f"deb {mirror()} {suite} main"),
    ]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        tail = "\n".join(done.stderr.decode(errors="replace").splitlines()[-20:])
        shutil.rmtree(unfinished, ignore_errors=True)
        raise refuse(f"mmdebstrap could not build {tree.name}:\n{tail}")
    unfinished.rename(tree)


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
