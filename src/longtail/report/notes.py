"""What a reader should know before believing a number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from longtail.recipes import paper
from longtail.report.reading import RunFiles
from longtail.report.summary import Entry
from longtail.report.text import label, plural
from longtail.run.escape import shown


def of_entry(entry: Entry) -> list[str]:
    """Notes on the runs of one recipe, in the order in which a reader would ask."""
    found = [note for run in entry.runs for note in _run(run)]
    found += copied(entry)
    if len({run.data.get("digest") for run in entry.runs}) > 1:
        found.append(
            f"{entry.title}: the seeds were trained on different images (their data digests differ)."
        )
    if entry.published is not None and (short := paper.shortfall(entry.runs[0].recipe)):
        found.append(f"{entry.title}: {short}")
    return found


def unfinished(runs: Sequence[RunFiles]) -> Iterator[str]:
    """The runs that no seal vouches for: they still go on, or were stopped."""
    for run in runs:
        if not run.is_finished:
            yield f"{shown(run.path)}: the run is not finished; its newest evaluation stands in for the last."


def copied(entry: Entry) -> Iterator[str]:
    """The runs that are the same recipe and seed as one that is counted."""
    for run in entry.copies:
        seed = int(run.recipe.get("seed", 0))
        other = entry.runs[entry.seeds.index(seed)]
        yield f"{shown(run.path)}: not counted, the recipe and seed of {shown(other.path)} once more."


def _run(run: RunFiles) -> Iterator[str]:
    path = shown(run.path)
    yield from unfinished([run])
    if run.env.get("dirty"):
        yield f"{path}: the code had changes that were not committed."
    for note in run.data.get("notes") or ():
        yield label(note, 300)
    for what, empty in (
        ("training", run.counts == 0),
        ("test", np.asarray(run.last.get("totals") or np.ones(1)) == 0),
    ):
        number = int(empty.sum())
        if number:
            verb = "has" if number == 1 else "have"
            yield f"{path}: {plural(number, 'class')} {verb} no {what} images and count in no average."
    evaluated = run.last.get("split", "test")
    if evaluated != "test":
        yield f"{path}: evaluated on the split {label(evaluated)}, not on the test images."
