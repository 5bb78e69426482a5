"""Everything that was chosen, on held-out training images of CIFAR-100-LT (r=100), never on the test set.

    python scripts/choose.py gcl_a --out results/choices --workers 8

Each set is a named list of recipes; each recipe is trained once and evaluated on the held-out images, which
hold at most 50 per class and none of class 0 (all its images are training images), so class 0's recall on the
training images stands beside it. The table goes to OUT/<set>.csv.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from longtail.recipe import GCL, SGD, Evaluation, Form, HeldOut, MultiStep, Muon, OneCycle, Recipe
from longtail.recipes import cifar
from longtail.recipes.stages import drops
from longtail.run import fsio

Choices = dict[str, Recipe]
EPOCHS, RETRAIN = 40, 6


def gcl_a() -> Choices:
    """GCL-A: boundary, strength and the constants of stage 2 are not in the paper (spec A4, A7, I-C1)."""
    seconds = {"s30": {"scale": 30.0}, "s20": {"scale": 20.0, "margin": 0.1, "focal": 1.0}}
    made: Choices = {}
    for boundary, strength, second in itertools.product(("clip", "easy"), (0.25, 0.5, 1.0), seconds):
        base = replace(cifar.gcl(form="angular", epochs=EPOCHS, retrain_epochs=RETRAIN), precision="bf16")
        first = GCL(form="angular", boundary=boundary, strength=strength, halves="independent")
        stages = (
            replace(base.stages[0], loss=first),
            replace(base.stages[1], loss=replace(first, **seconds[second])),
        )
        made[f"{boundary}-{strength:g}-{second}"] = replace(base, stages=stages)
    return made


def precision() -> Choices:
    """bf16 against fp32: the same recipe, three seeds."""
    return {
        f"{name}-seed{seed}": replace(
            cifar.gcl(form="euclidean", seed=seed, epochs=EPOCHS, retrain_epochs=RETRAIN), precision=name
        )
        for seed in range(3)
        for name in ("fp32", "bf16")
    }


def fast() -> Choices:
    """A fifth of the images: form, optimiser, mixing, schedule. Both stages keep their losses."""
    made: Choices = {}
    for name, (form, changes) in FAST.items():
        base = cifar.gcl(form=form, epochs=EPOCHS, retrain_epochs=RETRAIN)
        first = replace(base.stages[0], **(OFTEN | changes))
        made[name] = replace(base, stages=(first, base.stages[1]), precision="bf16")
    return made


PLAIN = SGD(lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
OFTEN: dict[str, Any] = {"schedule": OneCycle(rise=0.15), "optimizer": replace(PLAIN, filters=Muon())}
FAST: dict[str, tuple[Form, dict[str, Any]]] = {
    "e-muon": ("euclidean", {"mixing": None}),
    "e-muon-mixup": ("euclidean", {}),
    "a-muon": ("angular", {"mixing": None}),
    "a-muon-mixup": ("angular", {}),
    "a-sgd-mixup": ("angular", {"optimizer": PLAIN}),
    "a-released": ("angular", {"optimizer": SGD(), "schedule": MultiStep(drops=drops(EPOCHS))}),
}


def budget() -> Choices:
    """The fast recipe with other lengths: how accuracy grows with the images seen."""
    lengths = ((15, 2), (40, 6), (80, 12))
    return {
        f"{first + second}-epochs": cifar.fast(epochs=first, retrain_epochs=second)
        for first, second in lengths
    }


SETS: dict[str, Callable[[], Choices]] = {
    "gcl_a": gcl_a,
    "precision": precision,
    "fast": fast,
    "budget": budget,
}


def on_held_out(recipe: Recipe) -> Recipe:
    """The same training; evaluated on images that no long-tailed subset uses, at the end of each stage."""
    data = replace(recipe.data, held_out=HeldOut(source="file"))
    return replace(recipe, data=data, evaluation=Evaluation(every=1000, last=1, split="held_out"))


def trained(name: str, recipe: Recipe, out: Path) -> dict[str, object]:
    from longtail.engine.fit import train
    from longtail.engine.load import training_recall

    run = train(on_held_out(recipe), out=out / name)
    final = run.read("final.json")
    recall = training_recall(run.path)
    row: dict[str, object] = {"name": name}
    for number, stage in enumerate(final["stages"], 1):
        row |= {f"stage{number}_{key}": round(stage[key], 2) for key in ("balanced", "many", "medium", "few")}
    return row | {"class0_train_recall": round(recall[0], 2), "images_seen": final["images_seen"]}


def known(table: Path) -> dict[str, dict[str, object]]:
    if not table.exists():
        return {}
    with table.open(newline="") as file:
        return {row["name"]: dict(row) for row in csv.DictReader(file)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--out", type=Path, default=Path("results/choices"))
    parser.add_argument("--runs", type=Path, default=Path("runs/choices"))
    parser.add_argument("--only", nargs="+", help="names in the set; the others keep the rows they have")
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    choices = {n: r for n, r in SETS[given.set]().items() if not given.only or n in given.only}
    rows: dict[str, dict[str, object]] = known(given.out / f"{given.set}.csv") if given.only else {}
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        jobs = {pool.submit(trained, n, r, given.runs / given.set): n for n, r in choices.items()}
        for job in as_completed(jobs):
            rows[jobs[job]] = job.result()
            print(rows[jobs[job]], flush=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(next(iter(rows.values()))))
    writer.writeheader()
    writer.writerows(rows[name] for name in SETS[given.set]() if name in rows)
    fsio.make_folders(given.out)
    fsio.write_file(given.out / f"{given.set}.csv", text.getvalue().encode())


if __name__ == "__main__":
    main()
