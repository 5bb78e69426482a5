"""What a training step of each method costs, over one of plain cross-entropy with the same network and batch.

    python benchmarks/method_cost.py [--repeats N] [--threads T] [--only PATTERN]

Every recipe for CIFAR-10-LT takes steps of the last stage that trains its backbone, on random 32x32 images in
batches of 64 (a pair of batches where it draws two), with its own network, loss, mixing and sampling; input,
forward, backward and update are all in the time. Each round times one step of every method, so that whatever
else the machine does hits all alike; the ratio is taken within the round, and the table holds the median of
the ratios with their quartiles. Writes benchmarks/results/method_cost.csv.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import platform
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from longtail import build, counts
from longtail.data.splits import Dataset, Split
from longtail.engine import memory, trainable
from longtail.engine.distributed import World
from longtail.engine.feed import Feed
from longtail.engine.step import Step
from longtail.keys import Key
from longtail.recipe import Cifar, Recipe, Stage
from longtail.recipes import FAMILIES, catalogue

OUT = Path(__file__).parent / "results" / "method_cost.csv"
BATCH = 64
WARM_UP = 2
PLAIN = "cifar.ce mixup=false"
FORMS = {"contrastive.hybrid": ("variant=samples", "variant=prototypes")}  # of a first stage


def methods(pattern: str) -> dict[str, Recipe]:
    """Every recipe for CIFAR by its call, once for each form that it has; plain cross-entropy first."""
    found = {PLAIN: catalogue.make("cifar.ce", ["classes=10", "mixup=false"])}
    for name, function in catalogue.functions(FAMILIES).items():
        known = catalogue.parameters(function)
        if "classes" not in known:
            continue
        for setting in FORMS.get(name, ("form=euclidean", "form=angular") if "form" in known else ("",)):
            settings = [setting] if setting else []
            made = catalogue.make(name, ["classes=10", *settings])
            if isinstance(made.data, Cifar):
                found[" ".join([name, *settings])] = made
    return {name: made for name, made in found.items() if name == PLAIN or fnmatch.fnmatch(name, pattern)}


def random_images(steps: int) -> Dataset:
    """At least `steps` batches of noise with long-tailed labels: only the time of a step is looked at."""
    images = counts.exponential(10, BATCH * (steps + 1) // 2, 100)
    targets = torch.repeat_interleave(torch.arange(10), images)
    source = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (len(targets), 3, 32, 32), dtype=torch.uint8, generator=source)
    names = tuple("abcdefghij")
    part = Split(pixels, targets, names)
    return Dataset(part, part.select(torch.arange(BATCH)), None, names, images, digest="", manifest={})


def of_backbone(recipe: Recipe) -> list[Stage]:
    """The stages that train the backbone."""
    return [stage for stage in recipe.stages if stage.epochs and "backbone" in stage.trains]


def seconds_of_steps(recipe: Recipe, data: Dataset) -> Iterator[float]:
    """The time of one step after another, of the last stage that trains the backbone."""
    whole = of_backbone(recipe)
    stage = replace(whole[-1], batch_size=BATCH)
    recipe = replace(recipe, stages=(*whole[:-1], stage), precision="fp32")
    here, key = World(torch.device("cpu")), Key(0)
    feed, loss = Feed(here, recipe, data), build.loss(stage.loss, data.counts)
    model = build.model(recipe.model, 10, key).to(memory_format=torch.channels_last)
    for earlier in recipe.stages:
        trainable.reshape_head(model, earlier, key)
    memory.begin(here, recipe, stage, data, model)
    trainable.select(model, stage)
    trainable.set_modes(model, stage)
    optimizer = build.optimizer(stage.optimizer, trainable.groups(model, stage), here.device)
    update = Step(here, recipe, stage, model, loss, optimizer, memory=memory.of(model))
    batches = feed.epoch(stage, key, epoch=stage.epochs // 2, start=0)
    while True:
        begin = time.perf_counter()
        step, mixture, _, share = next(batches)
        update.prepare(1e-3, key.fold(step))
        update(mixture, share, progress=0.5)
        yield time.perf_counter() - begin


def parameters(recipe: Recipe) -> int:
    model = build.model(recipe.model, 10, Key(0))
    for stage in of_backbone(recipe):
        trainable.reshape_head(model, stage, Key(0))
    return sum(p.numel() for p in model.parameters())


def measure(tried: dict[str, Recipe], repeats: int) -> list[dict[str, str]]:
    data = random_images(repeats + WARM_UP)
    running = {name: seconds_of_steps(recipe, data) for name, recipe in tried.items()}
    rounds = [{name: next(steps) for name, steps in running.items()} for _ in range(repeats + WARM_UP)]
    rows: list[dict[str, str]] = []
    for name, recipe in tried.items():
        ratios = [one[name] / one[PLAIN] for one in rounds[WARM_UP:]]
        low, middle, high = statistics.quantiles(ratios, n=4)
        typical = statistics.median(one[name] for one in rounds[WARM_UP:])
        rows.append(
            {
                "recipe": name,
                "parameters": str(parameters(recipe)),
                "ratio": f"{middle:.2f}",
                "ratio_q1": f"{low:.2f}",
                "ratio_q3": f"{high:.2f}",
                "milliseconds": f"{1e3 * typical:.0f}",
            }
        )
    return rows


def machine(threads: int, repeats: int) -> dict[str, str]:
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    cpus = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "repeats": str(repeats),
        "commit": git.stdout.strip() or "unknown",
        "cpu": cpus[0] if cpus else platform.processor(),
        "threads": str(threads),
        "torch": torch.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--only", default="*", help="a pattern of recipe calls; plain cross-entropy is always in"
    )
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    rows = measure(methods(chosen.only), chosen.repeats)
    about = machine(chosen.threads, chosen.repeats)
    if chosen.only == "*":
        OUT.parent.mkdir(exist_ok=True)
        with OUT.open("w", newline="") as file:
            table = csv.DictWriter(file, [*rows[0], *about], lineterminator="\n")
            table.writeheader()
            table.writerows({**row, **about} for row in rows)
    for row in rows:
        spread = f"[{row['ratio_q1']}, {row['ratio_q3']}]"
        print(f"{row['recipe']:<32} {row['ratio']:>6}x {spread:<14} {row['milliseconds']:>5} ms")


if __name__ == "__main__":
    main()
