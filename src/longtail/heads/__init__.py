"""Classifier heads: features to scores. A head owns weights; scale, margin and noise belong to the loss.

Every head maps features `[..., D]` to scores `[..., C]` and knows its `num_classes`. `generator` makes the
initial weights a pure function of that generator; without one torch's default generator is used.
"""

from longtail.heads.deconfounded import Deconfounded as Deconfounded
from longtail.heads.frozen import NearestMean as NearestMean
from longtail.heads.frozen import tau_normalize as tau_normalize
from longtail.heads.memory import MetaEmbedding as MetaEmbedding
from longtail.heads.memory import Remembering as Remembering
from longtail.heads.projected import Projected as Projected
from longtail.heads.targeted import Targeted as Targeted
from longtail.heads.trained import Cosine as Cosine
from longtail.heads.trained import Linear as Linear
from longtail.heads.wrapping import Aligned as Aligned
from longtail.heads.wrapping import Scaled as Scaled
from longtail.heads.wrapping import Shifted as Shifted

__all__ = [
    "Aligned",
    "Cosine",
    "Deconfounded",
    "Linear",
    "MetaEmbedding",
    "NearestMean",
    "Projected",
    "Remembering",
    "Scaled",
    "Shifted",
    "Targeted",
    "tau_normalize",
]
