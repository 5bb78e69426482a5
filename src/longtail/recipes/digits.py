"""The embedded handwritten digits: a whole two-stage training in seconds, for the demo and for tests."""

from __future__ import annotations

from longtail.recipe import (
    Backbone,
    Classifier,
    CrossEntropy,
    Digits,
    Evaluation,
    Form,
    LongTail,
    Mixup,
    Recipe,
    SmallImages,
)
from longtail.recipes import stages

# Eight-pixel images: one pixel of shift, and no flip, since a mirrored digit is another thing.
IMAGES = SmallImages(size=8, crop=1, flip=False, mean=(0.3, 0.3, 0.3), std=(0.37, 0.37, 0.37))

OURS = ("stages.0.epochs", "stages.0.batch_size", "stages.0.schedule.drops", "stages.1.epochs")


def gcl(
    ratio: float = 50, form: Form = "euclidean", seed: int = 0, epochs: int = 40, retrain_epochs: int = 10
) -> Recipe:
    """Two-stage GCL (Algorithm 1) on long-tailed digits."""
    return Recipe(
        name="digits.gcl",
        data=Digits(longtail=LongTail(ratio=ratio)),
        images=IMAGES,
        model=Classifier(backbone=Backbone(name="resnet8"), head="cosine"),
        stages=(
            stages.representation(stages.gcl_first(form), epochs=epochs, batch_size=32),
            stages.classifier(stages.gcl_second(form), epochs=retrain_epochs, batch_size=32),
        ),
        evaluation=Evaluation(every=10, last=1),
        seed=seed,
        provenance=stages.gcl_provenance(form) | dict.fromkeys(OURS, "inferred: enough for 8x8 digits"),
    )


def ce(ratio: float = 50, mixup: bool = True, seed: int = 0, epochs: int = 50) -> Recipe:
    """Cross-entropy on the same images for as many epochs: what GCL is compared with."""
    return Recipe(
        name="digits.ce",
        data=Digits(longtail=LongTail(ratio=ratio)),
        images=IMAGES,
        model=Classifier(backbone=Backbone(name="resnet8"), head="linear"),
        stages=(
            stages.representation(
                CrossEntropy(), epochs=epochs, batch_size=32, mixing=Mixup(alpha=1.0) if mixup else None
            ),
        ),
        evaluation=Evaluation(every=10, last=1),
        seed=seed,
        provenance={
            **stages.RELEASED,
            **dict.fromkeys(OURS[1:3], "inferred: enough for 8x8 digits"),
            "stages.0.epochs": "inferred: as many as both stages of digits.gcl",
            "stages.0.mixing": "inferred: as in digits.gcl, so that the two compare",
        },
    )
