"""New stages over the finished first training of another run: the backbone is paid for once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from longtail import build
from longtail.engine.facts import stage_ends
from longtail.engine.fit import train
from longtail.engine.progress import Progress
from longtail.errors import DataError, ModelFileError, UsageError
from longtail.recipe import HeldOut, Recipe, Stage, continued, first_training
from longtail.run import checkpoint, fsio, undo
from longtail.run.folder import RunFolder
from longtail.run.logs import Log

ORIGIN = "origin.json"
State = dict[str, dict[str, Tensor]]


def retrain(  # noqa: PLR0913  (what may differ from the source)
    source: str | Path,
    stages: tuple[Stage, ...],
    *,
    out: str | Path,
    name: str | None = None,
    provenance: dict[str, str] | None = None,
    held_out: HeldOut | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> RunFolder:
    """Trains `stages` after the first training of the run `source`, into the folder `out`.

    That is its first stage, with those that went on in the same optimiser (deferred re-weighting). The result
    is what training the whole recipe would give, bit for bit: weights, logs and evaluations are taken over,
    and the loop goes on from there. Without stages the first training is all there is.
    `held_out` names images for choosing, where the source has none; its training images must stay the same.
    """
    first, folder = RunFolder.open(Path(source)), RunFolder(Path(out))
    new = continued(first.recipe(), stages, name=name, provenance=provenance, held_out=held_out)
    if folder.is_finished or checkpoint.steps(folder.checkpoints):
        return train(new, out=out, device=device, progress=progress)
    state, facts = end_of_first(first)  # a source that cannot serve leaves no folder behind
    facts["data"] = same_images(first, new)
    made = undo.missing(folder.path)
    with folder.held():
        folder.create(new)
        take_over(first, folder, state, facts)
    try:
        return train(new, out=out, device=device, progress=progress)
    except (UsageError, DataError, ModelFileError):
        give_back(folder, facts["total"], made)
        raise


def end_of_first(first: RunFolder) -> tuple[State, dict[str, Any]]:
    """(weights, facts) at the end of the first training: its checkpoint, or the sealed model of a run of
    nothing else."""
    recipe, about = first.recipe(), first.read("data.json")
    begun = first_training(recipe)
    stage, ends = recipe.stages[begun - 1], [0, *stage_ends(recipe, about["train_images"])[:begun]]
    path = checkpoint.folder_of(first.checkpoints, ends[-1])
    if path.exists():
        return checkpoint.load(path)
    if len(recipe.stages) > begun or not first.is_finished:
        raise UsageError(
            f"{first.path}: the checkpoint at the end of its first training (step {ends[-1]}) is not there; "
            "the run is unfinished, or its checkpoints were removed: train it again"
        )
    model = first.read_tensors("model.safetensors")
    facts = {
        "names": about["names"],
        "data": about["digest"],
        "world_size": first.read("env.json")["world_size"],
        "stage": begun - 1,
        "step": ends[-1] - ends[-2],
        "epochs": stage.epochs,
        "total": ends[-1],
        "images_seen": first.read("final.json")["images_seen"],
    }
    average = {name: t for name, t in model.items() if t.is_floating_point()}
    return {"model": model} | ({"average": average} if stage.ema else {}), facts


def same_images(first: RunFolder, new: Recipe) -> str:
    """The digest of the data to go on with; its training images must be those of before."""
    recipe, digest = first.recipe(), str(first.read("data.json")["digest"])
    if new.data == recipe.data:
        return digest  # compared with the data itself when the run opens its checkpoint
    before, after = build.dataset(recipe.data), build.dataset(new.data)
    if before.digest != digest:
        raise ModelFileError(
            f"{first.path}: the data found now is not the data of this run (digest {before.digest[:12]} "
            f"instead of {digest[:12]}); point data.root at its images"
        )
    if before.manifest["sha256"] != after.manifest["sha256"] or before.names != after.names:
        raise UsageError(
            f"{first.path}: with these held-out images it would have been trained on others; "
            'choose held_out source "file" or "leftover", which takes none from the training images'
        )
    return after.digest


def give_back(folder: RunFolder, end: int, made: list[Path]) -> None:
    """Stages that cannot follow leave nothing, unless one of them has trained already."""
    with folder.lock():
        if checkpoint.steps(folder.checkpoints) == [end]:
            fsio.remove(checkpoint.folder_of(folder.checkpoints, end))
            undo.undo(folder.path, made)


def take_over(first: RunFolder, folder: RunFolder, state: State, facts: dict[str, Any]) -> None:
    """Writes the end of the first training into the new folder, and its origin; the checkpoint is last."""
    logs: dict[str, object] = {}
    for name in ("steps.jsonl", "evals.jsonl"):
        text = (first.path / name).read_bytes()
        end = facts["logs"][name]["offset"] if "logs" in facts else len(text)
        with Log.open(folder.path / name, None) as log:
            for line in text[:end].decode().splitlines():
                log.append(json.loads(line))
            logs[name] = log.position()
    recipe = first.recipe()
    last = recipe.stages[first_training(recipe) - 1]
    origin = {"recipe": first.digest(), "name": recipe.name, "stage": last.name}
    folder.write(ORIGIN, origin | {"env": first.read("env.json")})
    checkpoint.save(
        folder.checkpoints, facts["total"], state, facts | {"recipe": folder.digest(), "logs": logs}
    )
