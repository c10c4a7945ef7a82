"""`gen-seed schema`: the JSON schemas, for editors and other programs."""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("name", type=click.Choice(["node", "fleet", "agent"]), default="node")
def command(name: str) -> None:
    """Print the schema of a node's file (the default), of fleet.yaml or of agent.yaml.

    It is JSON Schema 2020-12. An editor that knows YAML takes it by the first line of a file:
    # yaml-language-server: $schema=FILE
    """
    from generator import schema

    click.echo(json.dumps(schema.bundled(name), indent=2, ensure_ascii=False))  # type: ignore[arg-type]
