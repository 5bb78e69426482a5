"""The cells of the paper track: a name for each training that a table of results needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from longtail.recipe import GCL, CloudName, Form, Recipe, Sampling
from longtail.recipes import cifar, ride
from longtail.recipes.retraining import Choices, Technique, plan

FORMS: tuple[Form, ...] = ("euclidean", "angular")
TECHNIQUES: tuple[Technique, ...] = ("crt", "crt_decoupling")


@dataclass(frozen=True)
class Cell:
    """One training. `group` is its place in the order of work; `keeps_model` keeps its weights in results."""

    name: str
    group: int
    make: Callable[[], Recipe]
    after: str | None = None  # the cell whose first training this one goes on from
    keeps_model: bool = False


def cells() -> tuple[Cell, ...]:
    """Every cell, in the order in which they are worth having."""
    return (
        *_first_group(0),
        *_decoupled(),
        *_experts(),
        *_clouds(),
        *_retraining(),
        *_ratios(),
        *_first_group(1),
        *_first_group(2),
    )


def _named(classes: int, ratio: int, *words: str) -> str:
    return "-".join([f"cifar{classes}", f"r{ratio}", *words])


def _first_group(seed: int) -> list[Cell]:
    """CE with and without mixup, GCL-E, GCL-A, LDAM-DRW at r=100; seeds 1 and 2 are the fifth group."""
    made: list[Cell] = []
    group = 1 if seed == 0 else 5
    for classes in (100, 10):
        for form in FORMS:
            name = _named(classes, 100, "gcl", form, f"s{seed}")
            make = later(cifar.gcl, classes=classes, ratio=100, form=form, seed=seed)
            made.append(Cell(name, group, make, keeps_model=seed == 0))
        for mixup in (True, False):
            name = _named(classes, 100, "ce", "mixup" if mixup else "plain", f"s{seed}")
            make = later(cifar.ce, classes=classes, ratio=100, mixup=mixup, seed=seed)
            made.append(Cell(name, group, make, keeps_model=seed == 0 and mixup))
        name = _named(classes, 100, "ldam_drw", f"s{seed}")
        make = later(cifar.ldam_drw, classes=classes, ratio=100, seed=seed)
        made.append(Cell(name, 2 if seed == 0 else 5, make))
    return made


def _decoupled() -> list[Cell]:
    """CE with and without mixup, its classifier re-trained as the released code and as decoupling's do it."""
    return [
        Cell(
            _named(classes, 100, "ce", *words, technique, "s0"),
            1,
            later(_retrained, partial(cifar.ce, mixup=word == "mixup"), classes, Choices(technique)),
            after=_named(classes, 100, "ce", word, "s0"),
        )
        for classes in (100, 10)
        for word, words in (("mixup", ()), ("plain", ("plain",)))
        for technique in TECHNIQUES
    ]


def _retrained(make: Callable[..., Recipe], classes: int, chosen: Choices) -> Recipe:
    first = make(classes=classes, ratio=100)
    return plan(first, chosen).after(first)


def _experts() -> list[Cell]:
    """Three experts with GCL-A each, on CIFAR-100-LT."""
    make = later(ride.gcl, classes=100, ratio=100, form="angular", seed=0)
    return [Cell(_named(100, 100, "ride", "gcl", "angular", "s0"), 2, make)]


def _clouds() -> list[Cell]:
    """The table "cloud size" on CIFAR-10-LT, r=100; its log row is the cell of the first group."""
    choices: tuple[tuple[str, CloudName, float], ...] = (
        ("cosine", "cosine", 0.25),
        ("power3", "power", 1 / 3),
        ("power4", "power", 1 / 4),
    )
    return [
        Cell(_named(10, 100, "gcl", "euclidean", f"cloud_{word}", "s0"), 3, later(_clouded, cloud, power))
        for word, cloud, power in choices
    ]


def _clouded(cloud: CloudName, power: float) -> Recipe:
    """GCL-E with another cloud in both stages."""
    recipe = cifar.gcl(classes=10, ratio=100, form="euclidean")
    stages = tuple(
        replace(stage, loss=replace(stage.loss, cloud=cloud, power=power))
        for stage in recipe.stages
        if isinstance(stage.loss, GCL)
    )
    return replace(recipe, stages=stages)


RULES = {
    "ibs": Sampling(rule="instance"),
    "srs": Sampling(rule="square_root"),
    "ens": Sampling(rule="effective_number"),
}


def _retraining() -> list[Cell]:
    """The table "re-sampling and re-training": cheap runs over the first stage of the GCL-E cell."""
    backbone = _named(10, 100, "gcl", "euclidean", "s0")
    makers = {f"crt_{word}": later(_resampled, rule) for word, rule in RULES.items()} | {
        word: later(_retrained, cifar.gcl, 10, chosen)
        for word, chosen in (("lws", Choices("lws")), ("tau", Choices("tau_norm", held_out="file")))
    }
    return [
        Cell(_named(10, 100, "retrain", word, "s0"), 3, make, after=backbone) for word, make in makers.items()
    ]


def _resampled(rule: Sampling) -> Recipe:
    recipe = cifar.gcl(classes=10, ratio=100, form="euclidean")
    first, second = recipe.stages
    return replace(recipe, name="cifar.gcl", stages=(first, replace(second, sampling=rule)))


def _ratios() -> list[Cell]:
    return [
        Cell(
            _named(classes, ratio, "gcl", form, "s0"),
            4,
            later(cifar.gcl, classes=classes, ratio=ratio, form=form),
        )
        for classes in (100, 10)
        for ratio in (50, 200)
        for form in FORMS
    ]


def fast_cells() -> tuple[Cell, ...]:
    """`cifar.fast` at r=100 with three seeds, to stand beside the full cells in docs/speed.md."""
    return tuple(
        Cell(
            f"fast/cifar{classes}-gcl-{form}-s{seed}",
            1,
            later(cifar.fast, classes=classes, ratio=100, form=form, seed=seed),
        )
        for form in FORMS
        for classes in (100, 10)
        for seed in range(3)
    )


# Held-out accuracy of bf16 against fp32 over three seeds: results/choices/precision.csv, docs/speed.md.
PRECISION: Literal["fp32", "bf16"] = "bf16"


def later(make: Callable[..., Recipe], *given: object, **named: object) -> Callable[[], Recipe]:
    return lambda: replace(make(*given, **named), precision=PRECISION)
