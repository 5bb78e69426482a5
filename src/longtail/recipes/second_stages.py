"""Second stages of the re-training techniques (spec D), fitted to the first stage that they go on from."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from longtail.recipe import (
    GCL,
    LDAM,
    SGD,
    Contrasted,
    Cosine,
    CrossEntropy,
    HybridContrastive,
    LargeImages,
    Loss,
    Part,
    PostHoc,
    Recipe,
    Reweighted,
    Stage,
    TargetedContrastive,
)
from longtail.recipes import large, stages

DECOUPLING, DISALIGN = "decoupling's own code", "DisAlign's own code"


def released(first: Recipe) -> Stage:
    """The released code's re-training of the head, with the batches and the weight decay of stage 1."""
    stage = first.stages[0]
    made = stages.classifier(
        second_loss(first), batch_size=stage.batch_size, weight_decay=stage.optimizer.weight_decay
    )
    # Targets are no classifier to go on from.
    return replace(made, head="linear") if has_targets(first) else made


def second_loss(first: Recipe) -> Loss:
    """Stage 2 of the released code for GCL; any other loss goes on as it is, without deferred weights."""
    match first.stages[0].loss:
        case GCL(form=form, strength=strength) as loss:
            if isinstance(first.images, LargeImages):
                return replace(large.second(form, strength), cloud=loss.cloud, power=loss.power)
            return replace(stages.gcl_second(form, strength=strength), cloud=loss.cloud, power=loss.power)
        case LDAM() as loss:
            return replace(loss, reweight=False)
        case HybridContrastive() | TargetedContrastive():
            return CrossEntropy()  # the head is linear from here on
        case loss:
            return loss


def plain_loss(first: Recipe) -> CrossEntropy:
    """Cross-entropy; on cosines with the scale that they were trained with."""
    return CrossEntropy(scale=scale_of(first))


def scale_of(first: Recipe) -> float:
    """What the clean logits of the first stage multiply the scores with."""
    loss = first.stages[0].loss
    if isinstance(loss, TargetedContrastive):
        return 1 / loss.temperature
    return float(getattr(getattr(loss, "base", loss), "scale", 1.0))


def has_targets(first: Recipe) -> bool:
    """Whether the scores are cosines to fixed targets, which no stage can train."""
    return isinstance(first.model, Contrasted) and first.model.against == "targets"


def decoupled(
    first: Recipe,
    name: str,
    *,
    epochs: int,
    trains: tuple[Part, ...],
    head: Literal["restarted", "scaled"],
) -> Stage:
    """Kang et al.: cross-entropy, cosine from 0.2 (batches of 512; else 0.1), BatchNorm goes on adapting."""
    batch = first.stages[0].batch_size
    is_places = first.model.backbone.name.startswith("places")
    # Beside a projection a classifier is drawn anew as a plain one, and the projection is left behind.
    plain = head == "restarted" and isinstance(first.model, Contrasted)
    return Stage(
        name=name,
        loss=CrossEntropy() if plain else plain_loss(first),
        epochs=epochs,
        batch_size=batch,
        trains=trains,
        batchnorm="adapting",
        head="linear" if plain else head,
        optimizer=SGD(
            lr=0.2 if batch >= 512 and not is_places else 0.1,
            weight_decay=first.stages[0].optimizer.weight_decay,
        ),
        schedule=Cosine(),
    )


def aligned(first: Recipe) -> Stage:
    return Stage(
        name="aligned",
        loss=Reweighted(rho=1.2, scale=scale_of(first)),
        epochs=10,
        batch_size=first.stages[0].batch_size,
        trains=("scales",),
        batchnorm="frozen",
        head="aligned",
        optimizer=SGD(lr=0.1, weight_decay=5e-4),
        schedule=Cosine(),
    )


def probe(first: Recipe) -> Stage:
    """A plain linear head on the frozen features, whatever the head was."""
    made = stages.classifier(CrossEntropy(), batch_size=first.stages[0].batch_size, lr=0.1, mixing=None)
    return replace(made, name="linear_probe", head="linear")


def posthoc(name: str, what: PostHoc, loss: Loss) -> Stage:
    """A stage that trains nothing."""
    return Stage(name=name, loss=loss, posthoc=what, epochs=0, trains=(), batchnorm="frozen")


def released_provenance(first: Recipe) -> dict[str, str]:
    """The paths of the released second stage; its loss is the released one for GCL only."""
    loss = first.stages[0].loss
    known = stages.gcl_provenance(loss.form if isinstance(loss, GCL) else "euclidean")
    paths = {path: where for path, where in known.items() if path.startswith("stages.1.")}
    if isinstance(loss, GCL):
        return paths
    return {path: where for path, where in paths.items() if not path.startswith("stages.1.loss.")} | {
        "stages.1.loss": "inferred: the loss of stage 1"
    }


def provenance_of(code: str) -> dict[str, str]:
    """The paths that decoupling's and DisAlign's own scripts set alike."""
    names = ("epochs", "head", "batchnorm", "mixing", "optimizer.lr", "schedule.kind", "sampling.rule")
    return {f"stages.1.{name}": code for name in names} | {"stages.1.batch_size": "inferred: as in stage 1"}
