"""The written form of an experiment: frozen, validated dataclasses. No torch here, and nothing of ours.

A recipe function (longtail.recipes) returns a `Recipe`; JSON is its file form; `--set path=value` changes any
path of that JSON. `longtail.build` alone turns a spec into an object; nothing beyond recipes, build, engine
and run ever sees one.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator
from pydantic.dataclasses import dataclass

# Every spec: frozen, keyword-only, unknown fields refused, values checked on construction and on replace().
STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]

# ------------------------------------------------------------------------------------------------ losses


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CrossEntropy:
    kind: Literal["cross_entropy"] = "cross_entropy"
    scale: Positive = 1.0  # 1 for a linear head; the logit scale for a cosine head


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Focal:
    kind: Literal["focal"] = "focal"
    gamma: NonNegative = 1.0
    scale: Positive = 1.0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ClassBalanced:
    kind: Literal["class_balanced"] = "class_balanced"
    beta: Fraction = 0.9999
    gamma: NonNegative = 0.0
    scale: Positive = 1.0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Reweighted:
    """Cross-entropy with class weights pi^-rho (DisAlign)."""

    kind: Literal["reweighted"] = "reweighted"
    rho: NonNegative = 1.2
    scale: Positive = 1.0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CosFace:
    kind: Literal["cosface"] = "cosface"
    scale: Positive = 30.0
    margin: NonNegative = 0.35


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ArcFace:
    kind: Literal["arcface"] = "arcface"
    scale: Positive = 30.0
    margin: Annotated[float, Field(ge=0, le=math.pi)] = 0.5
    easy: bool = False


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LDAM:
    kind: Literal["ldam"] = "ldam"
    margin: NonNegative = 0.5
    scale: Positive = 30.0
    reweight: bool = False  # effective-number class weights: the deferred stage of LDAM-DRW
    beta: Fraction = 0.9999


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LogitAdjusted:
    kind: Literal["logit_adjusted"] = "logit_adjusted"
    tau: NonNegative = 1.0
    scale: Positive = 1.0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class BalancedSoftmax:
    kind: Literal["balanced_softmax"] = "balanced_softmax"
    scale: Positive = 1.0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LabelAwareSmoothing:
    kind: Literal["label_aware_smoothing"] = "label_aware_smoothing"
    head: Fraction = 0.3
    tail: Fraction = 0.0
    shape: Literal["concave", "linear", "convex"] = "concave"
    scale: Positive = 1.0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class FeatureBalanced:
    kind: Literal["feature_balanced"] = "feature_balanced"
    strength: NonNegative = 60.0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LADE:
    """Balanced softmax, and a bound on how far each class's logits drift from a balanced test set."""

    kind: Literal["lade"] = "lade"
    strength: NonNegative = 0.1  # of the bound, beside the cross-entropy
    regularization: NonNegative = 0.1  # of the squared normaliser inside the bound


Form = Literal["euclidean", "angular", "unified"]
CloudName = Literal["log", "power", "cosine", "none"]
Boundary = Literal["clip", "none", "easy", "released", "arcface"]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class GCL:
    """The Gaussian clouded logit loss (Eq. 6 to 9)."""

    kind: Literal["gcl"] = "gcl"
    form: Form = "euclidean"
    cloud: CloudName = "log"
    power: Positive = 0.25
    strength: NonNegative = 0.5
    scale: Positive = 30.0
    margin: NonNegative = 0.0
    boundary: Boundary = "clip"
    focal: NonNegative = 0.0
    noise: Literal["independent", "shared"] = "independent"
    sigma: Positive = 1 / 3
    halves: Literal["shared", "independent"] = "shared"
    reweight: bool = False  # effective-number class weights: a deferred stage
    beta: Fraction = 0.9999
    zero_count: Literal["error", "clamp"] = "error"

    @field_validator("margin")
    @classmethod
    def _is_an_angle(cls, margin: float, info: ValidationInfo) -> float:
        if margin > math.pi and info.data.get("form") == "angular":
            raise ValueError("in the angular form the margin is an angle in radians and at most pi")
        return margin


# Losses of one network: scores [B, C].
Single = (
    CrossEntropy
    | Focal
    | ClassBalanced
    | Reweighted
    | CosFace
    | ArcFace
    | LDAM
    | LogitAdjusted
    | BalancedSoftmax
    | LabelAwareSmoothing
    | FeatureBalanced
    | LADE
    | GCL
)
Inner = Annotated[Single, Field(discriminator="kind")]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class PerExpert:
    """Any loss for each of several experts, scores [B, K, C]: their sum or mean."""

    kind: Literal["per_expert"] = "per_expert"
    base: Inner = CrossEntropy()
    together: Literal["sum", "mean"] = "sum"
    noise: Literal["per_expert", "shared"] = "per_expert"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class RIDE:
    """A loss for each expert, and a term that drives the experts apart (negative) or together."""

    kind: Literal["ride"] = "ride"
    base: Inner = LDAM()
    diversity: float = -0.2
    temperature: Literal["one", "by_count"] = "one"  # by_count: in the deferred stage
    rho: Fraction = 0.05
    noise: Literal["per_expert", "shared"] = "per_expert"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class NestedCollaborative:
    """NCL: balanced softmax for each of several networks, which also learn from one another."""

    kind: Literal["nested_collaborative"] = "nested_collaborative"
    mutual: NonNegative = 0.6
    nested: NonNegative = 1.0  # how much the hard classes count beside all classes
    hard: Annotated[float, Field(gt=0, le=1)] = 0.3  # which part of the classes


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SHIKE:
    """A loss for each expert, and what experts of several depths learn from one another."""

    kind: Literal["shike"] = "shike"
    base: Inner = CrossEntropy(scale=30.0)
    negative: NonNegative = 10.0  # against a teacher whose hardest negative class is held down
    mutual: NonNegative = 1.0  # every expert against every other


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Routing:
    """RIDE's routers, the head "routed": is another expert asked? The experts' own loss stands beside."""

    kind: Literal["routing"] = "routing"
    base: Inner = LDAM()
    positives: Positive = 100.0  # what an image counts that should go on
    top: Count = 30  # how many of the highest logits a router sees
    hidden: Count = 16  # how many numbers it makes of the features


Several = PerExpert | RIDE | NestedCollaborative | SHIKE | Routing  # losses of experts: scores [B, K, C]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class HybridContrastive:
    """A contrastive loss for the features, cross-entropy for the classifier; for a model `contrasted`."""

    kind: Literal["hybrid_contrastive"] = "hybrid_contrastive"
    among: Literal["samples", "prototypes"] = "samples"  # as the model's `against`
    temperature: Positive = 0.1
    strength: NonNegative = 1.0  # of the contrastive loss, besides the weight that a pair has


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TargetedContrastive:
    """TSC: a contrastive loss in which every class has a fixed target; for a model `contrasted`."""

    kind: Literal["targeted_contrastive"] = "targeted_contrastive"
    temperature: Positive = 0.07
    copies: Positive = 50.0  # how often each target counts among the rows of a batch


Contrastive = HybridContrastive | TargetedContrastive  # losses of embeddings, beside scores [B, C]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Distilled:
    """A loss, and the softened prediction of the finished run that the stage names as its teacher."""

    kind: Literal["distilled"] = "distilled"
    base: Annotated[Single | Several, Field(discriminator="kind")] = RIDE()
    temperature: Positive = 1.5
    weight: NonNegative = 1.0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Centroids:
    """OLTR's loss: cross-entropy, and distances to the class centroids of the head meta_embedding."""

    kind: Literal["centroids"] = "centroids"
    scale: Positive = 16.0
    weight: NonNegative = 0.01  # of everything about centroids
    repulsion: NonNegative = 0.01  # of the centroids of other classes, beside the own one's attraction
    margin: NonNegative = 10.0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Remembered:
    """Cross-entropy of the batch and of the features that the model remembering holds (a reconstruction)."""

    kind: Literal["remembered"] = "remembered"
    scale: Positive = 1.0
    weight: NonNegative = 1.0  # of the memory


Loss = Annotated[
    Single | Several | Contrastive | Distilled | Centroids | Remembered, Field(discriminator="kind")
]

# ---------------------------------------------------------------------------------- sampling and mixing

Rule = Literal[
    "instance",
    "class_balanced",
    "square_root",
    "power",
    "effective_number",
    "cben",
    "progressive",
    "class_aware",
    "reverse",
]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Sampling:
    rule: Rule = "instance"
    power: NonNegative = 0.5  # the q of P_j ~ n_j^q, for rule="power"
    beta: Fraction = 0.9999  # effective_number and cben


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Mixup:
    kind: Literal["mixup"] = "mixup"
    alpha: Positive = 1.0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CutMix:
    kind: Literal["cutmix"] = "cutmix"
    alpha: Positive = 1.0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Remix:
    kind: Literal["remix"] = "remix"
    alpha: Positive = 1.0
    kappa: Positive = 3.0
    tau: Fraction = 0.5


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ManifoldMixup:
    kind: Literal["manifold"] = "manifold"
    alpha: Positive = 1.0


Mixing = Annotated[Mixup | CutMix | Remix | ManifoldMixup, Field(discriminator="kind")]

# ------------------------------------------------------------------------------- optimiser and schedule


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Muon:
    """Convolution filters step along their orthogonalised momentum, at a rate and decay of their own."""

    lr: Positive = 0.02
    momentum: Fraction = 0.9
    weight_decay: NonNegative = 0.05


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SGD:
    """`filters`: what convolution filters do instead; the schedule scales both rates alike."""

    lr: NonNegative = 0.1
    momentum: Fraction = 0.9
    weight_decay: NonNegative = 2e-4
    nesterov: bool = False
    filters: Muon | None = None

    @field_validator("filters")
    @classmethod
    def _follows(cls, filters: Muon | None, info: ValidationInfo) -> Muon | None:
        if filters is not None and not info.data.get("lr"):
            raise ValueError("their rate is kept in proportion to lr, which is 0")
        return filters


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MultiStep:
    """Linear warm-up over `warmup` epochs ((epoch+1)/warmup), then lr times the last drop's factor.

    A drop at 160 acts from the 161st epoch on. `start` shifts the epoch: a stage that continues a schedule.
    """

    kind: Literal["multistep"] = "multistep"
    warmup: Annotated[int, Field(ge=0)] = 5
    drops: tuple[tuple[Count, NonNegative], ...] = ((160, 0.1), (180, 0.01))
    start: Annotated[int, Field(ge=0)] = 0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Cosine:
    """lr * (1 + cos(pi * epoch / total)) / 2, by epoch or (by_step) by step, after a linear warm-up."""

    kind: Literal["cosine"] = "cosine"
    warmup: Annotated[int, Field(ge=0)] = 0
    start: Annotated[int, Field(ge=0)] = 0
    total: Count | None = None  # epochs of the whole curve; the stage's own epochs when None
    by_step: bool = False


@dataclass(frozen=True, kw_only=True, config=STRICT)
class OneCycle:
    """Linear up to the full rate over `rise` of the steps, then linear down to `final` times the rate."""

    kind: Literal["onecycle"] = "onecycle"
    rise: Fraction = 0.2
    final: Fraction = 0.0


Schedule = Annotated[MultiStep | Cosine | OneCycle, Field(discriminator="kind")]

# --------------------------------------------------------------------------------------------- the stage

Part = Literal["backbone", "head", "scales", "memory", "router"]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Cached:
    """Stage 2 on features: `views` augmented views of each image go through the frozen backbone once.

    Every draw of an image takes one of its views, and mixup mixes features. Far faster, and not the same
    training: docs/speed.md has the effect on accuracy.
    """

    views: Count = 4


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TauNorm:
    """w_j / |w_j|^tau without a bias; tau is chosen on held-out images by their classes' mean recall."""

    kind: Literal["tau_norm"] = "tau_norm"
    taus: Annotated[tuple[NonNegative, ...], Field(min_length=1)] = tuple(step / 10 for step in range(21))
    source: Literal["linear", "raw_anchors"] = "linear"  # raw_anchors: of a cosine head, as they are stored


@dataclass(frozen=True, kw_only=True, config=STRICT)
class NearestMean:
    """The nearest mean of the training features: raw, at unit length, or centred and at unit length."""

    kind: Literal["nearest_mean"] = "nearest_mean"
    features: Literal["un", "l2n", "cl2n"] = "cl2n"
    distance: Literal["euclidean", "cosine"] = "euclidean"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LogitAdjust:
    """The clean logits minus tau * log pi."""

    kind: Literal["logit_adjust"] = "logit_adjust"
    tau: NonNegative = 1.0


PostHoc = Annotated[TauNorm | NearestMean | LogitAdjust, Field(discriminator="kind")]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Stage:
    """Everything that may differ between learning the representation and re-balancing the classifier."""

    name: Annotated[str, Field(min_length=1, pattern=r"^[a-z0-9_]+$")]
    loss: Loss
    posthoc: PostHoc | None = None  # the stage changes the head by this and trains nothing: epochs=0
    epochs: Annotated[int, Field(ge=0)]
    batch_size: Count = 64
    sampling: Sampling = Sampling()
    paired: Sampling | None = None  # a second stream: batches arrive as a pair (BBN, hybrid contrastive)
    views: Count = 1  # augmented views of each image of the first stream, all in one batch
    mixing: Mixing | None = None
    trains: tuple[Part, ...] = ("backbone", "head")
    batchnorm: Literal["adapting", "frozen"] = "adapting"
    head: Literal["kept", "restarted", "linear", "scaled", "aligned", "meta_embedding", "routed"] = "kept"
    optimizer: SGD = SGD()
    schedule: Schedule = MultiStep()
    optimizer_state: Literal["restarted", "kept"] = "restarted"
    head_lr_factor: NonNegative = 1.0
    gradient_clip: Positive | None = None
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    cached: Cached | None = None
    teacher: str | None = None  # the folder of a finished run, for the loss distilled

    @field_validator("cached")
    @classmethod
    def _stands_still(cls, cached: Cached | None, info: ValidationInfo) -> Cached | None:
        given = info.data
        moves = "backbone" in given.get("trains", ()) or given.get("batchnorm") != "frozen"
        if cached is not None and (moves or given.get("paired") is not None):
            raise ValueError("needs a backbone that stands still: trains without backbone, batchnorm=frozen")
        if cached is not None and isinstance(given.get("mixing"), CutMix | ManifoldMixup):
            raise ValueError("features are mixed by mixup or remix, not by cutmix or manifold mixup")
        return cached

    @field_validator("epochs")
    @classmethod
    def _trains_or_transforms(cls, epochs: int, info: ValidationInfo) -> int:
        if (epochs == 0) != (info.data.get("posthoc") is not None):
            raise ValueError("a stage trains at least one epoch, or has posthoc and none")
        return epochs


# ---------------------------------------------------------------------------------------------- the model


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Backbone:
    """resnet8/20/32/44/56 (CIFAR), resnet18/34/50/101/152, resnext50, places_resnet152, or timm:NAME."""

    name: str = "resnet32"
    weights: str | None = None  # a .safetensors or .pth file; never downloaded, never a fallback


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Classifier:
    kind: Literal["classifier"] = "classifier"
    backbone: Backbone = Backbone()
    head: Literal["linear", "cosine"] = "cosine"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Experts:
    """RIDE's network: shared early layers, then `count` copies of the rest. Scores are [B, K, C].

    With shares="nothing" these are `count` whole networks (NCL). With shares="depths" all layers but the last
    are shared, and each expert multiplies its last maps with shallow ones of a depth of its own (SHIKE).
    """

    kind: Literal["experts"] = "experts"
    backbone: Backbone = Backbone()
    head: Literal["linear", "cosine"] = "cosine"
    count: Count = 3
    reduced: bool = False
    shares: Literal["early", "nothing", "depths"] = "early"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TwoBranch:
    """BBN's network: the last residual block twice, one linear classifier on both features."""

    kind: Literal["two_branch"] = "two_branch"
    backbone: Backbone = Backbone()
    head: Literal["linear", "cosine"] = "linear"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Deconfounded:
    """De-confound-TDE's network: cosine-like heads on parts of the features."""

    kind: Literal["deconfounded"] = "deconfounded"
    backbone: Backbone = Backbone()
    parts: Count = 2
    damping: NonNegative = 1 / 32  # added to each anchor's length
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9  # of the running direction
    alpha: NonNegative = 1.0  # how much of that direction is taken away at test time


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Contrasted:
    """A classifier with a projection beside it, whose embeddings are compared in training.

    With samples or prototypes (learned, one for each class) the classifier is linear. With targets the
    scores are the embedding's cosines to fixed points, one for each class: a later stage takes head=linear.
    """

    kind: Literal["contrasted"] = "contrasted"
    backbone: Backbone = Backbone()
    against: Literal["samples", "prototypes", "targets"] = "samples"
    width: Annotated[int, Field(ge=2)] = 128  # of the embedding
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9  # of the class centres that targets are given by
    every: Count = 10  # steps from one giving of the targets to the next


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Remembering:
    """A classifier with a memory of past features, which the loss remembered reads and writes."""

    kind: Literal["remembering"] = "remembering"
    backbone: Backbone = Backbone()
    head: Literal["linear", "cosine"] = "linear"
    size: Count = 2048  # features
    power: NonNegative = 1.0  # class j is written with the chance (n_min / n_j)^power


Model = Annotated[
    Classifier | Experts | TwoBranch | Deconfounded | Contrasted | Remembering, Field(discriminator="kind")
]

# ----------------------------------------------------------------------------------------------- the data


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LongTail:
    """How a training set is made long-tailed. A manifest, when given, wins over profile and ratio."""

    profile: Literal["exponential", "step", "pareto"] = "exponential"
    ratio: Annotated[float, Field(ge=1)] = 100.0
    seed: Annotated[int, Field(ge=0)] = 0
    selection: Literal["auto", "canonical", "first"] = "auto"
    manifest: str | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class HeldOut:
    """Images for choosing anything that has to be chosen, so that the test set is read once."""

    source: Literal["file", "leftover", "stratified"] = "stratified"
    fraction: Fraction = 0.1  # of each class, for source="stratified"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Cifar:
    kind: Literal["cifar"] = "cifar"
    classes: Literal[10, 100] = 10
    root: str | None = None  # folder or .tar.gz; LONGTAIL_DATA, then the cache folder, when None
    longtail: LongTail | None = LongTail()
    held_out: HeldOut | None = None
    download: bool = False


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Folder:
    """A folder of class folders; or train/ and test/ (or val/) folders of class folders."""

    kind: Literal["folder"] = "folder"
    root: str
    test: str | None = None
    test_fraction: Fraction = 0.2  # split off train, stratified, where there is no test folder
    longtail: LongTail | None = None
    held_out: HeldOut | None = None
    on_bad_image: Literal["stop", "skip"] = "stop"
    allow_empty_class: bool = False
    strict: bool = False  # duplicates, overlaps and label conflicts become errors


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Listing:
    """List files: 'path label' lines, CSV with a header, or iNaturalist/BBN JSON."""

    kind: Literal["listing"] = "listing"
    root: str
    train: str
    test: str
    val: str | None = None  # read where held_out.source is "file": what chooses tau, and the like
    prefix: tuple[tuple[str, str], ...] = ()  # (as written, as on disk): rewrites the start of paths
    longtail: LongTail | None = None
    held_out: HeldOut | None = None
    on_bad_image: Literal["stop", "skip"] = "stop"
    allow_empty_class: bool = False
    strict: bool = False


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Parquet:
    kind: Literal["parquet"] = "parquet"
    train: str
    test: str
    image: str = "image"
    label: str = "label"
    longtail: LongTail | None = None
    held_out: HeldOut | None = None
    on_bad_image: Literal["stop", "skip"] = "stop"
    allow_empty_class: bool = False
    strict: bool = False


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Digits:
    """The embedded data: 1,797 handwritten digits of 8x8 pixels (UCI, CC BY 4.0)."""

    kind: Literal["digits"] = "digits"
    longtail: LongTail | None = LongTail(ratio=50)
    held_out: HeldOut | None = None


Data = Annotated[Cifar | Folder | Listing | Parquet | Digits, Field(discriminator="kind")]

# --------------------------------------------------------------------------------------------- the images

Triple = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SmallImages:
    """Images that live in memory as uint8 and are augmented as whole batches."""

    kind: Literal["small"] = "small"
    size: Count = 32
    crop: Annotated[int, Field(ge=0)] = 4  # zero padding before the random crop
    flip: bool = True
    rotation: NonNegative = 0.0  # degrees, either way
    cutout: Annotated[int, Field(ge=0)] = 0  # side of the erased square
    policy: Literal["none", "autoaugment", "randaugment"] = "none"
    grayscale: Fraction = 0.0  # the chance that an image loses its colours
    mean: Triple = (0.4914, 0.4822, 0.4465)
    std: Triple = (0.2023, 0.1994, 0.2010)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LargeImages:
    """Images that stream through workers: random resized crop, flip, colour jitter."""

    kind: Literal["large"] = "large"
    size: Count = 224
    resize: Count = 256
    area: tuple[Fraction, Fraction] = (0.08, 1.0)
    flip: bool = True
    jitter: NonNegative = 0.0  # brightness, contrast and saturation
    workers: Annotated[int, Field(ge=0)] = 2
    mean: Triple = (0.485, 0.456, 0.406)
    std: Triple = (0.229, 0.224, 0.225)


Images = Annotated[SmallImages | LargeImages, Field(discriminator="kind")]

# --------------------------------------------------------------------------------------------- the recipe


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Evaluation:
    every: Count = 5  # epochs
    last: Annotated[int, Field(ge=0)] = 10  # and each of the last so many epochs of a stage
    batch_size: Count = 256
    split: Literal["test", "held_out"] = "test"
    shot_rule: Literal["paper", "decoupling", "lfme"] = "paper"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Recipe:
    name: str
    data: Data
    images: Images = SmallImages()
    model: Model = Classifier()
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)]
    evaluation: Evaluation = Evaluation()
    seed: Annotated[int, Field(ge=0)] = 0
    precision: Literal["fp32", "bf16"] = "fp32"
    channels_last: bool = True
    compile: bool = False
    log_every: Count = 50
    # Where each constant comes from: a path of this JSON -> "paper", "released code: ...", "inferred: ..."
    provenance: dict[str, str] = Field(default_factory=dict)

    def __post_init__(self) -> None:
        """Found here, not when the stage begins after hours of training."""
        several, is_routed = isinstance(self.model, Experts), False
        for stage in self.stages:
            taught = isinstance(stage.loss, Distilled)
            if taught != (stage.teacher is not None):
                raise ValueError(f"stage {stage.name}: a teacher and the loss distilled go together")
            loss = stage.loss.base if isinstance(stage.loss, Distilled) else stage.loss
            routing, is_routed = isinstance(loss, Routing), is_routed or stage.head == "routed"
            if (routing and not is_routed) or (stage.head == "routed" and not routing):
                raise ValueError(f"stage {stage.name}: the head routed and the loss routing go together")
            if isinstance(loss, Several) != several:
                what = "experts, whose losses are ride, per_expert and the like" if several else "one network"
                raise ValueError(f"stage {stage.name}: loss {loss.kind} is not for {what}")
            if isinstance(loss, Contrastive):
                if stage.mixing is not None:
                    raise ValueError(f"stage {stage.name}: loss {loss.kind} compares images, none are mixed")
                among = loss.among if isinstance(loss, HybridContrastive) else "targets"
                if not isinstance(self.model, Contrasted) or self.model.against != among:
                    raise ValueError(
                        f"stage {stage.name}: loss {loss.kind} needs a model contrasted against {among}"
                    )
                if among == "targets" and stage.paired is not None:
                    raise ValueError(f"stage {stage.name}: loss {loss.kind} takes one sampling, not paired")
        self._check_memories()

    def _check_memories(self) -> None:
        """A loss that reads a memory needs a model or a head that has one."""
        has_centroids = False
        for stage in self.stages:
            if stage.head == "meta_embedding":
                if not (isinstance(self.model, Classifier) and self.model.head == "linear") or has_centroids:
                    raise ValueError(
                        f"stage {stage.name}: head meta_embedding goes once around the linear head of "
                        "the model classifier"
                    )
                has_centroids = True
            if isinstance(stage.loss, Centroids) and not has_centroids:
                raise ValueError(f"stage {stage.name}: loss centroids needs head meta_embedding")
            if "memory" in stage.trains and not isinstance(stage.loss, Centroids):
                raise ValueError(
                    f"stage {stage.name}: only loss centroids trains the memory; not {stage.loss.kind}"
                )
            if not isinstance(stage.loss, Remembered):
                continue
            if not isinstance(self.model, Remembering):
                raise ValueError(f"stage {stage.name}: loss remembered needs the model remembering")
            if stage.mixing is not None or stage.paired is not None:
                raise ValueError(
                    f"stage {stage.name}: a memory holds features of one class each; set mixing and paired "
                    "of this stage to null"
                )


_STAGE = re.compile(r"stages\.(\d+)(?=\.|$)")


def first_training(recipe: Recipe) -> int:
    """How many of the stages are the first training: the first one, and those that go on in its optimiser.

    Deferred re-weighting is such a stage: with LDAM-DRW the representation is finished after two.
    """
    kept = (stage.optimizer_state == "kept" for stage in recipe.stages[1:])
    return 1 + next((number for number, is_kept in enumerate(kept) if not is_kept), len(recipe.stages) - 1)


def continued(
    first: Recipe,
    stages: tuple[Stage, ...],
    *,
    name: str | None = None,
    provenance: dict[str, str] | None = None,
    held_out: HeldOut | None = None,
) -> Recipe:
    """The first training of a recipe with other stages after it; `held_out` adds images for choosing.

    `provenance` counts the new stages from 1, as if one stage came before them.
    """
    begun = first_training(first)
    moved = {_later(path, begun - 1): where for path, where in (provenance or {}).items()}
    kept = {
        path: where
        for path, where in first.provenance.items()
        if (found := _STAGE.match(path)) is None or int(found[1]) < begun
    }
    return replace(
        first,
        name=name or first.name,
        stages=(*first.stages[:begun], *stages),
        provenance=kept | moved,
        data=first.data if held_out is None else replace(first.data, held_out=held_out),
    )


def _later(path: str, by: int) -> str:
    """The same path, where it is in a stage, of the stage that comes so many later."""
    found = _STAGE.match(path)
    return path if found is None else f"stages.{int(found[1]) + by}{path[found.end() :]}"
