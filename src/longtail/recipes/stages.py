"""The stages that several recipes share, each with where its constants come from.

"released code" is the authors' public code (spec A7, F2, F3); "paper" is the article; "inferred" is ours.
"""

from __future__ import annotations

from longtail.errors import UsageError
from longtail.recipe import (
    GCL,
    SGD,
    Boundary,
    Cosine,
    Form,
    Loss,
    Mixing,
    Mixup,
    MultiStep,
    Sampling,
    Stage,
)

Provenance = dict[str, str]
CODE = "released code"


def drops(epochs: int, factors: tuple[float, float] = (0.1, 0.01)) -> tuple[tuple[int, float], ...]:
    """The two drops of the 200-epoch schedule, after 160 and 180, at the same fractions of another length."""
    return (max(1, epochs * 160 // 200), factors[0]), (max(2, epochs * 180 // 200), factors[1])


def representation(
    loss: Loss,
    *,
    epochs: int = 200,
    batch_size: int = 64,
    mixing: Mixing | None = Mixup(alpha=1.0),  # noqa: B008  (frozen)
    optimizer: SGD = SGD(lr=0.1, momentum=0.9, weight_decay=2e-4),  # noqa: B008  (frozen)
    schedule: MultiStep | None = None,
) -> Stage:
    """Stage 1 of the CIFAR scripts (spec F2): everything trains, on the images as they come."""
    return Stage(
        name="representation",
        loss=loss,
        epochs=epochs,
        batch_size=batch_size,
        mixing=mixing,
        optimizer=optimizer,
        schedule=schedule or MultiStep(warmup=min(5, epochs), drops=drops(epochs)),
    )


def classifier(
    loss: Loss,
    *,
    epochs: int = 30,
    batch_size: int = 64,
    lr: float = 0.002,
    weight_decay: float = 2e-4,
    mixing: Mixing | None = Mixup(alpha=1.0),  # noqa: B008  (frozen)
) -> Stage:
    """Stage 2 as in the released code: warm head, frozen backbone and BatchNorm, class-balanced draws.

    The nominal rate 0.1 of those scripts is 0.02 * 0.1 = 0.002 in effect (spec D, I-C17).
    """
    return Stage(
        name="classifier",
        loss=loss,
        epochs=epochs,
        batch_size=batch_size,
        sampling=Sampling(rule="class_balanced"),
        mixing=mixing,
        trains=("head",),
        batchnorm="frozen",
        head="kept",
        optimizer=SGD(lr=lr, momentum=0.9, weight_decay=weight_decay),
        schedule=Cosine(),
    )


RELEASED: Provenance = {
    "stages.0.epochs": f"{CODE}: 200, and the author's answer that all methods ran 200",
    "stages.0.batch_size": f"{CODE}: 64",
    "stages.0.optimizer.lr": f"{CODE}: 0.1",
    "stages.0.optimizer.weight_decay": f"{CODE}: 2e-4 on every parameter",
    "stages.0.schedule.drops": f"{CODE}: x0.1 after 160, x0.01 after 180; the paper says multi-step only",
}


def deferred(epochs: int, at: int, whole: int = 200) -> int:
    """The epochs before deferred re-weighting, which begins after `at` of `whole`; one is left for either."""
    if epochs < 2:
        raise UsageError(
            "deferred re-weighting needs epochs=2 at least: one without the weights, one with them"
        )
    return max(1, epochs * at // whole)


def goes_on(number: int = 1) -> Provenance:
    """Of a stage that goes on in the training of the one before it."""
    parts = ("batch_size", "mixing", "optimizer", "schedule")
    return {f"stages.{number}.{part}": "as in the stage before: one training" for part in parts}


def gcl_first(form: Form, *, strength: float = 0.5) -> GCL:
    """Spec A7, stage-1 rows: scale 30, no margin. Two draws under mixup, as the released code's two calls."""
    return GCL(
        form=form, strength=strength, scale=30.0, margin=0.0, halves="independent", boundary=_boundary(form)
    )


def gcl_second(form: Form, *, strength: float = 0.5, scale: float = 20.0) -> GCL:
    """Spec A7, stage-2 row of CIFAR: smaller scale, a little margin, focal weight 1.

    The same for the angular form, which no released script trains: chosen on held-out images, see
    docs/deviations.md and results/choices/gcl_a.csv.
    """
    return GCL(
        form=form,
        strength=strength,
        scale=scale,
        margin=0.1,
        focal=1.0,
        halves="independent",
        boundary=_boundary(form),
    )


def _boundary(form: Form) -> Boundary:
    return "easy" if form == "angular" else "clip"  # the only released angular recipe is the easy one


def gcl_provenance(form: Form) -> Provenance:
    angular = form == "angular"
    chosen = "inferred: docs/deviations.md, GCL-A" if angular else f"{CODE}: CIFAR stage 2"
    return {
        "stages.0.loss.strength": f"{CODE}: noise_mul of the CIFAR scripts"
        if not angular
        else f"{CODE}: epsilon, Places",
        "stages.0.loss.scale": f"{CODE}: CIFAR stage 1",
        "stages.0.loss.cloud": "paper: log is the best form",
        "stages.0.loss.sigma": "paper: 1/3",
        "stages.0.loss.halves": f"{CODE}: the loss is called twice under mixup",
        "stages.0.loss.boundary": chosen,
        "stages.0.mixing.alpha": f"{CODE}: 1.0 on CIFAR",
        **RELEASED,
        "stages.1.loss.scale": chosen,
        "stages.1.loss.margin": chosen,
        "stages.1.loss.focal": chosen,
        "stages.1.epochs": f"{CODE}: 30",
        "stages.1.batch_size": f"{CODE}: as in stage 1",
        "stages.1.mixing.alpha": f"{CODE}: 1.0 on CIFAR",
        "stages.1.optimizer.weight_decay": f"{CODE}: as in stage 1",
        "stages.1.sampling.rule": "paper: class-balanced re-sampling",
        "stages.1.batchnorm": f"{CODE}: the backbone stands in eval mode",
        "stages.1.head": f"{CODE}: the head goes on from stage 1",
        "stages.1.optimizer.lr": f"{CODE}: nominal 0.1, 0.002 in effect",
        "stages.1.schedule.kind": f"{CODE}: cosine by epoch",
    }
