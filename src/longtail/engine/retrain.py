"""A new second stage over the finished first stage of another run: the backbone is paid for once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from longtail.engine.fit import train
from longtail.engine.progress import Progress
from longtail.errors import UsageError
from longtail.recipe import Recipe, Stage
from longtail.run import checkpoint
from longtail.run.folder import RunFolder, recipe_digest
from longtail.run.logs import Log


def retrain(
    source: str | Path,
    stages: tuple[Stage, ...],
    *,
    out: str | Path,
    name: str | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> RunFolder:
    """Trains `stages` after the first stage of the run `source`, into the folder `out`.

    The result is what training the whole recipe would give, bit for bit: the first stage's checkpoint, logs
    and evaluations are taken over, and the loop goes on from there.
    """
    first = RunFolder.open(Path(source))
    recipe = first.recipe()
    new = replace(recipe, name=name or recipe.name, stages=(recipe.stages[0], *stages))
    folder = RunFolder(Path(out))
    if not (folder.is_finished or checkpoint.steps(folder.checkpoints)):  # new, or interrupted before this
        with folder.held():
            folder.create(new)
            take_over(first, folder, new)
    return train(new, out=out, device=device, progress=progress)


def take_over(first: RunFolder, folder: RunFolder, new: Recipe) -> None:
    """Copies the checkpoint at the end of the first stage, under the new recipe's name."""
    recipe = first.recipe()
    images = first.read("data.json")["train_images"]
    stage = recipe.stages[0]
    end = -(-images // stage.batch_size) * stage.epochs
    path = checkpoint.folder_of(first.checkpoints, end)
    if not path.exists():
        raise UsageError(
            f"{first.path}: the checkpoint at the end of its first stage (step {end}) is not there; "
            "the run is unfinished, or its checkpoints were removed: train it again"
        )
    tensors, facts = checkpoint.load(path)
    logs = {}
    for name in ("steps.jsonl", "evals.jsonl"):
        lines = (first.path / name).read_bytes()[: facts["logs"][name]["offset"]].decode().splitlines()
        with Log.open(folder.path / name, None) as log:
            for line in lines:
                log.append(json.loads(line))
            logs[name] = log.position()
    for name in ("env.json", "data.json", "manifest.json"):
        folder.write(name, first.read(name))
    facts |= {"recipe": recipe_digest(new), "logs": logs}
    checkpoint.save(folder.checkpoints, facts["total"], tensors, facts)
