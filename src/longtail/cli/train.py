"""`longtail train`: from a recipe to a run folder, or on from where an interrupted run stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from longtail.cli.failures import Session, is_main


def train(
    context: typer.Context,
    recipe: Annotated[
        str,
        typer.Argument(help="A recipe such as cifar.gcl (`longtail recipes` lists them), or a recipe.json."),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=VALUE]...", help="Arguments of the recipe, as in ratio=50."),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(help="The run folder. An interrupted run in it goes on.")],
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Change any path of the recipe's JSON, as in stages.1.epochs=5.",
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:1; an accelerator is used when there is one.")
    ] = None,
) -> None:
    """Train a recipe, or go on where a stopped run ended."""
    from longtail.recipes import catalogue

    chosen = catalogue.load(recipe, settings or (), changes or ())

    from longtail.cli.display import watching
    from longtail.engine.fit import train as run

    context.ensure_object(Session).folder = out
    if not is_main():
        run(chosen, out=out, device=device)
        return
    with watching(out) as progress:
        run(chosen, out=out, device=device, progress=progress)
    print(summary(out))


def summary(folder: Path) -> str:
    """The last evaluation of each stage; the last row is the headline."""
    from longtail.cli.columns import aligned
    from longtail.run import fsio
    from longtail.run.escape import shown

    final: dict[str, Any] = fsio.read_json(folder / "final.json")
    measures = ("top1", "many", "medium", "few", "balanced")
    rows = [
        [row["name"], row["epoch"], *(_measure(row.get(name)) for name in measures)]
        for row in final["stages"]
    ]
    split = final["last"]["split"]
    table = aligned(["stage", "epoch", "top-1", *measures[1:]], rows)
    title = f"percent right on {split}, after the last epoch of each stage"
    return f"\n{title}\n{table}\n\nrun folder: {shown(folder)}"


def _measure(value: object) -> object:
    return "-" if value is None else value
