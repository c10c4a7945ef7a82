"""`gen-seed diff`: what building now would change."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from generator.commands import choosing
from generator.options import format_option, pki_option, show_rows, workspace_option

if TYPE_CHECKING:
    from pathlib import Path

    from generator.plan import Basis, Plan


@click.command()
@choosing.options
@click.option("--reuse", is_flag=True, help="As building with --reuse would.")
@click.option("-v", "--verbose", is_flag=True, help="Every node, with all that differs.")
@format_option("text", "json")
@pki_option
@workspace_option
@click.pass_obj
def command(folder: Path, /, **options: Any) -> None:
    """Tell what building NODEs, all by default, would change against what was built.

    The most important comes first: on which machines cloud-init would start over, which get a
    new release, and which fields differ, by how many nodes. Secrets are compared and not shown.
    Nothing is written and no program is run. Exit status: 0 no change, 2 changes, 1 something
    is wrong; wrong usage is 2 as well.
    """
    from generator import manifest, plan, selection, survey, workspace
    from generator.problem import Refused

    part, every = options["shard"], options["every"] or not options["nodes"]
    choosing.check(options["nodes"], options["group"], part, every=every)
    place = workspace.open_workspace(folder)
    jobs = choosing.processes(options["jobs"])
    nodes = selection.select(place, options["nodes"], options["group"], part, jobs)
    out = choosing.folder(folder, options["out"])
    there = manifest.read(out)
    first = there.first()
    basis = choosing.basis(
        place,
        out,
        there,
        options["form"] or (first.form if first else "iso"),
        choosing.issuer(place, options["pki"], None),
        placeholder=False,
        reuse=options["reuse"],
    )
    plans: list[Plan] = []
    with choosing.progress("comparing", len(nodes), shown=options["report"] == "text") as move:

        def take(found: plan.Part) -> None:
            plans.extend(found.plans)
            move(len(found.plans) + len(found.refused))

        found = survey.survey(basis, nodes, jobs, take)
    if errors := found.problems():
        raise Refused(errors)
    if every and options["group"] is None:
        left, _ = plan.gone(basis, part)
        plans += [plan.Plan(row.node, "gone", before=row) for row in left]
    _print(plans, basis, options)
    if any(one.state != "unchanged" for one in plans):
        raise click.exceptions.Exit(2)


def _print(plans: list[Plan], basis: Basis, options: dict[str, Any]) -> None:
    from generator import changes

    if options["report"] == "json":
        show_rows("nodes", map(changes.row, plans))
        return
    click.echo(f"{basis.folder}: {changes.summary(Counter(one.state for one in plans))}")
    for line in changes.text(plans, basis.now, verbose=options["verbose"]):
        click.echo(line)
