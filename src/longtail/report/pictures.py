"""From runs to the charts of the page: which arrays go in, and the sentence that stands for the picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from longtail.report import measures
from longtail.report.charts import calibration, confusion, curves, groups, per_class
from longtail.report.reading import Row, RunFiles
from longtail.report.style import DARK, LIGHT
from longtail.report.summary import Entry
from longtail.report.svg import Drawing
from longtail.report.text import label, percent, plural, short

TITLES = {"many": "Many", "medium": "Medium", "few": "Few"}
MOST = 8  # entries in one chart: as many as there are colours
MOST_CLASSES = 2000  # above, the full confusion matrix would not fit


@dataclass(frozen=True)
class Picture:
    """One chart in its four forms, with the words for those who do not see it."""

    desk_light: str
    desk_dark: str
    phone_light: str
    phone_dark: str
    alt: str
    width: float
    height: float


def picture(draw: Callable[..., Drawing], alt: str) -> Picture:
    """Draw a chart for both themes and both widths."""
    desk = [draw(theme=theme, compact=False) for theme in (LIGHT, DARK)]
    phone = [draw(theme=theme, compact=True) for theme in (LIGHT, DARK)]
    return Picture(
        desk[0].address(),
        desk[1].address(),
        phone[0].address(),
        phone[1].address(),
        alt,
        desk[0].width,
        desk[0].height,
    )


def shots(run: RunFiles) -> dict[str, measures.Array]:
    """The masks of many, medium and few by the rule that the run was evaluated with."""
    return measures.shots(run.counts, str((run.recipe.get("evaluation") or {}).get("shot_rule", "paper")))


def by_group(entries: Sequence[Entry]) -> Picture:
    """Accuracy of all classes and of the three groups."""
    shown, counts = entries[:MOST], entries[0].runs[0].counts
    masks = {"top1": np.ones(len(counts), bool), **shots(entries[0].runs[0])}
    found: list[groups.Group] = []
    for metric, mask in masks.items():
        if not mask.any():
            continue
        figures = [entry.figure(metric) for entry in shown]
        pairs = [None if f is None else (f.mean, f.spread) for f in figures]
        found.append(groups.Group(TITLES.get(metric, "All classes"), _note(counts[mask]), pairs))
    titles = [entry.title for entry in shown]
    alt = "Accuracy in percent. " + " ".join(
        f"{title}: " + ", ".join(f"{g.title.lower()} {percent(_mean(g.figures[i]))}" for g in found) + "."
        for i, title in enumerate(titles)
    )
    return picture(partial(groups.draw, found, titles), alt)


def by_class(entries: Sequence[Entry]) -> Picture:
    """Accuracy of every class over its training images."""
    run, shown = entries[0].runs[0], entries[:MOST]
    accuracies = [mean_accuracy(entry) for entry in shown]
    sorted_ = measures.by_frequency(run.counts, accuracies)
    masks, order, bar = shots(run), sorted_["order"], sorted_["bar"]
    first = [int(order[np.flatnonzero(bar == i)[0]]) for i in range(len(sorted_["counts"]))]
    group = [next((g for g in measures.GROUPS if masks[g][c]), "few") for c in first]
    bars = per_class.Bars(
        sorted_["counts"], sorted_["accuracy"], group, [short(run.names[c], 14) for c in first]
    )
    halves = [measures.trend(a[order], max(len(order) // 5, 1)) for a in accuracies]
    alt = "Classes from the most to the fewest training images. " + " ".join(
        f"{entry.title}: accuracy {percent(h[0], 0)} % at the head, {percent(h[-1], 0)} % at the tail's end."
        for entry, h in zip(shown, halves)
    )
    return picture(partial(per_class.draw, bars, [entry.title for entry in shown]), alt)


def over_time(entries: Sequence[Entry]) -> Picture | None:
    """Training loss and test accuracy over the epochs of all stages."""
    shown = entries[:MOST]
    shade, loss, accuracy = list[curves.Line](), list[curves.Line](), list[curves.Line]()
    for color, entry in enumerate(shown):
        for number, run in enumerate(entry.runs):
            place = epochs(run)
            faint, title = number > 0, "" if len(shown) == 1 else entry.title
            for part, (x, y) in enumerate(losses(run)):
                smooth, own = measures.smooth(y), "all classes" if len(shown) == 1 else color
                loss.append(curves.Line("" if part else title, x, smooth, own, faint))
                if smooth is not y and not faint:
                    shade.append(curves.Line("", x, y, own, shade=True))
            wanted = ("top1", "many", "medium", "few") if len(shown) == 1 else ("top1",)
            for metric in wanted:
                x, y = column(run.evals, place, metric)
                named = {"top1": "all classes"}.get(metric, metric) if len(shown) == 1 else entry.title
                accuracy.append(curves.Line(named, x, y, metric if len(shown) == 1 else color, faint))
    if not any(len(line.x) for line in (*loss, *accuracy)):
        return None
    drawn = [line for line in (*shade, *loss) if len(line.y)]
    highest = max((float(np.nanmax(line.y)) for line in drawn), default=1.0)
    best = max((float(np.nanmax(line.y)) for line in accuracy if len(line.y)), default=100.0)
    top = min(10.0 * np.ceil((best + 1) / 10), 100.0)
    panels = [
        curves.Panel("training loss", drawn, highest * 1.05),
        curves.Panel("accuracy on the test images, %", [line for line in accuracy if len(line.x)], top),
    ]
    longest = max((entry.runs[0] for entry in shown), key=lambda run: len(run.recipe["stages"]))
    edges, end = stage_edges(longest)
    end = max(end, *(stage_edges(entry.runs[0])[1] for entry in shown))
    ends = "; ".join(f"{e.title} ends at {percent(_last(e, 'top1'))} %" for e in shown)
    alt = f"Training loss and test accuracy over {end:g} epochs. {ends}."
    return picture(partial(curves.draw, panels, edges, end), alt)


def confusions(run: RunFiles) -> tuple[Picture, bool] | None:
    """The confusion matrix of one run, and whether its rows are groups of classes."""
    found, counts = run.predictions, run.counts
    if found is None or len(counts) > MOST_CLASSES or found["logits"].shape[1] != len(counts):
        return None
    matrix = measures.confusion(found["labels"], measures.predicted(found["logits"]), len(counts))
    summed, members = measures.grouped(matrix, counts)
    shares = measures.row_shares(summed)
    is_grouped = len(members) < len(counts)
    names = [
        f"{counts[part[0]]:,}–{counts[part[-1]]:,}" if is_grouped else short(run.names[int(part[0])], 15)
        for part in members
    ]
    what = "groups of classes by training images" if is_grouped else "classes"
    first, last, taken = (percent(float(v), 0) for v in (shares[0][0], shares[-1][-1], shares[-1][0]))
    alt = (
        f"Confusion matrix of {len(members)} {what}, head first. On the diagonal {first} % in the first row, "
        f"{last} % in the last; {taken} % of the last row's images are taken for the first."
    )
    return picture(partial(confusion.draw, shares, names), alt), is_grouped


def calibrated(entries: Sequence[Entry]) -> Picture | None:
    """The reliability diagram of the first run of each entry that kept its predictions."""
    known = [(i, e, p) for i, e in enumerate(entries[:MOST]) if (p := e.runs[0].predictions) is not None]
    if not known:
        return None
    colors, shown = [i for i, _, _ in known], [e for _, e, _ in known]
    found = [measures.reliability(p["logits"], p["labels"]) for _, _, p in known]
    errors = ", ".join(f"{e.title} {float(f['ece']):.3f}" for e, f in zip(shown, found))
    alt = f"Reliability diagram with {len(found[0]['share'])} bins. Expected calibration error: {errors}."
    return picture(partial(calibration.draw, found, [entry.title for entry in shown], colors), alt)


def mean_accuracy(entry: Entry) -> measures.Array:
    """Percent right of each class, averaged over the seeds."""
    stacked = np.stack([run.accuracies() for run in entry.runs])
    known = ~np.isnan(stacked)
    total = np.where(known, stacked, 0).sum(axis=0)
    return np.divide(total, known.sum(axis=0), out=np.full(len(total), np.nan), where=known.any(axis=0))


def stage_edges(run: RunFiles) -> tuple[list[tuple[float, str]], float]:
    """Where each stage begins, in epochs of the whole run, with its name; and the end of the last."""
    at, found = 0.0, list[tuple[float, str]]()
    for stage in run.recipe["stages"]:
        found.append((at, label(stage.get("name", "stage"), 24)))
        at += float(stage.get("epochs", 0))
    return found, at


def epochs(run: RunFiles) -> Callable[[Row], float]:
    """The place of a log row on the axis of epochs: an evaluation tells how many steps an epoch has."""
    starts = [start for start, _ in stage_edges(run)[0]]
    steps = {int(r["stage"]): r["step"] / r["epoch"] for r in run.evals if r.get("step") and r.get("epoch")}

    def place(row: Row) -> float:
        stage = int(row.get("stage", 0))
        start = starts[stage] if stage < len(starts) else 0.0
        each = steps.get(stage)
        return start + (float(row["step"]) / each if each and "step" in row else float(row["epoch"]))

    return place


def column(rows: Sequence[Row], place: Callable[[Row], float], key: str) -> tuple[Any, Any]:
    known = [row for row in rows if row.get(key) is not None]
    return np.array([place(row) for row in known]), np.array([float(row[key]) for row in known])


def losses(run: RunFiles) -> list[tuple[Any, Any]]:
    """The training loss of each stage over the epochs: two losses have no line between them."""
    place = epochs(run)
    numbers = sorted({int(row.get("stage", 0)) for row in run.steps})
    parts = [[row for row in run.steps if int(row.get("stage", 0)) == number] for number in numbers]
    whole = max(len(run.steps), 1)
    return [
        measures.thin(*column(part, place, "loss"), most=max(160 * len(part) // whole, 12)) for part in parts
    ]


def _last(entry: Entry, metric: str) -> float | None:
    found = entry.figure(metric)
    return None if found is None else found.mean


def _mean(pair: tuple[float, float | None] | None) -> float | None:
    return None if pair is None else pair[0]


def _note(counts: measures.Array) -> str:
    low, high = int(counts.min()), int(counts.max())
    each = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{plural(len(counts), 'class')}, {each} images"
