"""What the guest has to say: the verdict of its cloud-init."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from generator.prove.machine import Machine

_LEVELS = "DEPRECATED|WARNING|ERROR|CRITICAL"  # what makes a boot "degraded"


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
