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

# Of the second stage what is as in the released scripts for CIFAR.
SECOND = (
    "stages.1.sampling.rule",
    "stages.1.batchnorm",
    "stages.1.head",
    "stages.1.optimizer.lr",
    "stages.1.schedule.kind",
)


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
    known = stages.gcl_provenance(form)
    second = stages.classifier(stages.gcl_second(form), epochs=retrain_epochs, batch_size=batch_size)
    return _recipe(
        "folder.gcl",
        data,
        size,
        Classifier(backbone=Backbone(name=backbone, weights=weights)),
        (first, second),
        seed,
        {key: text for key, text in known.items() if ".loss." in key or key in SECOND}
        | {
            "stages.0.mixing.alpha": "released code: 0.2 on the large sets",
            "stages.1.epochs": "inferred: a sixth of the first stage, as the released code has 30 of 200",
            "stages.1.batch_size": "inferred: that of the first stage",
            "stages.1.mixing.alpha": "released code: 1.0 on CIFAR",
            "stages.1.optimizer.weight_decay": "released code: 2e-4 on CIFAR",
        },
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
        "folder.ce",
        data,
        size,
        model,
        (_first(CrossEntropy(), epochs, batch_size, weights),),
        seed,
        {"stages.0.mixing.alpha": "inferred: that of folder.gcl, so that the two compare"},
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


def _recipe(  # noqa: PLR0913  (each is a different thing)
    name: str,
    data: str,
    size: int,
    model: Classifier,
    two: tuple[Stage, ...],
    seed: int,
    provenance: stages.Provenance,
) -> Recipe:
    return Recipe(
        name=name,
        data=Folder(root=data),
        images=_images(size),
        model=model,
        stages=two,
        evaluation=Evaluation(every=5, last=1),
        seed=seed,
        provenance={
            **_cut(size),
            "stages.0.epochs": "inferred: nothing is known of the data",
            "stages.0.batch_size": "released code: 64 on CIFAR",
            "stages.0.sampling.rule": "paper: the images as they come",
            "stages.0.optimizer.lr": "inferred: 0.1 as on CIFAR, 0.02 from given weights",
            "stages.0.optimizer.weight_decay": "inferred: 5e-4, as the released code has for Places",
            "stages.0.schedule.kind": "inferred: smooth, for no epoch is known at which to drop",
        }
        | provenance,
    )


def _cut(size: int) -> stages.Provenance:
    if size <= 96:
        return {"images.crop": "inferred: an eighth of the side, as on CIFAR"}
    return {"images.resize": "inferred: 8 to 7, as 256 to 224 on the large sets"}


def _images(size: int) -> Images:
    if size <= 96:
        return SmallImages(
            size=size, crop=max(1, size // 8), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
        )
    return LargeImages(size=size, resize=size * 8 // 7)
