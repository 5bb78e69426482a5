"""The network of a recipe, from its spec: a pure function of the spec, the number of classes and a key."""

from __future__ import annotations

from typing import Literal, assert_never

from torch import nn

from longtail import backbones, heads, models, recipe
from longtail.errors import UsageError
from longtail.keys import Key

HeadName = Literal["linear", "cosine"]


def model(spec: recipe.Model, num_classes: int, key: Key) -> nn.Module:
    """Backbone and head with fresh weights (or with those of `spec.backbone.weights`), on the CPU."""
    name, weights = spec.backbone.name, spec.backbone.weights
    generator = key.fold("backbone").generator()
    match spec:
        case recipe.Classifier():
            backbone = backbones.make(name, generator=generator, weights=weights)
            return models.Classifier(
                backbone, head(spec.head, _width(backbone), num_classes, key.fold("head"))
            )
        case recipe.Experts():
            several = _several(spec, key)
            each = [
                head(spec.head, several.num_features, num_classes, key.fold("head", expert))
                for expert in range(spec.count)
            ]
            return models.Experts(several, models.Heads(each))
        case recipe.TwoBranch():
            branched = backbones.two_branch(name, generator=generator, weights=weights)
            both = 2 * branched.num_features
            return models.TwoBranch(branched, head(spec.head, both, num_classes, key.fold("head")))
        case recipe.Deconfounded():
            backbone = backbones.make(name, generator=generator, weights=weights)
            less = heads.Deconfounded(
                _width(backbone),
                num_classes,
                parts=spec.parts,
                damping=spec.damping,
                momentum=spec.momentum,
                alpha=spec.alpha,
                generator=key.fold("head").generator(),
            )
            return models.Classifier(backbone, less)
        case recipe.Contrasted():
            backbone = backbones.make(name, generator=generator, weights=weights)
            return models.Contrasted(
                backbone, _branches(spec, _width(backbone), num_classes, key.fold("head"))
            )
        case recipe.Remembering():
            backbone = backbones.make(name, generator=generator, weights=weights)
            width = _width(backbone)
            inner = head(spec.head, width, num_classes, key.fold("head"))
            return models.Classifier(backbone, heads.Remembering(inner, width, size=spec.size))
        case _:
            assert_never(spec)


def head(name: HeadName, num_features: int, num_classes: int, key: Key) -> heads.Linear | heads.Cosine:
    """A classifier whose weights are drawn from the key alone."""
    match name:
        case "linear":
            return heads.Linear(num_features, num_classes, generator=key.generator())
        case "cosine":
            return heads.Cosine(num_features, num_classes, generator=key.generator())
        case _:
            assert_never(name)


def _branches(
    spec: recipe.Contrasted, num_features: int, num_classes: int, key: Key
) -> heads.Projected | heads.Targeted:
    generator = key.generator()
    if spec.against == "targets":
        return heads.Targeted(
            num_features,
            num_classes,
            width=spec.width,
            momentum=spec.momentum,
            every=spec.every,
            generator=generator,
        )
    prototypes = spec.against == "prototypes"
    return heads.Projected(
        num_features, num_classes, width=spec.width, prototypes=prototypes, generator=generator
    )


def _several(spec: recipe.Experts, key: Key) -> backbones.Branched | backbones.Separate | backbones.Depths:
    name, weights = spec.backbone.name, spec.backbone.weights
    generator = key.fold("backbone").generator()
    if spec.reduced and spec.shares != "early":
        raise UsageError(
            'model.reduced narrows the layers of experts with shares="early"; others stay as they are'
        )
    match spec.shares:
        case "early":
            return backbones.experts(
                name, spec.count, reduced=spec.reduced, generator=generator, weights=weights
            )
        case "nothing":
            return backbones.separate(name, spec.count, generator=generator, weights=weights)
        case "depths":
            return backbones.at_depths(name, spec.count, generator=generator, weights=weights)
        case _:
            assert_never(spec.shares)


def _width(backbone: nn.Module) -> int:
    width = backbone.num_features
    assert isinstance(width, int)
    return width
