"""Optimiser and batches from their specs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from longtail.data.augment import Small
from longtail.data.batches import Resident
from longtail.data.images import fitted, resident
from longtail.data.splits import Split
from longtail.data.streaming import Large, Streamed
from longtail.muon import Muon
from longtail.recipe import SGD, Images, LargeImages, SmallImages

Group = tuple[float, list[tuple[str, nn.Parameter]]]


def optimizer(spec: SGD, groups: Iterable[Group], device: torch.device) -> torch.optim.SGD:
    """Fused SGD. On an accelerator the rate is a tensor there, so that a captured step can be replayed."""
    made: list[dict[str, Any]] = []
    for factor, named in groups:
        if (filters := spec.filters) is None:
            made.append(_group(named, factor, spec.lr, device))
            continue
        made.append(_group([pair for pair in named if pair[1].ndim != 4], factor, spec.lr, device))
        banks = _group([p for p in named if p[1].ndim == 4], factor * filters.lr / spec.lr, spec.lr, device)
        turned = {"orthogonal": filters.momentum, "momentum": 0.0, "nesterov": False}
        made.append(banks | turned | {"weight_decay": filters.weight_decay})
    made = [group for group in made if group["params"]]
    kind = torch.optim.SGD if spec.filters is None else Muon
    return kind(
        made, momentum=spec.momentum, weight_decay=spec.weight_decay, nesterov=spec.nesterov, fused=True
    )


def _group(
    named: list[tuple[str, nn.Parameter]], factor: float, lr: float, device: torch.device
) -> dict[str, Any]:
    return {
        "params": [parameter for _, parameter in named],
        "names": [name for name, _ in named],
        "factor": factor,
        "lr": torch.tensor(lr, device=device) if device.type == "cuda" else lr,
    }


def batches(
    images: Images, split: Split, device: torch.device, *, channels_last: bool
) -> Resident | Streamed:
    """Small images live on the device; large ones stream through workers."""
    match images:
        case SmallImages():
            augment = Small(
                size=images.size,
                crop=images.crop,
                flip=images.flip,
                rotation=images.rotation,
                cutout=images.cutout,
                policy=images.policy,
                grayscale=images.grayscale,
                mean=images.mean,
                std=images.std,
            )
            held = resident(split, images.size)
            return Resident(held, augment, device=device, channels_last=channels_last)
        case LargeImages():
            return Streamed(
                split,
                size=images.size,
                resize=images.resize,
                area=images.area,
                flip=images.flip,
                jitter=images.jitter,
                mean=images.mean,
                std=images.std,
                workers=images.workers,
                device=device,
            )
        case _:
            assert_never(images)


def prepared(images: Images, image: Image.Image) -> Tensor:
    """One decoded image as the model sees it without augmentation: uint8 `[3, H, W]`."""
    match images:
        case SmallImages():
            pixels = fitted(image, images.size)
        case LargeImages():
            pixels = np.asarray(Large(size=images.size, resize=images.resize).plain(image)).transpose(2, 0, 1)
        case _:
            assert_never(images)
    return torch.from_numpy(pixels.copy())
