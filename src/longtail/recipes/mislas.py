"""MisLAS's second stage (spec B1): label-aware smoothing, learned scales on a slowly moving head."""

from __future__ import annotations

from typing import NamedTuple

from longtail.errors import UsageError
from longtail.recipe import SGD, Cifar, Cosine, Experts, LabelAwareSmoothing, Recipe, Stage
from longtail.recipes.second_stages import for_each, has_targets

CODE = "MisLAS's own code"


class Constants(NamedTuple):
    """Smoothing of largest and smallest class, the head's share of the rate, whether BatchNorm moves."""

    head: float
    tail: float
    lr_factor: float
    shift_bn: bool


CIFAR: dict[tuple[int, int], Constants] = {
    (10, 100): Constants(0.3, 0.0, 0.5, False),
    (10, 50): Constants(0.2, 0.0, 0.2, False),
    (10, 10): Constants(0.1, 0.0, 0.2, False),
    (100, 100): Constants(0.4, 0.1, 0.2, True),
    (100, 50): Constants(0.3, 0.0, 0.1, True),
    (100, 10): Constants(0.2, 0.0, 0.1, True),
}
LARGE: dict[str, Constants] = {
    "imagenet_lt": Constants(0.3, 0.0, 0.05, True),
    "inat18": Constants(0.3, 0.0, 0.05, True),
    "places_lt": Constants(0.4, 0.1, 0.05, True),
}
ELSEWHERE = CIFAR[10, 100]


def constants(first: Recipe) -> tuple[Constants, str]:
    """Those of the data set, and where they come from; CIFAR-10-LT at 100 to 1 stands in for unknown data."""
    family = first.name.split(".")[0]
    if family in LARGE:
        return LARGE[family], f"{CODE}: {family}"
    match first.data:
        case Cifar(classes=classes, longtail=longtail) if longtail is not None:
            known = [ratio for count, ratio in CIFAR if count == classes]
            ratio = min(known, key=lambda ratio: abs(ratio - longtail.ratio))
            origin = CODE if ratio == longtail.ratio else "inferred: MisLAS's own code has no such ratio"
            return CIFAR[classes, ratio], f"{origin}; CIFAR-{classes}-LT at {ratio} to 1"
        case _:
            return ELSEWHERE, "inferred: as CIFAR-10-LT at 100 to 1"


def second(first: Recipe) -> tuple[Stage, dict[str, str]]:
    """The stage, without its sampling, and the provenance of its constants."""
    if getattr(first.model, "head", "linear") != "linear" or has_targets(first):
        raise UsageError(
            "mislas smooths the logits of a linear head; this run has a cosine head: use lws or crt"
        )
    values, origin = constants(first)
    stage = Stage(
        name="smoothed",
        loss=for_each(first, LabelAwareSmoothing(head=values.head, tail=values.tail)),
        epochs=10,
        batch_size=first.stages[0].batch_size,
        trains=("head", "scales"),
        batchnorm="adapting" if values.shift_bn else "frozen",
        head="scaled",
        head_lr_factor=values.lr_factor,
        optimizer=SGD(lr=0.1, weight_decay=first.stages[0].optimizer.weight_decay),
        schedule=Cosine(),
    )
    each = "loss.base" if isinstance(first.model, Experts) else "loss"
    paths = (f"{each}.head", f"{each}.tail", "head_lr_factor", "batchnorm")
    return stage, {f"stages.1.{path}": origin for path in paths} | {
        "stages.1.epochs": f"{CODE}: 10",
        "stages.1.mixing": f"{CODE}: none",
        "stages.1.head": f"{CODE}: learnable weight scaling",
        "stages.1.optimizer.weight_decay": "inferred: as in stage 1",
        "stages.1.optimizer.lr": f"{CODE}: 0.1",
        "stages.1.schedule.kind": f"{CODE}: cosine",
        "stages.1.sampling.rule": f"{CODE}: class-aware",
        "stages.1.batch_size": "inferred: as in stage 1",
    }
