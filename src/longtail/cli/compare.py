"""`longtail compare`: runs side by side, in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from longtail.report.tables import Row

MARKS = {"best": " *", "second": " +", "": "  "}


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; seeds of one recipe share a row.")],
) -> None:
    """Compare runs, over seeds and with the paper's figures."""
    from longtail.report.reading import read
    from longtail.report.summary import entries
    from longtail.report.tables import rows

    print(side_by_side(rows(entries([read(run) for run in runs]))))


def side_by_side(found: Sequence[Row]) -> str:
    """One block for each data set: means over seeds, and the paper's figure where one applies."""
    from longtail.run.escape import terminal

    blocks: list[str] = []
    for dataset, group in groupby(found, key=lambda row: row.entry.dataset):
        blocks.append(f"{terminal(dataset)}\n{_block(list(group))}")
    legend = "percent right after the last epoch, mean ± deviation over seeds; * best, + second of its block"
    return "\n\n".join([*blocks, legend, *_notes(found)])


def _block(group: Sequence[Row]) -> str:
    from longtail.cli.columns import aligned
    from longtail.report.tables import METRICS

    header = ["", *(f"{title.lower()}  " for _, title in METRICS), "paper", "difference", "seeds"]
    rows: list[list[object]] = []
    for row in group:
        figures = [
            f"{figure.text() if figure else '-'}{MARKS[mark]}" for figure, mark in zip(row.figures, row.marks)
        ]
        paper = "-" if row.paper is None else f"{row.paper:.2f}"
        difference = "-" if row.difference is None else f"{row.difference:+.2f}"
        seeds = ", ".join(map(str, row.entry.seeds))
        rows.append([row.entry.title, *figures, paper, difference, seeds])
    return aligned(header, rows)


def _notes(found: Sequence[Row]) -> list[str]:
    """Where a run is not finished, is a copy of another, or trained for less than the paper's runs did."""
    from longtail.recipes.paper import shortfall
    from longtail.report.notes import copied, unfinished
    from longtail.run.escape import terminal

    notes: list[str] = []
    for row in found:
        said = [*unfinished(row.entry.runs), *copied(row.entry)]
        notes += [f"note: {terminal(note.rstrip('.'))}" for note in said]
        if row.paper is not None and (text := shortfall(row.entry.runs[0].recipe)):
            notes.append(f"note: {terminal(row.entry.title)}: {text[:1].lower()}{text[1:]}")
    return ["\n".join(dict.fromkeys(notes))] if notes else []
