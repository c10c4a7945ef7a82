"""What makes an image one machine's own: found, and taken away."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from generator import baked, mounting
from generator.baked import Entry
from generator.problem import Problem, Refused, printable
from generator.tree import unfinished

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from generator.tree import Folder, Tree

# A node's own, beside what `gen-seed bake` puts there itself.
_SHARED = ("/etc/llmgw/ca.pem", baked.NOTE, baked.INSTALLED)
_OURS = ("/etc/llmgw/*", "/var/lib/llmgw-onboard/*", "/var/lib/llmgw-agent/*")
_AUTHORITY = ("/etc/llmgw/pki/ca-key.pem", "/etc/llmgw/ca-key.pem")
# Where cloud-init keeps the seed that it was given, and where it looks for one.
_SEEDS = (
    "/var/lib/cloud/instances/*/*",
    "/var/lib/cloud/seed/*/*",
    "/var/lib/cloud/seed/*/openstack/*/*",
)
_SEED = 64 << 20  # bytes; cloud-init takes a seed that is packed with gzip
_MARK = b"/etc/llmgw/agent-key.pem"  # in every seed of ours
_CHUNK = 4 << 20  # bytes
_FULL = (errno.ENOSPC, errno.EDQUOT)

_MACHINES = {
    "the agent's start": (
        "/etc/systemd/system/*.wants/llmgw-agent.service",
        "/etc/systemd/system/llmgw-agent.service.d",
    ),
    "what onboard has kept of earlier seeds": (
        "/usr/local/bin/.llmgw.*",
        "/usr/local/lib/llmgw/.*",
        "/usr/local/lib/llmgw/*.before-*",
        "/etc/systemd/system/.llmgw-*",
        "/etc/systemd/system/llmgw-*.before-*",
        "/etc/systemd/system/multi-user.target.d/*llmgw-*.before-*",
    ),
    "cloud-init's state": (
        "/var/lib/cloud/*",
        "/var/log/cloud-init*",
        "/etc/cloud/cloud-init.disabled",
        # An installer pins cloud-init to the machine that it installed.
        *(
            f"/etc/cloud/cloud.cfg.d/{name}"
            for name in (
                "99-installer.cfg",
                "90-installer-network.cfg",
                "curtin-preserve-sources.cfg",
                "subiquity-disable-cloudinit-networking.cfg",
            )
        ),
        "/var/log/installer",
    ),
    "the network that cloud-init wrote": (
        "/etc/netplan/50-cloud-init*",
        "/etc/network/interfaces.d/50-cloud-init*",
        "/etc/systemd/network/10-cloud-init-*",
        "/etc/NetworkManager/system-connections/cloud-init-*",
        "/etc/udev/rules.d/70-persistent-net.rules",
        "/etc/udev/rules.d/85-persistent-net-cloud-init.rules",
    ),
    "SSH host keys": ("/etc/ssh/ssh_host_*",),
    "the hostname": ("/etc/hostname",),
    "random seeds": (
        "/var/lib/systemd/random-seed",
        "/var/lib/systemd/credential.secret",
        "/var/lib/urandom/random-seed",
    ),
    "DHCP leases": (
        "/var/lib/dhcp/*",
        "/var/lib/dhclient/*",
        "/var/lib/dhcpcd/*",
        "/var/lib/NetworkManager/*",
        "/var/lib/systemd/network/*",
    ),
    "the journal": ("/var/log/journal/*",),
}
_MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")


@dataclass(frozen=True)
class Holding:
    """What an image holds that is one machine's own: `identity` and `authority` are paths."""

    identity: tuple[str, ...]
    authority: tuple[str, ...]

    def refusal(self, name: str) -> Refused | None:
        """Return why the image called `name` cannot be every node's, None where it can."""
        if self.authority:
            message = f"{name} holds the authority's key: {_listed(self.authority)}"
            hint = "take it off the image: whoever has the image can issue certificates"
        elif self.identity:
            message = f"{name} holds a node's identity: {_listed(self.identity)}"
            hint = "--generalize takes it away, with all else that is one machine's own"
        else:
            return None
        return Refused([Problem(message, hint)])


def holding(tree: Tree) -> Holding:
    """Return what an image holds that is one machine's own."""
    kept = [path for pattern in _SEEDS for path in tree.find(pattern) if _is_seed(tree, path)]
    authority = [path for pattern in _AUTHORITY for path in tree.find(pattern)]
    # An empty folder of state, such as systemd makes, is nobody's identity.
    return Holding((*_own(tree), *kept), tuple(authority))


def _own(tree: Tree) -> list[str]:
    found = [path for pattern in _OURS for path in tree.find(pattern)]
    return [path for path in found if path not in _SHARED and unfinished(path) not in _SHARED]


def _listed(paths: Iterable[str]) -> str:
    return ", ".join(map(printable, paths))


def _is_seed(tree: Tree, path: str) -> bool:
    found = tree.read(path)
    data = found.data if found else b""
    with contextlib.suppress(zlib.error):  # what is not packed is looked at as it is
        data = zlib.decompressobj(wbits=31).decompress(data, _SEED)
    return _MARK in data


def generalize(folder: Folder) -> Iterator[str]:
    """Take away what is one machine's own; yield a line for each kind that was there.

    Raises `Refused` where something cannot be taken away.
    """
    yield from _remove(folder, "the node's identity and settings", _own(folder))
    for what, patterns in _MACHINES.items():
        yield from _remove(folder, what, [path for p in patterns for path in folder.find(p)])
    # Empty, so that the first boot makes another; without the file systemd takes itself to be
    # in a first boot of its own, and asks questions (machine-id(5)).
    for path in _MACHINE_IDS:
        if (found := folder.read(path)) and found.data:
            folder.put(Entry(path, found.mode, b""))
            yield f"emptied {path}"


def _remove(folder: Folder, what: str, paths: list[str]) -> Iterator[str]:
    gone = [path for path in paths if folder.remove(path)]
    if gone:
        yield f"took away {what}: {_listed(gone)}"


def zero(root: Path) -> None:
    """Fill what is free of a mounted file system with zeros: what was deleted is still there.

    Raises OSError for anything but a full file system, which is how it ends, and `Refused`; what
    it leaves then is no image to be used.
    """
    os.sync()  # what was deleted is free only when that is on the disk
    device = root.stat().st_dev
    name = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().name
    spare = Path(f"/sys/fs/ext4/{name}/reserved_clusters")
    if spare.exists():
        spare.write_text("0")  # or ext4 keeps 2% even from root
    path = root / f".{os.urandom(6).hex()}.zero"
    # Not by the page cache: what lies there when the last block goes, ext4 drops without a word.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_DIRECT, 0o600)
    try:
        smallest, size = os.fstatvfs(descriptor).f_frsize, _CHUNK
        with mmap.mmap(-1, _CHUNK) as zeros, memoryview(zeros) as view:
            while size >= smallest:
                try:
                    os.write(descriptor, view[:size])
                except OSError as error:
                    if error.errno not in _FULL:
                        raise
                    size //= 2  # down to the last block
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    # What the file's own tables lie in is written by the journal only now, and never where the
    # file went away before: what was in such a block would still be there.
    mounting.settle(root)
    path.unlink()
    os.sync()
