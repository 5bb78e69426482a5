"""Does stage 2 on cached features cost accuracy? The classifier of a finished run, re-trained in each way.

The first stage is the committed run of cross-entropy with mixup on CIFAR-100-LT at 100 to 1; stage 2 is the
released one (class-balanced, 30 epochs, mixup). Each way is repeated under three names of the stage, from
which its draws are derived. Balanced accuracy on the held-out training images, which nothing trains on, over
classes 1 and up (class 0 has none). Writes benchmarks/results/cached.csv.

    LONGTAIL_DATA=... python benchmarks/cached.py
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import measure

from longtail.engine.load import evaluate_run
from longtail.engine.retrain import retrain
from longtail.recipe import Cached, HeldOut
from longtail.recipes.retraining import Choices, plan
from longtail.run.folder import RunFolder

SOURCE = measure.ROOT / "results" / "cifar100-r100-ce-mixup-s0"
REPEATS = ("classifier", "classifier_b", "classifier_c")
GROUPS = ("balanced", "many", "medium", "few")


def once(name: str, views: int | None, epochs: int, out: Path) -> dict[str, float]:
    made = plan(RunFolder.open(SOURCE).recipe(), Choices("crt", epochs=epochs))
    cached = Cached(views=views) if views else None
    stages = tuple(replace(stage, name=name, cached=cached) for stage in made.stages)
    run = retrain(SOURCE, stages, out=out, held_out=HeldOut(source="file"))
    found = evaluate_run(run.path, split="held_out")
    return {group: found[group] for group in GROUPS}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--views", type=int, nargs="+", default=[4])
    given = parser.parse_args()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for views in (None, *given.views):
            runs = [once(n, views, given.epochs, Path(folder) / f"{views}-{n}") for n in REPEATS]
            row: dict[str, object] = {"stage 2": f"{views} views" if views else "the whole network"}
            for group in GROUPS:
                values = [run[group] for run in runs]
                row[group] = f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"
            rows.append(row | {"epochs": given.epochs, "runs": len(runs)})
            print(*(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    print(measure.write("cached", rows, torch.get_num_threads()))


if __name__ == "__main__":
    main()
