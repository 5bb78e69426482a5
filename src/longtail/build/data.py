"""`recipe.Data` -> `Dataset`: read the source, choose the training images, hold some out, audit, digest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import assert_never

import numpy as np
import torch
from numpy.typing import NDArray

from longtail import recipe
from longtail.counts import ratio as realised_ratio
from longtail.data import audit, cifar, digits, folder, listing, parquet, subset
from longtail.data.splits import Dataset, Sources, Split
from longtail.errors import DataError

Index = NDArray[np.int64]


@dataclass(frozen=True)
class _Rules:
    """What happens to images that should not be there."""

    skip: bool = False
    allow_empty: bool = False
    strict: bool = False


def dataset(spec: recipe.Data) -> Dataset:
    """The data a run trains and tests on, checked; everything worth saying about it is in `notes`."""
    sources, rules = _sources(spec), _rules(spec)
    notes = list(sources.notes)
    usable, test, extra = _without_bad(sources, rules, notes)
    notes += audit.check_classes(
        sources.train.select(usable).counts, sources.names, allow_empty=rules.allow_empty
    )
    chosen, manifest = _chosen(spec.longtail, sources, usable, notes)
    chosen, held_out = _held_out(spec.held_out, sources, usable, chosen, extra)
    train = sources.train.select(chosen)
    parts = {"train": train, "test": test} | ({"held-out": held_out} if held_out is not None else {})
    inspected = {name: (part, audit.inspect(part)) for name, part in parts.items()}
    notes += audit.duplicates(inspected, strict=rules.strict)
    notes += _count_notes(train, test, manifest.get("ratio"))
    manifest = _final(manifest, chosen, sources.train, train)
    return Dataset(
        train=train,
        test=test,
        held_out=held_out,
        names=sources.names,
        counts=train.counts,
        digest=_digest(sources.names, manifest, inspected),
        manifest=manifest,
        nominal_ratio=manifest.get("ratio"),
        notes=tuple(notes),
    )


def _sources(spec: recipe.Data) -> Sources:
    match spec:
        case recipe.Cifar():
            return cifar.read(spec.classes, spec.root, fetch=spec.download)
        case recipe.Digits():
            return digits.read()
        case recipe.Folder():
            return folder.read(spec.root, spec.test, test_fraction=spec.test_fraction)
        case recipe.Listing():
            is_wanted = spec.held_out is not None and spec.held_out.source == "file"
            val = spec.val if is_wanted else None
            return listing.read(spec.root, spec.train, spec.test, val=val, prefix=spec.prefix)
        case recipe.Parquet():
            return parquet.read(spec.train, spec.test, image=spec.image, label=spec.label)
        case _:
            assert_never(spec)


def _rules(spec: recipe.Data) -> _Rules:
    match spec:
        case recipe.Cifar() | recipe.Digits():
            return _Rules()
        case recipe.Folder() | recipe.Listing() | recipe.Parquet():
            return _Rules(spec.on_bad_image == "skip", spec.allow_empty_class, spec.strict)
        case _:
            assert_never(spec)


def _without_bad(sources: Sources, rules: _Rules, notes: list[str]) -> tuple[Index, Split, Split | None]:
    """Indices of the training images that can be used, and the other parts without their bad images."""
    whole = np.arange(len(sources.train), dtype=np.int64)
    if not rules.skip:
        return whole, sources.test, sources.held_out

    def kept(part: Split, name: str) -> Index:
        indices, found = audit.without_bad(part, name)
        notes.extend(found)
        return np.array(indices, dtype=np.int64)

    extra = sources.held_out
    usable = kept(sources.train, "train")
    test = sources.test.select(kept(sources.test, "test"))
    return usable, test, None if extra is None else extra.select(kept(extra, "held-out"))


def _chosen(
    longtail: recipe.LongTail | None, sources: Sources, usable: Index, notes: list[str]
) -> tuple[Index, subset.Manifest]:
    """The training images, as indices into the source, and where the choice comes from."""
    if longtail is None:
        return usable, {"profile": None, "ratio": None, "seed": None, "selection": None}
    if longtail.manifest is not None:
        chosen, manifest = subset.from_manifest(longtail.manifest, sources.train.targets, sources.names)
        return chosen[np.isin(chosen, usable)], manifest
    picked, manifest = subset.long_tail(
        sources.train.targets[torch.from_numpy(usable)],
        longtail.profile,
        longtail.ratio,
        longtail.seed,
        longtail.selection,
        sources.official,
        names=sources.names,
    )
    if longtail.selection == "auto" and not sources.official:
        notes.append(
            'selection "first": not the whole official set, so the first images of each class are taken'
        )
    return usable[picked], manifest


def _held_out(
    spec: recipe.HeldOut | None, sources: Sources, usable: Index, chosen: Index, extra: Split | None
) -> tuple[Index, Split | None]:
    """The training images that stay, and the images for choosing what has to be chosen."""
    if spec is None:
        return chosen, None
    match spec.source:
        case "file":
            if extra is None:
                raise DataError(
                    "held-out: this data has no held-out file, val list or val folder; use stratified",
                    number=315,
                )
            return chosen, extra
        case "leftover":
            left = np.setdiff1d(usable, chosen)
            most = int(sources.test.counts.max())  # more per class than the test set has tells little more
            labels = sources.train.targets.numpy()[left]
            left = np.concatenate([left[labels == label][:most] for label in range(len(sources.names))])
        case "stratified":
            targets = sources.train.targets[torch.from_numpy(chosen)]
            kept, held = subset.stratified(targets, len(sources.names), spec.fraction, "held_out")
            chosen, left = chosen[kept], chosen[held]
        case _:
            assert_never(spec.source)
    if not len(left):
        raise DataError(
            f"held-out ({spec.source}): no image is left for it; choose another source", number=315
        )
    return chosen, sources.train.select(left)


def _count_notes(train: Split, test: Split, nominal: float | None) -> list[str]:
    notes: list[str] = []
    counts = train.counts
    smallest, largest = int(counts[counts > 0].min()), int(counts.max())
    realised = realised_ratio(counts[counts > 0])
    if nominal is not None and abs(realised / nominal - 1) > 0.005:
        notes.append(f"ratio {nominal:g} asked for, {realised:.4g} realised ({largest} to {smallest} images)")
    untested = [train.names[i] for i in torch.nonzero(test.counts == 0).flatten().tolist()]
    if untested:
        notes.append(f"classes without test images: {', '.join(untested[:5])} ({len(untested)} in all)")
    return notes


def _final(manifest: subset.Manifest, chosen: Index, source: Split, train: Split) -> subset.Manifest:
    """The manifest of the images that are trained on; `indices` is null when that is the whole source."""
    facts = {key: manifest[key] for key in ("profile", "ratio", "seed", "selection")}
    final = subset.manifest(chosen, train.counts, facts)
    if "positions_sha256" in manifest and manifest["sha256"] == final["sha256"]:
        final["positions_sha256"] = manifest["positions_sha256"]
    if np.array_equal(chosen, np.arange(len(source))):
        final["indices"] = None
    return final


def _digest(
    names: tuple[str, ...],
    manifest: subset.Manifest,
    inspected: dict[str, tuple[Split, audit.Inspection]],
) -> str:
    """SHA-256 over class names in order, counts, the choice, and every image and target of every part."""
    parts = {
        name: [
            hashlib.sha256(b"".join(inspection.prints)).hexdigest(),
            subset.sha256(part.targets.numpy()),
            inspection.depth,
        ]
        for name, (part, inspection) in inspected.items()
    }
    facts = [names, manifest["counts"], manifest["sha256"], parts]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
