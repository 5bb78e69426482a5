"""What a person sees of a run in progress: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from longtail.cli.columns import duration, number, quantity
from longtail.cli.pace import Pace
from longtail.run import fsio
from longtail.run.escape import terminal

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from torch import Tensor

    from longtail.counts import ShotRule
    from longtail.engine.progress import Place
    from longtail.recipe import Recipe, Stage

GROUPS = ("many", "medium", "few")


class Output(Protocol):
    """Where the words go."""

    every: float  # seconds between two looks at the loss: each makes an accelerator wait

    def line(self, text: str) -> None: ...

    def draw(self, watched: Watched) -> None: ...


class Watched:
    """`engine.progress.Progress` for people: keeps the state, and hands it to an Output now and then."""

    def __init__(self, folder: Path, output: Output):
        self.folder, self.output, self.pace = folder, output, Pace()
        self.total, self.done, self.loss, self.lr = 1, 0, float("nan"), 0.0
        self.epoch, self.epochs, self.number, self.stages, self.name = 0, 0, 0, 0, ""
        self.names: list[str] = []
        self.evaluation = ""
        self._drawn = float("-inf")

    def began(self, recipe: Recipe, steps: int, place: Place) -> None:
        self.total, self.done = max(1, steps), place.total
        self.names, self.stages = [stage.name for stage in recipe.stages], len(recipe.stages)
        self.output.line(data_line(fsio.read_json(self.folder / "data.json"), recipe.evaluation.shot_rule))
        self.output.line(recipe_line(recipe))
        if place.total:
            self.output.line(f"going on after step {place.total:,} of {steps:,}")
        self.pace = Pace()

    def stepped(self, stage: Stage, epoch: int, images: int, loss: Tensor, lr: float) -> None:
        self.done += 1
        self.pace.add(images)
        now = self.pace.clock()
        if now - self._drawn < self.output.every:
            return
        self._drawn = now
        self.loss, self.lr, self.epoch, self.epochs = float(loss), lr, epoch, stage.epochs
        self.name, self.number = stage.name, self.names.index(stage.name) + 1
        self.pace.mark()
        self.output.draw(self)

    def evaluated(self, row: Mapping[str, Any]) -> None:
        self.evaluation = f"after epoch {row['epoch']}: {accuracies(row)}"
        self.output.line(f"{row['name']} {self.evaluation}")

    def note(self, text: str) -> None:
        self.output.line(f"note: {text}")

    @property
    def place(self) -> str:
        return f"{self.name} {self.number}/{self.stages}, epoch {self.epoch}/{self.epochs}"

    @property
    def speed(self) -> str:
        parts = [f"loss {self.loss:.3f}", f"lr {self.lr:.2g}"]
        speed, left = self.pace.images_per_second, self.pace.seconds_for(self.total - self.done)
        if speed is not None and left is not None:
            parts += [f"{speed:,.0f} images/s", f"{duration(left)} left"]
        return ", ".join(parts)


class Lines:
    """Output that is no terminal: a line every ten seconds. A reader that went away does not stop the run."""

    every = 10.0

    def line(self, text: str) -> None:
        try:
            print(terminal(text), flush=True)
        except OSError:
            self.every = float("inf")

    def draw(self, watched: Watched) -> None:
        self.line(f"{watched.place}: {watched.speed}")


class Bar:
    """A terminal: one bar and one line below it, drawn in place, once a second and by the loop itself."""

    every = 1.0

    def __init__(self, console: Console):
        from rich.live import Live

        self.console = console
        self.live = Live(console=console, auto_refresh=False, redirect_stderr=False, transient=True)

    def line(self, text: str) -> None:
        self.console.print(terminal(text), markup=False, highlight=False, soft_wrap=True)

    def draw(self, watched: Watched) -> None:
        self.live.update(self.picture(watched), refresh=True)

    def picture(self, watched: Watched) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        row = Table.grid(expand=True, padding=(0, 1))
        row.add_column(no_wrap=True)
        row.add_column(ratio=1)
        row.add_column(no_wrap=True, justify="right")
        percent = f"{100 * watched.done / watched.total:.0f} %"
        row.add_row(
            Text(watched.place, style="bold"),
            ProgressBar(watched.total, watched.done),
            Text(percent, style="green"),
        )
        below = Text(watched.speed, no_wrap=True, overflow="ellipsis")
        last = Text(watched.evaluation, style="cyan", no_wrap=True, overflow="ellipsis")
        return Group(row, below, last) if watched.evaluation else Group(row, below)


@contextmanager
def watching(folder: Path) -> Generator[Watched]:
    """A Progress that suits where stdout goes."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal or console.is_dumb_terminal:
        yield Watched(folder, Lines())
        return
    bar = Bar(console)
    with bar.live:
        yield Watched(folder, bar)


def accuracies(row: Mapping[str, Any]) -> str:
    """
    Example:
        >>> accuracies({"top1": 45.25, "many": 70.0, "medium": 40.04, "few": None})
        '45.2 % right (many 70.0, medium 40.0, few -)'
    """
    groups = ", ".join(f"{name} {number(row.get(name))}" for name in GROUPS)
    return f"{number(row.get('top1'))} % right ({groups})"


def data_line(data: Mapping[str, Any], rule: ShotRule = "paper") -> str:
    """Classes, counts from head to tail, ratio, groups: what the run is about, before it starts."""
    from longtail import counts as library

    counts, names = data["counts"], data["names"]
    order = sorted(range(len(counts)), key=lambda index: -counts[index])
    head, tail = order[0], order[-1]
    nominal = data.get("nominal_ratio")
    asked = f" (asked for {quantity(nominal)})" if nominal and abs(nominal - data["ratio"]) > 0.05 else ""
    shots = library.shots(library.checked(counts, zero_count="clamp"), rule)
    groups = ", ".join(f"{int(getattr(shots, name).sum())} {name}" for name in GROUPS)
    return (
        f"data: {len(counts)} classes, {sum(counts):,} training images from {counts[head]:,} ({names[head]}) "
        f"to {counts[tail]:,} ({names[tail]}), ratio {quantity(data['ratio'])}{asked}; "
        f"{groups}; {data['test_images']:,} test images"
    )


def recipe_line(recipe: Recipe) -> str:
    stages = ", then ".join(
        f"{stage.name} for {stage.epochs} epoch{'s' * (stage.epochs > 1)}"
        if stage.epochs
        else f"{stage.name}, which trains nothing"
        for stage in recipe.stages
    )
    return f"recipe: {recipe.name}, seed {recipe.seed}: {stages}"
