"""A machine with a kernel of its own: QEMU without acceleration, a seed on a real drive.

A boot takes a minute or more, so what nspawn can show is shown there. As in machine.py, the
servers are on this host's loopback; the guest finds the ports in `forward` at `FORWARDED`
and reaches nothing else::

    with VirtualMachine(rootfs("bookworm", kernel=True), iso,
                        forward=[release.server_port, plane.server_port]) as machine:
        machine.boot()
        machine.wait_for("the join", lambda: plane.joins, 360)
        machine.wait_for_cloud_init(60)
        machine.power_off()
        with machine.disk() as root:
            (root / "etc/llmgw/agent.yaml").read_text()
"""

from __future__ import annotations

import contextlib
import platform
import shutil
import subprocess
from typing import TYPE_CHECKING, Self, TypeVar

from generator.prove import nspawn
from generator.prove.machine import booted
from generator.prove.overlay import workspace
from generator.prove.tls import FORWARDED
from generator.prove.wait import failure, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

PROGRAMS = ("qemu-system-x86_64", "mke2fs", "nc")

BUSES = {
    "virtio-blk": ("-device", "virtio-blk-pci,drive=seed"),
    "virtio-scsi-cd": ("-device", "virtio-scsi-pci", "-device", "scsi-cd,drive=seed"),
}
"""How a seed may be attached: as a disk (/dev/vdb), or as a CD (/dev/sr0)."""

# A panic, or a reboot, ends QEMU. The journal comes over the console, since nothing else does
# while the machine runs.
# On a busy host the kernel's look at its timer fails, and it panics: no_timer_check.
_KERNEL = (
    "root=LABEL=root rw console=ttyS0 quiet panic=-1 no_timer_check"
    " systemd.journald.forward_to_console=1"
)
_SIZE = "3G"  # of the disk; the file has holes where it is empty
_T = TypeVar("_T")


def missing() -> str:
    """Return why no virtual machine can be booted here, empty when one can."""
    if reason := nspawn.missing():  # its root filesystem is made in the same way
        return reason
    if platform.machine() != "x86_64":
        return f"the virtual machine is an x86_64, this host {platform.machine()}"
    absent = [name for name in PROGRAMS if not shutil.which(name)]
    return f"not installed: {', '.join(absent)}" if absent else ""


class VirtualMachine:
    """A machine that may be booted, killed and booted again; its disk lives as long as it.

    `tree` is ``rootfs(suite, kernel=True)``, `seed` an ISO attached by one of `BUSES`,
    `forward` the ports that the guest reaches, and `arguments` go to QEMU (``-rtc``, ``base=…``).
    Between boots, and before the first, `seed` and `bus` may be set, and `disk` changed.
    """

    def __init__(
        self,
        tree: Path,
        seed: Path | None = None,
        *,
        bus: str = "virtio-blk",
        forward: Sequence[int] = (),
        arguments: Sequence[str] = (),
    ) -> None:
        self.boots = 0
        self.seed, self.bus = seed, bus
        self._tree, self._forward, self._arguments = tree, forward, arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._work = stack.enter_context(workspace())
            self._disk = self._work / "disk"
            _make_disk(self._tree, self._disk)
            stack.callback(self.kill)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def image(self) -> Path:
        """The raw image that is its disk: to be changed while the machine is off."""
        return self._disk

    def boot(self) -> None:
        """Start the machine; it has come as far as its console says."""
        if self.running:
            raise RuntimeError("the machine runs already")
        booted["qemu"] += not self.boots
        self.boots += 1
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                # Should this process be killed, QEMU is.
                ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", *self._options()],
                stdin=subprocess.PIPE,  # the monitor
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def _options(self) -> list[str]:
        boot = self._tree / "boot"
        forwards = [f",guestfwd=tcp:{FORWARDED}:{p}-cmd:nc 127.0.0.1 {p}" for p in self._forward]
        options = [
            *("-nodefaults", "-no-user-config", "-accel", "tcg", "-smp", "2", "-m", "1024"),
            *("-display", "none", "-monitor", "stdio", "-serial", f"file:{self._console_file}"),
            *("-kernel", str(next(boot.glob("vmlinuz-*")))),
            *("-initrd", str(next(boot.glob("initrd.img-*")))),
            *("-append", _KERNEL, "-no-reboot"),
            *("-drive", f"if=none,id=disk,format=raw,file={_quoted(self._disk)}"),
            *("-device", "virtio-blk-pci,drive=disk"),
            *("-netdev", "user,id=net,restrict=on" + "".join(forwards)),
            *("-device", "virtio-net-pci,netdev=net", "-device", "virtio-rng-pci"),
        ]
        if self.seed:
            drive = f"if=none,id=seed,format=raw,readonly=on,file={_quoted(self.seed)}"
            options += ["-drive", drive, *BUSES[self.bus]]
        return [*options, *self._arguments]

    @property
    def running(self) -> bool:
        """Whether the machine is up."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Cut the machine's power."""
        if self._process:
            self._process.kill()
            self._process.communicate()

    def power_off(self, deadline: float = 120) -> None:
        """Press the power button and wait; TimeoutError after `deadline` seconds."""
        assert self._process is not None  # noqa: S101 - for the type checker
        try:
            self._process.communicate(b"system_powerdown\n", deadline)
        except subprocess.TimeoutExpired:
            raise self._failed(f"the machine is still up after {deadline} s") from None

    def wait_for(self, what: str, done: Callable[[], _T], deadline: float) -> _T:
        """Return the first true answer of `done`; fail when `deadline` seconds are over.

        TimeoutError carries the end of the console; so does RuntimeError, when the machine
        went down.
        """
        return wait_for(what, done, deadline, running=lambda: self.running, failed=self._failed)

    def wait_for_console(self, text: str, deadline: float) -> None:
        """Wait until this boot has written `text` on the console."""
        self.wait_for(repr(text), lambda: text in self.console(), deadline)

    def wait_for_cloud_init(self, deadline: float) -> None:
        """Wait until cloud-init has finished its boot; its verdict is on the disk."""
        # Its result is written after its last word, so wait for what comes after it.
        self.wait_for_console("Reached target cloud-init.target", deadline)

    def _failed(self, message: str) -> TimeoutError:
        said = self._log.read_text(errors="replace")
        return failure(message, {"console": self.console(), "QEMU": said})

    @property
    def _log(self) -> Path:
        return self._work / "qemu.log"

    @property
    def _console_file(self) -> Path:
        return self._work / f"console-{self.boots}.log"

    def console(self) -> str:
        """Return what this boot (or the last one) wrote on the console, its journal included."""
        with contextlib.suppress(FileNotFoundError):
            return self._console_file.read_text(errors="replace")
        return ""

    @contextlib.contextmanager
    def disk(self) -> Iterator[Path]:
        """Yield the root folder of a machine that is off, to read and to change."""
        if self.running:
            raise RuntimeError("the machine runs: its disk is its own")
        root = self._work / "root"
        subprocess.run(["mount", "-o", "loop", self._disk, root], check=True)
        try:
            yield root
        finally:
            subprocess.run(["umount", root], check=True)


def _make_disk(root: Path, disk: Path) -> None:
    """Write the folder `root` as the ext4 file system `disk`."""
    subprocess.run(
        ["mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", root, disk, _SIZE],
        check=True,
        capture_output=True,
    )


def _quoted(path: Path) -> str:
    """Return a path as QEMU's options take it."""
    return str(path).replace(",", ",,")
