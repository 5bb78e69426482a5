"""What the loop costs beside the steps that it runs: logs, the guard, the averages of a meter, checkpoints.

One contender runs epochs of stage 1 of `cifar.gcl` through engine/fit.py into a run folder: every step logged
or looked at, a checkpoint at the end of each epoch, and an evaluation of 64 images, so that its own work is
next to nothing. The other takes the same steps on the same batches, and does nothing else. A turn is one
epoch; turns alternate. Writes benchmarks/results/engine_overhead.csv.

    python benchmarks/engine_overhead.py [--rounds 9] [--images 6144] [--threads 2]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import measure
from measure import Contender, Turn

from longtail import build, counts
from longtail.data.splits import Dataset, Split
from longtail.engine import environment, trainable
from longtail.engine.distributed import World
from longtail.engine.feed import Feed
from longtail.engine.fit import fit
from longtail.engine.progress import Silent
from longtail.engine.record import Record
from longtail.engine.signals import Stop
from longtail.engine.step import Step
from longtail.keys import Key
from longtail.recipe import Evaluation, Recipe
from longtail.recipes import cifar
from longtail.run.folder import RunFolder

CLASSES, TESTED = 100, 64
MANY = 10_000  # epochs that the loop is asked for; the process ends long before


def recipe_and_data(images: int) -> tuple[Recipe, Dataset]:
    recipe = cifar.gcl(CLASSES, 100)
    stages = (replace(recipe.stages[0], epochs=MANY),)
    recipe = replace(recipe, stages=stages, evaluation=Evaluation(every=1, last=1), precision="bf16")
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (images, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels, names = torch.arange(images) % CLASSES, tuple(str(number) for number in range(CLASSES))
    train, test = Split(pixels, labels, names), Split(pixels[:TESTED], labels[:TESTED], names)
    return recipe, Dataset(train, test, None, names, counts.exponential(CLASSES, 500, 100), "", {})


def paused(work: Callable[[Callable[[], None]], None], threads: int) -> Turn:
    """`work` in a thread of its own, which goes on to its next pause in each turn.

    The loop cannot return after an epoch, hence the thread. Both contenders have one, because it is not free:
    memory of other threads than the first comes in small heaps, which made the steps three percent slower.
    Everything happens in that thread: two that had parallel work each have a pool of OpenMP threads, and when
    the pools hold more threads than there are cores, libgomp stops spinning at its barriers. A run does not
    meet that; here it made the loop look 40 percent slower.
    """
    go, done = threading.Semaphore(0), threading.Semaphore(0)

    def pause() -> None:
        done.release()
        go.acquire()

    def run() -> None:
        torch.set_num_threads(threads)  # of this thread: each has its own number
        work(pause)

    threading.Thread(target=run, daemon=True).start()
    done.acquire()

    def turn() -> None:
        go.release()
        done.acquire()

    return turn


def loop(images: int, threads: int) -> Turn:
    """A turn is one epoch of the engine's loop."""

    def work(pause: Callable[[], None]) -> None:
        class Paused(Record):
            """Waits after each epoch until it is asked for the next one."""

            def epoch_done(self, epoch: int) -> None:
                super().epoch_done(epoch)
                pause()

        here, (recipe, data) = World(torch.device("cpu")), recipe_and_data(images)
        with environment.steady(here):
            model = environment.placed(build.model(recipe.model, CLASSES, Key(0)), recipe, here)
            folder = RunFolder(Path(tempfile.mkdtemp(prefix="longtail-overhead-")) / "run")
            folder.create(recipe)
            record = Paused(here, folder, recipe, data, model, Stop(), Silent())
            fit(here, recipe, data, model, record, Feed(here, recipe, data))

    return paused(work, threads)


def bare(images: int, threads: int) -> Turn:
    """The same epoch of the same steps, and nothing besides."""

    def work(pause: Callable[[], None]) -> None:
        here, (recipe, data) = World(torch.device("cpu")), recipe_and_data(images)
        with environment.steady(here):
            model = environment.placed(build.model(recipe.model, CLASSES, Key(0)), recipe, here)
            feed, stage, key = Feed(here, recipe, data), recipe.stages[0], Key(0)
            trainable.select(model, stage)
            optimizer = build.optimizer(stage.optimizer, trainable.groups(model, stage), here.device)
            update = Step(here, recipe, stage, model, build.loss(stage.loss, data.counts), optimizer)
            trainable.set_modes(model, stage)
            while True:
                for step, mixture, _, share in feed.epoch(stage, key, 0, start=0):
                    update.prepare(stage.optimizer.lr, key.fold("noise", step))
                    update(mixture, share, progress=0.0)
                pause()

    return paused(work, threads)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--images", type=int, default=6144, help="images in an epoch")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    contenders = {
        "loop": Contender(loop, given.images, given.threads, threads=given.threads),
        "bare steps": Contender(bare, given.images, given.threads, threads=given.threads),
    }
    times = measure.race(contenders, given.rounds)
    row: dict[str, object] = {"images": given.images, "rounds": given.rounds}
    for name, label in (("loop", "loop"), ("bare steps", "bare")):
        row[f"{label}_s"] = round(measure.middle(times[name]), 3)
        row[f"{label}_spread"] = round(measure.spread(times[name]), 3)
    row["overhead_percent"] = round(100 * (measure.ratio(times["loop"], times["bare steps"]) - 1), 2)
    row["cpu_overhead_percent"] = round(100 * (measure.ratio(times["loop"], times["bare steps"], 1) - 1), 2)
    print(*(f"{key}={value}" for key, value in row.items()))
    print(measure.write("engine_overhead", [row], given.threads))


if __name__ == "__main__":
    main()
