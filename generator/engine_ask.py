"""Getting an engine's help text: from the engine itself, here or in another system's tree."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from generator import engine_check, external
from generator.problem import printable, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from generator.engine_check import Engine, Verdict
    from generator.external import Outcome
    from generator.spec import Engines

_MOST = 4 << 20  # bytes; the longest help text known to us has 0.2 MB
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# No variable of ours but these: a token in the environment is no business of an engine's, and
# neither is a PATH or LD_LIBRARY_PATH that the agent's unit will not have.
_ENVIRON = {
    "PATH": _PATH,
    "LC_ALL": "C.UTF-8",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "COLUMNS": "120",
    "PYTHONDONTWRITEBYTECODE": "1",
}
# What a program from another system gets to see, as nobody: its own tree with an empty /tmp, no
# devices that do something, none of our processes, no network. All it starts ends with it.
_CAGE = """\
set -e
for place in tmp var/tmp dev; do
  [ ! -d "$0/$place" ] || mount -t tmpfs tmpfs "$0/$place"
done
[ ! -d "$0/proc" ] || mount -t proc proc "$0/proc"
for device in null zero random urandom; do
  [ -d "$0/dev" ] || break
  : >"$0/dev/$device"
  mount --bind "/dev/$device" "$0/dev/$device"
done
exec chroot --userspec=65534:65534 --groups= "$0" "$@"
"""


def examine(root: Path, given: Engines, timeout: float, name: str | None = None) -> list[Verdict]:
    """Return the verdicts for the engines in another system's tree; `timeout` in seconds each.

    Those that the spec gives a path must be there; of the others those that are on PATH are
    asked, but for SGLang, which only a named interpreter has. With `name` that engine alone is
    asked. Raises `Refused` without root.
    """
    return [
        ask(engine, path, given, timeout, root)
        for engine in engine_check.engines().values()
        if name in (None, engine.name)
        and (path := program(engine, given) or _on_path(engine, root))
    ]


def _on_path(engine: Engine, root: Path) -> str:
    """Return where an engine is on a system's PATH; empty where it is not."""
    if engine.name == "sglang":
        return ""
    places = (f"{folder}/{engine.program}" for folder in _PATH.split(":"))
    return next((place for place in places if os.path.lexists(f"{root}{place}")), "")


def program(engine: Engine, given: Engines) -> str:
    """Return the path that a spec gives for an engine, empty where it gives none."""
    part = vars(given)[engine.name]
    return str(part.python if engine.name == "sglang" else part.bin)


def flags(engine: Engine, given: Engines) -> tuple[engine_check.Flag, ...]:
    """Return the flags that an engine must take by a node's spec."""
    mode = given.vllm.launch_mode if engine.name == "vllm" else ""
    return engine_check.wanted(engine, vars(given)[engine.name].flags, mode)


def ask(
    engine: Engine, path: str, given: Engines, timeout: float, root: Path | None = None
) -> Verdict:
    """Run an engine for its help text, without stdin and with nothing of ours, and judge that.

    With `root` it is run in that tree. `timeout` is in seconds, for each of the ways in which its
    versions are asked. A hang is killed with all that it started. Raises `Refused` where a tree
    is given and nobody is root.
    """
    best: Verdict | None = None
    for arguments in engine.help:
        command = [path, *arguments]
        asked = shlex.join(command)
        try:
            outcome = _run(command, timeout, root)
        except OSError as error:
            reason = f"cannot be run: {(error.strerror or 'it failed').lower()}"
            verdict = engine_check.unknown(engine, asked, reason)
        else:
            verdict = _judge(engine, outcome, asked, given)
        # What one version prints in parts, or does not know, another asks for in other words.
        if best is None or _rank(verdict) < _rank(best):
            best = verdict
        if best.state in ("accepted", "missing"):
            break
    assert best  # noqa: S101 - each engine has a way to be asked
    return best


def _rank(verdict: Verdict) -> tuple[int, int]:
    order = ("accepted", "missing", "truncated", "unknown").index(verdict.state)
    return order, len(verdict.problems)


def _judge(engine: Engine, outcome: Outcome, asked: str, given: Engines) -> Verdict:
    text = outcome.output.decode("utf-8", "replace")
    wanted = flags(engine, given)
    # Some print their help and end with a status; what has not crashed can be believed.
    verdict = engine_check.judge(engine, wanted, text, asked, whole=not outcome.failure)
    if not outcome.failure or verdict.state in ("accepted", "missing"):
        return verdict
    said = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
    reason = f"it gave no help text: {outcome.failure}" + (f": {printable(said)}" if said else "")
    return engine_check.unknown(engine, asked, reason)


def _run(command: list[str], timeout: float, root: Path | None) -> Outcome:
    if root is None:
        # What it writes into its home, some do, goes with it.
        with tempfile.TemporaryDirectory(prefix="gen-seed-engine-") as home:
            environ = {**_ENVIRON, "HOME": home, "TMPDIR": home}
            return _external(command, environ, Path(home), timeout)
    if os.geteuid():
        raise refuse(
            f"a program in {root} is run by chroot, which takes root",
            f"run this as root, or capture the text there: {shlex.join(command)} > FILE 2>&1",
        )
    cage = [
        *("unshare", "--mount", "--pid", "--net", "--ipc", "--fork"),
        *("sh", "-c", _CAGE, str(root.resolve())),
    ]
    return _external([*cage, *command], {**_ENVIRON, "HOME": "/tmp"}, Path("/"), timeout)  # noqa: S108


def _external(
    command: list[str], environ: Mapping[str, str], folder: Path, timeout: float
) -> Outcome:
    return external.run(command, b"", environ, folder, timeout, most=_MOST, together=True)
