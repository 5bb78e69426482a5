"""Places-LT with ResNet-152 (spec E3, F3), as in the released Places scripts."""

from __future__ import annotations

from longtail.recipe import Backbone, Form, Listing, Recipe
from longtail.recipes import large, protocols


def gcl(
    root: str,
    weights: str,
    form: Form = "euclidean",
    seed: int = 0,
    epochs: int = 90,
    retrain_epochs: int = 30,
) -> Recipe:
    """`root` holds the images and lists; `weights` is a file of ImageNet weights of ResNet-152.

    The trunk (all but the last block) stays frozen; the last block starts afresh, as in the released code
    although the paper calls it pre-trained (spec I-C21). Stage 2 feeds mixed images with mixed labels: the
    released code feeds un-mixed images there by mistake (spec I-C6).
    """
    return large.two_stage(
        "places_lt.gcl",
        form=form,
        seed=seed,
        data=Listing(
            root=root, train="Places_LT_train.txt", test="Places_LT_test.txt", val="Places_LT_val.txt"
        ),
        images=large.IMAGENET,
        backbone=Backbone(name="places_resnet152", weights=weights),
        epochs=epochs,
        drops=protocols.scaled(epochs, 90, ((60, 0.1), (80, 0.01))),
        weight_decay=5e-4,
        retrain_epochs=retrain_epochs,
        retrain_alpha=1.0,
        provenance={
            "stages.0.epochs": "released code: 90",
            "stages.0.schedule.drops": "released code: after 60 and 80 of 90",
            "stages.0.optimizer.weight_decay": "released code: 5e-4",
            "stages.1.mixing.alpha": "released code: 1.0",
        },
    )
