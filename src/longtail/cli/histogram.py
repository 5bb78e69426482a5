"""A data set as text: its facts, and one bar per class from the head to the tail."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from longtail.cli.columns import facts, quantity
from longtail.run.escape import terminal

if TYPE_CHECKING:
    from longtail.data.splits import Dataset

MOST_BARS = 40
LONGEST_NAME = 24
GROUPS = ("many", "medium", "few")
EIGHTHS = " ▏▎▍▌▋▊▉█"


def description(dataset: Dataset, width: int | None = None) -> str:
    """Everything `longtail data inspect` prints."""
    from longtail import counts as library

    counts = dataset.counts.tolist()
    filled = dataset.counts[dataset.counts > 0]
    shots = library.shots(library.checked(dataset.counts, zero_count="clamp"), "paper")
    members = {name: getattr(shots, name).tolist() for name in GROUPS}
    nominal = f" (asked for {quantity(dataset.nominal_ratio)})" if dataset.nominal_ratio else ""
    held_out = f", {len(dataset.held_out):,} held out" if dataset.held_out is not None else ""
    rows = [
        ("classes", len(counts)),
        ("images", f"{len(dataset.train):,} to train on, {len(dataset.test):,} to test on{held_out}"),
        ("counts", f"{max(counts):,} to {min(counts):,}"),
        ("ratio", f"{quantity(library.ratio(filled))}{nominal}"),
        *((name, _group(members[name], counts)) for name in GROUPS),
        ("digest", dataset.digest),
        *(("note", note) for note in dataset.notes),
    ]
    group = [next(name for name in GROUPS if members[name][index]) for index in range(len(counts))]
    bars = histogram(counts, dataset.names, group, width or shutil.get_terminal_size((100, 24)).columns)
    return f"{facts(rows)}\n\n{bars}"


def histogram(counts: Sequence[int], names: Sequence[str], groups: Sequence[str], width: int = 100) -> str:
    """One bar per class by falling count, or one per stretch of neighbours where there are many classes.

    Example:
        >>> print(histogram([8, 4, 1], ["cat", "dog", "eel"], ["many", "few", "few"], width=22))
        cat  many  8  ████████
        dog  few   4  ████
        eel  few   1  █
    """
    order = sorted(range(len(counts)), key=lambda index: -counts[index])
    size = -(-len(order) // MOST_BARS)
    stretches = [order[begin : begin + size] for begin in range(0, len(order), size)]
    labels = [_label(stretch, names, begin) for begin, stretch in zip(range(0, len(order), size), stretches)]
    means = [sum(counts[index] for index in stretch) / len(stretch) for stretch in stretches]
    shown = [f"{mean:,.0f}" for mean in means]
    words = [groups[stretch[len(stretch) // 2]] for stretch in stretches]
    columns = [max(map(len, column)) for column in (labels, words, shown)]
    room = max(8, width - sum(columns) - 6)
    return "\n".join(
        f"{label.ljust(columns[0])}  {word.ljust(columns[1])}  {text.rjust(columns[2])}  "
        f"{_bar(mean / max(*means, 1) * room)}".rstrip()
        for label, word, text, mean in zip(labels, words, shown, means)
    )


def _label(stretch: Sequence[int], names: Sequence[str], begin: int) -> str:
    if len(stretch) > 1:
        return f"ranks {begin + 1} to {begin + len(stretch)}"
    name = terminal(names[stretch[0]])
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."


def _group(members: Sequence[bool], counts: Sequence[int]) -> str:
    images = sum(count for count, is_member in zip(counts, members) if is_member)
    return f"{sum(members)} classes, {images:,} images"


def _bar(length: float) -> str:
    """Whole blocks and one of eight part blocks; a class that has images is always visible."""
    eighths = round(length * 8)
    if length > 0:
        eighths = max(1, eighths)
    return "█" * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")
