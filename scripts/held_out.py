"""The models in results/ on the held-out training images: what a shorter recipe is chosen against.

    LONGTAIL_DATA=... python scripts/held_out.py

Writes results/choices/full.csv. Nothing is chosen here; the runs were finished before.
"""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import torch

from longtail import build
from longtail.engine.distributed import World
from longtail.engine.evaluate import evaluate, exact
from longtail.engine.feed import Feed
from longtail.engine.load import load
from longtail.recipe import Evaluation, HeldOut
from longtail.run import fsio
from longtail.run.folder import RunFolder

RESULTS = Path(__file__).parents[1] / "results"
CELLS = ("cifar100-r100-gcl-euclidean-s0", "cifar100-r100-gcl-angular-s0")
GROUPS = ("balanced", "many", "medium", "few")


def row(name: str) -> dict[str, object]:
    folder = RunFolder.open(RESULTS / name)
    recipe = folder.recipe()
    data = replace(recipe.data, held_out=HeldOut(source="file"))
    recipe = replace(exact(recipe), data=data, evaluation=Evaluation(split="held_out"))
    here, found = World(torch.device("cpu")), build.dataset(data)
    predictor = load(folder.path)
    images = Feed(here, recipe, found).evaluation
    seen = evaluate(here, recipe, predictor.model, predictor.loss, images, found.counts)
    about = {"images_seen": folder.read("final.json")["images_seen"]}
    return {"name": name} | {group: round(seen[group], 2) for group in GROUPS} | about


def main() -> None:
    text, rows = io.StringIO(), [row(name) for name in CELLS]
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    fsio.write_file(RESULTS / "choices" / "full.csv", text.getvalue().encode())


if __name__ == "__main__":
    main()
