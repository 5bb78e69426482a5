"""Losses for long-tailed recognition: `loss(scores, target, generator=None)` gives the mean over the batch.

Every loss is an `nn.Module` without parameters. `target` is class indices `[B]`, a `Mixed`, or a matrix of
probabilities `[B, C]` where no term of the loss depends on the class index. `.logits(scores)` are the clean
test-time logits; in `.eval()` mode every loss is their plain cross-entropy. A loss that lists names in
`needs` wants the loop to pass them as keyword arguments. Only torch is loaded.
"""

from __future__ import annotations

from longtail.losses.adjusted import BalancedSoftmax as BalancedSoftmax
from longtail.losses.adjusted import FeatureBalanced as FeatureBalanced
from longtail.losses.adjusted import LogitAdjusted as LogitAdjusted
from longtail.losses.contrastive import HybridContrastive as HybridContrastive
from longtail.losses.contrastive import TargetedContrastive as TargetedContrastive
from longtail.losses.experts import RIDE as RIDE
from longtail.losses.experts import Distilled as Distilled
from longtail.losses.experts import PerExpert as PerExpert
from longtail.losses.focal import ClassBalanced as ClassBalanced
from longtail.losses.focal import Focal as Focal
from longtail.losses.gcl import GCL as GCL
from longtail.losses.lade import LADE as LADE
from longtail.losses.margin import LDAM as LDAM
from longtail.losses.margin import ArcFace as ArcFace
from longtail.losses.margin import CosFace as CosFace
from longtail.losses.memory import Centroids as Centroids
from longtail.losses.memory import Remembered as Remembered
from longtail.losses.nested import NestedCollaborative as NestedCollaborative
from longtail.losses.reweighted import Reweighted as Reweighted
from longtail.losses.routing import Routing as Routing
from longtail.losses.shike import SHIKE as SHIKE
from longtail.losses.smoothing import LabelAwareSmoothing as LabelAwareSmoothing
from longtail.losses.softmax import CrossEntropy as CrossEntropy
from longtail.losses.targets import Mixed as Mixed
from longtail.losses.targets import Target as Target

__all__ = [
    "GCL",
    "LADE",
    "LDAM",
    "RIDE",
    "SHIKE",
    "ArcFace",
    "BalancedSoftmax",
    "Centroids",
    "ClassBalanced",
    "CosFace",
    "CrossEntropy",
    "Distilled",
    "FeatureBalanced",
    "Focal",
    "LabelAwareSmoothing",
    "HybridContrastive",
    "LogitAdjusted",
    "Mixed",
    "NestedCollaborative",
    "PerExpert",
    "Remembered",
    "Reweighted",
    "Routing",
    "Target",
    "TargetedContrastive",
]
