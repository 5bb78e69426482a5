"""What GCL is compared with on CIFAR-LT: one stage, with another loss, head or second batch (spec B1, B2).

Each keeps the schedule of its own code, scaled to `epochs`; warm-up lasts five epochs whatever the length.
The network is ResNet-32 for all: `wide=True` gives TDE, LADE and balanced softmax the 128 features of their
code. Cross-entropy, LDAM-DRW and GCL are in `longtail.recipes.cifar`.
"""

from __future__ import annotations

from longtail.recipe import (
    LADE,
    LDAM,
    SGD,
    ArcFace,
    Backbone,
    BalancedSoftmax,
    ClassBalanced,
    Classifier,
    CosFace,
    CrossEntropy,
    Deconfounded,
    FeatureBalanced,
    Focal,
    LogitAdjusted,
    MultiStep,
    Recipe,
    Sampling,
    Stage,
    TwoBranch,
)
from longtail.recipes import protocols, stages
from longtail.recipes.cifar import Classes
from longtail.recipes.protocols import CAUSAL, LDAM_DRW, RELEASED

LINEAR, COSINE = Classifier(head="linear"), Classifier(head="cosine")
MARGIN = {
    "stages.0.loss.scale": "inferred: not stated for this row; usual for long-tailed data",
    "stages.0.loss.margin": "inferred: not stated for this row; the loss's own default",
}


def cosface(
    classes: Classes = 100, ratio: float = 100, mixup: bool = True, seed: int = 0, epochs: int = 200
) -> Recipe:
    """The row CosFace: a margin on the target's cosine, the protocol of the row CE."""
    stage = protocols.released(CosFace(scale=30.0, margin=0.35), epochs, mixup)
    return protocols.single("cosface", classes, ratio, seed, COSINE, stage, RELEASED | MARGIN)


def arcface(
    classes: Classes = 100, ratio: float = 100, mixup: bool = True, seed: int = 0, epochs: int = 200
) -> Recipe:
    """The row ArcFace: a margin on the target's angle, the protocol of the row CE."""
    stage = protocols.released(ArcFace(scale=30.0, margin=0.5), epochs, mixup)
    return protocols.single("arcface", classes, ratio, seed, COSINE, stage, RELEASED | MARGIN)


def focal(
    classes: Classes = 100, ratio: float = 100, mixup: bool = False, seed: int = 0, epochs: int = 200
) -> Recipe:
    """Focal loss over the softmax, as LDAM-DRW's code compares with it."""
    stage = protocols.ldam_drw(Focal(gamma=1.0), epochs, mixup)
    source = LDAM_DRW | {"stages.0.loss.gamma": "LDAM-DRW's own code: 1"}
    return protocols.single("focal", classes, ratio, seed, LINEAR, stage, source)


def class_balanced(
    classes: Classes = 100, ratio: float = 100, mixup: bool = False, seed: int = 0, epochs: int = 200
) -> Recipe:
    """Cross-entropy weighted by the inverse effective number of images, from the first epoch on."""
    stage = protocols.ldam_drw(ClassBalanced(beta=0.9999, gamma=0.0), epochs, mixup)
    source = LDAM_DRW | {
        "stages.0.loss.beta": "LDAM-DRW's own code: 0.9999",
        "stages.0.loss.gamma": "LDAM-DRW's own code: weights on cross-entropy, no focal term",
    }
    return protocols.single("class_balanced", classes, ratio, seed, LINEAR, stage, source)


def ldam(
    classes: Classes = 100, ratio: float = 100, mixup: bool = False, seed: int = 0, epochs: int = 200
) -> Recipe:
    """LDAM alone, without the deferred weights of cifar.ldam_drw."""
    stage = protocols.ldam_drw(LDAM(margin=0.5, scale=30.0), epochs, mixup)
    source = LDAM_DRW | {
        "stages.0.loss.margin": "LDAM-DRW's own code: largest margin 0.5",
        "stages.0.loss.scale": "LDAM-DRW's own code: 30",
    }
    return protocols.single("ldam", classes, ratio, seed, COSINE, stage, source)


def logit_adjusted(
    classes: Classes = 100, ratio: float = 100, mixup: bool = False, seed: int = 0, epochs: int = 200
) -> Recipe:
    """The logit-adjusted loss. Its code trains 1,241 or 1,419 epochs: its drops and warm-up are scaled."""
    whole, at, warmup = (1241, (604, 926, 1128), 20) if classes == 10 else (1419, (691, 1059, 1290), 22)
    drops = protocols.scaled(epochs, whole, tuple(zip(at, (0.1, 0.01, 0.001))))
    stage = stages.representation(
        LogitAdjusted(tau=1.0),
        epochs=epochs,
        batch_size=128,
        mixing=protocols.mixed(mixup),
        optimizer=SGD(lr=0.1, momentum=0.9, weight_decay=2e-4, nesterov=True),
        schedule=MultiStep(warmup=max(1, round(epochs * warmup / whole)), drops=drops),
    )
    own = "logit adjustment's own code"
    source = {
        "stages.0.loss.tau": f"{own}: 1",
        "stages.0.mixing": f"{own}: none",
        "stages.0.batch_size": f"{own}: 128",
        "stages.0.optimizer.lr": f"{own}: 0.1",
        "stages.0.optimizer.nesterov": f"{own}: yes",
        "stages.0.optimizer.weight_decay": f"{own}: 1e-4 times the square in the loss: 2e-4 here",
        "stages.0.schedule.drops": f"{own}: x0.1 after {at[0]}, {at[1]} and {at[2]} of {whole} epochs",
        "stages.0.schedule.warmup": f"{own}: {warmup} of {whole} epochs",
        "stages.0.epochs": "inferred: as long as every other method",
    }
    return protocols.single("logit_adjusted", classes, ratio, seed, LINEAR, stage, source)


def balanced_softmax(
    classes: Classes = 100,
    ratio: float = 100,
    mixup: bool = False,
    wide: bool = False,
    seed: int = 0,
    epochs: int = 200,
) -> Recipe:
    """Balanced softmax, by the schedule under which LADE's code compares with it."""
    stage = protocols.causal(BalancedSoftmax(), epochs, mixup)
    model = Classifier(backbone=_backbone(wide), head="linear")
    return protocols.single("balanced_softmax", classes, ratio, seed, model, stage, CAUSAL)


def lade(
    classes: Classes = 100,
    ratio: float = 100,
    mixup: bool = False,
    wide: bool = False,
    seed: int = 0,
    epochs: int = 200,
) -> Recipe:
    """LADE: balanced softmax, and the bound that ties the logits to a balanced test set."""
    stage = protocols.causal(LADE(strength=0.1, regularization=0.1), epochs, mixup)
    source = CAUSAL | {
        "stages.0.loss.strength": "LADE's own code: 0.1",
        "stages.0.loss.regularization": "LADE's own code: 0.1",
    }
    model = Classifier(backbone=_backbone(wide), head="linear")
    return protocols.single("lade", classes, ratio, seed, model, stage, source)


def tde(
    classes: Classes = 100,
    ratio: float = 100,
    mixup: bool = False,
    wide: bool = False,
    seed: int = 0,
    epochs: int = 200,
) -> Recipe:
    """De-confound-TDE: at test time the direction that momentum gave to every feature is taken away."""
    stage = protocols.causal(CrossEntropy(scale=16.0), epochs, mixup)
    model = Deconfounded(backbone=_backbone(wide), alpha=1.0 if classes == 10 else 1.5)
    source = CAUSAL | {
        "stages.0.loss.scale": "TDE's own constants: 16",
        "model.parts": "TDE's own constants: 2",
        "model.damping": "TDE's own constants: 1/32",
        "model.momentum": "TDE's own constants: 0.9 on CIFAR",
        "model.alpha": "TDE's own constants: 1.0 on CIFAR-10, 1.5 on CIFAR-100",
    }
    return protocols.single("tde", classes, ratio, seed, model, stage, source)


def fbl(
    classes: Classes = 100, ratio: float = 100, mixup: bool = False, seed: int = 0, epochs: int = 200
) -> Recipe:
    """The row FBL: rare classes lose logit unless their features are long, more so as training goes on."""
    stage = protocols.ldam_drw(FeatureBalanced(strength=60.0), epochs, mixup, batch_size=64)
    source = {
        "stages.0.loss.strength": "FBL's own code: 60 on CIFAR",
        "stages.0.epochs": "FBL's own code: 200",
        "stages.0.mixing": "FBL's own code: off by default",
        "stages.0.batch_size": "FBL's own code: 64",
        "stages.0.optimizer.lr": "FBL's own code: 0.1",
        "stages.0.optimizer.weight_decay": "FBL's own code: 2e-4",
        "stages.0.schedule.drops": "FBL's own code: x0.01 after 160, x0.0001 after 180",
    }
    return protocols.single("fbl", classes, ratio, seed, LINEAR, stage, source)


def bbn(classes: Classes = 100, ratio: float = 100, seed: int = 0, epochs: int = 200) -> Recipe:
    """The row BBN: a branch for images as they come, one for reversed chances; the weight moves over."""
    stage = Stage(
        name="representation",
        loss=CrossEntropy(),
        epochs=epochs,
        batch_size=128,
        paired=Sampling(rule="reverse"),
        optimizer=SGD(lr=0.1, momentum=0.9, weight_decay=2e-4),
        schedule=protocols.early(epochs),
    )
    source = {
        "model.kind": "BBN's own code: the last residual block twice, one classifier on both features",
        "stages.0.paired.rule": "BBN's own code: classes in reverse proportion to their counts",
        "stages.0.epochs": "BBN's own code: 200",
        "stages.0.mixing": "inferred: none; two batches are not mixed",
        "stages.0.batch_size": "BBN's own code: 128 of each",
        "stages.0.optimizer.lr": "BBN's own code: 0.1",
        "stages.0.optimizer.weight_decay": "BBN's own code: 2e-4",
        "stages.0.schedule.drops": "BBN's own code: x0.01 after 120 and again after 160",
        "stages.0.schedule.warmup": "BBN's own code: 5 epochs; from a third of the rate, here from a fifth",
    }
    return protocols.single("bbn", classes, ratio, seed, TwoBranch(), stage, source)


def _backbone(wide: bool) -> Backbone:
    return Backbone(name="resnet32x2" if wide else "resnet32")
