"""`longtail recipes`: what there is, and each recipe as JSON with the provenance of its constants."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

recipes = typer.Typer(help="List the recipes, or show one as JSON.", invoke_without_command=True)


@recipes.callback()
def listing(context: typer.Context) -> None:
    """List the recipes, or show one as JSON."""
    if context.invoked_subcommand is None:
        every()


@recipes.command("list")
def every() -> None:
    """List the recipes with their arguments. `longtail recipes` alone does the same."""
    from longtail.recipes import catalogue

    for name, function in catalogue.functions().items():
        print(f"{name}\n    {(function.__doc__ or '').strip().splitlines()[0]}")
        arguments = catalogue.parameters(function).items()
        print(f"    {' '.join(f'{key}={value}' for key, value in arguments)}")


@recipes.command()
def show(
    name: Annotated[str, typer.Argument(help="A recipe such as cifar.gcl, a recipe.json or a run folder.")],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Arguments of the recipe.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Change any path of the JSON.")
    ] = None,
) -> None:
    """Show a recipe as JSON: every constant, and where it comes from. `longtail train` reads this form."""
    from longtail.recipes import catalogue, overrides

    value = overrides.plain(catalogue.load(name, settings or (), changes or ()))
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")
