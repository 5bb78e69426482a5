"""`--set path=value` and the JSON form of recipes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from longtail.errors import UsageError
from longtail.recipe import LDAM, Folder, HeldOut, Recipe
from longtail.recipes import catalogue, overrides


@pytest.fixture(scope="module")
def base() -> Recipe:
    return catalogue.make("cifar.gcl")


def refusal(base: Recipe, *settings: str) -> str:
    with pytest.raises(UsageError) as caught:
        overrides.override(base, settings)
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)
    return str(caught.value)


def test_one_path_changes_one_field(base: Recipe) -> None:
    changed = overrides.override(base, ["stages.1.epochs=5"])
    assert changed.stages[1].epochs == 5
    restored = replace(
        changed, stages=(changed.stages[0], replace(changed.stages[1], epochs=30)), provenance=base.provenance
    )
    assert restored == base, "and nothing else"


def test_nothing_set_is_the_recipe_itself(base: Recipe) -> None:
    assert overrides.override(base, []) is base


def test_values_are_json_or_bare_text(base: Recipe) -> None:
    changed = overrides.override(
        base,
        [
            "stages.0.loss.form=angular",
            "stages.0.optimizer.lr=.05",
            "stages.0.mixing=null",
            "channels_last=false",
        ],
    )
    assert changed.stages[0].loss.form == "angular"  # type: ignore[union-attr]
    assert changed.stages[0].optimizer.lr == 0.05
    assert changed.stages[0].mixing is None and changed.channels_last is False


def test_text_stays_text_where_text_stands(base: Recipe) -> None:
    assert overrides.override(base, ["name=2024"]).name == "2024"


def test_a_whole_tagged_object_is_replaced(base: Recipe) -> None:
    changed = overrides.override(
        base, ['stages.1.loss={"kind":"ldam","margin":0.3}', 'data.held_out={"source":"file"}']
    )
    assert changed.stages[1].loss == LDAM(margin=0.3)
    assert changed.data.held_out == HeldOut(source="file")


def test_an_equals_sign_may_stand_in_the_value(base: Recipe) -> None:
    assert overrides.override(base, ["data.root=/a=b"]).data.root == "/a=b"  # type: ignore[union-attr]


def test_later_settings_see_earlier_ones(base: Recipe) -> None:
    changed = overrides.override(base, ['stages.1.loss={"kind":"ldam"}', 'stages.1.loss={"kind":"focal"}'])
    assert changed.stages[1].loss.kind == "focal"


def test_provenance_does_not_outlive_the_constant(base: Recipe) -> None:
    changed = overrides.override(base, ["stages.0.optimizer.lr=0.05", 'stages.1.loss={"kind":"ldam"}'])
    assert changed.provenance["stages.0.optimizer.lr"] == overrides.BY_HAND
    assert changed.provenance["stages.1.loss"] == overrides.BY_HAND
    assert "stages.1.loss.scale" not in changed.provenance and "stages.1.loss.scale" in base.provenance
    assert changed.provenance["stages.0.loss.scale"] == base.provenance["stages.0.loss.scale"]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("stages.1.epoch=5", "did you mean epochs?"),
        ("stage.1.epochs=5", "did you mean stages?"),
        ("stages.7.epochs=1", "the entries are 0 to 1"),
        ("stages.-1.epochs=1", "the entries are 0 to 1"),
        ("stages.first.epochs=1", "the entries are 0 to 1"),
        ("stages.99999999999999999999.epochs=1", "the entries are 0 to 1"),
        ("stages..epochs=1", "the entries are 0 to 1"),
        ("data.held_out.fraction=0.2", "data.held_out is null; set data.held_out itself"),
        ("seed.x=1", "seed is 0; set seed itself"),
        ("seed", "write path=value"),
        ("=5", "write path=value"),
        ("stages.0.epochs=-1", "stages.0.epochs: input should be greater than or equal to 0 (got -1)"),
        ("stages.0.epochs=0", "stages.0.epochs: a stage trains at least one epoch, or has posthoc"),
        ("stages.0.optimizer.lr=fast", "stages.0.optimizer.lr: input should be a valid number"),
        ("stages.0.optimizer.lr=1e999", "stages.0.optimizer.lr"),
        ("stages.0.optimizer.lr=NaN", "stages.0.optimizer.lr"),
        ("precision=fp16", "precision: 'fp16' is not one of 'fp32' or 'bf16'"),
        ("stages=[]", "stages: tuple should have at least 1 item"),
        ('stages.1.loss={"kind":"ldm"}', "stages.1.loss.kind: there is no 'ldm'; did you mean ldam?"),
        (
            'stages.1.loss={"kind":"ldam","margn":1}',
            "stages.1.loss.margn: there is no margn here; did you mean margin?",
        ),
        ('stages.1.loss={"margin":1}', "stages.1.loss.kind: is missing"),
        ("stages.1.loss.kind=ldam", """replace the whole: --set 'stages.1.loss={"kind": "ldam"}'"""),
        ('data.longtail={"ratio":0.5}', "data.longtail.ratio: input should be greater than or equal to 1"),
        ("stages.0.schedule.drops=[[0,0.1]]", "stages.0.schedule.drops.0.0"),
    ],
)
def test_a_wrong_path_or_value_is_refused_with_its_path(base: Recipe, setting: str, expected: str) -> None:
    assert expected in refusal(base, setting)


def test_the_base_is_never_changed(base: Recipe) -> None:
    before = overrides.plain(base)
    refusal(base, "stages.0.epochs=3", "stages.1.epochs=0")
    assert overrides.plain(base) == before


def test_a_doubtful_file_is_refused(tmp_path, base: Recipe) -> None:
    good = json.dumps(overrides.plain(base))
    path = tmp_path / "recipe.json"
    cases = {
        good.replace('"seed": 0', '"seed": 0, "seed": 1'): "the key 'seed' appears twice",
        good.replace('"seed": 0', '"seeed": 0'): "seeed: there is no seeed here; did you mean seed?",
        good.replace('"lr": 0.1', '"lr": NaN', 1): "NaN is not JSON",
        good[:-20]: "not JSON",
        "[]": "recipe.json",
        "[" * 100_000: "nested too deeply",
        good + " " * overrides.LARGEST: "bytes",
        "": "not JSON",
    }
    for text, expected in cases.items():
        path.write_text(text)
        with pytest.raises(UsageError) as caught:
            overrides.read(path)
        assert expected in str(caught.value) and "recipe.json" in str(caught.value)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_data_without_a_recipe_takes_the_same_paths() -> None:
    changed = overrides.override_data(Folder(root="a"), ["data.on_bad_image=skip"])
    assert changed == Folder(root="a", on_bad_image="skip")
    with pytest.raises(UsageError, match=r"data has no rot; did you mean root\?"):
        overrides.override_data(Folder(root="a"), ["data.rot=b"])
    with pytest.raises(UsageError, match="on_bad_image: 'x' is not one of"):
        overrides.override_data(Folder(root="a"), ["data.on_bad_image=x"])
