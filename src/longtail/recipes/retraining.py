"""Techniques that go on from a finished first training (spec D): which stages, with which constants, and why.

longtail retrain RUN technique=lws sampling=class_balanced --out RUN2
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, assert_never

from longtail.errors import UsageError
from longtail.recipe import (
    Cached,
    CrossEntropy,
    Experts,
    HeldOut,
    LogitAdjust,
    NearestMean,
    Recipe,
    Sampling,
    Stage,
    TauNorm,
    continued,
)
from longtail.recipes import mislas, second_stages
from longtail.recipes.second_stages import DECOUPLING

Technique = Literal[
    "crt",
    "crt_decoupling",
    "lws",
    "lws_decoupling",
    "tau_norm",
    "ncm",
    "disalign",
    "mislas",
    "logit_adjust",
    "none",
]
SamplingName = Literal[
    "instance",
    "square_root",
    "effective_number",
    "cben",
    "class_balanced",
    "progressive",
    "class_aware",
    "reverse",
]
OURS = "inferred: nobody says; the nominal rate of the released code's stage 2"


@dataclass(frozen=True)
class Plan:
    """What follows the first training. `held_out` names images for choosing, where a stage has to choose."""

    stages: tuple[Stage, ...]
    provenance: dict[str, str]
    held_out: HeldOut | None = None

    def after(self, first: Recipe, name: str | None = None) -> Recipe:
        """The whole recipe, as if both had been one training."""
        return continued(first, self.stages, name=name, provenance=self.provenance, held_out=self.held_out)


@dataclass(frozen=True)
class Choices:
    """The arguments of `longtail retrain`; what a technique has no use for must be left out."""

    technique: Technique
    sampling: SamplingName | None = None  # the technique's own where left out
    epochs: int | None = None
    cached: int | None = None  # views of each image, whose features are kept and trained on
    source: Literal["linear_probe", "raw_anchor_norm"] | None = None  # tau_norm on a cosine head (spec P26)
    features: Literal["un", "l2n", "cl2n"] | None = None  # ncm
    tau: float | None = None  # logit_adjust
    held_out: Literal["file", "leftover", "stratified"] | None = None  # tau_norm

    def __post_init__(self) -> None:
        for name in ("epochs", "cached"):
            given = getattr(self, name)
            if given is not None and given < 1:
                raise ValueError(f"{name}: at least 1")
        takes = TAKES.get(self.technique, ("sampling", "epochs", "cached"))
        for name in ("sampling", "epochs", "cached", "source", "features", "tau", "held_out"):
            if getattr(self, name) is not None and name not in takes:
                raise ValueError(f"technique {self.technique} has no use for {name}; leave it out")


TAKES: dict[str, tuple[str, ...]] = {
    "tau_norm": ("sampling", "epochs", "source", "held_out"),
    "ncm": ("features",),
    "logit_adjust": ("tau",),
    "none": (),
}


def plan(first: Recipe, chosen: Choices) -> Plan:
    """The stages after the first training of `first`, with where their constants come from."""
    stage = first.stages[0]
    match chosen.technique:
        case "none":
            return Plan((), {})
        case "crt":
            made = second_stages.released(first)
            return _trained(chosen, made, "class_balanced", second_stages.released_provenance(first))
        case "lws":
            made = second_stages.released(first)
            loss = second_stages.of_scaled_cosines(made.loss)
            scaled = replace(made, name="scales", loss=loss, trains=("scales",), head="scaled")
            known = second_stages.released_provenance(first)
            known["stages.1.head"] = "released code: scales on the cosines, switched off by a constant"
            if loss != made.loss:
                gone = [path for path in known if path.startswith("stages.1.loss")]
                known = {path: where for path, where in known.items() if path not in gone}
                known["stages.1.loss"] = (
                    "inferred: that of the released stage 2; scaled cosines have no angle"
                )
            return _trained(chosen, scaled, "class_balanced", known)
        case "crt_decoupling":
            epochs = 30 if "inat18" in first.name else 10
            made = second_stages.decoupled(
                first, "classifier", epochs=epochs, trains=("head",), head="restarted"
            )
            return _trained(chosen, made, "class_aware", second_stages.decoupled_provenance())
        case "lws_decoupling":
            made = second_stages.decoupled(first, "scales", epochs=5, trains=("scales",), head="scaled")
            return _trained(chosen, made, "class_aware", second_stages.decoupled_provenance())
        case "disalign":
            made = second_stages.aligned(first)
            return _trained(chosen, made, "instance", second_stages.aligned_provenance(first))
        case "mislas":
            made, provenance = mislas.second(first)
            return _trained(chosen, made, "class_aware", provenance)
        case "tau_norm":
            _require_one_network(first, chosen)
            return _tau_norm(first, chosen)
        case "ncm":
            _require_one_network(first, chosen)
            means = NearestMean(features=chosen.features or "cl2n")
            where = {"stages.1.posthoc.features": f"{DECOUPLING}: cl2n, Euclidean"}
            return Plan((second_stages.posthoc("nearest_mean", means, CrossEntropy()),), where)
        case "logit_adjust":
            shift = LogitAdjust(tau=1.0 if chosen.tau is None else chosen.tau)
            where = {"stages.1.posthoc.tau": "logit adjustment's own code: 1"}
            return Plan((second_stages.posthoc("logit_adjust", shift, stage.loss),), where)
        case _:
            assert_never(chosen.technique)


def _require_one_network(first: Recipe, chosen: Choices) -> None:
    if isinstance(first.model, Experts):
        raise UsageError(
            f"{chosen.technique} makes one classifier of one network's features; this run has several "
            "experts: use crt, crt_decoupling, lws, lws_decoupling, disalign or logit_adjust"
        )


def _trained(chosen: Choices, made: Stage, rule: SamplingName, provenance: dict[str, str]) -> Plan:
    """One stage with the technique's own sampling and length, or those asked for."""
    asked: dict[str, object] = {"stages.1.sampling.rule": chosen.sampling, "stages.1.epochs": chosen.epochs}
    asked["stages.1.cached.views"] = chosen.cached
    by_hand = {path: "set by whoever re-trained" for path, value in asked.items() if value is not None}
    changed = replace(
        made,
        sampling=Sampling(rule=chosen.sampling or rule),
        epochs=made.epochs if chosen.epochs is None else chosen.epochs,
        cached=Cached(views=chosen.cached) if chosen.cached is not None else None,
    )
    return Plan((changed,), provenance | by_hand)


def _tau_norm(first: Recipe, chosen: Choices) -> Plan:
    """On a cosine head: a linear probe first, trained as the images come (spec P26), or the raw anchors."""
    is_cosine = getattr(first.model, "head", "linear") == "cosine"
    if not is_cosine and chosen.source is not None:
        raise UsageError("source= is for a cosine head; this run has a linear one, which is taken as it is")
    has_probe = is_cosine and chosen.source != "raw_anchor_norm"
    if not has_probe and (chosen.sampling or chosen.epochs):
        raise UsageError("sampling= and epochs= are those of the linear probe, and there is none here")
    source: Literal["linear", "raw_anchors"] = "raw_anchors" if is_cosine and not has_probe else "linear"
    sweep = second_stages.posthoc("tau_norm", TauNorm(source=source), CrossEntropy())
    where = {f"stages.{2 if has_probe else 1}.posthoc.taus": f"{DECOUPLING}: 0 to 2 in steps of 0.1"}
    held_out = HeldOut(source=chosen.held_out) if chosen.held_out else None
    if not has_probe:
        return Plan((sweep,), where, held_out)
    probed = {
        "stages.1.sampling.rule": "inferred: as tau-norm's own first stage",
        "stages.1.optimizer.lr": OURS,
    }
    made = _trained(chosen, second_stages.probe(first), "instance", probed)
    return Plan((*made.stages, sweep), made.provenance | where, held_out)
