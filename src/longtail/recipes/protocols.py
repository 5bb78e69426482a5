"""The schedules that the single-stage baselines are trained by, and where their constants come from."""

from __future__ import annotations

from longtail.recipe import SGD, Loss, Mixup, Model, MultiStep, Recipe, Stage
from longtail.recipes import stages
from longtail.recipes.cifar import Classes, data
from longtail.recipes.stages import Provenance


def single(  # noqa: PLR0913
    name: str, classes: Classes, ratio: float, seed: int, model: Model, stage: Stage, provenance: Provenance
) -> Recipe:
    """One stage on CIFAR-LT."""
    return Recipe(
        name=f"baselines.{name}",
        data=data(classes, ratio),
        model=model,
        stages=(stage,),
        seed=seed,
        provenance=provenance,
    )


def released(loss: Loss, epochs: int, mixup: bool) -> Stage:
    """Stage 1 of the released CIFAR scripts, as the row CE has it (spec F7)."""
    return stages.representation(loss, epochs=epochs, mixing=mixed(mixup))


RELEASED: Provenance = {
    **stages.RELEASED,
    "stages.0.mixing": "paper: mixup is used in all experiments; unstated for this row",
}


def ldam_drw(loss: Loss, epochs: int, mixup: bool, *, batch_size: int = 128) -> Stage:
    """LDAM-DRW's code, by which several losses are compared there (and FBL's, with batches of 64)."""
    return stages.representation(
        loss,
        epochs=epochs,
        batch_size=batch_size,
        mixing=mixed(mixup),
        schedule=MultiStep(warmup=min(5, epochs), drops=stages.drops(epochs, (0.01, 0.0001))),
    )


LDAM_DRW: Provenance = {
    "stages.0.epochs": "LDAM-DRW's own code: 200",
    "stages.0.mixing": "LDAM-DRW's own code: none",
    "stages.0.batch_size": "LDAM-DRW's own code: 128",
    "stages.0.optimizer.lr": "LDAM-DRW's own code: 0.1",
    "stages.0.optimizer.weight_decay": "LDAM-DRW's own code: 2e-4",
    "stages.0.schedule.drops": "LDAM-DRW's own code: x0.01 after 160, x0.0001 after 180",
}


def causal(loss: Loss, epochs: int, mixup: bool) -> Stage:
    """De-confound-TDE's constants, which LADE took over with its comparisons."""
    return stages.representation(
        loss,
        epochs=epochs,
        batch_size=256,
        mixing=mixed(mixup),
        optimizer=SGD(lr=0.2, momentum=0.9, weight_decay=5e-4),
        schedule=early(epochs),
    )


CAUSAL: Provenance = {
    "stages.0.epochs": "TDE's own constants: 200",
    "stages.0.mixing": "TDE's and LADE's own constants: none",
    "stages.0.batch_size": "TDE's and LADE's own constants: 256",
    "stages.0.optimizer.lr": "TDE's and LADE's own constants: 0.2",
    "stages.0.optimizer.weight_decay": "TDE's and LADE's own constants: 5e-4",
    "stages.0.schedule.drops": "TDE's and LADE's own constants: x0.01 after 120 and again after 160",
    "model.backbone.name": "inferred: the network of all methods here; wide=true is their own, 128 features",
}


def early(epochs: int) -> MultiStep:
    """x0.01 after 120 and again after 160 of 200 epochs: TDE, LADE, BBN."""
    return MultiStep(warmup=min(5, epochs), drops=scaled(epochs, 200, ((120, 0.01), (160, 0.0001))))


def scaled(epochs: int, whole: int, drops: tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
    """The drops of a schedule of `whole` epochs, at the same fractions of another length.

    >>> scaled(100, 200, ((120, 0.01), (160, 0.0001)))
    ((60, 0.01), (80, 0.0001))
    """
    return tuple(
        (max(number, after * epochs // whole), factor) for number, (after, factor) in enumerate(drops, 1)
    )


def mixed(mixup: bool) -> Mixup | None:
    return Mixup(alpha=1.0) if mixup else None
