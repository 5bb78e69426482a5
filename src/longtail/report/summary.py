"""Runs of one recipe up to the seed become one entry: means, spread, the paper's figure where one applies."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from longtail.recipes import paper
from longtail.recipes.paper_tables import Published
from longtail.report import describe
from longtail.report.reading import RunFiles
from longtail.report.text import label, percent

METRICS = ("top1", "many", "medium", "few", "balanced", "macro_f1", "worst", "ece")


@dataclass(frozen=True)
class Figure:
    """A mean over seeds; `spread` is the sample standard deviation, None for a single seed."""

    mean: float
    spread: float | None
    number: int

    def text(self, digits: int = 2) -> str:
        """
        >>> Figure(42.0, 0.5, 3).text(1)
        '42.0 ± 0.5'
        """
        return percent(self.mean, digits) + (
            f" ± {self.spread:.{digits}f}" if self.spread is not None else ""
        )


@dataclass(frozen=True)
class Entry:
    """One row of a comparison: the runs of one recipe, all seeds."""

    title: str
    dataset: str
    runs: tuple[RunFiles, ...]
    published: Published | None
    copies: tuple[RunFiles, ...] = ()  # of runs that are counted: the same recipe and seed once more
    stage: int | None = None  # None: the headline after the last stage

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(map(_seed, self.runs))

    def figure(self, metric: str, source: str = "last") -> Figure | None:
        """Mean and spread of a metric of the last (or `best`) evaluation; None where no run has it."""
        rows = [run.best if source == "best" else run.last for run in self.runs]
        if self.stage is not None:
            rows = [run.stages[self.stage] for run in self.runs if self.stage < len(run.stages)]
        return figure([row.get(metric) for row in rows])


def figure(values: Sequence[Any]) -> Figure | None:
    """
    >>> figure([41.0, None, 43.0])
    Figure(mean=42.0, spread=1.4142135623730951, number=2)
    """
    known = [float(v) for v in values if v is not None and math.isfinite(float(v))]
    if not known:
        return None
    spread = statistics.stdev(known) if len(known) > 1 else None
    return Figure(statistics.fmean(known), spread, len(known))


def entries(runs: Sequence[RunFiles]) -> list[Entry]:
    """Runs in the order given, those of one recipe up to the seed together.

    A folder given twice is one, and so are two of the same recipe and seed: a copy is no replicate. The
    finished one counts, the first of equals.
    """
    groups: dict[str, list[RunFiles]] = {}
    for run in {run.path.resolve(): run for run in runs}.values():
        groups.setdefault(_key(run), []).append(run)
    found = [_entry(group) for group in groups.values()]
    same: dict[tuple[str, str], list[Entry]] = {}
    for entry in found:
        same.setdefault((entry.title, entry.dataset), []).append(entry)
    titles = {id(e): title for group in same.values() for e, title in zip(group, _told_apart(group))}
    return [replace(entry, title=titles[id(entry)]) for entry in found]


def marks(figures: Sequence[Figure | None], *, lower: bool = False, digits: int = 2) -> list[str]:
    """`best`, `second` or nothing for each figure; equal as printed means equal. Nothing where all are equal.

    >>> marks([Figure(1, None, 1), Figure(3, None, 1), None, Figure(2, None, 1)])
    ['', 'best', '', 'second']
    """
    printed = [None if f is None else round(f.mean, digits) for f in figures]
    ranked = sorted({value for value in printed if value is not None}, reverse=not lower)
    if len(ranked) < 2:
        return [""] * len(printed)
    names = dict(zip(ranked, ("best", "second")))
    return ["" if value is None else names.get(value, "") for value in printed]


def _entry(runs: Sequence[RunFiles]) -> Entry:
    finished_first = sorted(runs, key=lambda run: not run.is_finished)
    counted = {id(run) for run in {_seed(run): run for run in reversed(finished_first)}.values()}
    copies = tuple(run for run in runs if id(run) not in counted)
    runs = [run for run in runs if id(run) in counted]
    first = runs[0]
    title, dataset = describe.method(first.recipe), describe.dataset(first.recipe, first.data)
    return Entry(title, dataset, tuple(runs), paper.published(first.recipe), copies)


def _told_apart(group: Sequence[Entry]) -> list[str]:
    """Titles of recipes with one name: with what differs where that is short to say, else with the folder."""
    if len(group) == 1:
        return [group[0].title]
    words = describe.told_apart([entry.runs[0].recipe for entry in group])
    if words is not None:
        return [f"{entry.title}, {word}" for entry, word in zip(group, words)]
    return [f"{entry.title} ({label(entry.runs[0].path.name, 40)})" for entry in group]


def _seed(run: RunFiles) -> int:
    return int(run.recipe.get("seed", 0))


def _key(run: RunFiles) -> str:
    recipe = {k: v for k, v in run.recipe.items() if k not in ("seed", "provenance")}
    counts = run.data["counts"]
    return json.dumps([_said(recipe), counts], sort_keys=True)


def _said(value: Any) -> Any:
    """Without what is null: an older version of the library did not write an option that is left unused."""
    if isinstance(value, Mapping):
        known = cast("Mapping[str, Any]", value)
        return {key: _said(part) for key, part in known.items() if part is not None}
    if isinstance(value, list):
        return [_said(part) for part in cast("list[Any]", value)]
    return value
