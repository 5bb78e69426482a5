"""Training and evaluation against the textbook loop (textbook.py), and against the machine's matrix products.

Both do the work of `cifar.gcl`: stage 1, stage 2 with a frozen backbone, and evaluation, each with its input
pipeline. "stage 2 cached" is 30 epochs over 4 kept views of each image, the making of the views included,
against as many epochs of the textbook's stage 2. The last rows put the parts together: 200 and 30 epochs of
CIFAR-100-LT at 100 to 1; the textbook tests after each of them, ours after every fifth and the last ten of
a stage. FLOPs are counted by torch.utils.flop_counter. The contenders are processes that take turns. On a
machine that does other things too (column `load`), threads wait for one another and wall time says little:
run it with --threads 1 and read the ratios of processor time there.

    python benchmarks/train_step.py [--rounds 15] [--images 512] [--threads 2] [--name train_step]
    python benchmarks/train_step.py --device cuda --images 4096 --name train_step_gpu --batches 64 512
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).parent))
import measure
import textbook
from measure import Contender, Turn

from longtail import build, clouds, counts
from longtail.data.splits import Dataset, Split
from longtail.engine import environment, frozen, trainable
from longtail.engine.distributed import World
from longtail.engine.evaluate import evaluate
from longtail.engine.feed import Feed
from longtail.engine.graphs import captured
from longtail.engine.step import Step
from longtail.keys import Key
from longtail.recipe import Cached, Recipe
from longtail.recipes import cifar

CLASSES = 100
HELD = 4096  # images there are; what they show does not matter to the time
PARTS = ("stage 1", "stage 2", "stage 2 cached", "evaluation")
LOOPS = ("textbook", "ours bf16", "ours fp32")
EPOCHS, VIEWS = 30, 4  # of the cached stage 2


def labels() -> Tensor:
    return torch.arange(HELD) % CLASSES


def pixels() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (HELD, 3, 32, 32), dtype=torch.uint8, generator=generator)


def sizes() -> Tensor:
    return counts.exponential(CLASSES, 500, 100)


def waited(turn: Turn, device: str) -> Turn:
    """The turn, and what it left running on an accelerator."""
    if device == "cpu":
        return turn
    return lambda: (turn(), torch.accelerator.synchronize())[0]


def plain(part: str, batch: int, images: int, device: str) -> Turn:
    """A turn of the textbook loop."""
    stored = pixels().permute(0, 2, 3, 1).contiguous().numpy()
    train = part != "evaluation"
    data = textbook.Images(
        stored if train else stored[:images], labels().tolist()[: None if train else images], train
    )
    loader = DataLoader(data, batch_size=batch, shuffle=train, num_workers=0)
    model = textbook.ResNet32(CLASSES)
    if not train:
        return lambda: (textbook.testing(model, loader, device), None)[1]
    cloud = clouds.sizes(sizes()).float()
    losses = textbook.training(model, loader, cloud, stage=1 if part == "stage 1" else 2, device=device)
    return lambda: _take(losses, images // batch)


def _take(steps: Iterator[object], number: int) -> None:
    for _ in range(number):
        next(steps)


def ours(part: str, batch: int, images: int, device: str, precision: str) -> Turn:
    """A turn of our loop: the engine's own feed, model, step and evaluation."""
    cached = part == "stage 2 cached"
    here, (recipe, data) = World(torch.device(device)), _set_up(batch, precision, images, cached)
    environment.steady(here).__enter__()  # until the process ends, as around a run
    model = build.model(recipe.model, CLASSES, Key(0))
    environment.placed(model, recipe, here)
    feed = Feed(here, recipe, data)
    if part == "evaluation":
        loss = build.loss(recipe.stages[1].loss, sizes()).to(here.device)
        return waited(lambda: evaluate(here, recipe, model, loss, feed.evaluation, sizes()).clear(), device)
    if cached:
        return waited(lambda: _take(_steps(here, recipe, feed, model, 1), EPOCHS * (images // batch)), device)
    steps = _steps(here, recipe, feed, model, 0 if part == "stage 1" else 1)
    return waited(lambda: _take(steps, images // batch), device)


def _set_up(batch: int, precision: str, images: int, cached: bool) -> tuple[Recipe, Dataset]:
    recipe = cifar.gcl(CLASSES, 100)
    first, second = (replace(stage, batch_size=batch) for stage in recipe.stages)
    stages = (first, replace(second, cached=Cached(views=VIEWS) if cached else None))
    held = images if cached else HELD
    evaluation = replace(recipe.evaluation, batch_size=batch)
    names = tuple(str(number) for number in range(CLASSES))
    train, test = (Split(pixels()[:size], labels()[:size], names) for size in (held, images))
    recipe = replace(recipe, stages=stages, evaluation=evaluation, precision=precision, channels_last=True)
    return recipe, Dataset(train, test, None, names, sizes(), "", {})


def _steps(here: World, recipe: Recipe, feed: Feed, model: torch.nn.Module, number: int) -> Iterator[Tensor]:
    """The inner loop of engine/fit.py, without what surrounds it."""
    stage = recipe.stages[number]
    trainable.select(model, stage)
    loss = build.loss(stage.loss, sizes()).to(here.device)
    optimizer = build.optimizer(stage.optimizer, trainable.groups(model, stage), here.device)
    key, epoch = Key(0), 0
    feed.entered(stage, model, key)
    net = frozen.network(recipe, stage, model)
    update = captured(Step(here, recipe, stage, net, loss, optimizer))
    while True:
        trainable.set_modes(model, stage)
        for step, mixture, _, share in feed.epoch(stage, key, epoch, start=0):
            update.prepare(stage.optimizer.lr, key.fold("noise", step))
            yield update(mixture, share, progress=0.0)
        epoch += 1


def product(kind: str, device: str) -> Turn:
    """2048^3 matrix products of random numbers, as many as fill about a tenth of a second on a processor."""
    dtype = torch.bfloat16 if kind == "bf16" else torch.float32
    draw = torch.Generator().manual_seed(0)
    left, right = torch.randn(2, 2048, 2048, generator=draw).to(device, dtype).unbind()
    return waited(lambda: [torch.mm(left, right) for _ in range(4)].clear(), device)


def flops(part: str, batch: int) -> float:
    """Per image: forward, and in stage 1 backward."""
    model = textbook.ResNet32(CLASSES).train(part == "stage 1")
    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(part == "stage 1"):
        result = model(torch.zeros(batch, 3, 32, 32)).sum()
        if part == "stage 1":
            result.backward()
    return counter.get_total_flops() / batch


def compare(  # noqa: PLR0913
    part: str, batch: int, rounds: int, images: int, threads: int, device: str
) -> list[dict[str, object]]:
    work_of = (part, batch, images, device)
    contenders = {
        "textbook": Contender(plain, *work_of, threads=threads),
        "ours bf16": Contender(ours, *work_of, "bf16", threads=threads),
        "ours fp32": Contender(ours, *work_of, "fp32", threads=threads),
        "product bf16": Contender(product, "bf16", device, threads=threads),
        "product fp32": Contender(product, "fp32", device, threads=threads),
    }
    times = measure.race(contenders, rounds)
    work, product_work = flops(part, batch) * images, 4 * 2 * 2048**3
    rows = []
    for name in LOOPS:
        many = EPOCHS if part == "stage 2 cached" and name != "textbook" else 1  # times the textbook's turn
        row: dict[str, object] = {"part": part, "batch": batch, "loop": name}
        row["images_per_s"] = round(many * images / measure.middle(times[name]), 1)
        row["spread"] = round(measure.spread(times[name]), 3)
        row["ratio"] = round(many * measure.ratio(times["textbook"], times[name]), 2)
        row["cpu_ms_per_image"] = round(1e3 * measure.middle(times[name], 1) / many / images, 4)
        row["cpu_ratio"] = round(many * measure.ratio(times["textbook"], times[name], 1), 2)
        for kind in ("bf16", "fp32"):
            rate = measure.ratio(times[f"product {kind}"], times[name]) * many * work / product_work
            row[f"of_{kind}_product"] = "" if part == "stage 2 cached" else round(rate, 3)
        rows.append(row | {"rounds": rounds})
        print(*(f"{key}={value}" for key, value in row.items()), flush=True)
    return rows


def whole(rows: list[dict[str, object]], batch: int) -> list[dict[str, object]]:
    """The two-stage run put together from its parts, in images per second of training."""
    train, test = int(sizes().sum()), 10_000
    tests = {"textbook": (200, 30)}  # after every epoch; ours after every fifth and the last ten of a stage
    found: dict[tuple[object, object], dict[str, object]] = {
        (row["part"], row["loop"]): row for row in rows if row["batch"] == batch
    }
    made: list[dict[str, object]] = []
    for second in ("stage 2", "stage 2 cached"):
        seconds: dict[str, tuple[float, float]] = {}
        for loop in LOOPS:
            parts = [found["stage 1", loop], found[second, loop], found["evaluation", loop]]
            work = (200 * train, 30 * train, test * sum(tests.get(loop, (48, 14))))
            wall = sum(w / float(str(part["images_per_s"])) for w, part in zip(work, parts))
            cpu = sum(w * float(str(part["cpu_ms_per_image"])) / 1e3 for w, part in zip(work, parts))
            seconds[loop] = (wall, cpu)
        for loop, (wall, cpu) in seconds.items():
            row: dict[str, object] = dict.fromkeys(rows[0], "")
            row |= {"part": f"whole run, {second}", "batch": batch, "loop": loop}
            row |= {
                "images_per_s": round(230 * train / wall, 1),
                "ratio": round(seconds["textbook"][0] / wall, 2),
            }
            row |= {"cpu_ratio": round(seconds["textbook"][1] / cpu, 2), "rounds": rows[0]["rounds"]}
            row["cpu_ms_per_image"] = round(1e3 * cpu / (230 * train), 4)
            made.append(row)
            print(*(f"{key}={value}" for key, value in row.items() if value != ""), flush=True)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--images", type=int, default=512, help="images in a turn")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--name", default="train_step", help="of the file in benchmarks/results")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    given = parser.parse_args()
    rows: list[dict[str, object]] = []
    for part in given.parts:
        for batch in given.batches:
            rows += compare(part, batch, given.rounds, given.images, given.threads, given.device)
    if given.device != "cpu":
        rows = [row | {"device": torch.cuda.get_device_name()} for row in rows]
    if set(given.parts) == set(PARTS):
        rows += [row for batch in given.batches for row in whole(rows, batch)]
    print(measure.write(given.name, rows, given.threads))


if __name__ == "__main__":
    main()
