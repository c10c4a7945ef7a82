"""Checks of the operator's own user-data keys: what would break onboarding, or mean another thing.

No message shows a value: there may be passwords among them.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from generator import source
from generator.located import path_text
from generator.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from generator.located import Located

_HOST = "the host name is the node id: the control plane refuses a node by another name"
_MODULES = "the module list decides what cloud-init does, and onboarding needs all of it"
_BREAKS = {
    "hostname": _HOST,
    "fqdn": _HOST,
    "preserve_hostname": _HOST,
    "prefer_fqdn_over_hostname": _HOST,
    "create_hostname_file": _HOST,
    "cloud_init_modules": _MODULES,
    "cloud_config_modules": _MODULES,
    "cloud_final_modules": _MODULES,
    "merge_how": "there is nothing to merge: what gen-seed writes is one part",
    "merge_type": "there is nothing to merge: what gen-seed writes is one part",
}
_COMMANDS = ("runcmd", "bootcmd")
_JOINED = ("write_files", *_COMMANDS)
# Every path that a seed may write (render.py); an operator's write_files must leave them alone.
_OURS = re.compile(
    r"/etc/llmgw(?:/.*)?|/usr/local/lib/llmgw(?:/.*)?|/var/lib/llmgw-onboard(?:/.*)?"
    r"|/usr/local/bin/llmgw|/etc/systemd/system/(?:.*/)?llmgw-[^/]*|.*/llmgw-ca\.crt"
)
# What YAML 1.1, which cloud-init reads, makes a boolean or null of, and our dialect a text.
_YAML_1_1 = re.compile(r"yes|no|on|off|true|false|null", re.IGNORECASE)


def check(merged: Located) -> Iterator[Problem]:
    """Yield what is wrong with `cloud_config` of a merged spec."""
    config = source.at(merged, "cloud_config")
    if config is None:
        return
    for key in sorted(config.value.keys() & _BREAKS.keys()):
        steps = ["cloud_config", key]
        yield Problem(
            f"{key!r} is gen-seed's own", _BREAKS[key], config.keys[key], path_text(steps)
        )
    for key in _JOINED:
        items = config.value.get(key)
        if items is None:
            continue
        if not isinstance(items.value, list):
            yield _problem(
                items, ["cloud_config", key], "not a list", "gen-seed joins it with its own"
            )
            continue
        for index, item in enumerate(items.value):
            about = _command if key in _COMMANDS else _file
            yield from about(item, ["cloud_config", key, index])
    yield from _scalars(config, ["cloud_config"])


def _command(item: Located, steps: list[str | int]) -> Iterator[Problem]:
    if isinstance(item.value, dict):
        message = "a map, not a command: the text has ': ' in it"
        yield _problem(item, steps, message, "put the command in quotes")
    elif not isinstance(item.value, str | list):
        yield _problem(item, steps, "not a command", "a text for sh, or a list of words")
    elif isinstance(item.value, list):
        if not item.value:
            yield _problem(item, steps, "a command without words", "remove it")
        for index, word in enumerate(item.value):
            if not isinstance(word.value, str):
                hint = "put it in quotes, as cloud-init's own schema wants it"
                yield _problem(word, [*steps, index], "a word of a command that is not text", hint)


def _file(item: Located, steps: list[str | int]) -> Iterator[Problem]:
    path = source.at(item, "path") if isinstance(item.value, dict) else None
    if path is None or not isinstance(path.value, str) or not path.value.startswith("/"):
        yield _problem(item, steps, "a file without an absolute path", "such as path: /etc/motd")
        return
    # cloud-init opens the path as it is, so /etc/llmgw//ca.pem is ours as well.
    if _OURS.fullmatch(re.sub(r"^/+", "/", posixpath.normpath(path.value))):
        message = "gen-seed writes this file itself"
        yield _problem(path, [*steps, "path"], message, "remove it, or write to another path")


def _scalars(located: Located, steps: list[str | int]) -> Iterator[Problem]:
    if isinstance(located.value, dict):
        for key, item in located.value.items():
            if key == "permissions" and isinstance(item.value, int | float):
                message = "a number: cloud-init would take its decimal value for the mode"
                yield _problem(item, [*steps, key], message, 'put it in quotes: "0644"')
            yield from _scalars(item, [*steps, key])
    elif isinstance(located.value, list):
        for index, item in enumerate(located.value):
            yield from _scalars(item, [*steps, index])
    elif isinstance(located.value, str) and _YAML_1_1.fullmatch(located.plain):
        message = "a word that cloud-init, which reads YAML 1.1, takes for a boolean or for nothing"
        yield _problem(located, steps, message, "write true, false or null, or put it in quotes")


def _problem(located: Located, steps: list[str | int], message: str, hint: str) -> Problem:
    return Problem(message, hint, located.mark, path_text(steps))
