"""SHIKE as a recipe: its size, what its second stage leaves alone, and the track that it is on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from longtail import build
from longtail.engine import schedule, trainable
from longtail.errors import UsageError
from longtail.keys import Key
from longtail.recipe import Backbone, Experts
from longtail.recipes import overrides, paper, shike


def test_parameters_are_those_counted_by_hand() -> None:
    made = build.model(shike.cifar(classes=10).model, 10, Key(0))
    fusion = 3 * (32 * 64 * 9 + 128) + 2 * (16 * 32 * 9 + 64)
    assert (
        sum(p.numel() for p in made.parameters()) == 112_016 + 3 * 351_488 + fusion + 3 * 64 * 10 == 1_233_424
    )


def test_the_divergences_have_the_weights_of_a_mean_over_a_hundred_classes() -> None:
    for classes in (10, 100):
        loss = shike.cifar(classes=classes).stages[0].loss
        assert (loss.negative, loss.mutual) == (10 / 100, 1 / 100)


def test_the_second_stage_trains_new_classifiers_and_nothing_else() -> None:
    recipe = shike.cifar(classes=10)
    spec = replace(recipe.model, backbone=Backbone(name="resnet8"))
    model, stage = build.model(spec, 10, Key(0)), recipe.stages[1]
    before = {name: p.clone() for name, p in model.named_parameters()}
    trainable.reshape_head(model, stage, Key(1))
    trainable.select(model, stage)
    for name, parameter in model.named_parameters():
        in_head = name.startswith("head.")
        assert parameter.requires_grad == in_head
        assert torch.equal(parameter, before[name]) != in_head


def test_the_rates_are_those_in_effect() -> None:
    for stage, epochs, peak in zip(shike.cifar().stages, (180, 20), (0.15, 0.1), strict=True):
        rates = [
            stage.optimizer.lr * schedule.factor(stage.schedule, epoch, steps=1, epochs=epochs)
            for epoch in range(epochs)
        ]
        assert stage.epochs == epochs and max(rates) == pytest.approx(peak) and rates[4] == max(rates)
        assert rates[0] == pytest.approx(peak / 5) and rates[-1] < peak / 100


def test_such_experts_have_no_reduced_form() -> None:
    spec = Experts(backbone=Backbone(name="resnet8"), shares="depths", reduced=True)
    with pytest.raises(UsageError, match="reduced"):
        build.model(spec, 10, Key(0))


def test_it_is_no_row_of_the_papers_tables() -> None:
    for classes in (10, 100):
        assert paper.published(overrides.plain(shike.cifar(classes=classes))) is None
