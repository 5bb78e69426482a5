"""The two stages of RIDE (spec B4, F5), for any of its losses and data sets."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from longtail.recipe import (
    GCL,
    LDAM,
    RIDE,
    SGD,
    Centroids,
    Contrastive,
    Cosine,
    Distilled,
    Mixup,
    MultiStep,
    Recipe,
    Remembered,
    Routing,
    Sampling,
    Stage,
)
from longtail.recipes.stages import goes_on

Noise = Literal["per_expert", "shared"]
CODE = "RIDE's own code"


def trained(  # noqa: PLR0913  (what differs between the data sets)
    each: LDAM | GCL,
    *,
    epochs: int,
    deferred: int,
    batch_size: int,
    optimizer: SGD,
    drops: tuple[tuple[int, float], ...],
    diversity: float,
    rho: float,
    alpha: float | None,
    noise: Noise = "per_expert",
    drw: bool = True,
) -> tuple[Stage, ...]:
    """One training: re-weighting is a second stage that keeps momentum and goes on in the schedule."""
    schedule = MultiStep(warmup=min(5, epochs), drops=drops)
    first = Stage(
        name="representation",
        loss=RIDE(base=each, diversity=diversity, rho=rho, noise=noise),
        epochs=deferred if drw else epochs,
        batch_size=batch_size,
        mixing=None if alpha is None else Mixup(alpha=alpha),
        optimizer=optimizer,
        schedule=schedule,
    )
    if not drw:
        return (first,)
    second = Stage(
        name="deferred",
        loss=RIDE(base=_reweighted(each), diversity=diversity, temperature="by_count", rho=rho, noise=noise),
        epochs=epochs - deferred,
        batch_size=batch_size,
        mixing=first.mixing,
        optimizer=optimizer,
        schedule=MultiStep(warmup=schedule.warmup, drops=drops, start=deferred),
        optimizer_state="kept",
    )
    return first, second


def taught(recipe: Recipe, teacher: str) -> Recipe:
    """The same with a term in every stage that draws each expert towards a finished run."""
    made = [
        replace(stage, loss=Distilled(base=stage.loss), teacher=teacher)
        for stage in recipe.stages
        if not isinstance(stage.loss, Distilled | Contrastive | Centroids | Remembered)  # not of experts
    ]
    moved = {path.replace(".loss.", ".loss.base."): where for path, where in recipe.provenance.items()}
    number = range(len(made))
    moved |= {f"stages.{n}.loss.temperature": f"{CODE}: 1.5 on CIFAR" for n in number}
    moved |= {
        f"stages.{n}.loss.weight": "inferred: 1; its code adds the whole loss once per expert" for n in number
    }
    return replace(recipe, stages=tuple(made), provenance=moved)


def routed(recipe: Recipe, name: str) -> Recipe:
    """The same, then routers on the finished experts: which images need more than the first of them?"""
    last = recipe.stages[-1]
    loss = last.loss.base if isinstance(last.loss, Distilled) else last.loss
    assert isinstance(loss, RIDE)
    stage = Stage(
        name="router",
        loss=Routing(base=loss.base, positives=100.0, top=30, hidden=16),
        epochs=5,
        batch_size=512,
        sampling=Sampling(rule="class_balanced"),
        trains=("router",),
        batchnorm="frozen",
        head="routed",
        optimizer=replace(last.optimizer, lr=0.01),
        schedule=Cosine(),
    )
    known = {
        "loss.positives": f"{CODE}: 100",
        "loss.top": f"{CODE}: 30 on CIFAR",
        "loss.hidden": f"{CODE}: 16",
        "epochs": f"{CODE}: 5",
        "batch_size": f"{CODE}: 512",
        "sampling.rule": f"{CODE}: balanced",
        "head": f"{CODE}: routers beside the experts",
        "batchnorm": f"{CODE}: the network stands still",
        "mixing": "inferred: none, as an image is right or wrong as it is",
        "optimizer.lr": f"{CODE}: 0.01",
        "optimizer.weight_decay": "inferred: as in the stages before",
        "schedule.kind": f"{CODE}: cosine",
    }
    where = {f"stages.{len(recipe.stages)}.{path}": source for path, source in known.items()}
    return replace(recipe, name=name, stages=(*recipe.stages, stage), provenance=recipe.provenance | where)


def _reweighted(each: LDAM | GCL) -> LDAM | GCL:
    return replace(each, reweight=True)


def provenance(each: LDAM | GCL, drw: bool) -> dict[str, str]:
    made = {
        "stages.0.loss.rho": f"{CODE}: 0.05",
        "stages.0.epochs": f"{CODE}: re-weighting after 160 of 200" if drw else f"{CODE}: 200",
        "stages.0.batch_size": f"{CODE}: 128",
        "stages.0.optimizer.nesterov": f"{CODE}: yes",
        "stages.0.loss.base.scale": f"{CODE}: 30",
    }
    if isinstance(each, GCL):
        made |= {
            "stages.0.loss.base.strength": "released code: that of the first stage of GCL",
            "stages.0.loss.base.halves": "released code: the loss is called twice under mixup",
            "stages.0.loss.noise": "inferred: unstated; each expert draws its own",
        }
    if drw:
        made |= goes_on() | {"stages.1.epochs": f"{CODE}: the rest of the schedule"}
        made["stages.1.loss.temperature"] = f"{CODE}: by count once the loss is re-weighted"
        made["stages.1.loss.base.reweight"] = (
            f"{CODE}: effective numbers, beta 0.9999"
            if isinstance(each, LDAM)
            else "inferred: only the loss is said to be swapped, so deferred re-weighting stays"
        )
    return made
