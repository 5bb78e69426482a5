"""What trains in a stage, and what stands still: one place sets requires_grad, train/eval and the head.

"Frozen" means two things in the literature (house 3.3): parameters that do not learn, and BatchNorm
statistics that do not move. A stage names both, `trains` and `batchnorm`, and both are applied here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never, cast

from torch import nn

from longtail import heads, models
from longtail.errors import UsageError
from longtail.keys import Key
from longtail.recipe import LogitAdjust, NearestMean, Part, Routing, Stage, TauNorm

# Heads that can be drawn anew.
REDRAWN = (
    heads.Linear,
    heads.Cosine,
    heads.Deconfounded,
    heads.Projected,
    heads.Targeted,
    heads.MetaEmbedding,
)
BATCHNORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def reshape_head(model: nn.Module, stage: Stage, key: Key) -> None:
    """Gives the model the stage's head: kept, restarted, linear, scaled (LWS), aligned (DisAlign), routed
    (RIDE), that of OLTR (meta_embedding), or a post-hoc one.

    Of the last two this makes the empty form; `memory.begin`, `posthoc.transform` or a file fills it.
    """
    head = cast(nn.Module, model.head)
    match stage.posthoc:
        case TauNorm():
            model.head = _linear(model, stage, key, bias=False)
        case NearestMean(features=features, distance=distance):
            model.head = heads.NearestMean(features, distance=distance)
        case LogitAdjust():
            model.head = heads.Shifted(head)
        case None:
            _reshape_trained(model, head, stage, key)
        case _:
            assert_never(stage.posthoc)


def _reshape_trained(model: nn.Module, head: nn.Module, stage: Stage, key: Key) -> None:
    match stage.head:
        case "kept":
            return
        case "restarted":
            restart(head, key)
        case "linear":
            model.head = _linear(model, stage, key, bias=True)
        case "scaled":
            model.head = heads.Scaled(head)
        case "aligned":
            # a head over two branches sees more features than the backbone of each has
            width = getattr(head, "num_features", cast(nn.Module, model.backbone).num_features)
            model.head = heads.Aligned(head, cast(int, width))
        case "meta_embedding":
            width = cast(int, cast(nn.Module, model.backbone).num_features)
            model.head = heads.MetaEmbedding(head, width, generator=key.fold("head").generator())
        case "routed":
            model.head = _routed(model, head, stage, key)


def _linear(model: nn.Module, stage: Stage, key: Key, *, bias: bool) -> heads.Linear:
    """A fresh linear head on the same features, drawn from the key alone."""
    head = cast(nn.Module, model.head)
    if not isinstance(head, heads.Linear | heads.Cosine | heads.Projected | heads.Targeted):
        raise UsageError(
            f"stage {stage.name}: a fresh linear head takes the place of a linear or cosine head of one "
            f"network; this model has {type(head).__name__}"
        )
    return heads.Linear(
        head.num_features, head.num_classes, bias=bias, generator=key.fold("head").generator()
    )


def _routed(model: nn.Module, head: nn.Module, stage: Stage, key: Key) -> models.Routed:
    """The experts' heads with fresh routers, which see logits: scores times the scale of their loss."""
    if not isinstance(head, models.Heads) or not isinstance(stage.loss, Routing):
        raise UsageError(
            f"stage {stage.name}: routers choose among the plain heads of several experts, by the loss "
            f"routing; this model has {type(head).__name__}"
        )
    return models.Routed(
        head,
        cast(int, cast(nn.Module, model.backbone).num_features),
        scale=float(getattr(stage.loss.base, "scale", 1.0)),
        top=stage.loss.top,
        hidden=stage.loss.hidden,
        generator=key.fold("head").generator(),
    )


def restart(head: nn.Module, key: Key) -> None:
    """Draws the head's weights anew, from the key alone."""
    generator = key.fold("head").generator()
    for module in head.modules():
        if isinstance(module, REDRAWN):
            module.reset_parameters(generator)


def part_of(name: str, model: nn.Module) -> Part:
    """Which part of the model a parameter belongs to, by its name.

    What a contrastive loss trains the features by is no part of the classifier: it goes with the backbone.
    """
    if name.replace("head.head.", "head.").startswith(("head.projection.", "head.prototypes")):
        return "backbone"
    if name == "head.centroids":
        return "memory"
    if name.startswith("head."):
        if isinstance(model.head, models.Routed) and not name.startswith("head.head."):
            return "router"
        wrapped = isinstance(model.head, heads.Scaled | heads.Aligned)
        return "scales" if wrapped and not name.startswith("head.head.") else "head"
    return "backbone"


def select(model: nn.Module, stage: Stage) -> None:
    """Marks what learns. Must run before the model is wrapped for several processes."""
    found = False
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(part_of(name, model) in stage.trains)
        found |= parameter.requires_grad
    if not found:
        raise UsageError(
            f"stage {stage.name}: trains={list(stage.trains)} names no parameter of this model; "
            "set stages.N.trains to parts that exist, or stages.N.head to 'scaled'"
        )


def set_modes(model: nn.Module, stage: Stage) -> None:
    """Train mode, with BatchNorm standing still where the stage says frozen."""
    model.train()
    if stage.batchnorm == "frozen":
        for module in model.modules():
            if isinstance(module, BATCHNORMS):
                module.eval()


def groups(model: nn.Module, stage: Stage) -> Iterator[tuple[float, list[tuple[str, nn.Parameter]]]]:
    """(learning-rate factor, named parameters that learn), the head apart from the rest."""
    learning = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    head = [(n, p) for n, p in learning if part_of(n, model) == "head"]
    rest = [(n, p) for n, p in learning if part_of(n, model) != "head"]
    if stage.head_lr_factor == 1.0:
        head, rest = [], learning
    if rest:
        yield 1.0, rest
    if head:
        yield stage.head_lr_factor, head
