"""The short comparison: every method of one network, under one protocol, on CIFAR-10-LT at 100 to 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from longtail.recipe import Recipe, Stage, first_training
from longtail.recipes import baselines, catalogue, cifar, contrastive, decoupled, memory, stages
from longtail.recipes.cells import Cell, later
from longtail.recipes.stages import Provenance

EPOCHS = 20
SECOND = EPOCHS * 30 // 200  # of a second stage that trains the classifier alone
WHY = f"the short comparison: one protocol for all, {EPOCHS} epochs"


def short_cells() -> tuple[Cell, ...]:
    """Methods without mixup stand beside `ce`, which has three seeds; those with it beside `ce_mixup`."""
    methods = {name.split(".")[1]: make for name, make in catalogue.functions(("baselines",)).items()}
    plain = [_cell("ce", partial(cifar.ce, mixup=False), seed) for seed in range(3)]
    mixed = _cell("ce_mixup", partial(cifar.ce, mixup=True))
    others = [_cell(name, make) for name, make in (methods | ALSO | CONTRASTIVE).items()]
    after = [_cell(name, make, after=mixed.name) for name, make in DECOUPLED.items()]
    return (*plain, mixed, *after, *others)


def _cell(name: str, make: Callable[..., Recipe], seed: int = 0, after: str | None = None) -> Cell:
    made = later(make, classes=10, ratio=100, seed=seed, epochs=EPOCHS)
    return Cell(f"short/{name}-s{seed}", 1, lambda: one_protocol(made()), after=after)


def one_protocol(recipe: Recipe) -> Recipe:
    """The first training by the rates, the batches and the drops of cross-entropy, whatever the method's own.

    What remains is what the method is: its loss, head, sampling, mixing, and how stages divide the epochs.
    Otherwise a method with batches of 512 would take an eighth of the steps in as many epochs.
    """
    begun = first_training(recipe)
    epochs = sum(stage.epochs for stage in recipe.stages[:begun])
    common = stages.representation(recipe.stages[0].loss, epochs=epochs)
    made, start, why = list[Stage](), 0, Provenance()
    for number, stage in enumerate(recipe.stages):
        if stage.posthoc is not None:
            made.append(stage)
            continue
        changed = replace(stage, batch_size=common.batch_size)
        if number < begun:
            schedule = replace(common.schedule, start=start)
            changed = replace(changed, optimizer=common.optimizer, schedule=schedule)
            start += stage.epochs
            why |= {f"stages.{number}.{path}": WHY for path in ("optimizer", "schedule")}
        made.append(changed)
        why |= {f"stages.{number}.{path}": WHY for path in ("batch_size", "epochs")}
    known = {path: where for path, where in recipe.provenance.items() if not path.startswith(tuple(why))}
    return replace(recipe, stages=tuple(made), provenance=known | why)


def _oltr(epochs: int, **given: Any) -> Recipe:
    """Both stages train the backbone, so they share the epochs, as 200 and 30 of its 230."""
    second = round(epochs * 30 / 230)
    return memory.oltr(epochs=epochs - second, retrain_epochs=second, **given)


ALSO: dict[str, Callable[..., Recipe]] = {
    "cosface_plain": partial(baselines.cosface, mixup=False),
    "arcface_plain": partial(baselines.arcface, mixup=False),
    "ldam_drw": cifar.ldam_drw,
    "gcl_euclidean": partial(cifar.gcl, form="euclidean", retrain_epochs=SECOND),
    "gcl_angular": partial(cifar.gcl, form="angular", retrain_epochs=SECOND),
    "gcl_euclidean_plain": partial(cifar.gcl, form="euclidean", retrain_epochs=SECOND, mixup=False),
    "gcl_angular_plain": partial(cifar.gcl, form="angular", retrain_epochs=SECOND, mixup=False),
    "oltr": _oltr,
    "mbj": memory.mbj,
}

# The dearest ones, two or three views of each image: last.
CONTRASTIVE: dict[str, Callable[..., Recipe]] = {
    "tsc": partial(contrastive.tsc, retrain_epochs=SECOND),
    "hybrid": contrastive.hybrid,
    "hybrid_prototypes": partial(contrastive.hybrid, variant="prototypes"),
}

# What goes on from the finished stage of `ce_mixup`.
DECOUPLED: dict[str, Callable[..., Recipe]] = {
    "crt": partial(decoupled.crt, retrain_epochs=SECOND),
    "crt_released": partial(decoupled.crt, variant="released", retrain_epochs=SECOND),
    "lws": partial(decoupled.lws, retrain_epochs=SECOND),
    "disalign": partial(decoupled.disalign, retrain_epochs=SECOND),
    "mislas": partial(decoupled.mislas, retrain_epochs=SECOND),
    "tau_norm": decoupled.tau_norm,
    "ncm": decoupled.ncm,
    "logit_adjust": decoupled.logit_adjust,
}
