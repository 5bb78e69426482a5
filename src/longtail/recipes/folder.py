"""Your own images: a folder of class folders."""

from __future__ import annotations

from longtail.recipe import (
    SGD,
    Backbone,
    Classifier,
    Cosine,
    CrossEntropy,
    Evaluation,
    Folder,
    Form,
    Images,
    LargeImages,
    Mixup,
    Recipe,
    SmallImages,
    Stage,
)
from longtail.recipes import stages


def gcl(
    data: str,
    form: Form = "euclidean",
    size: int = 64,
    backbone: str = "resnet18",
    weights: str | None = None,
    epochs: int = 60,
    retrain_epochs: int = 10,
    batch_size: int = 64,
    seed: int = 0,
) -> Recipe:
    """Two-stage GCL on `data`. Up to 96 pixels the images live in memory; above, they stream."""
    first = _first(stages.gcl_first(form), epochs, batch_size, weights)
    second = stages.classifier(stages.gcl_second(form), epochs=retrain_epochs, batch_size=batch_size)
    return _recipe(
        "folder.gcl",
        data,
        size,
        Classifier(backbone=Backbone(name=backbone, weights=weights)),
        (first, second),
        seed,
    )


def ce(
    data: str,
    size: int = 64,
    backbone: str = "resnet18",
    weights: str | None = None,
    epochs: int = 70,
    batch_size: int = 64,
    seed: int = 0,
) -> Recipe:
    """Plain cross-entropy on `data`: what to compare with."""
    model = Classifier(backbone=Backbone(name=backbone, weights=weights), head="linear")
    return _recipe(
        "folder.ce", data, size, model, (_first(CrossEntropy(), epochs, batch_size, weights),), seed
    )


def _first(loss: CrossEntropy | stages.GCL, epochs: int, batch_size: int, weights: str | None) -> Stage:
    """A smooth schedule for a data set that we know nothing of; gentler when the weights are not random."""
    return Stage(
        name="representation",
        loss=loss,
        epochs=epochs,
        batch_size=batch_size,
        mixing=Mixup(alpha=0.2),
        optimizer=SGD(lr=0.02 if weights else 0.1, momentum=0.9, weight_decay=5e-4),
        schedule=Cosine(warmup=min(5, epochs)),
    )


def _recipe(name: str, data: str, size: int, model: Classifier, two: tuple[Stage, ...], seed: int) -> Recipe:
    return Recipe(
        name=name,
        data=Folder(root=data),
        images=_images(size),
        model=model,
        stages=two,
        evaluation=Evaluation(every=5, last=1),
        seed=seed,
        provenance={"stages.0": "inferred: nothing is known of the data"}
        | ({"stages.1.loss": "released code: CIFAR stage 2"} if len(two) > 1 else {}),
    )


def _images(size: int) -> Images:
    if size <= 96:
        return SmallImages(
            size=size, crop=max(1, size // 8), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
        )
    return LargeImages(size=size, resize=size * 8 // 7)
