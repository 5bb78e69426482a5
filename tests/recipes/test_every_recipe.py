"""Every recipe builds, trains, goes on where it was stopped, and survives JSON; none is named here.

The data become a few hundred digits and the network ResNet-8, whatever the recipe asks for; everything else
(losses, heads, samplings, mixing, augmentation, schedules, stages) stays the recipe's own.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from longtail.engine.fit import train
from longtail.errors import Stopped
from longtail.recipe import (
    Backbone,
    CutMix,
    Digits,
    Evaluation,
    LongTail,
    ManifoldMixup,
    Mixup,
    Recipe,
    Remix,
    SmallImages,
    Stage,
)
from longtail.recipes import catalogue, overrides

NAMES = list(catalogue.functions())
STEPS = 2


def settings_for(name: str) -> list[str]:
    """What a recipe cannot do without: paths, which the stand-in data replace."""
    wanted = catalogue.parameters(catalogue.find(name))
    return [f"{key}=somewhere" for key in ("data", "root", "weights") if wanted.get(key) == "str"]


def shrunk(recipe: Recipe) -> Recipe:
    """The same methods on digits: two steps for each stage, no file but the embedded one."""
    images = SmallImages(size=8, crop=1, flip=False, mean=(0.3, 0.3, 0.3), std=(0.37, 0.37, 0.37))
    if isinstance(recipe.images, SmallImages):
        images = replace(images, rotation=recipe.images.rotation, policy=recipe.images.policy)
        images = replace(images, cutout=min(2, recipe.images.cutout), grayscale=recipe.images.grayscale)
    return replace(
        recipe,
        data=Digits(longtail=LongTail(ratio=100), held_out=recipe.data.held_out),
        images=images,
        model=small_network(recipe.model),
        stages=tuple(brief(stage) for stage in recipe.stages),
        evaluation=replace(recipe.evaluation, every=1, last=1),
        precision="fp32",
        log_every=1,
    )


def small_network(spec: Any) -> Any:
    """ResNet-8 wherever the model names a backbone."""
    if isinstance(spec, Backbone):
        return Backbone(name="resnet8")
    if not is_dataclass(spec):
        return spec
    return replace(spec, **{f.name: small_network(getattr(spec, f.name)) for f in fields(spec)})


def brief(stage: Stage) -> Stage:
    """One epoch of two steps, the last one of fewer images; a stage that trains nothing stays as it is."""
    return replace(stage, epochs=1, batch_size=160) if stage.epochs else stage


def trained(recipe: Recipe) -> int:
    """How many of its stages take steps."""
    return sum(stage.epochs > 0 for stage in recipe.stages)


def goes_on(tiny: Any, recipe: Recipe, folder: Any) -> list[str]:
    """What differs when a run is stopped after the first step of each stage, or is not."""
    whole = train(recipe, out=folder / "whole")
    for number in range(trained(recipe)):
        with tiny.interrupted(number * STEPS + 1, "stopped"), pytest.raises(Stopped):
            train(recipe, out=folder / "parts")
    return tiny.different(train(recipe, out=folder / "parts"), whole)


@pytest.mark.usefixtures("one_commit")
@pytest.mark.parametrize("name", NAMES)
def test_it_trains_and_goes_on_exactly_after_a_stop(tiny, name, tmp_path):
    recipe = shrunk(catalogue.make(name, settings_for(name)))
    assert overrides.recipe(overrides.plain(recipe)) == recipe
    assert goes_on(tiny, recipe, tmp_path) == []
    rows = (tmp_path / "whole" / "steps.jsonl").read_text().splitlines()
    assert len(rows) == STEPS * trained(recipe)


@pytest.mark.usefixtures("one_commit")
@pytest.mark.parametrize("mixing", [Mixup(), CutMix(), Remix(), ManifoldMixup()], ids=lambda spec: spec.kind)
def test_every_mixing_trains_and_goes_on_exactly(tiny, mixing, tmp_path):
    recipe = shrunk(catalogue.make("cifar.ce"))
    stage = replace(recipe.stages[0], mixing=mixing)
    assert goes_on(tiny, replace(recipe, stages=(stage,)), tmp_path) == []


AUGMENTATIONS: dict[str, dict[str, Any]] = {
    "autoaugment": {"policy": "autoaugment"},
    "randaugment": {"policy": "randaugment"},
    "cutout": {"cutout": 3},
    "rotation": {"rotation": 15.0},
    "grayscale": {"grayscale": 0.5},
    "all": {"policy": "autoaugment", "cutout": 3, "rotation": 15.0, "flip": True},
}


@pytest.mark.usefixtures("one_commit")
@pytest.mark.parametrize("changes", AUGMENTATIONS.values(), ids=AUGMENTATIONS)
def test_every_augmentation_trains_and_goes_on_exactly(tiny, changes, tmp_path):
    recipe = shrunk(catalogue.make("cifar.ce"))
    assert goes_on(tiny, replace(recipe, images=replace(recipe.images, **changes)), tmp_path) == []


def test_augmentations_change_the_images(tiny, tmp_path):
    """Were an option lost on its way from the recipe to the batch, these runs would be equal."""
    recipe = replace(shrunk(catalogue.make("cifar.ce")), evaluation=Evaluation(every=1, last=1))
    plain = train(recipe, out=tmp_path / "plain").path / "steps.jsonl"
    for name, changes in AUGMENTATIONS.items():
        changed = replace(recipe, images=replace(recipe.images, **changes))
        assert (train(changed, out=tmp_path / name).path / "steps.jsonl").read_bytes() != plain.read_bytes()
