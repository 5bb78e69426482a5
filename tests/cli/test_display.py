"""The progress bar: what it says, and how seldom it makes the device wait."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from longtail.cli.display import Bar, Lines, Watched
from longtail.cli.pace import Pace
from longtail.engine.progress import Place
from longtail.recipes import catalogue

RECIPE = catalogue.make("digits.gcl")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Loss:
    """A loss that counts how often somebody waits for it."""

    def __init__(self) -> None:
        self.read = 0

    def __float__(self) -> float:
        self.read += 1
        return 2.5


class Kept:
    def __init__(self, every: float):
        self.every, self.lines, self.drawn = every, [], []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def draw(self, watched: Watched) -> None:
        self.drawn.append((watched.place, watched.speed))


def watched(output: Any, folder: Any, clock: Clock, done: int = 0) -> Watched:
    made = Watched(folder, output)
    made.began(RECIPE, 1000, Place(0, done, done))
    made.pace = Pace(clock)
    return made


def test_the_loss_is_read_once_a_second(run_folder) -> None:
    clock, loss, output = Clock(), Loss(), Kept(every=1.0)
    made = watched(output, run_folder, clock)
    for _ in range(500):  # 5 seconds
        made.stepped(RECIPE.stages[0], 1, 32, loss, 0.1)  # type: ignore[arg-type]
        clock.now += 0.01
    assert loss.read == len(output.drawn) == 5


def test_speed_and_time_left_follow_from_the_clock(run_folder) -> None:
    clock, output = Clock(), Kept(every=1.0)
    made = watched(output, run_folder, clock, done=100)
    for _ in range(201):
        made.stepped(RECIPE.stages[0], 2, 64, Loss(), 0.02)  # type: ignore[arg-type]
        clock.now += 0.1
    place, speed = output.drawn[-1]
    assert place == "representation 1/2, epoch 2/40"
    images = int(re.search(r"([\d,]+) images/s", speed)[1].replace(",", ""))  # type: ignore[index]
    assert images == pytest.approx(640, rel=0.06)  # 64 images every 0.1 s
    left = int(re.search(r"(\d+) s left", speed)[1])  # type: ignore[index]
    assert left == pytest.approx((1000 - 301) * 0.1, rel=0.06)
    assert speed.startswith("loss 2.500, lr 0.02, ")


def test_a_stage_is_told_by_its_number(run_folder) -> None:
    output = Kept(every=0.0)
    made = watched(output, run_folder, Clock())
    made.stepped(RECIPE.stages[1], 3, 32, Loss(), 0.1)  # type: ignore[arg-type]
    assert output.drawn[-1][0] == "classifier 2/2, epoch 3/10"


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_bar_fits_the_terminal_and_says_everything(run_folder, row, width) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=20, color_system=None)
    bar = Bar(console)
    made = watched(bar, run_folder, Clock(), done=500)
    made.stepped(RECIPE.stages[0], 20, 32, Loss(), 0.1)  # type: ignore[arg-type]
    made.evaluated(row)
    plain = Console(file=io.StringIO(), width=width, color_system=None)
    plain.print(bar.picture(made))
    text = plain.file.getvalue()  # type: ignore[attr-defined]
    assert all(len(line) <= width for line in text.splitlines())
    if width >= 80:
        for part in (
            "representation 1/2, epoch 20/40",
            "50 %",
            "loss 2.500",
            "many 90.0, medium 55.0, few -",
        ):
            assert part in text


def test_the_bar_draws_in_place_and_keeps_lines_above(run_folder, row) -> None:
    file = io.StringIO()
    bar = Bar(Console(file=file, force_terminal=True, width=100, height=20, color_system=None))
    with bar.live:
        made = watched(bar, run_folder, Clock())
        made.stepped(RECIPE.stages[0], 1, 32, Loss(), 0.1)  # type: ignore[arg-type]
        made.evaluated(row)
        made.note("[bold]not markup[/bold] \x1b[2J")
    text = file.getvalue()
    assert "representation 1/2, epoch 1/40" in text and "data: 3 classes" in text
    assert "note: [bold]not markup[/bold] [2J" in text, "brackets are text, controls are gone"


def test_a_reader_that_goes_away_does_not_stop_the_run(monkeypatch) -> None:
    def broken(*words: object, **rest: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("builtins.print", broken)
    lines = Lines()
    lines.line("hello")
    assert lines.every == float("inf"), "and nothing is drawn for it any more"
