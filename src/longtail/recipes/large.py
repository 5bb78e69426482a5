"""What the three large benchmarks share (spec E5, F3, F4): streamed images, a ResNet, two stages of GCL."""

from __future__ import annotations

from longtail.recipe import (
    GCL,
    SGD,
    Backbone,
    Classifier,
    Evaluation,
    Form,
    LargeImages,
    Listing,
    Mixup,
    MultiStep,
    Recipe,
)
from longtail.recipes import stages

IMAGENET = LargeImages(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
INAT = LargeImages(mean=(0.466, 0.471, 0.380), std=(0.195, 0.194, 0.192))


def two_stage(  # noqa: PLR0913  (each argument is a constant that differs between the three)
    name: str,
    *,
    form: Form,
    seed: int,
    data: Listing,
    images: LargeImages,
    backbone: Backbone,
    epochs: int,
    drops: tuple[tuple[int, float], ...],
    weight_decay: float,
    retrain_epochs: int,
    retrain_alpha: float,
    provenance: dict[str, str],
) -> Recipe:
    """GCL with the constants of the released Places scripts (spec A7): strength 1, stage-2 scale 15."""
    strength = 0.5 if form == "angular" else 1.0
    return Recipe(
        name=name,
        data=data,
        images=images,
        model=Classifier(backbone=backbone, head="cosine"),
        stages=(
            stages.representation(
                stages.gcl_first(form, strength=strength),
                epochs=epochs,
                batch_size=512,
                mixing=Mixup(alpha=0.2),
                optimizer=SGD(lr=0.2, momentum=0.9, weight_decay=weight_decay),
                schedule=MultiStep(warmup=min(5, epochs), drops=drops),
            ),
            stages.classifier(
                second(form, strength),
                epochs=retrain_epochs,
                batch_size=512,
                lr=0.002,
                weight_decay=weight_decay,
                mixing=Mixup(alpha=retrain_alpha),
            ),
        ),
        evaluation=Evaluation(every=5, last=5, batch_size=256),
        seed=seed,
        precision="bf16",
        provenance=stages.gcl_provenance(form)
        | {
            "stages.0.loss.strength": "released code: Places scripts",
            "stages.0.batch_size": "released code: 512",
            "stages.0.optimizer.lr": "released code: 0.2",
            "stages.0.mixing.alpha": "released code: 0.2 on the large sets",
            "stages.1.mixing.alpha": "released code: 1.0 on Places; inferred: 0.2 elsewhere, as in stage 1",
            "precision": "inferred: ours",
        }
        | provenance,
    )


def second(form: Form, strength: float) -> GCL:
    """Stage 2 of the Places scripts: Euclidean s 15, m 0.1, focal 1; angular s 30, m 0, focal 1, easy."""
    if form == "angular":
        return GCL(form=form, strength=strength, scale=30.0, focal=1.0, boundary="easy", halves="independent")
    return stages.gcl_second(form, strength=strength, scale=15.0)
