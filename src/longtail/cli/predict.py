"""`longtail predict`: class names and probabilities for images, as CSV or JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from longtail.engine.predict import Prediction


def predict(
    run: Annotated[Path, typer.Argument(help="A finished run folder.")],
    paths: Annotated[list[Path], typer.Argument(help="Images, or folders of images.")],
    out: Annotated[
        Path | None, typer.Option(help="A .csv or .json file; CSV on the screen when left out.")
    ] = None,
    top: Annotated[
        int,
        typer.Option(
            min=0, help="How many classes to name for each image; 0 writes the probability of every class."
        ),
    ] = 5,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going",
            help="End with exit code 0, not 3, although images could not be read; their rows say why.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1.")] = None,
) -> None:
    """Name the class of each image, with its probability."""
    from longtail.errors import DataError, UsageError
    from longtail.run.escape import shown
    from longtail.run.folder import RunFolder

    if out is not None and out.suffix.lower() not in (".csv", ".json"):
        raise UsageError(f"--out {shown(out)}: the name must end in .csv or .json")
    if out is not None and out.exists() and not force:
        raise UsageError(f"{shown(out)} exists already; choose another name or give --force")
    if out is not None and not out.parent.is_dir():
        raise UsageError(f"--out {shown(out)}: there is no folder {shown(out.parent)}; make it first")
    RunFolder.open(run)  # a wrong folder is refused before torch is loaded
    from longtail.engine.predict import predict as predicted
    from longtail.run import fsio

    found = predicted(run, paths, keep_going=True, device=device)
    if out is None:
        sys.stdout.write(as_csv(found, top))
    elif out.suffix.lower() == ".csv":
        fsio.write_file(out, as_csv(found, top).encode("utf-8"))
    else:
        fsio.write_json(out, as_rows(found, top))
    failed = [one for one in found if one.error is not None]
    images = f"{len(found):,} image{'s' * (len(found) != 1)}"
    note = f"{len(failed):,} of {images} could not be used" if failed else images
    if out is not None:
        print(f"{note}; written to {shown(out)}")
    if failed and not keep_going:
        raise DataError(f"{note}; the first: {failed[0].error}")


def as_csv(found: Sequence[Prediction], top: int) -> str:
    """path, label, probability; the next classes, or every class by its name; the reason of a failure."""
    from longtail.run.escape import csv_text

    classes = list(next((one.probabilities for one in found if one.probabilities), {}))
    named = min(top, len(classes)) if classes else top
    more = (
        classes
        if top == 0
        else [f"{word}_{i}" for i in range(2, named + 1) for word in ("label", "probability")]
    )
    rows: list[list[object]] = [["path", "label", "probability", *more, "error"]]
    for one in found:
        ranked = _ranked(one)
        rest = [one.probabilities.get(name) for name in classes] if top == 0 and one.probabilities else []
        rest = rest if top == 0 else [value for pair in ranked[1:named] for value in pair]
        rest += [""] * (len(more) - len(rest))
        first = ranked[0] if ranked else ("", "")
        rows.append([one.path, *map(_rounded, [*first, *rest]), one.error or ""])
    return csv_text(rows)


def as_rows(found: Sequence[Prediction], top: int) -> list[dict[str, Any]]:
    """The JSON form: one object per image; `classes` from the most probable on."""
    return [
        {
            "path": one.path,
            "label": one.label,
            "probability": one.probability,
            "classes": [{"label": name, "probability": value} for name, value in _ranked(one)[: top or None]],
            "error": one.error,
        }
        for one in found
    ]


def _ranked(one: Prediction) -> list[tuple[str, float]]:
    return sorted((one.probabilities or {}).items(), key=lambda pair: -pair[1])


def _rounded(value: object) -> object:
    return float(f"{value:.6g}") if isinstance(value, float) else value
