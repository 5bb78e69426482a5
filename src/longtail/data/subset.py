"""Which images of a set make the long-tailed one: a profile of counts, then a choice inside each class."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail import counts as profiles
from longtail.data.images import read_regular
from longtail.data.splits import printable, shown_path
from longtail.errors import DataError
from longtail.keys import Key

Profile = Literal["exponential", "step", "pareto"]
Selection = Literal["auto", "canonical", "first"]
Manifest = dict[str, Any]


def long_tail(
    targets: Tensor,
    profile: Profile = "exponential",
    ratio: float = 100.0,
    seed: int = 0,
    selection: Selection = "auto",
    official: bool = True,
    *,
    names: tuple[str, ...] | None = None,
) -> tuple[NDArray[np.int64], Manifest]:
    """Indices of the chosen images, class by class in the order of choice, and the manifest that says so.

    The largest class keeps all its images, and the classes take the profile in the order of their sizes,
    equal sizes in class order. So class 0 is the head of CIFAR, and people's own data keep their own head and
    tail. A class with fewer images than the profile asks for is an error, not a silently smaller set.

    Args:
        seed: of the canonical choice; the literature's CIFAR-LT is seed 0.
        selection: "canonical" shuffles each class with NumPy's legacy generator, as the field always has;
            "first" takes the first images of each class; "auto" is canonical on a whole set and first on a
            partial copy (`official=False`), whose order is taken as the order of choice.

    Example:
        >>> indices, manifest = long_tail(torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), ratio=4, selection="first")
        >>> indices.tolist(), manifest["counts"]
        ([0, 1, 2, 3, 4], [4, 1])
    """
    classes = len(names) if names else int(targets.max()) + 1
    available = torch.bincount(targets, minlength=classes)
    wanted = wanted_counts(available, profile, ratio, names)
    rule: Selection = ("canonical" if official else "first") if selection == "auto" else selection
    if rule == "canonical":
        chosen = canonical(available.tolist(), wanted.tolist(), seed)
    else:
        chosen = [np.arange(count, dtype=np.int64) for count in wanted.tolist()]
    labels = targets.numpy()
    members = [np.flatnonzero(labels == label) for label in range(classes)]
    indices = np.concatenate([of[picked] for of, picked in zip(members, chosen)]).astype(np.int64)
    facts = {"profile": profile, "ratio": ratio, "seed": seed, "selection": rule}
    return indices, manifest(indices, wanted, facts) | {"positions_sha256": sha256(np.concatenate(chosen))}


def wanted_counts(
    available: Tensor, profile: Profile, ratio: float, names: tuple[str, ...] | None = None
) -> Tensor:
    """Images per class under the profile; DataError names the class that cannot give them."""
    order = torch.argsort(available, descending=True, stable=True)
    wanted = torch.empty_like(available)
    wanted[order] = _curve(len(available), int(available.max()), profile, ratio)
    short = torch.nonzero(wanted > available).flatten().tolist()
    if short:
        name = names[short[0]] if names else short[0]
        have, need = int(available[short[0]]), int(wanted[short[0]])
        raise DataError(
            f"class {name} has {have} images, the {profile} profile at ratio {ratio:g} needs {need}; "
            "use a larger ratio, another profile, or data=...longtail=null to take the images as they are",
            number=313,
        )
    return wanted


def _curve(classes: int, largest: int, profile: Profile, ratio: float) -> Tensor:
    try:
        match profile:
            case "exponential":
                return profiles.exponential(classes, largest, ratio)
            case "step":
                return profiles.step(classes, largest, ratio)
            case "pareto":
                return profiles.pareto(classes, largest, max(1, int(largest / ratio)))
    except ValueError as error:
        raise DataError(
            f"{largest} images cannot be spread at ratio {ratio:g}: {error}", number=313
        ) from error


def canonical(available: list[int], wanted: list[int], seed: int = 0) -> list[NDArray[np.int64]]:
    """Positions inside each class, as the released loaders pick them: one stream, class by class."""
    # The legacy generator is the definition of this subset; a private one, so no global stream moves.
    stream = np.random.RandomState(seed)  # noqa: NPY002
    chosen: list[NDArray[np.int64]] = []
    for have, want in zip(available, wanted):
        positions = np.arange(have, dtype=np.int64)
        stream.shuffle(positions)
        chosen.append(positions[:want])
    return chosen


def stratified(
    targets: Tensor, classes: int, fraction: float, purpose: str, *, at_least: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Splits off `fraction` of each class, rounded: (kept, chosen), both ascending, the same every time.

    A class keeps at least one image; it gives `at_least` where it can and the fraction is not zero.
    """
    labels = targets.numpy()
    is_chosen = np.zeros(len(labels), dtype=bool)
    for label in range(classes):
        members = np.flatnonzero(labels == label)
        count = max(int(len(members) * fraction + 0.5), at_least if fraction else 0)
        order = Key(0).fold(purpose, label).numpy().permutation(len(members))
        is_chosen[members[order[: max(0, min(count, len(members) - 1))]]] = True
    return np.flatnonzero(~is_chosen), np.flatnonzero(is_chosen)


def manifest(indices: NDArray[np.int64], counts: Tensor, facts: Manifest) -> Manifest:
    """What is written beside a run. `sha256` is over the indices as little-endian int64, in their order."""
    return {"sha256": sha256(indices), **facts, "counts": counts.tolist(), "indices": indices.tolist()}


def sha256(values: NDArray[np.int64]) -> str:
    return hashlib.sha256(values.astype("<i8").tobytes()).hexdigest()


def from_manifest(path: str, targets: Tensor, names: tuple[str, ...]) -> tuple[NDArray[np.int64], Manifest]:
    """The indices a manifest file lists, once its hash and its counts hold for these targets."""
    where = shown_path(path)
    try:
        content = json.loads(read_regular(path, where))
        indices = np.array(_whole_numbers(content["indices"]), dtype=np.int64)
        counts, digest = _whole_numbers(content["counts"]), content["sha256"]
    except DataError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        reason = printable(f"{type(error).__name__}: {error}")[:80]
        raise DataError(
            f"{where}: no manifest with sha256, counts and indices ({reason})", number=314
        ) from error
    if digest != sha256(indices):
        raise DataError(f"{where}: the indices do not have the SHA-256 it names; it was changed", number=314)
    if (
        not len(indices)
        or indices.min() < 0
        or indices.max() >= len(targets)
        or len(set(indices.tolist())) < len(indices)
    ):
        raise DataError(
            f"{where}: indices repeat or lie outside the {len(targets)} training images", number=314
        )
    found = torch.bincount(targets[torch.from_numpy(indices)], minlength=len(names))
    if found.tolist() != counts:
        raise DataError(
            f"{where}: its counts are not those of these images; it belongs to other data", number=314
        )
    kept = {key: content.get(key) for key in ("profile", "ratio", "seed", "selection")}
    return indices, manifest(indices, found, kept)


def _whole_numbers(values: Any) -> list[int]:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise ValueError("a list of whole numbers is needed")
    return values
