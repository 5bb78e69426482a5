"""SHIKE: experts of several depths, then balanced classifiers on frozen features (spec B3).

On the strong track: AutoAugment, Cutout and several experts are no row of the paper's tables.
"""

from __future__ import annotations

from longtail.recipe import (
    SGD,
    SHIKE,
    Backbone,
    BalancedSoftmax,
    Cosine,
    CrossEntropy,
    Experts,
    PerExpert,
    Recipe,
    SmallImages,
    Stage,
)
from longtail.recipes import cifar as cifar_lt

CODE = "SHIKE's own code"
SCALE = 30.0


def cifar(
    classes: cifar_lt.Classes = 100,
    ratio: float = 100,
    experts: int = 3,
    seed: int = 0,
    epochs: int = 180,
    retrain_epochs: int = 20,
) -> Recipe:
    """SHIKE on CIFAR-LT: three experts over ResNet-32, and the re-training of their classifiers (cRT)."""
    as_there = "" if classes == 100 else "; inferred: as on CIFAR-100, it has no other set"
    first = Stage(
        name="representation",
        # 10 and 1 in its code, which averages a divergence over the 100 classes as well
        loss=SHIKE(base=CrossEntropy(scale=SCALE), negative=0.1, mutual=0.01),
        epochs=epochs,
        batch_size=128,
        optimizer=SGD(lr=0.15, weight_decay=5e-4),
        schedule=Cosine(warmup=min(5, epochs)),
    )
    second = Stage(
        name="classifier",
        loss=PerExpert(base=BalancedSoftmax(scale=SCALE)),
        epochs=retrain_epochs,
        batch_size=128,
        trains=("head",),
        batchnorm="adapting",
        head="restarted",
        optimizer=SGD(lr=0.1, weight_decay=5e-4),
        schedule=Cosine(warmup=min(5, retrain_epochs)),
    )
    return Recipe(
        name="shike.cifar",
        data=cifar_lt.data(classes, ratio),
        images=SmallImages(policy="autoaugment", cutout=16),
        model=Experts(backbone=Backbone(name="resnet32"), head="cosine", count=experts, shares="depths"),
        stages=(first, second),
        seed=seed,
        provenance={
            "model.count": f"{CODE}: three experts",
            "model.shares": f"{CODE}: maps after layer1, layer2 and layer1 again for the three",
            "model.head": f"{CODE}: cosines",
            "images.policy": f"{CODE}: AutoAugment",
            "images.cutout": f"{CODE}: a square of 16",
            "stages.0.loss.base.scale": f"{CODE}: 30",
            "stages.0.loss.negative": f"{CODE}: 10, averaged over the classes too{as_there}",
            "stages.0.loss.mutual": f"{CODE}: 1, averaged over the classes too{as_there}",
            "stages.0.epochs": f"{CODE}: 180 of 200",
            "stages.0.batch_size": f"{CODE}: 128",
            "stages.0.optimizer.lr": f"{CODE}: 0.05 in name; five epochs of warm-up climb to 0.15",
            "stages.0.optimizer.weight_decay": f"{CODE}: 5e-4",
            "stages.0.schedule.kind": f"{CODE}: cosine; inferred: the curve counts from the first epoch",
            "stages.0.mixing": "inferred: none; nothing is said of any",
            "stages.1.mixing": "inferred: none; nothing is said of any",
            "stages.1.batch_size": f"{CODE}: 128",
            "stages.1.optimizer.weight_decay": f"{CODE}: 5e-4",
            "stages.1.loss.base.scale": f"{CODE}: 30",
            "stages.1.epochs": f"{CODE}: the last 20 of 200",
            "stages.1.sampling.rule": f"{CODE}: the same images as in stage 1",
            "stages.1.batchnorm": f"{CODE}: the statistics go on moving",
            "stages.1.head": f"{CODE}: classifiers of their own, drawn anew",
            "stages.1.optimizer.lr": f"{CODE}: 0.05 in name; five epochs of warm-up climb to 0.1",
            "stages.1.schedule.kind": f"{CODE}: cosine",
        },
    )
