"""Images in, batches out. Nothing is imported here until it is named.

`longtail.data.sampling` is used alone in other people's loops and must load torch and numpy only.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from longtail.data import audit as audit
    from longtail.data import augment as augment
    from longtail.data import batches as batches
    from longtail.data import cifar as cifar
    from longtail.data import digits as digits
    from longtail.data import folder as folder
    from longtail.data import images as images
    from longtail.data import listing as listing
    from longtail.data import mixing as mixing
    from longtail.data import parquet as parquet
    from longtail.data import sampling as sampling
    from longtail.data import splits as splits
    from longtail.data import subset as subset

__all__ = [
    "audit",
    "augment",
    "batches",
    "cifar",
    "digits",
    "folder",
    "images",
    "listing",
    "mixing",
    "parquet",
    "sampling",
    "splits",
    "subset",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        return importlib.import_module(f"longtail.data.{name}")
    raise AttributeError(f"module 'longtail.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
