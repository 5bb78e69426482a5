"""A recipe in words. Reads the JSON form, so that a run of an older version can still be told about."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any, cast, get_args

from longtail import recipe as specs
from longtail.recipes import paper
from longtail.report.text import label, percent, plural

Plain = Mapping[str, Any]

DATA = {"digits": "handwritten digits", "folder": "a folder of images", "listing": "listed images"}
LOSSES = {
    "cross_entropy": "cross-entropy",
    "focal": "focal loss",
    "class_balanced": "class-balanced loss",
    "cosface": "CosFace",
    "arcface": "ArcFace",
    "ldam": "LDAM",
    "logit_adjusted": "logit-adjusted loss",
    "balanced_softmax": "balanced softmax",
    "label_aware_smoothing": "label-aware smoothing",
    "feature_balanced": "feature-balanced loss",
    "lade": "LADE",
    "gcl": "GCL",
    "ride": "RIDE",
    "per_expert": "for each expert",
    "distilled": "distilled",
    "nested_collaborative": "nested collaborative learning",
    "hybrid_contrastive": "contrastive loss beside cross-entropy",
    "targeted_contrastive": "contrastive loss with targets",
    "centroids": "OLTR's centroid loss",
    "remembered": "cross-entropy with a memory of features",
    "shike": "knowledge excavation",
    "routing": "routers",
}

TELLING = ("base", "form", "cloud", "strength")  # what a loss is, said at its default too

METHODS = {
    "baselines.focal": "Focal",
    "baselines.class_balanced": "Class-balanced",
    "baselines.ldam": "LDAM",
    "baselines.logit_adjusted": "Logit adjustment",
    "baselines.balanced_softmax": "Balanced softmax",
    "baselines.lade": "LADE",
}


def method(recipe: Plain) -> str:
    """The name of a row: the paper's, where it has one; the usual one; else what the recipe calls itself."""
    name = str(recipe.get("name", "recipe"))
    row = paper.row_of(recipe) or METHODS.get(name) or label(name)
    if any((stage.get("optimizer") or {}).get("filters") for stage in recipe["stages"]):
        row = f"{row}, fast"  # the strong track: nobody in the paper had such an optimiser
    losses = [(stage.get("loss") or {}).get("kind") for stage in recipe["stages"]]
    return f"{row} (reconstruction)" if "remembered" in losses else row


def dataset(recipe: Plain, data: Plain) -> str:
    """
    >>> dataset({"data": {"kind": "cifar", "classes": 10}}, {"nominal_ratio": 100.0, "ratio": 100.0})
    'CIFAR-10-LT, 100 to 1'
    >>> dataset({"data": {"kind": "cifar", "classes": 100}}, {"nominal_ratio": 200.0, "ratio": 250.0})
    'CIFAR-100-LT, 200 to 1 (really 250 to 1)'
    """
    spec = recipe["data"]
    name = DATA.get(spec.get("kind", ""), label(spec.get("kind", "data")))
    if spec.get("kind") == "cifar":
        name = f"CIFAR-{spec.get('classes', '?')}-LT"
    elif paper.large_set(recipe):
        name = paper.large_set(recipe)
    nominal, real = data.get("nominal_ratio"), data.get("ratio")
    if nominal is None and real is None:
        return name
    first = nominal if nominal is not None else real
    differs = nominal is not None and real is not None and abs(nominal - real) > 0.01 * nominal
    return f"{name}, {first:g} to 1" + (f" (really {real:g} to 1)" if differs else "")


def loss(spec: Plain) -> str:
    r"""A loss with what tells it from its defaults; recipe.json, which is on the page too, has the rest.

    >>> loss({"kind": "gcl", "form": "angular", "cloud": "log", "strength": 0.5, "scale": 20.0, "focal": 0.0})
    'GCL (form\xa0angular, cloud\xa0log, strength\xa00.5, scale\xa020)'
    >>> loss({"kind": "cross_entropy", "scale": 1.0})
    'cross-entropy'
    >>> loss({"kind": "ride", "base": {"kind": "ldam", "scale": 30.0}, "diversity": -0.2})
    'RIDE (base\xa0LDAM)'
    """
    kind = str(spec.get("kind", "loss"))
    usual = _defaults().get(kind, {})
    shown = [
        _whole(f"{key.replace('_', ' ')} {_value(value)}")
        for key, value in spec.items()
        if key != "kind" and (key in TELLING or key not in usual or value != usual[key])
    ]
    name = LOSSES.get(kind, label(kind).replace("_", " "))
    return f"{name} ({', '.join(shown)})" if shown else name


@cache
def _defaults() -> dict[str, Plain]:
    """The plain form of every loss as it is when nothing is said, by its kind."""
    union, _ = get_args(specs.Loss)
    return {spec.kind: asdict(spec()) for spec in get_args(union)}


STAGE = ("Stage", "Epochs", "Loss", "Sampling", "Mixing", "Trains", "Optimiser")


def stage(spec: Plain) -> list[str]:
    """Cells of one row, as in `STAGE`."""
    rate, schedule = spec.get("optimizer") or {}, spec.get("schedule") or {}
    mixing = spec.get("mixing") or {}
    alpha = " " + _whole(f"(alpha {_value(mixing['alpha'])})") if "alpha" in mixing else ""
    trains = " and ".join(label(part) for part in spec.get("trains") or ())
    normalisation = label(spec.get("batchnorm", "adapting"))
    details = [f"batches of {spec.get('batch_size', '?')}", f"lr {_value(rate.get('lr', '?'))}"]
    details += [
        f"momentum {_value(rate.get('momentum', '?'))}",
        f"decay {_value(rate.get('weight_decay', '?'))}",
    ]
    return [
        label(spec.get("name", "stage")),
        str(spec.get("epochs", "?")),
        loss(spec.get("loss") or {}),
        label((spec.get("sampling") or {}).get("rule", "instance")).replace("_", " "),
        label(mixing.get("kind", "none")) + alpha,
        f"{trains or 'nothing'}, head {label(spec.get('head', 'kept'))}, BatchNorm {normalisation}",
        ", ".join([*map(_whole, details), label(schedule.get("kind", "constant")) + " schedule"]),
    ]


def told_apart(recipes: Sequence[Plain]) -> list[str] | None:
    """What each recipe of one method has that the others have not, in a few words, where that is possible.

    None where the stages differ in more than their epochs, their sampling or their mixing.
    """
    plans = [[stage(spec) for spec in recipe["stages"]] for recipe in recipes]
    if len({len(plan) for plan in plans}) > 1:
        return None
    cells = [(s, c) for s in range(len(plans[0])) for c in range(1, 7) if len({p[s][c] for p in plans}) > 1]
    if len({c for _, c in cells}) != 1:
        return None
    (row, column), found = cells[0], list[str]()
    for plan in plans:
        cell = plan[row][column]
        match column:
            case 1:
                found.append(" + ".join(spec[1] for spec in plan) + " epochs")
            case 3:
                found.append(f"{cell} sampling")
            case 4:
                found.append("no mixing" if cell == "none" else cell.split(" (")[0])
            case _:
                return None
    return found if len(set(found)) == len(found) else None


def training(recipe: Plain) -> str:
    """The method, its network and its stages: the start of a sentence."""
    name = label((recipe["model"].get("backbone") or {}).get("name", "a network"))
    network = re.sub(r"^(places_)?resnet(\d+)$", r"ResNet-\2", name)
    if recipe["model"].get("kind") == "experts":
        network = f"{recipe['model'].get('count', 'several')} experts on {network}"
    epochs = [str(stage.get("epochs", "?")) for stage in recipe["stages"]]
    how = "one stage" if len(epochs) == 1 else f"{_words(len(epochs))} stages"
    return f"{method(recipe)} with {network}, trained in {how} of {' + '.join(epochs)} epochs"


def sentence(recipe: Plain, data: Plain, last: Plain, seeds: Sequence[int] = ()) -> str:
    """What a run is and what came out, in plain words."""
    images = plural(int(data.get("train_images") or sum(data["counts"])), "training image")
    classes = plural(len(data["counts"]), "class")
    start = f"{training(recipe)} on {dataset(recipe, data)}"
    start += f" ({images} of {classes}"
    start += f", seed {seeds[0]})" if len(seeds) == 1 else ")"
    if last.get("top1") is None:
        return f"{start}: no evaluation has been written yet."
    parts = [
        f"{percent(last[key])}\u00a0% on {key}-shot classes"
        for key in ("many", "medium", "few")
        if _is(last, key)
    ]
    groups = f": {', '.join(parts)}" if parts else ""
    top = percent(last["top1"])
    return f"{start}. After the last epoch it names {top}\u00a0% of the test images right{groups}."


def _is(row: Plain, key: str) -> bool:
    return row.get(key) is not None


def _words(number: int) -> str:
    return {2: "two", 3: "three", 4: "four"}.get(number, str(number))


def _whole(words: str) -> str:
    """A name and its value, which no line break parts."""
    return words.replace(" ", "\u00a0") if len(words) <= 30 else words


def _value(value: object) -> str:
    if isinstance(value, float):
        return (
            f"{value:g}" if value == 0.0 or 1e-4 <= abs(value) < 1e5 else f"{value:.0e}".replace("e-0", "e-")
        )
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return loss(cast("Plain", value))
    return label(value)
