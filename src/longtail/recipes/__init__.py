"""Recipes: functions that return a `longtail.recipe.Recipe`. Each module is a family; none needs torch.

    longtail.recipes.cifar.gcl(classes=100, ratio=100)

A new family is a module beside this file and its name in `FAMILIES`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from longtail.recipes import baselines as baselines
    from longtail.recipes import catalogue as catalogue
    from longtail.recipes import cifar as cifar
    from longtail.recipes import contrastive as contrastive
    from longtail.recipes import decoupled as decoupled
    from longtail.recipes import digits as digits
    from longtail.recipes import folder as folder
    from longtail.recipes import imagenet_lt as imagenet_lt
    from longtail.recipes import inat18 as inat18
    from longtail.recipes import memory as memory
    from longtail.recipes import ncl as ncl
    from longtail.recipes import overrides as overrides
    from longtail.recipes import paper as paper
    from longtail.recipes import places_lt as places_lt
    from longtail.recipes import ride as ride
    from longtail.recipes import shike as shike

FAMILIES = (
    "baselines",
    "cifar",
    "contrastive",
    "decoupled",
    "digits",
    "folder",
    "imagenet_lt",
    "inat18",
    "memory",
    "ncl",
    "places_lt",
    "ride",
    "shike",
)

__all__ = [
    "FAMILIES",
    "baselines",
    "catalogue",
    "cifar",
    "contrastive",
    "decoupled",
    "digits",
    "folder",
    "imagenet_lt",
    "inat18",
    "memory",
    "ncl",
    "overrides",
    "paper",
    "places_lt",
    "ride",
    "shike",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        return importlib.import_module(f"longtail.recipes.{name}")  # which also sets the attribute
    raise AttributeError(f"module 'longtail.recipes' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
