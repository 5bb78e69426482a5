"""The losses of three tiny trainings. `python tests/golden/write.py` writes losses.json anew.

Do that only when numbers are meant to change, and say so in CHANGELOG under "Numbers".
"""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from longtail.backbones import kernels
from longtail.engine.fit import train
from longtail.recipe import Recipe

FILE = Path(__file__).parent / "losses.json"


def recipes() -> dict[str, Recipe]:
    spec = importlib.util.spec_from_file_location("tiny", Path(__file__).parents[1] / "engine" / "tiny.py")
    assert spec and spec.loader
    tiny = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    made = {
        "cross-entropy": tiny.recipe(),
        "gcl-euclidean, two stages": tiny.gcl(mixing=None, ema=None),
        "gcl-angular, mixup": replace(tiny.gcl(form="angular", ema=None), name="angular"),
    }
    return {name: slow(recipe) for name, recipe in made.items()}


def slow(recipe: Recipe) -> Recipe:
    """At a tenth of the rate: a fast training amplifies the last bit of another processor a thousandfold."""
    stages = (replace(s, optimizer=replace(s.optimizer, lr=s.optimizer.lr / 10)) for s in recipe.stages)
    return replace(recipe, stages=tuple(stages))


def losses(recipe: Recipe, out: Path) -> list[float]:
    """The loss of every step and of every evaluation, on one thread: several add up in another order.

    Without the compiled kernels, which round in other places, so that it is the same without a compiler.
    """
    threads, before = torch.get_num_threads(), os.environ.get("LONGTAIL_KERNELS")
    torch.set_num_threads(1)
    os.environ["LONGTAIL_KERNELS"] = "off"
    kernels.library.cache_clear()
    try:
        run = train(recipe, out=out)
    finally:
        torch.set_num_threads(threads)
        os.environ.pop("LONGTAIL_KERNELS") if before is None else os.environ.update(LONGTAIL_KERNELS=before)
        kernels.library.cache_clear()
    rows = [
        json.loads(line)
        for name in ("steps.jsonl", "evals.jsonl")
        for line in (run.path / name).read_text().splitlines()
    ]
    return [row["loss"] for row in rows]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = {name: losses(recipe, Path(folder) / name) for name, recipe in recipes().items()}
    rows = [f"  {json.dumps(name)}: {json.dumps(values)}" for name, values in found.items()]
    FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
