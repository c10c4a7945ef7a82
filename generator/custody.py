"""How the authority is kept: where it is, who can read its key, and whether git has it."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from generator import files
from generator.problem import Problem, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = "ca-key.pem"
SYSTEM = Path("/etc/llmgw/pki")


def find(
    workspace: Path, option: str | None, environ: Mapping[str, str], configured: str | None
) -> Path:
    """Return the authority's folder, which need not exist.

    --pki, else $GEN_SEED_PKI (both relative to the current folder), else authority.dir of
    fleet.yaml (relative to it), else pki/ in the workspace where it exists, else the
    script's /etc/llmgw/pki.
    """
    own = workspace / "pki"
    return named(workspace, option, environ, configured) or (own if own.is_dir() else SYSTEM)


def named(
    workspace: Path, option: str | None, environ: Mapping[str, str], configured: str | None
) -> Path | None:
    """Return the first folder of `find` that somebody named; ``ca init`` makes this one."""
    if asked := option or environ.get("GEN_SEED_PKI"):
        return Path(asked)
    return workspace / configured if configured else None


def check_there(folder: Path, *, key: bool = True) -> None:
    """Refuse a folder that holds no authority, before anything is written to it."""
    for name in ("ca.pem", KEY) if key else ("ca.pem",):
        if missing(folder / name):
            raise refuse(
                f"no authority in {folder}: {name} is missing",
                "make an authority with 'gen-seed ca init', or name one with --pki",
            )


def missing(path: Path) -> bool:
    """Tell whether a file is not there; one that we may not look at counts as there."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def exposed(folder: Path) -> list[Problem]:
    """Return warnings where others than the owner get at the key in `folder`."""
    return open_to_others(folder / KEY) + open_to_others(folder, 0o022)


def open_to_others(path: Path, forbidden: int = 0o077) -> list[Problem]:
    """Return a warning where `path` has a mode bit that is `forbidden`.

    Whoever may write into a folder may put another file in the place of any in it.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise files.cannot("read", path, error) from error
    if not mode & forbidden or (path.is_dir() and mode & stat.S_ISVTX):
        return []
    right = "700" if path.is_dir() else "600"
    return [
        Problem(
            f"{path} is open to others than its owner (mode {mode:04o})",
            f"chmod {right} {shlex.quote(str(path))}",
            severity="warning",
        )
    ]


def hand_over(path: Path) -> None:
    """Give a new file or folder to the owner of the folder it is in, where root made it.

    Behind sudo it would be root's, and closed to the user whose authority it is.
    """
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.chown(path, owner.st_uid, owner.st_gid)


def tracked(folder: Path) -> list[Problem]:
    """Return an error where git tracks the key in `folder`: then every clone has it.

    Asks git, where it is installed, and lets nothing run that the repository's own
    configuration names: a monitor, a hook, a transport for objects that are missing.
    """
    path = (folder / KEY).resolve()
    if not any(os.path.lexists(parent / ".git") for parent in path.parents):
        return []
    # A caller inside a git hook has GIT_DIR and GIT_INDEX_FILE of another repository.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ |= {"GIT_ALLOW_PROTOCOL": "none", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    command = ["git", "-c", "core.fsmonitor=false", "-c", "safe.directory=*"]
    command += ["-C", str(path.parent), "ls-files", "--error-unmatch", "--", path.name]
    try:
        answer = subprocess.run(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=30,  # seconds; an index on a slow network share
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    if answer.returncode:
        return []
    quoted = shlex.quote(str(path.parent))
    return [
        Problem(
            f"git tracks the authority's key {path}: whoever has a clone can issue certificates",
            f"git -C {quoted} rm --cached {KEY}, add it to .gitignore, and if it was ever"
            " pushed, make a new authority",
        )
    ]
