"""Loss specs become losses. The only file that knows both."""

from __future__ import annotations

from dataclasses import asdict
from typing import assert_never

from torch import Tensor, nn

from longtail import counts as class_counts
from longtail import losses, recipe


def loss(spec: recipe.Loss, counts: Tensor) -> nn.Module:  # noqa: C901  (one case for each spec)
    """The loss that a recipe names, for the training counts `[C]` (of the split, before any re-sampling)."""
    match spec:
        case recipe.CrossEntropy():
            return losses.CrossEntropy(spec.scale)
        case recipe.Focal():
            return losses.Focal(spec.gamma, spec.scale)
        case recipe.ClassBalanced():
            return losses.ClassBalanced(counts, beta=spec.beta, gamma=spec.gamma, scale=spec.scale)
        case recipe.Reweighted():
            return losses.Reweighted(counts, spec.rho, spec.scale)
        case recipe.CosFace():
            return losses.CosFace(spec.scale, spec.margin)
        case recipe.ArcFace():
            return losses.ArcFace(spec.scale, spec.margin, spec.easy)
        case recipe.LDAM():
            weights = class_counts.effective_weights(counts, spec.beta) if spec.reweight else None
            return losses.LDAM(counts, margin=spec.margin, scale=spec.scale, weights=weights)
        case recipe.LogitAdjusted():
            return losses.LogitAdjusted(counts, spec.tau, spec.scale)
        case recipe.BalancedSoftmax():
            return losses.BalancedSoftmax(counts, spec.scale)
        case recipe.LabelAwareSmoothing():
            return losses.LabelAwareSmoothing(counts, spec.head, spec.tail, spec.shape, spec.scale)
        case recipe.FeatureBalanced():
            return losses.FeatureBalanced(counts, spec.strength)
        case recipe.LADE():
            return losses.LADE(counts, spec.strength, spec.regularization)
        case recipe.GCL():
            chosen = asdict(spec)
            del chosen["kind"], chosen["reweight"], chosen["beta"]
            weights = class_counts.effective_weights(counts, spec.beta) if spec.reweight else None
            return losses.GCL(counts, weights=weights, **chosen)
        case recipe.PerExpert():
            return losses.PerExpert(loss(spec.base, counts), together=spec.together, noise=spec.noise)
        case recipe.NestedCollaborative():
            return losses.NestedCollaborative(counts, mutual=spec.mutual, nested=spec.nested, hard=spec.hard)
        case recipe.HybridContrastive():
            return losses.HybridContrastive(spec.among, temperature=spec.temperature, strength=spec.strength)
        case recipe.TargetedContrastive():
            return losses.TargetedContrastive(temperature=spec.temperature, copies=spec.copies)
        case recipe.Routing():
            return losses.Routing(loss(spec.base, counts), positives=spec.positives)
        case recipe.SHIKE():
            return losses.SHIKE(loss(spec.base, counts), negative=spec.negative, mutual=spec.mutual)
        case recipe.Distilled():
            return losses.Distilled(loss(spec.base, counts), temperature=spec.temperature, weight=spec.weight)
        case recipe.Centroids():
            return losses.Centroids(spec.scale, spec.weight, spec.repulsion, spec.margin)
        case recipe.Remembered():
            return losses.Remembered(spec.scale, spec.weight)
        case recipe.RIDE():
            return losses.RIDE(
                loss(spec.base, counts),
                counts,
                diversity=spec.diversity,
                temperature=spec.temperature,
                rho=spec.rho,
                noise=spec.noise,
            )
        case _:
            assert_never(spec)
