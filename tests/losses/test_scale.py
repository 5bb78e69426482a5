"""The scale of the losses for linear heads: what lets them learn from cosines."""

from __future__ import annotations

import pytest
import torch
from pydantic import TypeAdapter
from torch.nn.functional import cross_entropy

from longtail import losses, recipe
from longtail.build.losses import loss as build

KINDS = (
    "cross_entropy",
    "focal",
    "class_balanced",
    "reweighted",
    "logit_adjusted",
    "balanced_softmax",
    "label_aware_smoothing",
)
EACH = pytest.mark.parametrize("kind", KINDS)


def made(images, **spec):
    return build(TypeAdapter(recipe.Loss).validate_python(spec), torch.tensor(images))


@EACH
def test_a_scale_is_the_same_as_scaled_scores(batch, images, kind):
    scores, target = batch
    loss, plain = made(images, kind=kind, scale=16.0), made(images, kind=kind)
    assert torch.equal(loss.logits(scores), 16 * scores)
    for each in (target, losses.Mixed(target, target.flip(0), 0.3)):
        assert torch.equal(loss(scores, each), plain(16 * scores, each))
    torch.testing.assert_close(loss.eval()(scores, target), cross_entropy(16 * scores, target))


@EACH
def test_without_a_scale_the_scores_are_the_logits_themselves(batch, images, kind):
    scores, _ = batch
    loss = made(images, kind=kind)  # as recipes from before there was a scale name it
    assert loss.scale == 1 and loss.logits(scores) is scores


@EACH
@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan")])
def test_a_scale_is_positive(images, kind, wrong):
    with pytest.raises(ValueError, match="scale"):
        getattr(losses, type(made(images, kind=kind)).__name__)(
            *(() if kind in ("cross_entropy", "focal") else (images,)), scale=wrong
        )


def test_calls_from_before_there_was_a_scale_mean_what_they_meant(images):
    assert losses.Focal(2.0).gamma == 2 and losses.LogitAdjusted(images, 0.5).tau == 0.5
    smoothed = losses.LabelAwareSmoothing(images, 0.4, 0.1, "linear")
    assert float(smoothed.smoothing.values[0]) == pytest.approx(0.4) and smoothed.scale == 1
