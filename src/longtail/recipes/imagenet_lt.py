"""ImageNet-LT with ResNet-50 (spec E2, F4). No training script was released: the constants are inferred."""

from __future__ import annotations

from longtail.recipe import Backbone, Form, Listing, Recipe
from longtail.recipes import large, protocols


def gcl(
    root: str, form: Form = "euclidean", seed: int = 0, epochs: int = 200, retrain_epochs: int = 30
) -> Recipe:
    """`root` holds the images and the lists ImageNet_LT_train.txt and ImageNet_LT_test.txt."""
    return large.two_stage(
        "imagenet_lt.gcl",
        form=form,
        seed=seed,
        data=Listing(
            root=root, train="ImageNet_LT_train.txt", test="ImageNet_LT_test.txt", val="ImageNet_LT_val.txt"
        ),
        images=large.IMAGENET,
        backbone=Backbone(name="resnet50"),
        epochs=epochs,
        drops=protocols.scaled(epochs, 200, ((120, 0.1), (160, 0.01))),
        weight_decay=5e-4,
        retrain_epochs=retrain_epochs,
        retrain_alpha=0.2,
        provenance={
            "stages.0.schedule.drops": "inferred: the same authors' FBL recipe, after 120 and 160 of 200",
            "stages.0.optimizer.weight_decay": "inferred: 5e-4",
            "stages.1.epochs": "inferred: 30, as in the CIFAR scripts",
        },
    )
