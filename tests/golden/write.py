"""The losses of three tiny trainings. `python tests/golden/write.py` writes losses.json anew.

Do that only when numbers are meant to change, and say so in CHANGELOG under "Numbers".
"""

from __future__ import annotations

import importlib.util
import json
import tempfile
from dataclasses import replace
from pathlib import Path

from longtail.engine.fit import train
from longtail.recipe import Recipe

FILE = Path(__file__).parent / "losses.json"


def recipes() -> dict[str, Recipe]:
    spec = importlib.util.spec_from_file_location("tiny", Path(__file__).parents[1] / "engine" / "tiny.py")
    assert spec and spec.loader
    tiny = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    return {
        "cross-entropy": tiny.recipe(),
        "gcl-euclidean, two stages": tiny.gcl(mixing=None, ema=None),
        "gcl-angular, mixup": replace(tiny.gcl(form="angular", ema=None), name="angular"),
    }


def losses(recipe: Recipe, out: Path) -> list[float]:
    """The loss of every step and of every evaluation."""
    run = train(recipe, out=out)
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
