"""On an accelerator no step waits for the device, and no batch crosses between it and the host.

The meta device stands in for one: its tensors have no values, so whatever reads one raises. What would copy
or mix tensors of two devices raises by `Kept`, which sees every operation. An epoch may bring its order, its
draws and its plan over once, before its first batch.
"""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from longtail import build
from longtail.data import mixing
from longtail.data.augment import Small
from longtail.engine import evaluate, trainable
from longtail.engine.distributed import World
from longtail.engine.feed import Feed
from longtail.engine.record import Record
from longtail.engine.step import Step
from longtail.keys import Key
from longtail.metrics import Meter
from longtail.recipe import GCL, LDAM, SGD, CutMix, FeatureBalanced, Mixup, Muon, Remix, SmallImages

DEVICE = World(torch.device("meta"))
COPIES = ("_to_copy", "copy_")


class Crossed(Exception):
    pass


class Kept(TorchDispatchMode):
    """Raises where tensors of two devices meet; a number of the host may be an argument of a kernel."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        held = [t for t in tree_leaves((args, kwargs, made)) if isinstance(t, torch.Tensor)]
        is_copy = func.overloadpacket.__name__ in COPIES
        devices = {t.device.type for t in held if t.ndim or is_copy}
        if len(devices) > 1 or func.overloadpacket.__name__ == "_local_scalar_dense":
            raise Crossed(f"{func} between {sorted(devices)}")
        return made


class Looked(Record):
    """A record of a run without a folder: what it does in each step is what is looked at here."""

    def __init__(self, recipe, data):
        self.here, self.recipe, self.data, self.stage = DEVICE, recipe, data, recipe.stages[0]
        self.steps, self.number, self.step, self.total, self.images_seen = 6, 0, 0, 0, 0
        self.average, self.pending, self.stop, self.saved, self.looks = None, [], False, float("inf"), 0

        class Silent:
            def stepped(self, *given) -> None: ...

        self.progress = Silent()

    def _guard(self, trouble, batch) -> None:
        self.looks += 1  # the one look at the device, for the steps that are logged


def stepper(recipe):
    stage, data = recipe.stages[0], build.dataset(recipe.data)
    model = build.model(recipe.model, len(data.names), Key(0).fold("model")).to("meta")
    trainable.select(model, stage)
    trainable.set_modes(model, stage)
    optimizer = build.optimizer(stage.optimizer, trainable.groups(model, stage), torch.device("cpu"))
    for group in optimizer.param_groups:
        group["fused"] = False  # the fused kernel knows no meta device; the rest of the step is ours
    loss = build.loss(stage.loss, data.counts).to("meta")
    # Generators know no meta device either, so the noise is the host's, drawn for tensors over there.
    update = Step(World(torch.device("cpu")), recipe, stage, model, loss, optimizer)
    update.world, update.trouble = DEVICE, update.trouble.to("meta")
    del update.optimizer.found_inf
    return update, Feed(DEVICE, recipe, data), data


@pytest.fixture(autouse=True)
def without_autocast(monkeypatch):
    """It does not know the meta device."""
    monkeypatch.setattr(torch, "autocast", lambda *given, **named: nullcontext())


def two_steps(recipe) -> torch.Tensor:
    """The first step makes what is made once (momentum, constants); in the second nothing may cross."""
    update, feed, data = stepper(recipe)
    record, value = Looked(recipe, data), torch.zeros(())
    batches = feed.epoch(recipe.stages[0], Key(0), 0, 0)
    for number in range(2):
        with Kept() if number else nullcontext():
            step, mixture, batch, share = next(batches)
            update.prepare(0.1, Key(1))
            value = update(mixture, share, 0.5)
            record.stepped(step + 1, 0.1, value, batch, update.trouble)
    assert record.looks == len(record.pending) == 2 // recipe.log_every
    return value


CASES = {
    "gcl_a, mixup": dict(loss=GCL(form="angular"), mixing=Mixup()),
    "gcl_e, cutmix, clipped": dict(loss=GCL(), mixing=CutMix(), gradient_clip=1.0),
    "fbl": dict(loss=FeatureBalanced()),
    "ldam deferred, remix": dict(loss=LDAM(reweight=True), mixing=Remix()),
    "muon": dict(loss=GCL(), mixing=Mixup(), optimizer=SGD(filters=Muon(), nesterov=True)),
    "head alone": dict(loss=GCL(), trains=("head",), batchnorm="frozen"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_step_keeps_to_its_device(tiny, case):
    """From the images in memory to the update and what is logged of it: it is looked at when it is logged."""
    images = SmallImages(size=8, crop=1, rotation=15.0, cutout=2, mean=(0.5,) * 3, std=(0.5,) * 3)
    recipe = tiny.recipe(tiny.stage(**CASES[case]), images=images, log_every=2)
    assert two_steps(recipe).device.type == "meta"


def test_an_evaluation_keeps_to_its_device_until_its_end(tiny):
    """Images, model and meter: the sums are read once, after the last batch."""
    recipe = tiny.recipe(tiny.stage())
    update, feed, data = stepper(recipe)
    meter = Meter(data.counts)
    meter.to("meta")
    batches = evaluate.logits(DEVICE, recipe, update.net, update.loss, feed.evaluation)
    meter.update(*next(batches))
    with Kept():
        meter.update(*next(batches))


# ---------------------------------------------------------------------------- what these tests would see


def read(*given) -> None:
    given[0].float().sum().item()


def fetched(*given) -> None:
    given[0].cpu()


def sent(*given) -> None:
    torch.zeros(3).to(given[0].device)


def indexed(*given) -> None:
    given[0][torch.tensor([0, 1])]


PLACES = {
    "the step": (Step, "update"),
    "the record": (Record, "_log"),
    "mixing": (mixing, "lerped"),
    "augmentation": (Small, "train"),
    "the meter": (Meter, "update"),
}


@pytest.mark.parametrize("mistake", [read, fetched, sent, indexed], ids=lambda m: m.__name__)
@pytest.mark.parametrize("place", PLACES)
def test_control_a_mistake_anywhere_on_the_way_is_seen(tiny, monkeypatch, place, mistake):
    owner, name = PLACES[place]
    real = getattr(owner, name)

    def careless(*given, **named):
        mistake(next(g for g in given if isinstance(g, torch.Tensor) and (g.ndim or mistake is not indexed)))
        return real(*given, **named)

    def on_a_scalar(*given, **named):
        mistake(torch.zeros(4, device="meta"))
        return real(*given, **named)

    monkeypatch.setattr(owner, name, on_a_scalar if place in ("the step", "the record") else careless)
    with pytest.raises((Crossed, RuntimeError, NotImplementedError)):
        if place == "the meter":
            test_an_evaluation_keeps_to_its_device_until_its_end(tiny)
        else:
            two_steps(tiny.recipe(tiny.stage(loss=GCL(), mixing=Mixup()), log_every=1))
