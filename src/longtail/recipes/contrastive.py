"""Methods that compare embeddings (spec B2): hybrid contrastive networks, targeted supervised contrast.

The hybrid network's code was never released, and of TSC's only a part is for CIFAR: there it compares within
the batch, as here. What is known of their constants stands in the provenance, what differs in
docs/deviations.md.
"""

from __future__ import annotations

from typing import Literal

from longtail.recipe import (
    SGD,
    Contrasted,
    HybridContrastive,
    MultiStep,
    Recipe,
    Sampling,
    SmallImages,
    Stage,
    TargetedContrastive,
)
from longtail.recipes import protocols
from longtail.recipes.cifar import Classes, data
from longtail.recipes.retraining import Choices, plan

RECALLED = "inferred: the paper as others report it; its code was not released"
TSC = "TSC's own code for CIFAR"
GREY = SmallImages(grayscale=0.2)  # with crop and flip; what both works have and is built for small images


def hybrid(
    classes: Classes = 100,
    ratio: float = 100,
    variant: Literal["samples", "prototypes"] = "samples",
    seed: int = 0,
    epochs: int = 200,
) -> Recipe:
    """The row Contrastive: from comparing images to classifying balanced draws, over one network.

    `variant` is what an image is compared with: the other images, or a learned prototype of each class.
    """
    cool = variant == "samples" or classes == 100
    stage = Stage(
        name="representation",
        loss=HybridContrastive(among=variant, temperature=0.1 if cool else 1.0),
        epochs=epochs,
        batch_size=512,
        paired=Sampling(rule="class_balanced"),
        views=2,
        optimizer=SGD(lr=0.5, momentum=0.9, weight_decay=1e-4),
        schedule=MultiStep(
            warmup=min(5, epochs), drops=protocols.scaled(epochs, 200, ((120, 0.1), (160, 0.01)))
        ),
    )
    return Recipe(
        name="contrastive.hybrid",
        data=data(classes, ratio),
        images=GREY,
        model=Contrasted(against=variant),
        stages=(stage,),
        seed=seed,
        provenance={
            "images.grayscale": f"{RECALLED}: crop, flip and grey with a chance of 0.2",
            "model.width": "inferred: 128, as usual",
            "stages.0.loss.temperature": f"{RECALLED}: 0.1; with prototypes 1 on CIFAR-10",
            "stages.0.views": "inferred: two views, as supervised contrastive learning has them",
            "stages.0.mixing": "inferred: none; whole images are compared",
            "stages.0.paired.rule": "paper: the classifier sees classes in equal parts",
            "stages.0.batch_size": f"{RECALLED}: 512",
            "stages.0.optimizer.lr": f"{RECALLED}: 0.5",
            "stages.0.optimizer.weight_decay": f"{RECALLED}: 1e-4",
            "stages.0.epochs": f"{RECALLED}: 200",
            "stages.0.schedule.drops": f"{RECALLED}: x0.1 after 120 and again after 160",
            "stages.0.schedule.warmup": "inferred: five epochs, as the other methods here",
        },
    )


def tsc(
    classes: Classes = 100,
    ratio: float = 100,
    seed: int = 0,
    epochs: int = 200,
    retrain_epochs: int | None = None,
) -> Recipe:
    """The row TSC: features drawn to targets that lie evenly on the sphere, then a linear classifier."""
    stage = Stage(
        name="representation",
        loss=TargetedContrastive(temperature=0.07, copies=50.0),
        epochs=epochs,
        batch_size=256,
        views=2,
        optimizer=SGD(lr=0.05, momentum=0.9, weight_decay=1e-4),
        schedule=MultiStep(
            warmup=min(5, epochs),
            drops=protocols.scaled(epochs, 1000, ((700, 0.1), (800, 0.01), (900, 0.001))),
        ),
    )
    first = Recipe(
        name="contrastive.tsc",
        data=data(classes, ratio),
        images=GREY,
        model=Contrasted(against="targets"),
        stages=(stage,),
        seed=seed,
        provenance={
            "images.grayscale": f"{TSC}: 0.2, besides a resized crop and jitter",
            "model.width": f"{TSC}: 128",
            "model.momentum": "TSC's own code: 0.9",
            "model.every": "inferred: the code does it in every step",
            "stages.0.loss.temperature": f"{TSC}: 0.07",
            "stages.0.loss.copies": f"{TSC}: 25 beside each of the two views",
            "stages.0.mixing": "inferred: none; whole images are compared",
            "stages.0.views": f"{TSC}: 2",
            "stages.0.batch_size": f"{TSC}: 256",
            "stages.0.optimizer.lr": f"{TSC}: 0.05",
            "stages.0.optimizer.weight_decay": f"{TSC}: 1e-4",
            "stages.0.epochs": "inferred: as long as every other method; its code has 1,000",
            "stages.0.schedule.drops": f"{TSC}: x0.1 after 700, 800 and 900 of 1,000 epochs",
            "stages.0.schedule.warmup": "inferred: five epochs, as the other methods here",
        },
    )
    return plan(first, Choices("crt_decoupling", epochs=retrain_epochs)).after(first)
