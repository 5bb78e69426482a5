"""Which published figure a recipe may be held against. The figures themselves: `paper_tables`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from longtail.recipes.paper_tables import (
    CIFAR,
    CLOUDS,
    EXPERTS,
    EXPERTS_LARGE,
    LARGE,
    LARGE_SETS,
    RATIOS,
    SAMPLERS,
    TECHNIQUES,
    Published,
)

Plain = Mapping[str, Any]  # recipe.json as read: old runs outlive the dataclasses that wrote them


def cifar(row: str, classes: int, ratio: float) -> Published | None:
    """The cell of the CIFAR tables (single network or experts), or None where there is none.

    >>> cifar("GCL-A", 100, 100).value
    49.97
    >>> cifar("TDE", 10, 200) is None
    True
    """
    if ratio not in RATIOS or classes not in (10, 100):
        return None
    column = RATIOS.index(int(ratio)) + (0 if classes == 10 else len(RATIOS))
    table = "table of experts, CIFAR" if row in EXPERTS else "main table, CIFAR"
    entry = EXPERTS.get(row) or CIFAR.get(row)
    value = entry.figures[column] if entry else None
    if entry is None or value is None:
        return None
    name = f"CIFAR-{classes}-LT r={int(ratio)}"
    return Published(value, table, row, name, entry.source, entry.note)


def large(row: str, name: str) -> Published | None:
    """The cell of ImageNet-LT, iNaturalist 2018 or Places-LT.

    >>> large("GCL-E", "ImageNet-LT").note
    '54.84 is a misprint of 54.88 on ImageNet-LT'
    """
    entry = EXPERTS_LARGE.get(row) or LARGE.get(row)
    value = entry.figures[LARGE_SETS.index(name)] if entry and name in LARGE_SETS else None
    if entry is None or value is None:
        return None
    return Published(value, "main table, large sets", row, name, entry.source, entry.note)


def ablation(part: Literal["cloud", "sampler", "technique"], name: str) -> Published | None:
    """A row of the tables about one part, all on CIFAR-10-LT at r=100 with GCL-E.

    >>> ablation("sampler", "ENS").value
    82.45
    """
    tables = {"cloud": CLOUDS, "sampler": SAMPLERS, "technique": TECHNIQUES}
    titles = {"cloud": "cloud sizes", "sampler": "re-sampling", "technique": "re-training"}
    value = tables[part].get(name)
    return None if value is None else Published(value, titles[part], name, "CIFAR-10-LT r=100")


# ------------------------------------------------------------------------- which row a recipe stands beside

EPOCHS = 200  # of the representation; 30 more re-train the classifier
NAMED: Mapping[str, str] = {
    "bbn": "BBN",
    "contrastive": "Contrastive",
    "decoupling": "Decoupling",
    "disalign": "DisAlign",
    "fbl": "FBL",
    "mbj": "MBJ",
    "mislas": "MisLAS",
    "oltr": "OLTR",
    "tde": "TDE",
    "tsc": "TSC",
}
# Without a stage with this loss a run of that name is a re-trained first stage, plain cross-entropy.
NEEDED: Mapping[str, str] = {"mbj": "remembered", "oltr": "centroids"}
SETS_BY_NAME: Mapping[str, str] = dict(zip(("imagenet_lt", "inat18", "places_lt"), LARGE_SETS))
RULES: Mapping[str, str] = {
    "instance": "IBS",
    "square_root": "SRS",
    "effective_number": "ENS",
    "class_balanced": "CBS",
    "class_aware": "CBS",
}


# Rows that end with their first training: what is re-trained after it is another method. Whether the rows
# RIDE + GCL are re-trained, as GCL is, the paper does not say.
WHOLE = frozenset("CE CosFace ArcFace LDAM-DRW TDE BBN Contrastive FBL MBJ LogitAdjust RIDE".split())


def row_of(recipe: Plain) -> str | None:
    """The row of the main tables that a recipe belongs to, by what it does rather than by its name alone."""
    row, later = _row_of_training(recipe), recipe["stages"][1:]
    goes_on = any("backbone" not in stage.get("trains", ("backbone",)) for stage in later)
    return None if row in WHOLE and goes_on else row


def _row_of_training(recipe: Plain) -> str | None:
    if any(stage.get("head") == "routed" for stage in recipe["stages"]):
        return None  # there every expert answers
    stages = recipe["stages"]
    losses = [(stage.get("loss") or {}).get("kind") for stage in stages]
    for word in reversed(re.split(r"[^a-z0-9]+", str(recipe.get("name", "")).lower())):
        if word in NAMED and (word not in NEEDED or NEEDED[word] in losses):
            # a method's own name comes last: contrastive.tsc is TSC; the paper has no figure of prototypes
            return NAMED[word] if (recipe.get("model") or {}).get("against") != "prototypes" else None
    loss = _innermost(stages[0]["loss"])
    experts = recipe["model"].get("kind") == "experts"
    match loss.get("kind"):
        case "gcl":
            row = {"euclidean": "GCL-E", "angular": "GCL-A"}.get(loss.get("form", ""))
            return f"RIDE + {row}" if row and experts else row
        case "ldam":
            deferred = len(stages) > 1 and bool(_innermost(stages[1]["loss"]).get("reweight"))
            return "RIDE" if experts else "LDAM-DRW" if deferred else None
        case "cross_entropy" if not experts:
            if len(stages) == 1:
                return "CE"
            if losses[1] == "label_aware_smoothing":
                return "MisLAS"  # re-trained, so not under that name
            return "Decoupling" if _technique(recipe) == "cRT" and _sampler(recipe) == "CBS" else None
        case "cosface" | "arcface" as kind if len(stages) == 1 and not experts:
            return "CosFace" if kind == "cosface" else "ArcFace"
        case "feature_balanced":
            return "FBL"
        case "logit_adjusted":
            return "LogitAdjust"
        case _:
            return None


def published(recipe: Plain, *, stage: int | None = None) -> Published | None:
    """The figure of the paper that a recipe's last stage (or stage number `stage`) may stand beside.

    None unless data set, ratio, backbone and augmentation are the paper's: the two tracks never mix.
    """
    if not _is_paper_track(recipe):
        return None
    row, stages = row_of(recipe), recipe["stages"]
    is_early = stage is not None and stage < len(stages) - 1
    if row is None or recipe["data"].get("kind") != "cifar":
        return None if row is None or is_early else large(row, large_set(recipe))
    classes, ratio = int(recipe["data"]["classes"]), float(recipe["data"]["longtail"]["ratio"])
    if row.startswith("GCL"):
        return _gcl(recipe, row, classes, ratio, is_early)
    if is_early:
        return cifar("CE", classes, ratio) if row == "Decoupling" else None
    return cifar(row, classes, ratio)


def large_set(recipe: Plain) -> str:
    """The large set in a recipe's name, as in `imagenet_lt.gcl` or `ride.imagenet_lt`; else nothing."""
    words = str(recipe.get("name", "")).split(".")
    return next((SETS_BY_NAME[word] for word in words if word in SETS_BY_NAME), "")


def _is_ride(recipe: Plain) -> bool:
    return recipe["stages"][0]["loss"].get("kind") == "ride"


def shortfall(recipe: Plain) -> str:
    """One sentence where a recipe trains fewer epochs than the paper's code did, else nothing."""
    epochs = int(recipe["stages"][0]["epochs"])
    deferred = sum(int(s["epochs"]) for s in recipe["stages"] if s.get("optimizer_state") == "kept")
    trained = epochs + deferred
    if trained >= EPOCHS:
        return ""
    return f"The first stage has {trained} epochs where the released code has {EPOCHS}."


def _gcl(recipe: Plain, row: str, classes: int, ratio: float, is_early: bool) -> Published | None:
    """The main table for log clouds and cRT with balanced sampling; one changed part has its own table."""
    if recipe["stages"][0].get("mixing", "unsaid") is None:
        return None  # there mixup is in all experiments
    cloud, technique, sampler = _cloud(recipe), _technique(recipe), _sampler(recipe)
    if is_early:
        technique = "none"
    if technique == "none":
        sampler = "CBS"  # nothing is sampled a second time
    changed = (cloud != "log", sampler != "CBS", technique != "cRT")
    if not any(changed):
        return cifar(row, classes, ratio)
    if (row, classes, ratio) != ("GCL-E", 10, 100.0) or sum(changed) > 1:
        return None
    if changed[0]:
        return ablation("cloud", cloud)
    return ablation("sampler", sampler) if changed[1] else ablation("technique", technique)


def _cloud(recipe: Plain) -> str:
    loss = _innermost(recipe["stages"][0]["loss"])
    cloud, power = str(loss.get("cloud", "log")), float(loss.get("power", 0.25))
    return f"power 1/{round(1 / power)}" if cloud == "power" and power > 0 else cloud


def _technique(recipe: Plain) -> str:
    if len(recipe["stages"]) == 1:
        return "none"
    if any((stage.get("posthoc") or {}).get("kind") == "tau_norm" for stage in recipe["stages"]):
        return "tau-norm"
    second = recipe["stages"][1]
    if second.get("posthoc"):
        return "other"
    trains = tuple(second.get("trains", ()))
    if second.get("head") == "scaled" and trains == ("scales",):
        return "LWS"
    return "cRT" if trains == ("head",) and second.get("head", "kept") in ("kept", "restarted") else "other"


def _sampler(recipe: Plain) -> str:
    if len(recipe["stages"]) == 1:
        return "IBS"
    if _technique(recipe) == "tau-norm":
        return "CBS"  # the row stands in the table of balanced sampling, and the technique samples nothing
    return RULES.get(str(recipe["stages"][1].get("sampling", {}).get("rule", "instance")), "other")


def _innermost(loss: Plain) -> Plain:
    """The loss inside a wrapper for experts."""
    return _innermost(loss["base"]) if isinstance(loss.get("base"), Mapping) else loss


def _is_paper_track(recipe: Plain) -> bool:
    data, images = recipe["data"], recipe.get("images", {})
    if any(stage.get("teacher") for stage in recipe["stages"]):
        return False
    if any((stage.get("optimizer") or {}).get("filters") for stage in recipe["stages"]):
        return False  # nobody there had such an optimiser
    jitter = images.get("jitter", 0) and not _is_ride(recipe)  # RIDE's own code has it on ImageNet-LT
    contrasted = recipe["model"].get("kind") == "contrasted"  # which all lose their colours now and then
    jitter = jitter or (images.get("grayscale", 0) and not contrasted)
    if images.get("policy", "none") != "none" or images.get("cutout", 0) or jitter:
        return False
    if data.get("kind") != "cifar":
        return bool(large_set(recipe))
    longtail = data.get("longtail") or {}
    backbone = recipe["model"].get("backbone", {}).get("name")
    return longtail.get("profile") == "exponential" and backbone == "resnet32"
