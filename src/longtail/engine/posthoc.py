"""Stages that train nothing: tau-normalisation, nearest class means, post-hoc logit adjustment.

Each is a pure function of the weights that the stage before left and of the data, so nothing of it is
checkpointed: a resumed run does it again and gets the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from longtail import build, heads
from longtail.data.splits import Dataset, Split
from longtail.engine import trainable
from longtail.engine.distributed import World
from longtail.errors import UsageError
from longtail.keys import Key
from longtail.recipe import LogitAdjust, NearestMean, Recipe, Stage, TauNorm

Facts = dict[str, Any]


def require(recipe: Recipe, data: Dataset) -> None:
    """Refuses at the start what could not be done at the end."""
    for stage in recipe.stages:
        if isinstance(stage.posthoc, TauNorm) and data.held_out is None:
            raise UsageError(
                f"stage {stage.name}: tau is chosen on held-out images, and this data has none; set "
                'data.held_out (train: --set \'data.held_out={"source":"leftover"}\'; '
                "retrain: held_out=leftover)"
            )


def transform(here: World, recipe: Recipe, stage: Stage, data: Dataset, model: nn.Module) -> Facts:
    """Gives the model the head that `stage.posthoc` names; what had to be chosen for it, else nothing."""
    here.share_buffers(model)
    before, chosen = cast(nn.Module, model.head), Facts()
    match stage.posthoc:
        case TauNorm() as spec:
            weight = _weight(before, spec, stage)
            chosen = _sweep(here, recipe, spec, stage, data, model, weight)
            trainable.reshape_head(model, stage, Key(recipe.seed))
            _put(
                cast(nn.Parameter, cast(nn.Module, model.head).weight),
                heads.tau_normalize(weight, chosen["tau"]),
            )
        case NearestMean():
            features, labels = features_of(here, recipe, model, data.train)
            trainable.reshape_head(model, stage, Key(recipe.seed))
            cast(heads.NearestMean, model.head).fit(features, labels, len(data.names))
        case LogitAdjust(tau=tau):
            trainable.reshape_head(model, stage, Key(recipe.seed))
            _put(cast(heads.Shifted, model.head).shift, _shift(stage, data, tau))
        case None:
            raise ValueError(f"stage {stage.name} has no posthoc")
        case _:
            assert_never(stage.posthoc)
    model.to(here.device)
    return chosen


def _weight(head: nn.Module, spec: TauNorm, stage: Stage) -> Tensor:
    """The rows to be normalised. On a cosine head only directions count, so the source must be named."""
    if isinstance(head, heads.Cosine) and spec.source == "linear":
        raise UsageError(
            f"stage {stage.name}: tau_norm changes nothing on a cosine head; train a linear probe first "
            '(a stage with head="linear"), or set stages.N.posthoc.source to raw_anchors'
        )
    linear = heads.Linear | heads.Projected
    if not isinstance(head, heads.Cosine if spec.source == "raw_anchors" else linear):
        raise UsageError(
            f"stage {stage.name}: tau_norm with source={spec.source} does not fit a head of kind "
            f"{type(head).__name__}; it normalises the weights of one linear or cosine head"
        )
    return cast(Tensor, head.weight).detach()


def _sweep(  # noqa: PLR0913  (each is a different thing)
    here: World,
    recipe: Recipe,
    spec: TauNorm,
    stage: Stage,
    data: Dataset,
    model: nn.Module,
    weight: Tensor,
) -> Facts:
    """The tau with the best mean recall over the classes that have held-out images; the smallest of equals.

    A class without such images cannot be averaged in; its recall on training images is noted beside.
    """
    require(recipe, data)
    assert data.held_out is not None
    features, labels = features_of(here, recipe, model, data.held_out)
    unseen = sorted(set(range(len(data.names))) - set(labels.tolist()))
    extra = data.train.select(torch.isin(data.train.targets, torch.tensor(unseen)).nonzero().flatten())
    beside = features_of(here, recipe, model, extra) if unseen else None
    rows: list[Facts] = []
    for tau in spec.taus:
        head = heads.tau_normalize(weight, tau)
        row = {"tau": tau, "balanced": _recall(head, features, labels)}
        rows.append(row | ({"unseen": _recall(head, *beside)} if beside else {}))
    best = max(rows, key=lambda row: row["balanced"])
    about = {"split": "held_out", "measure": "balanced", "images": len(labels), "unseen_classes": unseen}
    return {"tau": best["tau"]} | about | {"sweep": rows}


def _recall(weight: Tensor, features: Tensor, labels: Tensor) -> float:
    """Percent: the mean recall over the classes that occur."""
    right = functional.linear(features, weight).argmax(1) == labels
    totals = torch.bincount(labels)
    hits = torch.bincount(labels, weights=right.double())
    return 100.0 * float((hits[totals > 0] / totals[totals > 0]).mean())


def _shift(stage: Stage, data: Dataset, tau: float) -> Tensor:
    """What the scores must lose so that the clean logits, a scale times them, lose tau * log pi."""
    loss = build.loss(stage.loss, data.counts)
    clean = cast(Callable[[Tensor], Tensor], loss.logits)
    scale = clean(torch.ones(1, len(data.names), dtype=torch.float64))[0]
    if bool(clean(torch.zeros(1, len(data.names), dtype=torch.float64)).any()) or bool((scale <= 0).any()):
        raise UsageError(
            f"stage {stage.name}: logit_adjust needs a loss whose logits are a scale times the scores, "
            f"which those of {stage.loss.kind} are not"
        )
    prior = data.counts.double() / data.counts.sum()
    if bool((prior == 0).any()):
        raise UsageError(
            f"stage {stage.name}: logit_adjust needs an image of every class; there is one without"
        )
    return tau * prior.log() / scale


@torch.no_grad()
def features_of(here: World, recipe: Recipe, model: nn.Module, split: Split) -> tuple[Tensor, Tensor]:
    """(features `[N, D]` in float32, labels) of a whole split, un-augmented, on every process alike."""
    model.eval()
    found: list[Tensor] = []
    labels: list[Tensor] = []
    batches = build.batches(recipe.images, split, here.device, channels_last=recipe.channels_last)
    for batch in here.heeding(batches.plain(recipe.evaluation.batch_size)):
        found.append(model(batch.images).features.float())
        labels.append(batch.target)
    features = torch.cat(found)
    if features.ndim != 2:
        raise UsageError("a post-hoc stage takes the features of one network, not those of several experts")
    return features, torch.cat(labels)


@torch.no_grad()
def _put(target: Tensor, values: Tensor) -> None:
    target.copy_(values)
