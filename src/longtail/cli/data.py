"""`longtail data`: look at a data set before training on it, and make a long-tailed choice of it."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

if TYPE_CHECKING:
    from longtail.recipe import Data


class Inspecting(typer.core.TyperGroup):
    """`longtail data PATH` is `longtail data inspect PATH`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        words = list(self.commands)
        if args[0] not in words and not difflib.get_close_matches(args[0], words, n=1):
            args = ["inspect", *args]
        return super().resolve_command(ctx, args)


data = typer.Typer(help="Look at a data set, or make it long-tailed.", no_args_is_help=False, cls=Inspecting)

SOURCE = "A recipe such as cifar.gcl, a recipe.json, a run folder, or a folder of class folders."
Source = Annotated[str, typer.Argument(help=SOURCE)]
Settings = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Arguments of the recipe.")
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change any path of the recipe's JSON."),
]


@data.command()
def inspect(source: Source, settings: Settings = None, changes: Changes = None) -> None:
    """Show the classes of a data set: counts, ratio, groups, a histogram, and what is odd about it."""
    spec = spec_of(source, settings or (), changes or ())

    from longtail import build
    from longtail.cli.histogram import description

    print(description(build.dataset(spec)))


@data.command("make-lt")
def make_lt(
    source: Source,
    settings: Settings = None,
    *,
    out: Annotated[Path, typer.Option(help="The manifest, a new .json file.")],
    ratio: Annotated[float, typer.Option(min=1, help="Largest class over smallest.")] = 100.0,
    profile: Annotated[str, typer.Option(help="exponential, step or pareto.")] = "exponential",
    seed: Annotated[int, typer.Option(min=0, help="Of the canonical choice.")] = 0,
    selection: Annotated[str, typer.Option(help="auto, canonical or first.")] = "auto",
    changes: Changes = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing manifest.")] = False,
) -> None:
    """Choose a long-tailed part of a data set and write which images it holds, with a SHA-256."""
    import json
    import shlex
    from dataclasses import replace

    from longtail.cli.columns import quantity
    from longtail.errors import UsageError
    from longtail.recipes import overrides
    from longtail.run import fsio
    from longtail.run.escape import shown

    if out.suffix != ".json":
        raise UsageError(f"--out {shown(out)}: the name must end in .json")
    if out.exists() and not force:
        raise UsageError(f"{shown(out)} exists already; choose another name or give --force")
    if not out.parent.is_dir():
        raise UsageError(f"--out {shown(out)}: there is no folder {shown(out.parent)}; make it first")
    wish = {"profile": profile, "ratio": ratio, "seed": seed, "selection": selection}
    spec = replace(spec_of(source, settings or (), changes or ()), longtail=overrides.long_tail(wish))

    from longtail import build
    from longtail.counts import ratio as realised

    dataset = build.dataset(spec)
    if dataset.manifest["indices"] is None:
        raise UsageError(
            f"ratio {quantity(ratio)} keeps every image of {source}; there is no choice to write"
        )
    fsio.write_json(out, dataset.manifest)
    counts = dataset.counts
    print(
        f"{shown(out)}: {int(counts.sum()):,} images of {len(counts)} classes, {int(counts.max()):,} to "
        f"{int(counts.min()):,}, ratio {quantity(realised(counts))}, sha256 {dataset.manifest['sha256'][:16]}"
    )
    print(f"to train on it: --set {shlex.quote('data.longtail=' + json.dumps({'manifest': str(out)}))}")


def spec_of(source: str, settings: list[str] | tuple[()], changes: list[str] | tuple[()]) -> Data:
    """The data of a recipe; a folder that is no run folder is a folder of images."""
    from longtail.errors import UsageError
    from longtail.recipe import Folder
    from longtail.recipes import catalogue, overrides
    from longtail.run.escape import shown

    path = Path(source)
    if not path.is_dir() or (path / "recipe.json").is_file():
        try:
            return catalogue.load(source, settings, changes).data
        except UsageError as error:
            if error.number not in (200, 201) or path.exists():
                raise
            from longtail.data.folder import similar

            if (near := similar(path)) is None:
                raise
            raise UsageError(f"{error}; of folders, did you mean {shown(near)}?", number=201) from error
    if settings:
        raise UsageError(f"{settings[0]}: a folder takes no arguments; change it with --set data.path=value")
    return overrides.override_data(Folder(root=source), changes)
