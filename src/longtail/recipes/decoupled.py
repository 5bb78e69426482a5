"""CE with mixup, then a classifier re-trained or transformed: the paper's Decoupling and MisLAS rows, whole.

Each is one recipe of two or three stages; `longtail retrain RUN technique=...` gives the same from a finished
first stage.
"""

from __future__ import annotations

from typing import Literal

from longtail.recipe import Recipe
from longtail.recipes import cifar
from longtail.recipes.retraining import Choices, SamplingName, plan


def crt(
    classes: cifar.Classes = 100,
    ratio: float = 100,
    variant: Literal["decoupling", "released"] = "decoupling",
    sampling: SamplingName | None = None,
    seed: int = 0,
    epochs: int = 200,
    retrain_epochs: int | None = None,
) -> Recipe:
    """Classifier re-training: as decoupling's own code does it, or as the released code of GCL does."""
    technique = "crt" if variant == "released" else "crt_decoupling"
    return _made("decoupled.crt", Choices(technique, sampling, retrain_epochs), classes, ratio, seed, epochs)


def lws(
    classes: cifar.Classes = 100,
    ratio: float = 100,
    variant: Literal["decoupling", "released"] = "decoupling",
    sampling: SamplingName | None = None,
    seed: int = 0,
    epochs: int = 200,
    retrain_epochs: int | None = None,
) -> Recipe:
    """Learnable weight scaling: one factor per class on the logits of a classifier that stands still."""
    technique = "lws" if variant == "released" else "lws_decoupling"
    return _made("decoupled.lws", Choices(technique, sampling, retrain_epochs), classes, ratio, seed, epochs)


def tau_norm(classes: cifar.Classes = 100, ratio: float = 100, seed: int = 0, epochs: int = 200) -> Recipe:
    """Weights divided by their length to the power tau, chosen on training images that nothing trains on."""
    chosen = Choices("tau_norm", held_out="leftover")
    return _made("decoupled.tau_norm", chosen, classes, ratio, seed, epochs)


def ncm(
    classes: cifar.Classes = 100,
    ratio: float = 100,
    features: Literal["un", "l2n", "cl2n"] = "cl2n",
    seed: int = 0,
    epochs: int = 200,
) -> Recipe:
    """The nearest class mean of the training features."""
    return _made("decoupled.ncm", Choices("ncm", features=features), classes, ratio, seed, epochs)


def logit_adjust(
    classes: cifar.Classes = 100, ratio: float = 100, tau: float = 1.0, seed: int = 0, epochs: int = 200
) -> Recipe:
    """Logit adjustment after training: `z - tau log pi` of a finished classifier."""
    chosen = Choices("logit_adjust", tau=tau)
    return _made("decoupled.logit_adjust", chosen, classes, ratio, seed, epochs)


def disalign(
    classes: cifar.Classes = 100,
    ratio: float = 100,
    seed: int = 0,
    epochs: int = 200,
    retrain_epochs: int | None = None,
) -> Recipe:
    """DisAlign: a magnitude and a margin per class on frozen logits, mixed in by a learned confidence."""
    chosen = Choices("disalign", epochs=retrain_epochs)
    return _made("decoupled.disalign", chosen, classes, ratio, seed, epochs)


def mislas(
    classes: cifar.Classes = 100,
    ratio: float = 100,
    seed: int = 0,
    epochs: int = 200,
    retrain_epochs: int | None = None,
) -> Recipe:
    """MisLAS: label-aware smoothing, scales on a slowly moving head, BatchNorm shifted on CIFAR-100."""
    chosen = Choices("mislas", epochs=retrain_epochs)
    return _made("decoupled.mislas", chosen, classes, ratio, seed, epochs)


def _made(  # noqa: PLR0913  (what every recipe here takes)
    name: str, chosen: Choices, classes: cifar.Classes, ratio: float, seed: int, epochs: int
) -> Recipe:
    first = cifar.ce(classes=classes, ratio=ratio, mixup=True, seed=seed, epochs=epochs)
    return plan(first, chosen).after(first, name)
