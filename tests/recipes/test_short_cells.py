"""The short comparison: every single-model method once, under one schedule, on one data set."""

from __future__ import annotations

from dataclasses import replace

import pytest

from longtail.recipe import first_training
from longtail.recipes import campaign, catalogue
from longtail.recipes.cells import Cell, cells
from longtail.recipes.short import EPOCHS as SHORT
from longtail.recipes.short import short_cells
from longtail.run import fsio
from longtail.run.folder import RunFolder

CELLS = {cell.name: cell for cell in short_cells()}


def test_every_baseline_is_run_once_and_plain_cross_entropy_three_times():
    baselines = {name.split(".")[1] for name in catalogue.functions(("baselines",))}
    others = {"ldam_drw", "gcl_euclidean", "gcl_angular", "ce", "ce_mixup"}
    others |= {"hybrid", "hybrid_prototypes", "tsc", "oltr", "mbj"}
    others |= {name.split(".")[1] for name in catalogue.functions(("decoupled",))} | {"crt_released"}
    others |= {"cosface_plain", "arcface_plain", "gcl_euclidean_plain", "gcl_angular_plain"}
    once = {f"short/{name}-s0" for name in baselines | others}
    assert set(CELLS) >= once | {"short/ce-s1", "short/ce-s2"}
    assert len(CELLS) == len(short_cells())


@pytest.mark.parametrize("name", CELLS)
def test_all_see_the_same_images_for_as_long(name):
    recipe = CELLS[name].make()
    assert (recipe.data.classes, recipe.data.longtail.ratio) == (10, 100)
    assert name.endswith(f"-s{recipe.seed}")
    first = sum(stage.epochs for stage in recipe.stages if "backbone" in stage.trains and stage.epochs)
    assert first == SHORT, "a second stage of the classifier alone comes on top"
    assert recipe.model.backbone.name == "resnet32"


def test_no_cell_of_the_paper_track_has_such_a_name():
    assert not {cell.name for cell in cells()} & set(CELLS)


def test_the_campaign_finds_them_by_name_and_writes_where_it_says(tmp_path, monkeypatch, tiny):
    run = tiny.train(tiny.recipe(tiny.stage(epochs=1)), out=tmp_path / "run")
    monkeypatch.setattr("longtail.engine.fit.train", lambda recipe, out: fsio.make_folders(out) or run)
    assert len(campaign.pending(tmp_path / "results", "*", "short")) == len(CELLS)
    assert "top-1" in campaign.train_cell("short/ce-s1", tmp_path / "runs", tmp_path / "results")
    assert RunFolder(tmp_path / "results" / "short" / "ce-s1").is_finished
    left = campaign.pending(tmp_path / "results", "*", "short")
    assert {cell.name for cell in left} == set(CELLS) - {"short/ce-s1"}


def test_a_source_whose_checkpoints_did_not_travel_is_no_source(tmp_path, tiny, monkeypatch):
    runs, results = tmp_path / "runs", tmp_path / "results"
    two, one = "cifar10-r100-gcl-euclidean-s0", "cifar10-r100-ce-mixup-s0"
    recipes = {two: tiny.gcl(), one: tiny.recipe(tiny.stage(epochs=1))}
    monkeypatch.setattr(campaign, "named", lambda name: Cell(name, 1, lambda: recipes[name]))
    for name in (two, one):
        campaign.export(tiny.train(recipes[name], out=tmp_path / name), results / name, keeps_model=True)
    assert campaign.source(one, runs, results) == results / one, (
        "its last model is the end of its first stage"
    )
    assert campaign.source(two, runs, results) is None
    recipes[one] = tiny.recipe(tiny.stage(epochs=1), seed=7)
    assert campaign.source(one, runs, results) is None, "nor is what the cell was in another version"


@pytest.mark.parametrize("name", CELLS)
def test_all_are_trained_by_one_protocol(name):
    """Batches, rates and drops of cross-entropy, whatever a method's own code has; a kept stage goes on."""
    recipe, start = CELLS[name].make(), 0
    known = CELLS["short/ce-s0"].make().stages[0]
    begun = first_training(recipe)
    for stage in recipe.stages[:begun]:
        assert (stage.batch_size, stage.optimizer) == (known.batch_size, known.optimizer)
        if not name.startswith("short/oltr"):  # its two stages share the epochs
            assert stage.schedule == replace(known.schedule, start=start)
        start += stage.epochs
    for number, stage in enumerate(recipe.stages):
        for path in ("batch_size", "epochs") if stage.epochs else ():
            assert "one protocol" in recipe.provenance[f"stages.{number}.{path}"]
    assert not [path for path in recipe.provenance if path.startswith("stages.0.schedule.")]


def test_contrastive_methods_are_among_them_as_long_as_the_others():
    samples, prototypes, targets = (
        CELLS[f"short/{name}-s0"].make() for name in ("hybrid", "hybrid_prototypes", "tsc")
    )
    assert [recipe.model.against for recipe in (samples, prototypes, targets)] == [
        "samples",
        "prototypes",
        "targets",
    ]
    first, second = targets.stages
    assert (first.epochs, second.epochs, second.head) == (SHORT, 3, "linear")


def test_what_goes_on_from_cross_entropy_has_its_first_stage():
    mixed = CELLS["short/ce_mixup-s0"].make()
    going_on = [cell for cell in CELLS.values() if cell.after is not None]
    assert {cell.after for cell in going_on} == {"short/ce_mixup-s0"}
    for cell in going_on:
        first, *later = cell.make().stages
        assert first == mixed.stages[0], cell.name
        assert sum(stage.epochs for stage in later) in (0, 3), cell.name


def test_a_shorter_gcl_shortens_both_stages():
    first, second = CELLS["short/gcl_euclidean-s0"].make().stages
    assert (first.epochs, second.epochs) == (SHORT, 3)
    assert second.sampling.rule == "class_balanced"


def test_gcl_without_mixup_differs_in_nothing_else():
    for form in ("euclidean", "angular"):
        mixed, plain = (CELLS[f"short/gcl_{form}{word}-s0"].make() for word in ("", "_plain"))
        assert all(stage.mixing is None for stage in plain.stages)
        assert plain.stages == tuple(replace(stage, mixing=None) for stage in mixed.stages)
