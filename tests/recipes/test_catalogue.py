"""Recipe functions by name, called with text."""

from __future__ import annotations

import functools
import inspect
import subprocess
import sys

import pytest

from longtail.errors import UsageError
from longtail.recipe import Recipe
from longtail.recipes import FAMILIES, catalogue, overrides

NAMES = list(catalogue.functions())


def settings_for(name: str) -> list[str]:
    """What a recipe cannot do without: paths, which nothing reads before training."""
    return [
        f"{key}=somewhere"
        for key in ("data", "root", "weights")
        if catalogue.parameters(catalogue.find(name)).get(key) == "str"
    ]


def refusal(name: str, *settings: str) -> str:
    with pytest.raises(UsageError) as caught:
        catalogue.make(name, settings)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_family_offers_recipes_and_only_recipes() -> None:
    assert {name.split(".")[0] for name in NAMES} == set(FAMILIES)
    assert {"cifar.gcl", "cifar.ce", "cifar.ldam_drw", "digits.gcl", "folder.gcl", "inat18.gcl"} <= set(NAMES)
    assert not [name for name in NAMES if name.split(".")[1] in ("data", "two_stage", "representation")]


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_survives_json(name: str, tmp_path) -> None:
    from longtail.run import canonical

    made = catalogue.make(name, settings_for(name))
    assert isinstance(made, Recipe) and made.name == name
    path = tmp_path / "recipe.json"
    path.write_bytes(canonical.encode(overrides.plain(made)))
    again = overrides.read(path)
    assert again == made
    assert overrides.plain(again) == overrides.plain(made)


@pytest.mark.parametrize("size", [32, 224])
def test_a_folder_says_where_each_constant_of_both_stages_comes_from(size: int) -> None:
    told = catalogue.make("folder.gcl", ["data=x", f"size={size}"]).provenance
    cifar = catalogue.make("cifar.gcl").provenance
    cut = "images.crop" if size == 32 else "images.resize"
    assert told.keys() >= cifar.keys() - {"stages.0.schedule.drops"} | {"stages.0.sampling.rule", cut}
    assert told["stages.1.sampling.rule"] == cifar["stages.1.sampling.rule"]
    for path in (cut, "stages.0.epochs", "stages.1.epochs"):
        assert told[path].startswith("inferred")
    plain = catalogue.make("folder.ce", ["data=x"]).provenance
    assert not any(path.startswith("stages.1") for path in plain) and "stages.0.epochs" in plain


@pytest.mark.parametrize("name", NAMES)
def test_every_provenance_names_a_path_that_exists(name: str) -> None:
    made = catalogue.make(name, settings_for(name))
    value = overrides.plain(made)
    for path in made.provenance:
        found = value
        for part in path.split("."):
            if found is None:
                break  # a part that this form of the recipe leaves out
            found = found[int(part)] if isinstance(found, list) else found[part]


def test_arguments_are_converted_to_what_the_function_declares() -> None:
    made = catalogue.make("cifar.gcl", ["classes=10", "ratio=50", "form=angular", "seed=3", "epochs=7"])
    assert made.data.classes == 10 and made.seed == 3  # type: ignore[union-attr]
    assert made.data.longtail.ratio == 50.0  # type: ignore[union-attr]
    assert made.stages[0].loss.form == "angular" and made.stages[0].epochs == 7  # type: ignore[union-attr]
    assert catalogue.make("cifar.ce", ["mixup=false"]).stages[0].mixing is None
    assert catalogue.make("cifar.ce", ["mixup=true"]).stages[0].mixing is not None


def test_a_folder_whose_name_is_a_number_stays_text() -> None:
    assert catalogue.make("folder.gcl", ["data=2024"]).data.root == "2024"  # type: ignore[union-attr]
    assert catalogue.make("folder.gcl", ["data=true"]).data.root == "true"  # type: ignore[union-attr]


def test_null_is_no_text() -> None:
    assert catalogue.make("folder.gcl", ["data=x", "weights=null"]).model.backbone.weights is None


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("cifar.gc", (), "did you mean cifar.gcl?"),
        ("cfar.gcl", (), "did you mean cifar.gcl?"),
        ("gcl", (), "cifar.gcl"),
        ("cifar", (), "cifar.ldam_drw"),
        ("nothing.like.it", (), "longtail recipes lists them"),
        ("", (), "longtail recipes lists them"),
        ("cifar.data", (), "there is no recipe cifar.data"),
        ("cifar.__doc__", (), "there is no recipe"),
        ("cifar.gcl", ("clases=10",), "did you mean classes?"),
        ("cifar.gcl", ("classes=20",), "classes: 20 is not one of 10 or 100"),
        ("cifar.gcl", ("form=angulr",), "'angulr' is not one of"),
        ("cifar.gcl", ("epochs=1.5",), "epochs: input should be a valid integer"),
        ("cifar.gcl", ("epochs=abc",), "epochs: input should be a valid integer"),
        ("cifar.gcl", ("epochs=0",), "Stage.epochs"),
        ("cifar.gcl", ("seed=-1",), "seed: input should be greater than or equal to 0"),
        ("cifar.gcl", ("ratio=0.5",), "LongTail.ratio"),
        ("cifar.gcl", ("ratio=nan",), "LongTail.ratio"),
        ("cifar.gcl", ("ratio=1e999",), "LongTail.ratio"),
        ("cifar.gcl", ("seed",), "write name=value"),
        ("cifar.gcl", ("=1",), "write name=value"),
        ("cifar.gcl", ("seed=1", "seed=2"), "seed is given twice"),
        ("folder.gcl", (), "folder.gcl needs data=VALUE (str)"),
    ],
)
def test_a_wrong_name_or_value_is_refused_in_one_line(
    name: str, settings: tuple[str, ...], expected: str
) -> None:
    assert expected in refusal(name, *settings)


def test_a_recipe_file_takes_no_arguments_but_changes(tmp_path) -> None:
    from longtail.run import canonical

    path = tmp_path / "recipe.json"
    path.write_bytes(canonical.encode(overrides.plain(catalogue.make("digits.gcl"))))
    assert catalogue.load(str(path)) == catalogue.make("digits.gcl")
    assert catalogue.load(str(tmp_path)) == catalogue.make("digits.gcl"), "a run folder stands for its recipe"
    assert catalogue.load(str(path), (), ["seed=4"]).seed == 4
    with pytest.raises(UsageError, match="takes no arguments"):
        catalogue.load(str(path), ["seed=4"])


def test_a_missing_recipe_file_is_named() -> None:
    with pytest.raises(UsageError, match=r"nowhere/recipe\.json"):
        catalogue.load("nowhere/recipe.json")


def test_finding_and_making_recipes_loads_no_torch() -> None:
    code = (
        "import sys; from longtail.recipes import catalogue, overrides\n"
        "made = [catalogue.make(n, ['epochs=2']) for n in ('cifar.gcl', 'digits.ce')]\n"
        "overrides.override(made[0], ['stages.1.epochs=5'])\n"
        "print('torch' in sys.modules, 'matplotlib' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False False\n"
    )


# What every stage that trains has, and where its source need not be said: the values that nothing changed.
STATED = {
    "epochs": None,
    "batch_size": None,
    "mixing": ...,
    "optimizer.lr": None,
    "optimizer.weight_decay": None,
    "schedule": ...,
    "sampling.rule": "instance",
    "head": "kept",
    "batchnorm": "adapting",
}


@pytest.mark.parametrize("name", catalogue.functions())
def test_every_constant_of_every_recipe_says_where_it_comes_from(name):
    made = catalogue.make(name, settings_for(name))
    for number, stage in enumerate(made.stages):
        for path, usual in STATED.items() if stage.epochs else ():
            value = functools.reduce(getattr, path.split("."), stage)
            whole = f"stages.{number}.{path}"
            said = any(f"{p}.".startswith(f"{whole}.") or whole.startswith(f"{p}.") for p in made.provenance)
            assert said or value == usual, f"{whole} = {value}"


@pytest.mark.parametrize(
    "name", [n for n in NAMES if "epochs" in inspect.signature(catalogue.functions()[n]).parameters]
)
def test_one_epoch_is_a_recipe_or_a_sentence(name):
    """The natural first try of anybody who wants to see whether it runs."""
    try:
        made = catalogue.make(name, [*settings_for(name), "epochs=1"])
    except UsageError as error:
        assert "deferred re-weighting needs epochs=2" in str(error)
        made = catalogue.make(name, [*settings_for(name), "epochs=2"])
    assert sum(stage.epochs for stage in made.stages if "backbone" in stage.trains) >= 1
