"""The contrastive recipes' constants against spec B2 and what is known of their codes; their forms train."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from longtail.engine.schedule import factor, first_weight
from longtail.recipes import catalogue, contrastive, overrides, paper
from longtail.recipes.retraining import Choices, plan


def rate(stage, epoch):
    """In an epoch counted from 1."""
    return stage.optimizer.lr * factor(stage.schedule, (epoch - 1) * 10, steps=10, epochs=stage.epochs)


@pytest.mark.parametrize(
    ("classes", "variant", "temperature"),
    [(10, "samples", 0.1), (100, "samples", 0.1), (10, "prototypes", 1.0), (100, "prototypes", 0.1)],
)
def test_the_hybrid_network_has_the_constants_of_the_specification(classes, variant, temperature):
    (stage,) = contrastive.hybrid(classes=classes, variant=variant).stages
    assert (stage.batch_size, stage.optimizer.lr, stage.optimizer.weight_decay) == (512, 0.5, 1e-4)
    assert (stage.epochs, stage.optimizer.momentum, stage.views, stage.mixing) == (200, 0.9, 2, None)
    assert (stage.sampling.rule, stage.paired.rule) == ("instance", "class_balanced")
    assert (stage.loss.temperature, stage.loss.among) == (temperature, variant)
    rates = [rate(stage, epoch) for epoch in (5, 120, 121, 160, 161)]
    assert rates == pytest.approx([0.5, 0.5, 0.05, 0.05, 0.005])
    assert [first_weight(epoch, 200) for epoch in (0, 100)] == [1.0, 0.75]


def test_tsc_has_the_constants_of_its_own_code_and_a_classifier_after_it():
    first, second = contrastive.tsc(classes=10).stages
    assert (first.batch_size, first.optimizer.lr, first.optimizer.weight_decay) == (256, 0.05, 1e-4)
    assert (first.loss.temperature, first.loss.copies, first.views, first.paired) == (0.07, 50.0, 2, None)
    assert [rate(first, epoch) for epoch in (140, 141, 161, 181)] == pytest.approx([0.05, 5e-3, 5e-4, 5e-5])
    assert (second.head, second.trains, second.sampling.rule) == ("linear", ("head",), "class_aware")
    assert (second.loss.kind, second.views, second.epochs) == ("cross_entropy", 1, 10)
    model = contrastive.tsc().model
    assert (model.against, model.width, model.momentum) == ("targets", 128, 0.9)


@pytest.mark.parametrize("name", ["contrastive.hybrid", "contrastive.tsc"])
@pytest.mark.parametrize("epochs", [1, 3, 20])
def test_shorter_trainings_keep_their_drops_in_order(name, epochs):
    stage = catalogue.make(name, [f"epochs={epochs}"]).stages[0]
    places = [after for after, _ in stage.schedule.drops]
    assert places == sorted(places) and stage.schedule.warmup <= epochs


@pytest.mark.parametrize("name", ["contrastive.hybrid", "contrastive.tsc"])
def test_every_constant_says_where_it_comes_from(name):
    told = catalogue.make(name).provenance
    paths = (
        "batch_size",
        "optimizer.lr",
        "optimizer.weight_decay",
        "schedule.drops",
        "loss.temperature",
        "views",
    )
    assert {f"stages.0.{path}" for path in paths} <= set(told)
    assert all(":" in text for path, text in told.items() if not path.startswith("stages.1."))


def test_each_stands_beside_its_own_row():
    """The name of the family is a row as well: TSC must not be taken for it."""

    def figure(recipe):
        found = paper.published(overrides.plain(recipe))
        return found and (found.row, found.value)

    assert figure(contrastive.hybrid(classes=10)) == ("Contrastive", 81.40)
    assert figure(contrastive.hybrid(classes=10, variant="prototypes")) is None
    assert figure(contrastive.tsc(classes=100)) == ("TSC", 43.80)
    assert paper.published(overrides.plain(contrastive.tsc()), stage=0) is None
    grey = replace(catalogue.make("cifar.ce"), images=contrastive.GREY)
    assert figure(grey) is None, "the other rows keep their colours"


def test_techniques_leave_the_projection_behind_or_the_classifier_as_it_is():
    for first, fresh in (
        (contrastive.hybrid(), ("kept", "linear")),
        (contrastive.tsc(), ("linear", "linear")),
    ):
        made = [plan(first, Choices(technique)).stages[0] for technique in ("crt", "crt_decoupling")]
        assert tuple(stage.head for stage in made) == fresh
        assert [(stage.loss.kind, stage.loss.scale) for stage in made] == [("cross_entropy", 1.0)] * 2
    scaled = plan(contrastive.tsc(), Choices("lws_decoupling")).stages[0]
    assert (scaled.head, scaled.loss.scale) == ("scaled", pytest.approx(1 / 0.07))


@pytest.fixture(scope="module")
def shrinking():
    """The recipes' own test shrinks any recipe."""
    spec = importlib.util.spec_from_file_location("every", Path(__file__).parent / "test_every_recipe.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.usefixtures("one_commit")
def test_the_form_with_prototypes_trains_and_goes_on_exactly(tiny, shrinking, tmp_path):
    recipe = shrinking.shrunk(contrastive.hybrid(classes=10, variant="prototypes"))
    assert shrinking.goes_on(tiny, recipe, tmp_path) == []
