"""The baselines' constants against spec B1, B2, F2 and F7, and how their schedules shorten."""

from __future__ import annotations

import pytest

from longtail.engine.schedule import factor
from longtail.recipe import MultiStep
from longtail.recipes import baselines, catalogue, protocols

# name: batch, lr, weight decay, ((epoch from 1, its rate), ...), mixup, head or model, scale of the loss
CONSTANTS = {
    "cosface": (64, 0.1, 2e-4, ((160, 0.1), (161, 0.01), (181, 0.001)), True, "cosine", 30.0),
    "arcface": (64, 0.1, 2e-4, ((160, 0.1), (161, 0.01), (181, 0.001)), True, "cosine", 30.0),
    "focal": (128, 0.1, 2e-4, ((160, 0.1), (161, 1e-3), (181, 1e-5)), False, "linear", 1.0),
    "class_balanced": (128, 0.1, 2e-4, ((160, 0.1), (161, 1e-3), (181, 1e-5)), False, "linear", 1.0),
    "ldam": (128, 0.1, 2e-4, ((160, 0.1), (161, 1e-3), (181, 1e-5)), False, "cosine", 30.0),
    "logit_adjusted": (
        128,
        0.1,
        2e-4,
        ((97, 0.1), (98, 0.01), (150, 1e-3), (182, 1e-4)),
        False,
        "linear",
        1.0,
    ),
    "balanced_softmax": (256, 0.2, 5e-4, ((120, 0.2), (121, 2e-3), (161, 2e-5)), False, "linear", 1.0),
    "lade": (256, 0.2, 5e-4, ((120, 0.2), (121, 2e-3), (161, 2e-5)), False, "linear", None),
    "tde": (256, 0.2, 5e-4, ((120, 0.2), (121, 2e-3), (161, 2e-5)), False, "deconfounded", 16.0),
    "fbl": (64, 0.1, 2e-4, ((160, 0.1), (161, 1e-3), (181, 1e-5)), False, "linear", None),
    "bbn": (128, 0.1, 2e-4, ((120, 0.1), (121, 1e-3), (161, 1e-5)), False, "two_branch", 1.0),
}


def made(name, *settings):
    return catalogue.make(f"baselines.{name}", ["classes=10", *settings])


def rate(stage, epoch):
    return stage.optimizer.lr * factor(stage.schedule, (epoch - 1) * 10, steps=10, epochs=stage.epochs)


def test_every_baseline_is_in_the_table():
    assert {f"baselines.{name}" for name in CONSTANTS} == set(catalogue.functions(("baselines",)))


@pytest.mark.parametrize("name", CONSTANTS)
def test_its_constants_are_those_of_the_specification(name):
    batch, lr, decay, rates, mixup, head, scale = CONSTANTS[name]
    recipe = made(name)
    (stage,) = recipe.stages
    assert (stage.batch_size, stage.optimizer.lr, stage.optimizer.weight_decay) == (batch, lr, decay)
    assert (stage.epochs, stage.optimizer.momentum, stage.mixing is not None) == (200, 0.9, mixup)
    assert [rate(stage, epoch) for epoch, _ in rates] == [pytest.approx(value) for _, value in rates]
    assert head == (recipe.model.head if recipe.model.kind == "classifier" else recipe.model.kind)
    assert getattr(stage.loss, "scale", None) == scale
    assert recipe.model.backbone.name == "resnet32"


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("epochs", [1, 2, 20, 100])
def test_a_shorter_training_keeps_the_shape_of_its_schedule(name, epochs):
    whole, short = made(name).stages[0], made(name, f"epochs={epochs}").stages[0]
    assert isinstance(short.schedule, MultiStep) and short.epochs == epochs
    assert short.schedule.warmup <= epochs
    for (after, its), (before, same) in zip(short.schedule.drops, whole.schedule.drops, strict=True):
        assert its == same
        if epochs >= 10:  # below, three drops have no room
            assert after / epochs == pytest.approx(before / 200, abs=1 / epochs + 1 / 200)
    places = [after for after, _ in short.schedule.drops]
    assert places == sorted(set(places))


def test_only_the_methods_that_allow_it_take_mixup():
    for name in set(CONSTANTS) - {"bbn"}:
        for word, expected in (("true", True), ("false", False)):
            assert (made(name, f"mixup={word}").stages[0].mixing is not None) is expected
    assert "mixup" not in catalogue.parameters(baselines.bbn)


def test_the_wide_network_is_asked_for():
    for name in ("tde", "lade", "balanced_softmax"):
        assert made(name, "wide=true").model.backbone.name == "resnet32x2"


def test_tde_takes_less_away_on_ten_classes():
    assert (made("tde").model.alpha, baselines.tde(classes=100).model.alpha) == (1.0, 1.5)


def test_logit_adjustment_scales_its_own_length():
    drops = protocols.scaled(1419, 1419, ((691, 0.1), (1059, 0.01), (1290, 0.001)))
    assert [after for after, _ in drops] == [691, 1059, 1290]
    assert [after for after, _ in baselines.logit_adjusted(epochs=1419).stages[0].schedule.drops] == [
        691,
        1059,
        1290,
    ]


@pytest.mark.parametrize("name", CONSTANTS)
def test_every_constant_that_a_method_sets_says_where_it_comes_from(name):
    told = made(name).provenance
    assert all(text.split(":")[0] and ":" in text for text in told.values())
    for path in ("batch_size", "optimizer.lr", "optimizer.weight_decay", "schedule.drops", "mixing"):
        assert f"stages.0.{path}" in told, path
