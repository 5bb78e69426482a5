"""NCL: whole networks that learn from one another (spec B3), without its contrastive branch.

On the strong track: AutoAugment and Cutout, 400 epochs and several networks are no row of the paper's tables.
"""

from __future__ import annotations

from longtail.recipe import (
    SGD,
    Backbone,
    Experts,
    MultiStep,
    NestedCollaborative,
    Recipe,
    SmallImages,
    Stage,
)
from longtail.recipes import cifar as cifar_lt

CODE = "NCL's own code"


def cifar(
    classes: cifar_lt.Classes = 100, ratio: float = 100, networks: int = 3, seed: int = 0, epochs: int = 400
) -> Recipe:
    """NCL on CIFAR-LT: three ResNet-32, the mean of their logits at test time."""
    drops = ((max(1, epochs * 320 // 400), 0.1), (max(2, epochs * 360 // 400), 0.01))
    stage = Stage(
        name="representation",
        loss=NestedCollaborative(),
        epochs=epochs,
        batch_size=64,
        optimizer=SGD(lr=0.1, weight_decay=2e-4),
        schedule=MultiStep(warmup=min(5, epochs), drops=drops),
    )
    return Recipe(
        name="ncl.cifar",
        data=cifar_lt.data(classes, ratio),
        images=SmallImages(policy="autoaugment", cutout=16),
        model=Experts(backbone=Backbone(name="resnet32"), head="linear", count=networks, shares="nothing"),
        stages=(stage,),
        seed=seed,
        provenance={
            "model.count": f"{CODE}: three networks",
            "images.policy": f"{CODE}: AutoAugment",
            "images.cutout": "inferred: Cutout is in the code's augmentation, its size as usual on CIFAR",
            "stages.0.loss.mutual": f"{CODE}: 0.6",
            "stages.0.loss.nested": f"{CODE}: 1",
            "stages.0.loss.hard": f"{CODE}: 30 of 100 classes",
            "stages.0.epochs": f"{CODE}: 400",
            "stages.0.batch_size": f"{CODE}: 64",
            "stages.0.mixing": "inferred: none; nothing is said of any",
            "stages.0.optimizer.lr": "inferred: as every other method on CIFAR",
            "stages.0.optimizer.weight_decay": f"{CODE}: 2e-4",
            "stages.0.schedule.drops": f"{CODE}: x0.1 after 320 and again after 360",
        },
    )
