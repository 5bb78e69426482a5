"""What a classifier is worth on a long tail: per-class hits and what follows from them.

A `Meter` keeps sums on the device of the logits and never waits for it: one reading at the end. The sums of
several processes or meters simply add.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from longtail import counts as class_counts
from longtail.counts import Counts, ShotRule

LARGEST_CONFUSION = 1000  # classes; beyond, C x C integers are no longer small


class Meter:
    """Counts hits per class, batch by batch. Means over classes are over classes with test images.

    `counts` are the training images per class; they decide which classes are many, medium and few.

    Example:
        >>> meter = Meter([500, 50, 5])
        >>> meter.update(torch.eye(3), torch.tensor([0, 1, 1]))
        >>> meter.compute()["hits"], meter.compute()["few"]
        ([1, 1, 0], nan)
    """

    def __init__(self, counts: Counts, *, shot_rule: ShotRule = "paper", bins: int = 15):
        if bins < 1:
            raise ValueError(f"bins must be at least 1, it is {bins}")
        clamped = class_counts.checked(counts, zero_count="clamp")  # a class without training images is few
        self.shots = class_counts.shots(clamped, shot_rule)
        self.counts, self.num_classes, self.bins = clamped, len(clamped), bins
        c = self.num_classes
        whole, exact = torch.int64, torch.float64
        self._sums = {
            "hits": torch.zeros(c, dtype=whole),
            "totals": torch.zeros(c, dtype=whole),
            "predicted": torch.zeros(c, dtype=whole),
            "loss": torch.zeros((), dtype=exact),
            "bin_images": torch.zeros(bins, dtype=whole),
            "bin_hits": torch.zeros(bins, dtype=whole),
            "bin_confidence": torch.zeros(bins, dtype=exact),
        }
        if c <= LARGEST_CONFUSION:
            self._sums["confusion"] = torch.zeros(c * c, dtype=whole)

    def to(self, device: torch.device | str) -> Meter:
        """Move the sums; `update` does so by itself, but a process without images has no update."""
        exact = torch.float32 if torch.device(device).type == "mps" else torch.float64  # MPS has no float64
        self._sums = {
            name: values.to(device, exact if values.is_floating_point() else None)
            for name, values in self._sums.items()
        }
        return self

    def tensors(self) -> dict[str, Tensor]:
        """The sums themselves: add over processes in place, or hand to another meter's `merge`."""
        return dict(self._sums)

    def merge(self, other: Meter | Mapping[str, Tensor]) -> None:
        """Add another meter of the same counts, or the `tensors()` of one that lives elsewhere."""
        if isinstance(other, Meter):
            groups = zip(self.shots, other.shots, strict=True)
            alike = torch.equal(self.counts, other.counts) and all(torch.equal(*pair) for pair in groups)
            if not alike:
                raise ValueError("this meter has other counts or another shot rule: its classes are others")
        tensors = other.tensors() if isinstance(other, Meter) else other
        if {n: t.shape for n, t in tensors.items()} != {n: t.shape for n, t in self._sums.items()}:
            raise ValueError("these sums come from a meter with other classes or bins")
        for name, values in self._sums.items():
            values += tensors[name].to(values.device)

    @torch.no_grad()
    def update(self, logits: Tensor, targets: Tensor) -> None:
        """Count a batch: clean logits `[B, C]`, class indices `[B]`. Never waits for the device."""
        self._check(logits, targets)
        sums = self._sums if self._sums["loss"].device == logits.device else self.to(logits.device)._sums
        logits = logits if logits.dtype == torch.float64 else logits.float()
        normaliser = logits.logsumexp(1)
        highest, predicted = logits.max(1)
        hit, exact = predicted == targets, sums["loss"].dtype
        sums["loss"] += (normaliser - logits.gather(1, targets[:, None])[:, 0]).to(exact).sum()
        # index_add and not bincount: bincount waits for the device to learn the number of bins
        one = torch.ones_like(targets)
        sums["totals"].index_add_(0, targets, one)
        sums["predicted"].index_add_(0, predicted, one)
        sums["hits"].index_add_(0, targets, hit.long())
        if "confusion" in sums:
            sums["confusion"].index_add_(0, targets * self.num_classes + predicted, one)
        self._calibrate(sums, (highest - normaliser).to(exact).exp(), hit)

    def _calibrate(self, sums: dict[str, Tensor], confidence: Tensor, hit: Tensor) -> None:
        bins = ((confidence * self.bins).ceil() - 1).clamp(0, self.bins - 1)  # bin b is (b, b + 1] / bins
        bins = bins.nan_to_num(0)  # in no bin at all, a NaN would count as calibrated
        inside = bins[:, None] == torch.arange(self.bins, device=bins.device)
        # a masked sum and not index_add: atomic additions of floats depend on their order
        sums["bin_images"] += inside.sum(0)
        sums["bin_hits"] += (inside & hit[:, None]).sum(0)
        sums["bin_confidence"] += torch.where(inside, confidence[:, None], 0.0).sum(0)

    def _check(self, logits: Tensor, targets: Tensor) -> None:
        for name, shape, value in (("logits", f"B, {self.num_classes}", logits), ("targets", "B", targets)):
            if not isinstance(cast(object, value), Tensor):
                kind = type(value).__name__
                raise TypeError(
                    f"{name} must be a tensor [{shape}], got {kind}; pass torch.as_tensor({name})"
                )
        if logits.ndim != 2 or logits.shape[1] != self.num_classes:
            raise ValueError(f"logits must be [B, {self.num_classes}], not {list(logits.shape)}")
        if targets.shape != logits.shape[:1] or targets.dtype != torch.int64:
            raise ValueError(
                f"targets must be int64 [{len(logits)}], not {targets.dtype} {list(targets.shape)}"
            )
        # On other devices the look itself would wait; there an index out of range fails in the kernel.
        if targets.device.type == "cpu" and len(targets):
            low, high = int(targets.min()), int(targets.max())
            if low < 0 or high >= self.num_classes:
                raise ValueError(f"targets must lie in 0..{self.num_classes - 1}, found {low}..{high}")

    def confusion(self) -> Tensor:
        """int64 `[C, C]` on the CPU: row true class, column predicted class."""
        if "confusion" not in self._sums:
            raise ValueError(
                f"a confusion matrix is kept up to {LARGEST_CONFUSION} classes; here are {self.num_classes}"
            )
        return self._sums["confusion"].cpu().reshape(self.num_classes, self.num_classes)

    def compute(self) -> dict[str, Any]:
        """All measures of what was counted so far, as plain numbers. This is where the device is read.

        In percent: top1 (hits over images), balanced (mean class accuracy), many, medium and few (the same
        over those classes), macro_f1 (a class that is never predicted has 0), geometric_mean, harmonic_mean
        and worst of the class accuracies. In 0..1: ece, the expected calibration error. loss is the mean
        cross-entropy; hits and totals are lists over classes. NaN where there was nothing to measure.
        """
        sums = {name: values.cpu() for name, values in self._sums.items() if name != "confusion"}
        hits, totals, predicted = sums["hits"].double(), sums["totals"].double(), sums["predicted"].double()
        seen, images = totals > 0, totals.sum()
        recall = hits / totals
        f1 = 2 * hits / (totals + predicted)
        gaps = (sums["bin_hits"].double() - sums["bin_confidence"]).abs()
        there = recall[seen]
        return dict(
            top1=_percent(hits.sum() / images),
            balanced=_percent(there.mean()),
            many=_percent(recall[seen & self.shots.many].mean()),
            medium=_percent(recall[seen & self.shots.medium].mean()),
            few=_percent(recall[seen & self.shots.few].mean()),
            macro_f1=_percent(f1[seen].mean()),
            geometric_mean=_percent(there.log().mean().exp()),
            harmonic_mean=_percent(1 / there.reciprocal().mean()),
            worst=_percent(there.min()) if len(there) else float("nan"),
            ece=float(gaps.sum() / images),
            loss=float(sums["loss"] / images),
            hits=sums["hits"].tolist(),
            totals=sums["totals"].tolist(),
        )


def _percent(fraction: Tensor) -> float:
    return 100.0 * float(fraction)
