"""Second stages of the re-training techniques (spec D), fitted to the first stage that they go on from."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from longtail.recipe import (
    GCL,
    LADE,
    LDAM,
    RIDE,
    SGD,
    SHIKE,
    ArcFace,
    BalancedSoftmax,
    ClassBalanced,
    Contrasted,
    Cosine,
    CrossEntropy,
    Distilled,
    Experts,
    FeatureBalanced,
    Focal,
    HybridContrastive,
    LargeImages,
    LogitAdjusted,
    Loss,
    NestedCollaborative,
    Part,
    PerExpert,
    PostHoc,
    Recipe,
    Reweighted,
    Routing,
    Single,
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
    """Stage 2 of the released code for GCL; any other loss goes on, without what balances the classes."""
    return _on_balanced_draws(first.stages[0].loss, large_images=isinstance(first.images, LargeImages))


def _on_balanced_draws(loss: Loss, *, large_images: bool) -> Loss:
    """Priors and class weights would correct a second time what the draws of stage 2 correct already."""
    match loss:
        case GCL(form=form, strength=strength):
            made = (
                large.second(form, strength) if large_images else stages.gcl_second(form, strength=strength)
            )
            return replace(made, cloud=loss.cloud, power=loss.power)
        case LDAM():
            return replace(loss, reweight=False)
        case HybridContrastive() | TargetedContrastive() | FeatureBalanced() | LADE():
            return CrossEntropy()  # of the contrastive ones, the head is linear from here on
        case ClassBalanced() if loss.gamma:
            return Focal(gamma=loss.gamma, scale=loss.scale)
        case BalancedSoftmax() | LogitAdjusted() | ClassBalanced() | Reweighted():
            return CrossEntropy(scale=loss.scale)
        case NestedCollaborative():
            return PerExpert()
        case PerExpert() | RIDE() | SHIKE() | Routing():
            return replace(loss, base=_on_balanced_draws(loss.base, large_images=large_images))
        case Distilled():
            return _on_balanced_draws(loss.base, large_images=large_images)  # the teacher stays with stage 1
        case _:
            return loss


def of_scaled_cosines(loss: Loss) -> Loss:
    """Cosines in the place of angles: the Euclidean form of GCL, cross-entropy for ArcFace.

    Scores times a factor per class (LWS) are no cosines: beyond 1 there is no angle, and no gradient for the
    factor.
    """
    match loss:
        case GCL(form="angular" | "unified"):
            return replace(loss, form="euclidean", boundary="clip")
        case ArcFace():
            return CrossEntropy(scale=loss.scale)
        case PerExpert() | RIDE() | SHIKE() | Routing():
            return replace(loss, base=of_scaled_cosines(loss.base))
        case _:
            return loss


def innermost(loss: Loss) -> Loss:
    """The loss of each expert, beside a teacher or not."""
    return innermost(loss.base) if isinstance(loss, PerExpert | RIDE | SHIKE | Routing | Distilled) else loss


def for_each(first: Recipe, loss: Single) -> Loss:
    """The loss, or of several experts the loss of each."""
    return PerExpert(base=loss) if isinstance(first.model, Experts) else loss


def plain_loss(first: Recipe) -> Loss:
    """Cross-entropy; on cosines with the scale that they were trained with."""
    return for_each(first, CrossEntropy(scale=scale_of(first)))


def scale_of(first: Recipe) -> float:
    """What the clean logits of the first stage multiply the scores with."""
    loss = innermost(first.stages[0].loss)
    if isinstance(loss, TargetedContrastive):
        return 1 / loss.temperature
    return float(getattr(loss, "scale", 1.0))


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
        loss=for_each(first, Reweighted(rho=1.2, scale=scale_of(first))),
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
    inner = innermost(loss)
    if isinstance(inner, GCL):
        known = stages.gcl_provenance(inner.form)
        return {
            path.replace(".loss.", ".loss.base."): where for path, where in known.items() if path in paths
        }
    return {path: where for path, where in paths.items() if not path.startswith("stages.1.loss.")} | {
        "stages.1.loss": "inferred: the loss of stage 1, without what balances the classes, as the draws do"
    }


def provenance_of(code: str, **known: str) -> dict[str, str]:
    """The paths that decoupling's and DisAlign's own scripts set alike; `known` says more of some."""
    names = ("epochs", "head", "batchnorm", "mixing", "optimizer.lr", "schedule.kind", "sampling.rule")
    paths = {f"stages.1.{name}": code for name in names} | {"stages.1.batch_size": "inferred: as in stage 1"}
    return paths | {f"stages.1.{name.replace('__', '.')}": where for name, where in known.items()}


def decoupled_provenance() -> dict[str, str]:
    rates = "0.2 with batches of 512, 0.1 with 256; inferred for smaller ones"
    decay = f"inferred: as in stage 1; {DECOUPLING} has 5e-4"
    return provenance_of(DECOUPLING, optimizer__lr=f"{DECOUPLING}: {rates}", optimizer__weight_decay=decay)


def aligned_provenance(first: Recipe) -> dict[str, str]:
    rho = "loss__base__rho" if isinstance(first.model, Experts) else "loss__rho"
    said = {rho: f"{DISALIGN}: 1.2 on ImageNet-LT", "optimizer__weight_decay": f"{DISALIGN}: 5e-4"}
    return provenance_of(DISALIGN, **said)
