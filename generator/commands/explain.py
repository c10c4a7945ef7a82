"""`gen-seed explain`: one field of a spec, in words."""

from __future__ import annotations

import click


@click.command()
@click.argument("path", metavar="[FIELD]", default="")
def command(path: str) -> None:
    """Say what a field is for, what it takes, its default and an example.

    FIELD is written as in an error: server, fabrics[].hcas, engines.vllm.bin, network.address,
    defaults.server. Without FIELD all of a node's fields are listed, with `fleet` those of
    fleet.yaml.
    """
    from generator import reference

    click.echo(reference.explain(path), nl=False)
