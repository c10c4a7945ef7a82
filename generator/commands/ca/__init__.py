"""`gen-seed ca`: the authority. Each of its commands is imported when it is called."""

from __future__ import annotations

import importlib

import click

_COMMANDS = {
    "init": "making",
    "show": "making",
    "issue": "issuing",
    "sign": "issuing",
    "list": "register",
    "import": "register",
    "export": "register",
    "revoke": "revoking",
    "crl": "revoking",
    "backup": "backups",
    "restore": "backups",
}


class _Commands(click.Group):
    def list_commands(self, _: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module = importlib.import_module(f"generator.commands.ca.{_COMMANDS[name]}")
        command: click.Command = getattr(module, f"{name}_")
        return command


@click.group(cls=_Commands)
def command() -> None:
    """Make and keep the authority that issues the nodes' certificates."""
