"""Methods with a memory (spec B2): OLTR's class centroids, and memory-based jitter as a reconstruction."""

from __future__ import annotations

from dataclasses import replace

from longtail.recipe import (
    SGD,
    Backbone,
    Centroids,
    Classifier,
    CrossEntropy,
    Evaluation,
    Listing,
    MultiStep,
    Recipe,
    Remembered,
    Remembering,
    Sampling,
    Stage,
)
from longtail.recipes import large, protocols, stages
from longtail.recipes.cifar import Classes, data
from longtail.recipes.stages import Provenance

CODE = "OLTR's own code"
OURS = "reconstruction: written from the description of the method, its code was never released"
THIRDS = ((10, 0.1), (20, 0.01))  # of 30 epochs


def oltr(
    classes: Classes = 100, ratio: float = 100, seed: int = 0, epochs: int = 200, retrain_epochs: int = 30
) -> Recipe:
    """OLTR on CIFAR-LT, which its paper does not train on: cross-entropy, then the memory of centroids."""
    first = stages.representation(CrossEntropy(), epochs=epochs, mixing=None)
    second = _centroids(
        retrain_epochs, batch_size=first.batch_size, optimizer=SGD(lr=0.01, weight_decay=2e-4), factor=10.0
    )
    return Recipe(
        name="memory.oltr",
        data=data(classes, ratio),
        model=Classifier(head="linear"),
        stages=(first, second),
        seed=seed,
        provenance=OLTR
        | stages.RELEASED
        | {
            "stages.0.mixing": f"{CODE}: none",
            "stages.0.optimizer.lr": "inferred: as for cross-entropy; nothing is said of CIFAR",
            "stages.1.epochs": f"{CODE}: 30 on Places-LT",
            "stages.1.batch_size": "inferred: as in stage 1",
            "stages.1.optimizer.lr": "inferred: a tenth of stage 1, as in its code on Places-LT",
            "stages.1.head_lr_factor": "inferred: 0.1 for the classifier, as in its code on ImageNet-LT",
            "stages.1.optimizer.weight_decay": "inferred: as in stage 1; its code has 5e-4",
        },
    )


def oltr_places(root: str, weights: str, seed: int = 0, epochs: int = 30, retrain_epochs: int = 30) -> Recipe:
    """OLTR on Places-LT, without its modulated attention: see docs/deviations.md."""
    first = Stage(
        name="representation",
        loss=CrossEntropy(),
        epochs=epochs,
        batch_size=128,
        optimizer=SGD(lr=0.001, weight_decay=5e-4),
        head_lr_factor=100.0,
        schedule=MultiStep(warmup=0, drops=protocols.scaled(epochs, 30, THIRDS)),
    )
    second = _centroids(
        retrain_epochs, batch_size=128, optimizer=SGD(lr=1e-4, weight_decay=5e-4), factor=100.0
    )
    rates = {"stages.0": "0.001 for features, 0.1 for the classifier", "stages.1": "1e-4 and 0.01"}
    return Recipe(
        name="memory.oltr_places",
        data=Listing(
            root=root, train="Places_LT_train.txt", test="Places_LT_test.txt", val="Places_LT_val.txt"
        ),
        images=large.IMAGENET,
        model=Classifier(backbone=Backbone(name="places_resnet152", weights=weights), head="linear"),
        stages=(first, second),
        evaluation=Evaluation(every=5, last=5),
        seed=seed,
        precision="bf16",
        provenance=OLTR
        | {f"{stage}.optimizer.lr": f"{CODE}: {text}" for stage, text in rates.items()}
        | {f"{stage}.epochs": f"{CODE}: 30" for stage in rates}
        | {f"{stage}.batch_size": f"{CODE}: 128" for stage in rates}
        | {
            "model.backbone.name": "inferred: as the other Places recipes, its last block trains",
            "stages.0.schedule.drops": f"{CODE}: x0.1 every 10 epochs",
            "stages.0.mixing": f"{CODE}: none",
            "stages.0.optimizer.weight_decay": f"{CODE}: 5e-4",
            "stages.1.optimizer.weight_decay": f"{CODE}: 5e-4",
            "precision": "inferred: ours",
        },
    )


def mbj(
    classes: Classes = 100,
    ratio: float = 100,
    size: int = 2048,
    power: float = 1.0,
    seed: int = 0,
    epochs: int = 200,
) -> Recipe:
    """A reconstruction of memory-based jitter: the classifier also learns from past features.

    Only the idea is published with certainty: a memory of features across iterations, written more often for
    rare classes, on which the classifier is trained beside the batch. Every constant here is our own choice.
    """
    begin = stages.deferred(epochs, 160)
    first = stages.representation(CrossEntropy(), epochs=epochs, mixing=None)
    schedule = MultiStep(warmup=min(5, epochs), drops=stages.drops(epochs), start=begin)
    second = Stage(
        name="remembered",
        loss=Remembered(),
        epochs=epochs - begin,
        batch_size=first.batch_size,
        optimizer=first.optimizer,
        schedule=schedule,
        optimizer_state="kept",
    )
    paths = ("model.size", "model.power", "stages.1.loss.weight", "stages.1.epochs", "stages.1.mixing")
    return Recipe(
        name="memory.mbj",
        data=data(classes, ratio),
        model=Remembering(size=size, power=power),
        stages=(replace(first, epochs=begin), second),
        seed=seed,
        provenance=dict.fromkeys(
            [*stages.RELEASED, *stages.goes_on()], "reconstruction: the protocol of cross-entropy"
        )
        | dict.fromkeys(paths, OURS)
        | {
            "stages.0.mixing": "reconstruction: none; a mixed feature has no class to be remembered under",
        },
    )


def _centroids(epochs: int, *, batch_size: int, optimizer: SGD, factor: float) -> Stage:
    """OLTR's second stage: everything trains, the centroids at the rate of the features."""
    return Stage(
        name="memory",
        loss=Centroids(),
        epochs=epochs,
        batch_size=batch_size,
        sampling=Sampling(rule="class_aware"),
        trains=("backbone", "head", "memory"),
        head="meta_embedding",
        optimizer=optimizer,
        head_lr_factor=factor,
        schedule=MultiStep(warmup=0, drops=protocols.scaled(epochs, 30, THIRDS)),
    )


OLTR: Provenance = {
    "stages.1.loss.scale": f"{CODE}: 16",
    "stages.1.loss.weight": f"{CODE}: 0.01",
    "stages.1.loss.repulsion": f"{CODE}: 0.01",
    "stages.1.loss.margin": f"{CODE}: 10",
    "stages.1.sampling.rule": f"{CODE}: class-aware",
    "stages.1.mixing": f"{CODE}: none",
    "stages.1.head": f"{CODE}: centroids at the class means, the hallucinator at the classifier of stage 1",
    "stages.1.schedule.drops": f"{CODE}: x0.1 after each third",
    "stages.1.trains": "inferred: centroids learn at the rate of the features; its code gives them 0.01",
}
