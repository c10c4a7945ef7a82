"""What the guest has to say: its paths, and the verdict of its cloud-init."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from generator.prove.machine import Machine

_LINKS = 40  # as many as the kernel follows
_LEVELS = "DEPRECATED|WARNING|ERROR|CRITICAL"  # what makes a boot "degraded"


def inside(root: Path, path: str, *, last: bool = False) -> Path:
    """Return the host's path of a guest's `path`, every link resolved against `root`.

    An absolute link in the guest would otherwise lead to the host's own files. The last
    part is followed only if `last` says so. Raises OSError for a loop of links.
    """
    todo, links = path.split("/")[::-1], 0
    done: list[str] = []
    while todo:
        part = todo.pop()
        if part == "..":
            done = done[:-1]
        elif part not in ("", "."):
            here = root.joinpath(*done, part)
            if (last or todo) and here.is_symlink():
                links += 1
                if links > _LINKS:
                    raise OSError(f"too many links in {path}")
                target = str(here.readlink())
                done = [] if target.startswith("/") else done
                todo += target.split("/")[::-1]
            else:
                done.append(part)
    return root.joinpath(*done)


@dataclass(frozen=True)
class CloudInit:
    """cloud-init's verdict on one boot.

    `exit_code` and `text` are those of ``cloud-init status --long``, `status` its first
    word (``done``, ``error``), `errors` from result.json, `warnings` from this boot's log.
    """

    status: str
    exit_code: int
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    text: str

    @property
    def clean(self) -> bool:
        """Whether it is done, without an error or a warning."""
        return (self.status, self.exit_code, self.errors, self.warnings) == ("done", 0, (), ())


def cloud_init(machine: Machine) -> CloudInit:
    """Ask cloud-init of a running machine; versions before 22.4 have no JSON form."""
    done = machine.run("cloud-init", "status", "--long", check=False)
    found = re.search(r"^status: (.*)$", done.stdout, re.MULTILINE)
    result = json.loads(machine.read("/run/cloud-init/result.json"))["v1"]
    log = machine.read("/var/log/cloud-init.log").decode(errors="replace")
    # The log goes on over boots; each starts with the stage init-local.
    this_boot = log[max(log.rfind("running 'init-local'"), 0) :]
    return CloudInit(
        status=found[1].strip() if found else "",
        exit_code=done.returncode,
        errors=tuple(result["errors"]),
        warnings=tuple(re.findall(rf"^.*\[(?:{_LEVELS})\]: .*$", this_boot, re.MULTILINE)),
        text=done.stdout + done.stderr,
    )
