"""What finished runs make of their training images: does a method lag because it has not learned?

    python scripts/training_recall.py runs/campaign/short/*-s0 --out results/short/training_recall.csv

A row a run: the recall of each class on its first 200 training images, without augmentation and by the clean
logits, and the mean length of the features. Needs the runs with their models.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import torch

from longtail import build
from longtail.engine.load import load
from longtail.run.folder import RunFolder

IMAGES = 200  # of each class at most


@torch.no_grad()
def row(run: Path) -> dict[str, str]:
    data, model = build.dataset(RunFolder.open(run).recipe().data), load(run)
    targets = data.train.targets
    first = torch.cat([torch.nonzero(targets == each).flatten()[:IMAGES] for each in range(len(data.names))])
    hits, norms = torch.zeros(len(data.names)), list[torch.Tensor]()
    for part in first.split(256):
        images = (data.train.images[part].float() / 255 - model.mean) / model.std
        output = model.model(images)
        right = model.loss.logits(output.scores).argmax(1) == targets[part]
        hits.index_add_(0, targets[part], right.float())
        norms.append(output.features.flatten(1).norm(dim=1))
    recalls = 100 * hits / torch.bincount(targets[first])
    classes = {f"class {number}": f"{recall:.0f}" for number, recall in enumerate(recalls.tolist())}
    return {"run": run.name, **classes, "feature length": f"{torch.cat(norms).mean():.2f}"}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    rows = [row(run) for run in given.runs]
    with given.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
