"""CIFAR-10-LT and CIFAR-100-LT with ResNet-32: the paper's first table (spec E1, F2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from longtail.recipe import (
    LDAM,
    SGD,
    Cifar,
    Classifier,
    CrossEntropy,
    Form,
    LongTail,
    Mixup,
    MultiStep,
    Muon,
    OneCycle,
    Recipe,
    Stage,
)
from longtail.recipes import stages

Classes = Literal[10, 100]
CHOSEN = "inferred: chosen on held-out images, results/choices/fast.csv"


def gcl(
    classes: Classes = 100,
    ratio: float = 100,
    form: Form = "euclidean",
    seed: int = 0,
    epochs: int = 200,
    retrain_epochs: int = 30,
    mixup: bool = True,
) -> Recipe:
    """The rows GCL-E and GCL-A, by Algorithm 1: learn the representation, then re-train the classifier."""
    mixing, where = Mixup(alpha=1.0) if mixup else None, stages.gcl_provenance(form)
    if not mixup:
        asked = dict.fromkeys(("stages.0.mixing", "stages.1.mixing"), "asked for: none; the paper has mixup")
        where = {path: text for path, text in where.items() if not path.startswith(tuple(asked))} | asked
    return Recipe(
        name="cifar.gcl",
        data=data(classes, ratio),
        stages=(
            stages.representation(stages.gcl_first(form), epochs=epochs, mixing=mixing),
            stages.classifier(stages.gcl_second(form), epochs=retrain_epochs, mixing=mixing),
        ),
        seed=seed,
        provenance=where,
    )


def fast(
    classes: Classes = 100,
    ratio: float = 100,
    form: Form = "angular",
    seed: int = 0,
    epochs: int = 40,
    retrain_epochs: int = 6,
) -> Recipe:
    """GCL from a fifth of the images: Muon for the filters and one cycle of the rate, the rest as in `gcl`.

    Chosen on held-out training images of CIFAR-100-LT (scripts/choose.py fast); numbers in docs/speed.md.
    """
    base = gcl(classes, ratio, form, seed, epochs, retrain_epochs)
    first = replace(
        base.stages[0],
        optimizer=SGD(lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True, filters=Muon()),
        schedule=OneCycle(rise=0.15),
    )
    changed = ("epochs", "optimizer.lr", "optimizer.weight_decay", "optimizer.filters", "schedule")
    kept = {path: where for path, where in base.provenance.items() if path != "stages.0.schedule.drops"}
    chosen = dict.fromkeys([*(f"stages.0.{name}" for name in changed), "stages.1.epochs"], CHOSEN)
    return replace(
        base,
        name="cifar.fast",
        stages=(first, base.stages[1]),
        precision="bf16",
        provenance=kept | chosen,
    )


def ce(
    classes: Classes = 100, ratio: float = 100, mixup: bool = True, seed: int = 0, epochs: int = 200
) -> Recipe:
    """The row CE: one stage, a linear head. Whether the paper has mixup is unstated (spec P36): run both."""
    return Recipe(
        name="cifar.ce",
        data=data(classes, ratio),
        model=Classifier(head="linear"),
        stages=(
            stages.representation(CrossEntropy(), epochs=epochs, mixing=Mixup(alpha=1.0) if mixup else None),
        ),
        seed=seed,
        provenance={**stages.RELEASED, "stages.0.mixing": "inferred: unstated for this row; both are run"},
    )


def ldam_drw(
    classes: Classes = 100, ratio: float = 100, mixup: bool = False, seed: int = 0, epochs: int = 200
) -> Recipe:
    """LDAM, then the same with class weights from epoch 160 on: deferred re-weighting is a second stage.

    The second stage keeps momentum and goes on in the first one's schedule, so the two are one training.
    """
    first = stages.deferred(epochs, 160)
    schedule = MultiStep(warmup=min(5, epochs), drops=stages.drops(epochs, (0.01, 0.0001)))
    optimizer = SGD(lr=0.1, momentum=0.9, weight_decay=2e-4)
    mixing = Mixup(alpha=1.0) if mixup else None
    return Recipe(
        name="cifar.ldam_drw",
        data=data(classes, ratio),
        stages=(
            Stage(
                name="representation",
                loss=LDAM(),
                epochs=first,
                batch_size=128,
                mixing=mixing,
                optimizer=optimizer,
                schedule=schedule,
            ),
            Stage(
                name="deferred",
                loss=LDAM(reweight=True),
                epochs=epochs - first,
                batch_size=128,
                mixing=mixing,
                optimizer=optimizer,
                schedule=MultiStep(warmup=schedule.warmup, drops=schedule.drops, start=first),
                optimizer_state="kept",
            ),
        ),
        seed=seed,
        provenance={
            **stages.goes_on(),
            "stages.0.epochs": "LDAM-DRW's own code: 160 of 200",
            "stages.0.mixing": "asked for; LDAM-DRW's own code has none"
            if mixup
            else "LDAM-DRW's own code: none",
            "stages.0.optimizer.lr": "LDAM-DRW's own code: 0.1",
            "stages.0.optimizer.weight_decay": "LDAM-DRW's own code: 2e-4",
            "stages.1.epochs": "LDAM-DRW's own code: the last 40 of 200",
            "stages.0.batch_size": "LDAM-DRW's own code: 128",
            "stages.0.schedule.drops": "LDAM-DRW's own code: x0.01 after 160, x0.0001 after 180",
            "stages.0.loss.margin": "LDAM-DRW's own code: largest margin 0.5",
            "stages.1.loss.beta": "LDAM-DRW's own code: 0.9999",
        },
    )


def data(classes: Classes, ratio: float) -> Cifar:
    """Exponential profile, canonical selection (spec E1); normalisation constants are the scripts' own."""
    return Cifar(classes=classes, longtail=LongTail(profile="exponential", ratio=ratio))
