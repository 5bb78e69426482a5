"""Long-tailed image recognition: exact losses, two-stage training, honest tables.

Every name is resolved on first use, so that `import longtail` costs nothing, the parts (losses, heads,
sampling, metrics) need torch alone, and only training needs the rest.

    import longtail as lt

    loss = lt.losses.GCL(counts)                   # a part, in your own loop
    run = lt.train(lt.recipes.digits.gcl(), out="runs/a")
    model = lt.load("runs/a")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from longtail import backbones as backbones
    from longtail import clouds as clouds
    from longtail import counts as counts
    from longtail import data as data
    from longtail import errors as errors
    from longtail import heads as heads
    from longtail import keys as keys
    from longtail import losses as losses
    from longtail import metrics as metrics
    from longtail import models as models
    from longtail import recipe as recipe
    from longtail import recipes as recipes
    from longtail.engine.fit import train as train
    from longtail.engine.load import load as load
    from longtail.engine.predict import predict as predict

    __version__: str

__all__ = [
    "__version__",
    "backbones",
    "clouds",
    "counts",
    "data",
    "errors",
    "heads",
    "keys",
    "load",
    "losses",
    "metrics",
    "models",
    "predict",
    "recipe",
    "recipes",
    "train",
]


def __getattr__(name: str) -> object:
    match name:
        case "__version__":
            from importlib.metadata import version

            found: object = version("longtail")
        case "train":
            from longtail.engine.fit import train as found
        case "load":
            from longtail.engine.load import load as found
        case "predict":
            from longtail.engine.predict import predict as found
        case _ if name in __all__:
            return importlib.import_module(f"longtail.{name}")  # which also sets the attribute
        case _:
            raise AttributeError(f"module 'longtail' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
