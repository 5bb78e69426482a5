"""docs/methods.md names everything that can be trained, and its numbers come from files."""

from __future__ import annotations

import csv
import importlib.util
import re
from pathlib import Path

import pytest

from longtail.recipes import catalogue

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "methods.md").read_text()


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("methods_page", ROOT / "scripts" / "methods_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", catalogue.functions())
def test_every_recipe_has_its_place(name):
    text, _, _ = PAGE.partition("## Numbers")
    assert f"`{name}`" in text, f"name {name} in a row of docs/methods.md"


def test_no_recipe_is_named_that_does_not_exist():
    families = {name.split(".")[0] for name in catalogue.functions()}
    named = re.findall(r"`([a-z0-9_]+\.[a-z0-9_]+)`", PAGE.partition("## Not yet")[0])
    assert {name for name in named if name.split(".")[0] in families} == set(catalogue.functions())


def test_writing_the_numbers_twice_changes_nothing_and_keeps_the_text(script):
    once = script.filled(PAGE, "| a |")
    assert script.filled(once, "| a |") == once
    assert once.partition(script.BEGIN)[0] == PAGE.partition(script.BEGIN)[0]
    assert once.partition(script.END)[2] == PAGE.partition(script.END)[2]


def test_the_parameters_and_costs_on_the_page_are_those_of_the_file(script):
    with (ROOT / "benchmarks" / "results" / "method_cost.csv").open() as file:
        for cost in csv.DictReader(file):
            assert f"| `{cost['recipe']}` | {int(cost['parameters']):,} | {cost['ratio']} (" in PAGE
    unmeasured = [cost["recipe"] for cost in script.costs() if not cost["ratio"]]
    assert unmeasured and all(f"| `{call}` | 464,144 | - |" in PAGE for call in unmeasured)


def test_a_run_of_another_method_set_or_ratio_does_not_count(script):
    from longtail.recipes import overrides

    mine = overrides.plain(catalogue.make("baselines.bbn", ["classes=10"]))
    assert script.same_method(mine, "baselines.bbn", 10)
    assert not script.same_method(mine, "baselines.bbn", 100)
    assert not script.same_method(mine, "baselines.lade", 10)
    other = overrides.plain(catalogue.make("baselines.bbn", ["classes=10", "ratio=50"]))
    assert not script.same_method(other, "baselines.bbn", 10)
    with_mixup = overrides.plain(catalogue.make("cifar.ce", ["classes=10", "mixup=true"]))
    assert not script.same_method(with_mixup, "cifar.ce mixup=false", 10)


def test_a_run_counts_for_the_method_that_it_is_and_not_for_the_one_that_it_goes_on_from(script):
    """By what its stages do: a re-trained run has the name of its first stage."""
    from longtail.recipes import overrides
    from longtail.recipes.cells import cells
    from longtail.recipes.short import short_cells

    made = {cell.name: overrides.plain(cell.make()) for cell in (*cells(), *short_cells())}
    calls = [cost["recipe"] for cost in script.costs()]

    def rows(name: str) -> list[str]:
        run = made[name]
        return [call for call in calls if script.same_method(run, call, run["data"]["classes"])]

    assert rows("cifar10-r100-retrain-lws-s0") == []
    assert rows("cifar10-r100-retrain-crt_ens-s0") == []
    assert rows("cifar10-r100-gcl-euclidean-s0") == ["cifar.gcl form=euclidean"]
    assert rows("cifar10-r100-ce-crt_decoupling-s0") == ["decoupled.crt"]
    assert rows("cifar10-r100-ce-crt-s0") == ["decoupled.crt variant=released"]
    for cell in short_cells():
        assert len(rows(cell.name)) == 1, cell.name
