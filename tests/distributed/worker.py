"""What each of several processes does: started with RANK and WORLD_SIZE, it writes what it found."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from longtail import build
from longtail.engine import trainable
from longtail.engine.distributed import World, world
from longtail.engine.evaluate import evaluate
from longtail.engine.feed import Feed
from longtail.engine.fit import train
from longtail.engine.step import Step
from longtail.errors import DataError, UsageError
from longtail.keys import Key
from longtail.losses import GCL
from longtail.recipe import LDAM, Backbone, Contrasted, HybridContrastive, Sampling, TargetedContrastive
from longtail.run import tensors


def load_tiny():
    spec = importlib.util.spec_from_file_location("tiny", Path(__file__).parents[1] / "engine" / "tiny.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tiny = load_tiny()


class Injected(nn.Module):
    """GCL with its draw e given per training image, so that every number of processes sees the same noise."""

    def __init__(self, counts: torch.Tensor, images: int):
        super().__init__()
        self.loss = GCL(counts, form="angular", strength=0.5)
        shape = (images, len(counts))
        self.table = torch.randn(shape, generator=torch.Generator().manual_seed(1)) / 3
        self.positions = torch.empty(0, dtype=torch.int64)

    def forward(self, scores, target, *, generator=None):
        return self.loss(scores, target, noise=self.table[self.positions])


def even_recipe(batch_size: int = 66, **changes):
    """331 images in batches of 66: the last holds one image, so the second of two processes has none."""
    stage = tiny.stage(batch_size=batch_size, batchnorm="frozen", epochs=1, **changes)
    return tiny.recipe(stage)


def first_epoch(
    here: World, trains=("backbone", "head"), lr: float = 0.0, deferred: bool = False
) -> dict[str, torch.Tensor]:
    """Loss over the global batch and gradients of every step of one epoch; the weights after it.

    `deferred` takes LDAM with class weights, the second stage of LDAM-DRW, in the place of GCL.
    """
    recipe = even_recipe(trains=trains)
    data, stage = build.dataset(recipe.data), recipe.stages[0]
    model = build.model(recipe.model, len(data.names), Key(recipe.seed).fold("model"))
    key, feed = Key(recipe.seed).fold(stage.name), Feed(here, recipe, data)
    trainable.select(model, stage)
    trainable.set_modes(model, stage)
    loss = Injected(data.counts, len(data.train.targets))
    if deferred:
        loss = build.loss(LDAM(reweight=True), data.counts)
    optimizer = build.optimizer(stage.optimizer, trainable.groups(model, stage), here.device)
    update = Step(here, recipe, stage, here.wrap(model), loss, optimizer)
    found: dict[str, torch.Tensor] = {}
    sizes = []
    for step, mixture, batch, share in feed.epoch(stage, key, 0, start=0):
        loss.positions = batch.positions
        update.prepare(lr, key.fold("noise", step))
        value = update(mixture, share, progress=0.0).clone()
        here.total([value])
        found[f"{step}/loss"] = value / here.size
        sizes.append(len(batch.target))
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                found[f"{step}/gradient/{name}"] = parameter.grad.detach().clone()
    found |= {f"weights/{n}": p.detach().clone() for n, p in model.state_dict().items()}
    found["sizes"] = torch.tensor(sizes)
    return found


def targeted_epoch(here: World) -> dict[str, torch.Tensor]:
    """What a head of targets holds after one epoch of two views, in which nothing else moves."""
    stage = replace(even_recipe().stages[0], loss=TargetedContrastive(), views=2)
    model_spec = Contrasted(backbone=Backbone(name="resnet8"), against="targets", width=16, every=2)
    return stepped(here, tiny.recipe(stage, model=model_spec)).state_dict()


def hybrid_epoch(here: World) -> dict[str, torch.Tensor]:
    """One epoch of pairs: the second process has neither images to compare nor to classify in the last."""
    stage = replace(even_recipe().stages[0], loss=HybridContrastive(), views=2, paired=Sampling())
    model_spec = Contrasted(backbone=Backbone(name="resnet8"), width=16)
    return stepped(here, tiny.recipe(stage, model=model_spec), lr=0.05).state_dict()


def stepped(here: World, recipe, lr: float = 0.0) -> nn.Module:
    """The head after one epoch."""
    data, stage = build.dataset(recipe.data), recipe.stages[0]
    model = build.model(recipe.model, len(data.names), Key(recipe.seed).fold("model"))
    key, feed = Key(recipe.seed).fold(stage.name), Feed(here, recipe, data)
    trainable.select(model, stage)
    trainable.set_modes(model, stage)
    optimizer = build.optimizer(stage.optimizer, trainable.groups(model, stage), here.device)
    loss = build.loss(stage.loss, data.counts)
    update = Step(here, recipe, stage, here.wrap(model), loss, optimizer)
    for step, mixture, _, share in feed.epoch(stage, key, 1 % stage.epochs, start=0):
        update.prepare(lr, key.fold("noise", step))
        update(mixture, share, progress=0.0)
    return model.head


def measures(here: World) -> dict[str, object]:
    """A row of the freshly initialised model over the test digits, merged over the processes."""
    recipe = even_recipe()
    data = build.dataset(recipe.data)
    model = build.model(recipe.model, len(data.names), Key(recipe.seed).fold("model"))
    loss = build.loss(recipe.stages[0].loss, data.counts)
    return evaluate(here, recipe, model, loss, Feed(here, recipe, data).evaluation, data.counts)


def refusal(here: World) -> str:
    recipe = even_recipe(batch_size=7)
    try:
        Feed(here, recipe, build.dataset(recipe.data)).steps(recipe.stages[0])
    except UsageError as error:
        return str(error)
    return ""


def lonely_failure(here: World) -> list[object]:
    """A failure on the last process alone is an error on all of them, with its message and exit code."""
    try:
        with here.together():
            if here.rank == here.size - 1:
                raise DataError("cat/7.png: cannot be read")
    except Exception as error:
        return [type(error).__name__, str(error), getattr(error, "exit_code", None)]
    return []


def main(out: Path) -> None:
    with world("cpu") as here:
        parts = out / f"rank-{here.rank}"
        found = first_epoch(here)
        (parts.with_suffix(".safetensors")).write_bytes(tensors.encode(found, "found"))
        head = first_epoch(here, trains=("head",))
        (out / f"head-{here.rank}.safetensors").write_bytes(tensors.encode(head, "head"))
        deferred = first_epoch(here, trains=("head",), deferred=True)
        (out / f"deferred-{here.rank}.safetensors").write_bytes(tensors.encode(deferred, "deferred"))
        moved = first_epoch(here, lr=0.05)
        (out / f"moved-{here.rank}.safetensors").write_bytes(tensors.encode(moved, "moved"))
        for name, made in (("targeted", targeted_epoch(here)), ("hybrid", hybrid_epoch(here))):
            (out / f"{name}-{here.rank}.safetensors").write_bytes(tensors.encode(made, name))
        about = {"measures": measures(here), "refusal": refusal(here), "failure": lonely_failure(here)}
        parts.with_suffix(".json").write_text(json.dumps(about))
    os.environ["MASTER_PORT"] = os.environ["SECOND_PORT"]  # the first group's port may not be free yet
    train(tiny.gcl(), out=out / "run")  # two stages: the second wraps the same module again
    left = [wrappers_alive()]
    os.environ["MASTER_PORT"] = os.environ["THIRD_PORT"]
    try:
        with world("cpu") as here:
            fails_in_a_step(here)
    except DataError:
        left.append(wrappers_alive())
    (out / f"left-{here.rank}.json").write_text(json.dumps(left))


def fails_in_a_step(here: World) -> None:
    net = here.wrap(nn.Linear(2, 2))
    net(torch.ones(1, 2)).sum().backward()
    raise DataError("cat/7.png: cannot be read")


def wrappers_alive() -> int:
    return sum(type(thing) is nn.parallel.DistributedDataParallel for thing in gc.get_objects())


def dies(out: Path) -> None:
    """Process 1 fails in the middle of a step; the others wait for it in a sum."""
    from longtail.engine.record import Record

    real = Record.stepped

    def stepped(self, step, *given):
        if step == 2 and self.here.rank == 1:
            raise DataError("dog/3.png: cannot be read")
        real(self, step, *given)

    Record.stepped = stepped
    from longtail.cli.main import run

    recipe = out / "recipe-in.json"
    sys.argv = ["longtail", "train", str(recipe), "--out", str(out / "run")]
    run()


def trains(out: Path) -> None:
    """The command; with KILL=rank:step that process kills itself before it has recorded that step of all."""
    from longtail.engine.record import Record

    real = Record.stepped
    rank, step = map(int, os.environ.get("KILL", "-1:-1").split(":"))

    def stepped(self, *given):
        if (self.here.rank, self.total + 1) == (rank, step):
            os.kill(os.getpid(), signal.SIGKILL)
        real(self, *given)

    Record.stepped = stepped
    from longtail.cli.main import run

    sys.argv = ["longtail", "train", str(out / "recipe-in.json"), "--out", str(out / "run")]
    run()


if __name__ == "__main__":
    {"main": main, "dies": dies, "trains": trains}[sys.argv[1]](Path(sys.argv[2]))
