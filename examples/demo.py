"""`make demo`: cross-entropy against two-stage GCL on the embedded long-tailed digits, in about a minute."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import longtail as lt
from longtail.recipes import digits
from longtail.run.folder import RunFolder

COLUMNS = ("top1", "many", "medium", "few")


def main() -> None:
    console = Console()
    console.print("Handwritten digits, made long-tailed: the head has 50 times the images of the tail.\n")
    table = Table(
        "method", "epochs", *COLUMNS, "seconds", title="accuracy on the balanced test digits, percent"
    )
    with tempfile.TemporaryDirectory() as folder:
        for recipe in (digits.ce(), digits.gcl(form="euclidean"), digits.gcl(form="angular")):
            began = time.perf_counter()
            run = lt.train(recipe, out=Path(folder) / f"{recipe.name}-{len(table.rows)}")
            add_rows(table, run, time.perf_counter() - began)
        console.print(table)
    console.print(
        "\nNow your own images:   .venv/bin/longtail train folder.gcl data=PATH --out runs/mine\n"
        "and what went wrong:   .venv/bin/longtail report runs/mine --out report.html"
    )


def add_rows(table: Table, run: RunFolder, seconds: float) -> None:
    recipe, final = run.recipe(), run.read("final.json")
    form = getattr(recipe.stages[0].loss, "form", None)
    name = f"GCL, {form}" if form else "cross-entropy"
    for number, row in enumerate(final["stages"]):
        is_last = number == len(final["stages"]) - 1
        table.add_row(
            f"{name}, after stage {number + 1}" if len(final["stages"]) > 1 else name,
            str(recipe.stages[number].epochs),
            *(f"{row[c]:.1f}" if row[c] is not None else "-" for c in COLUMNS),
            f"{seconds:.0f}" if is_last else "",
        )


if __name__ == "__main__":
    main()
