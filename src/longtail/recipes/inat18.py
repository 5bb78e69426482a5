"""iNaturalist 2018 with ResNet-50 (spec E4, F4). No training script was released: constants are inferred."""

from __future__ import annotations

from longtail.recipe import Backbone, Form, Listing, Recipe
from longtail.recipes import large, protocols


def gcl(
    root: str, form: Form = "euclidean", seed: int = 0, epochs: int = 200, retrain_epochs: int = 30
) -> Recipe:
    """`root` holds train_val2018/ and the lists iNaturalist18_train.txt and iNaturalist18_val.txt."""
    return large.two_stage(
        "inat18.gcl",
        form=form,
        seed=seed,
        data=Listing(root=root, train="iNaturalist18_train.txt", test="iNaturalist18_val.txt"),
        images=large.INAT,
        backbone=Backbone(name="resnet50"),
        epochs=epochs,
        drops=protocols.scaled(epochs, 200, ((120, 0.1), (160, 0.01))),
        weight_decay=1e-4,
        retrain_epochs=retrain_epochs,
        retrain_alpha=0.2,
        provenance={
            "stages.0.schedule.drops": "inferred: the same authors' FBL recipe, after 120 and 160 of 200",
            "stages.0.optimizer.weight_decay": "inferred: 1e-4",
            "images.mean": "decoupling's and MisLAS's statistics of this set",
        },
    )
