"""cifar.fast: the paper's parts over a fifth of the images, and in no table of the paper."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from longtail.recipe import SGD, Mixup, Muon
from longtail.recipes import cifar, paper
from longtail.recipes.cells import cells, fast_cells

FORMS = ("euclidean", "angular")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("classes", [10, 100])
def test_it_sees_a_fifth_of_the_images_of_the_full_recipe(classes, form):
    fast, full = cifar.fast(classes=classes, form=form), cifar.gcl(classes=classes, form=form)
    assert 5 * sum(stage.epochs for stage in fast.stages) <= sum(stage.epochs for stage in full.stages)
    assert all(stage.views == 1 and stage.paired is None for stage in fast.stages)


@pytest.mark.parametrize("form", FORMS)
def test_nothing_but_the_optimisation_of_stage_1_and_the_lengths_differ(form):
    fast, full = cifar.fast(form=form), cifar.gcl(form=form)
    assert (fast.model, fast.images, fast.data) == (full.model, full.images, full.data)
    ours, theirs = fast.stages[0], full.stages[0]
    assert replace(ours, optimizer=theirs.optimizer, schedule=theirs.schedule, epochs=200) == theirs
    assert replace(fast.stages[1], epochs=30) == full.stages[1]
    assert ours.mixing == Mixup(alpha=1.0)
    assert ours.optimizer == SGD(lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True, filters=Muon())


@pytest.mark.parametrize("form", FORMS)
def test_it_stands_beside_no_figure_of_the_paper(form):
    recipe = asdict(cifar.fast(form=form))
    assert paper.published(recipe) is None
    assert paper.published(recipe, stage=0) is None
    assert paper.published(asdict(cifar.gcl(form=form))) is not None


def test_the_cells_are_three_seeds_of_each_form_and_set_apart_from_the_paper_track():
    made = {cell.name: cell.make() for cell in fast_cells()}
    assert len(made) == 12
    assert not set(made) & {cell.name for cell in cells()}
    for name, recipe in made.items():
        assert name == f"fast/cifar{recipe.data.classes}-gcl-{recipe.stages[0].loss.form}-s{recipe.seed}"
        assert recipe.name == "cifar.fast"
