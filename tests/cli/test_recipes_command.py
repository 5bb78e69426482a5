"""`longtail recipes`: the list, and the JSON that `longtail train` reads back."""

from __future__ import annotations

import json

from longtail.recipes import catalogue, overrides


def test_the_list_names_every_recipe_with_its_arguments(command) -> None:
    outcome = command("recipes")
    assert outcome.code == 0
    for name, function in catalogue.functions().items():
        assert f"\n{name}\n" in f"\n{outcome.out}"
        assert (
            " ".join(f"{key}={value}" for key, value in catalogue.parameters(function).items()) in outcome.out
        )


def test_the_list_has_a_name_too(command) -> None:
    assert command("recipes", "list") == command("recipes")


def test_a_shown_recipe_can_be_trained(command, tmp_path) -> None:
    outcome = command("recipes", "show", "cifar.gcl", "classes=10", "form=angular", "--set", "seed=4")
    assert outcome.code == 0
    path = tmp_path / "recipe.json"
    path.write_text(outcome.out)
    expected = overrides.override(catalogue.make("cifar.gcl", ["classes=10", "form=angular"]), ["seed=4"])
    assert overrides.read(path) == expected


def test_a_shown_recipe_says_where_its_constants_come_from(command) -> None:
    value = json.loads(command("recipes", "show", "cifar.gcl").out)
    assert value["provenance"]["stages.0.loss.sigma"] == "paper: 1/3"
