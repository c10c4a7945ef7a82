"""Runs a folder as a machine with systemd-nspawn, whatever started this process.

The host's systemd is not asked for anything, since a build machine may have another init.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import IO

PROGRAMS = ("mmdebstrap", "systemd-nspawn", "journalctl", "nsenter", "setpriv", "unshare", "mount")

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
"""What a program in the guest sees: nothing of the operator's own."""


def missing() -> str:
    """Return why no machine can be booted here, empty when one can."""
    if os.geteuid() != 0:
        return "booting needs root"
    if not Path("/etc/debian_version").exists():
        return "booting needs a Debian host"
    absent = [name for name in PROGRAMS if not shutil.which(name)]
    return f"not installed: {', '.join(absent)}" if absent else ""


@contextlib.contextmanager
def cgroups(name: str) -> Iterator[list[Path]]:
    """Make a control group in each hierarchy that systemd uses, and take it away at the end.

    With --keep-unit nspawn puts a guest below the group it was started in: two guests at a
    time would share theirs, and each systemd would see the other's services as its own.
    """
    here = dict(
        line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines()
    )
    groups = []
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind, options, *_ = line.split()
        controller = "" if kind == "cgroup2" else "name=systemd"
        if kind == "cgroup2" or (kind == "cgroup" and controller in options.split(",")):
            groups.append(Path(mount + here[controller]) / name)
    try:
        for group in groups:
            group.mkdir(exist_ok=True)
        yield groups
    finally:
        for group in groups:
            for folder, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):  # a process that is still dying
                    Path(folder).rmdir()


def start(
    root: Path, groups: Sequence[Path], arguments: Sequence[str], console: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Boot the folder `root`; what the guest's console shows goes to `console`."""
    return subprocess.Popen(
        [
            *("sh", "-c", 'for g in $GROUPS; do echo $$ >"$g/cgroup.procs"; done; exec "$@"', "sh"),
            # Should this process be killed, unshare is, and then all in the namespace.
            *("setpriv", "--pdeathsig", "KILL"),
            *("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *("systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit"),
            *("--link-journal=no", "--machine=prove", f"--directory={root}", *arguments),
        ],
        stdin=subprocess.DEVNULL,
        stdout=console,
        stderr=subprocess.STDOUT,
        env={**ENVIRONMENT, "GROUPS": " ".join(map(str, groups))},
    )


def leader(process: subprocess.Popen[bytes]) -> int:
    """Return the host's id of the guest's process 1, or 0 while nspawn still prepares it."""
    with contextlib.suppress(OSError, IndexError):
        nspawn = _children(process.pid)[0]
        for child in _children(nspawn):
            # Before nspawn's child has become systemd, the guest is not complete.
            if Path(f"/proc/{child}/comm").read_text() == "systemd\n":
                return child
    return 0


def _children(process: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
