"""A machine booted from a seed: systemd-nspawn on an overlay over a cached root filesystem."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from generator.prove import guest, nspawn, overlay
from generator.prove.wait import failure, wait_for
from generator.tree import inside

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from generator.prove.guest import CloudInit

booted: Counter[str] = Counter()
"""How many machines this process has booted, by kind (``nspawn``, ``qemu``)."""

SEED = "var/lib/cloud/seed/nocloud"  # where cloud-init looks for a seed without a drive
_T = TypeVar("_T")


class Machine:
    """A machine that may be booted, killed and booted again; its disk lives as long as it.

    `tree` is what `rootfs` returns, `seed` maps names (``user-data``) to content,
    `arguments` go to systemd-nspawn, and `edit` may change the disk (it gets the root
    folder) before the first boot. With `in_place`, `tree` itself is its disk. The guest
    shares the host's network. Boot from the main thread: the kernel kills the guest when the
    thread that booted it ends.
    """

    def __init__(
        self,
        tree: Path,
        seed: Mapping[str, bytes],
        *,
        arguments: Sequence[str] = (),
        edit: Callable[[Path], None] | None = None,
        in_place: bool = False,
    ) -> None:
        self.boots = 0
        self._tree, self._seed, self._arguments, self._edit = tree, seed, arguments, edit
        self._disk = overlay.in_place if in_place else overlay.overlay
        self._process: subprocess.Popen[bytes] | None = None
        self._leader = 0
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._work = stack.enter_context(self._disk(self._tree))
            self.root = self._work / "root"
            self._groups = stack.enter_context(nspawn.cgroups(self._work.name))
            self.attach(self._seed)
            if self._edit:
                self._edit(self.root)
            stack.callback(self.kill)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def attach(self, seed: Mapping[str, bytes]) -> None:
        """Put the files of `seed` in place of those that are there, for the next boot to read."""
        folder = self.root / SEED
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
        for name, data in seed.items():
            (folder / name).touch(0o600)
            (folder / name).write_bytes(data)

    def boot(self) -> None:
        """Start the machine and return when its init runs."""
        if self.running:
            raise RuntimeError("the machine runs already")
        booted["nspawn"] += not self.boots
        self.boots += 1
        with self._console_file.open("wb") as console:
            self._process = nspawn.start(self.root, self._groups, self._arguments, console)
        self._leader = self.wait_for("init to start", self._find_leader, 60)

    def _find_leader(self) -> int:
        return nspawn.leader(self._process) if self._process else 0

    @property
    def running(self) -> bool:
        """Whether the machine is up."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill every process of the guest at once, as a power cut would."""
        if self._process and self.running:
            # The guest's process 1 takes all others with it; before there is one, nspawn goes.
            os.kill(self._find_leader() or self._process.pid, signal.SIGKILL)
            self._process.wait(30)
        self._leader = 0

    def power_off(self, deadline: float = 60) -> None:
        """Shut down in order; TimeoutError after `deadline` seconds."""
        self.run("systemctl", "--no-block", "poweroff", check=False)
        self._wait_down(deadline)

    def reboot(self, deadline: float = 60) -> None:
        """Shut down in order and boot again; TimeoutError after `deadline` seconds."""
        self.run("systemctl", "--no-block", "reboot", check=False)
        self._wait_down(deadline)
        self.boot()

    def _wait_down(self, deadline: float) -> None:
        assert self._process is not None  # noqa: S101 - for the type checker
        try:
            self._process.wait(deadline)
        except subprocess.TimeoutExpired:
            raise self._failed(f"the machine is still up after {deadline} s") from None
        self._leader = 0

    def wait_for(self, what: str, done: Callable[[], _T], deadline: float) -> _T:
        """Return the first true answer of `done`; fail when `deadline` seconds are over.

        A file that is not there yet counts as no answer. TimeoutError carries the ends of
        console, journal and cloud-init's log; so does RuntimeError, when the machine went down.
        """
        return wait_for(what, done, deadline, running=lambda: self.running, failed=self._failed)

    def wait_for_cloud_init(self, deadline: float = 120) -> CloudInit:
        """Wait until cloud-init has finished its boot and return its verdict."""
        self.wait_for("cloud-init", lambda: self.exists("/run/cloud-init/result.json"), deadline)
        return self.cloud_init()

    def _failed(self, message: str) -> TimeoutError:
        parts = {"console": self.console(), "journal": self.journal()}
        with contextlib.suppress(OSError):
            parts["cloud-init"] = self.read("/var/log/cloud-init-output.log").decode()
        return failure(message, parts)

    def run(
        self, *argv: str, check: bool = True, timeout: float = 60, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in the guest as root; RuntimeError with what it said if it fails."""
        done = subprocess.run(
            ["nsenter", "--target", str(self._leader), "--all", "--", *argv],
            input=stdin, capture_output=True, text=True, errors="replace",
            check=False, timeout=timeout, env=nspawn.ENVIRONMENT,
        )  # fmt: skip
        if check and done.returncode:
            raise RuntimeError(f"{argv}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def path(self, path: str) -> Path:
        """Return where the host finds a guest's path, its links followed inside the guest.

        While the machine runs that is its own view, /run and /tmp included.
        """
        root = Path(f"/proc/{self._leader}/root") if self._leader else self.root
        return inside(root, path)

    def read(self, path: str) -> bytes:
        """Return the content of a guest's file."""
        return inside(self.path("/"), path, last=True).read_bytes()

    def stat(self, path: str) -> os.stat_result:
        """Return the state of a guest's file, of a link itself where it is one."""
        return self.path(path).lstat()

    def exists(self, path: str) -> bool:
        """Whether the guest has this file (a dangling link counts)."""
        return os.path.lexists(self.path(path))

    @property
    def _console_file(self) -> Path:
        return self._work / f"console-{self.boots}.log"

    def console(self) -> str:
        """Return what this boot (or the last one) wrote on the console."""
        with contextlib.suppress(FileNotFoundError):
            return self._console_file.read_text(errors="replace")
        return ""

    def journal(self, *arguments: str) -> str:
        """Return the journal of this boot (or the last), read from the disk.

        `arguments` go to journalctl, e.g. ``-u llmgw-agent``. Works when the machine is off.
        """
        journal = self.root / "var/log/journal"
        done = subprocess.run(
            ["journalctl", "-D", journal, "-b", "-o", "short-precise", "--no-pager", *arguments],
            capture_output=True,
            check=False,
            timeout=60,
            env=nspawn.ENVIRONMENT,
        )
        return done.stdout.decode(errors="replace")

    def hostname(self) -> str:
        """Return the name that the guest's kernel has."""
        return self.run("uname", "-n").stdout.strip()

    def cloud_init(self) -> CloudInit:
        """Return what cloud-init says of this boot."""
        return guest.cloud_init(self)
