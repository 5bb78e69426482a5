"""What every figure is made with: the request, the result, and the four files that come of it."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from longtail.errors import UsageError
from longtail.report import describe
from longtail.report.reading import RunFiles
from longtail.report.style import COLUMN, PAGE
from longtail.report.text import short
from longtail.run import fsio
from longtail.run.escape import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[Any]
Arrays = dict[str, Array]

SUFFIXES = (".svg", ".pdf", ".png", ".npz")
# Without these every file would carry the time it was written.
METADATA: Mapping[str, dict[str, Any]] = {
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
    "png": {"Software": None},
}


@dataclass(frozen=True)
class Request:
    """What a figure is about: runs, or counts where a formula suffices."""

    runs: Sequence[RunFiles] = ()
    counts: Sequence[int] = ()
    seed: int = 0
    strength: float = 0.5
    most: int = 5000

    def needed(self, what: str, most: int | None = None) -> Sequence[RunFiles]:
        """The runs: at least one, no more than the figure can show, all on the same data."""
        if not self.runs:
            raise UsageError(f"the figure {what} needs a run folder")
        if most is not None and len(self.runs) > most:
            folders = "one run folder" if most == 1 else f"up to {most} run folders"
            raise UsageError(f"the figure {what} shows {folders}, {len(self.runs)} were given")
        first = self.runs[0]
        for run in self.runs[1:]:
            if _data(run) != _data(first):
                raise UsageError(
                    f"the figure {what} compares runs on the same data: "
                    f"{shown(first.path)} and {shown(run.path)} differ in theirs"
                )
        return self.runs

    def sizes(self) -> list[int]:
        """The class counts: those given, of the first run, or of CIFAR-10-LT at 100 to 1."""
        if self.counts:
            return list(self.counts)
        if self.runs:
            return [int(n) for n in self.runs[0].counts]
        from longtail import counts

        return counts.exponential(10, 5000, 100).tolist()


@dataclass(frozen=True)
class Drawn:
    """A figure and the numbers in it."""

    figure: Figure
    arrays: Arrays


def _data(run: RunFiles) -> tuple[str, list[int]]:
    return describe.dataset(run.recipe, run.data), [int(n) for n in run.counts]


def sheet(
    rows: int = 1, columns: int = 1, *, width: float | None = None, height: float = 2.1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure as wide as one column of a paper, or two when there are more than two panels in a row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width or (COLUMN if columns <= 2 else PAGE), height))
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(axes.flat)


def classes(axis: Axes, names: Sequence[str], most: int = 20) -> None:
    """The axis of classes in the order of their images: their names where there is room for them."""
    if len(names) > most:
        axis.set_xlabel("classes, from the most to the fewest images")
        return
    texts = [short(name, 12) for name in names]
    if max(len(text) for text in texts) <= 3:
        axis.set_xticks(range(len(texts)), texts)
    else:
        axis.set_xticks(range(len(texts)), texts, rotation=45, ha="right", rotation_mode="anchor")


def save(drawn: Drawn, prefix: Path) -> list[Path]:
    """Write the figure as SVG, PDF and PNG and its arrays as NPZ; the same input gives the same bytes."""
    if any(array.dtype.kind == "O" for array in drawn.arrays.values()):
        raise TypeError("an array of objects would be written as a pickle")
    if prefix.parent != Path():
        fsio.make_folders(prefix.parent)
    written: list[Path] = []
    for suffix in SUFFIXES:
        out = io.BytesIO()
        if suffix == ".npz":
            np.savez_compressed(out, **cast("dict[str, Any]", drawn.arrays))
        else:
            kind = suffix[1:]
            with warnings.catch_warnings():  # a name in a script that the font lacks still leaves a figure
                warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
                drawn.figure.savefig(out, format=kind, metadata=METADATA[kind], transparent=kind != "png")
        path = prefix.with_name(prefix.name + suffix)
        fsio.write_file(path, out.getvalue())
        written.append(path)
    return written
