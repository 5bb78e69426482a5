"""The experiments of the paper that this project means to run, in order: the rows of results/README.md.

A cell is a folder name: data, ratio, method, form, seed; e.g. `cifar100-r100-gcl-angular-s0`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from longtail.recipes import paper
from longtail.recipes.paper_tables import Published

Classes = Literal[10, 100]

BOTH: tuple[Classes, Classes] = (100, 10)
FORMS = {"gcl-euclidean": "GCL-E", "gcl-angular": "GCL-A"}
PLAIN = {"ce-plain": "CE", "ce-mixup": "CE, mixup"}
GROUPS = {
    1: "The headline: 100 to 1, seed 0",
    2: "LDAM-DRW and three experts, 100 to 1",
    3: "One part changed: CIFAR-10-LT, 100 to 1, GCL-E",
    4: "Other ratios: 50 to 1 and 200 to 1",
    5: "Seeds 1 and 2 of the headline",
}
CHANGES: tuple[tuple[str, str, Literal["cloud", "sampler", "technique"], str], ...] = (
    ("cloud-cosine", "cloud cosine", "cloud", "cosine"),
    ("cloud-power3", "cloud power 1/3", "cloud", "power 1/3"),
    ("cloud-power4", "cloud power 1/4", "cloud", "power 1/4"),
    ("retrain-instance", "cRT, sampler IBS", "sampler", "IBS"),
    ("retrain-square_root", "cRT, sampler SRS", "sampler", "SRS"),
    ("retrain-effective_number", "cRT, sampler ENS", "sampler", "ENS"),
    ("retrain-none", "no re-training", "technique", "none"),
    ("retrain-lws", "LWS, sampler CBS", "technique", "LWS"),
    ("retrain-tau", "tau-norm", "technique", "tau-norm"),
)


@dataclass(frozen=True)
class Cell:
    """One experiment: its folder below results/, its title, the paper's figures after stage 1 and at the end."""

    name: str
    group: int
    title: str
    first: Published | None
    last: Published | None


def cells() -> list[Cell]:
    """Every cell, group by group.

    >>> [cell.name for cell in cells()][:2]
    ['cifar100-r100-ce-plain-s0', 'cifar100-r100-ce-mixup-s0']
    """
    return [*_headline(1, 0), *_further(), *_changes(), *_ratios(), *_headline(5, 1), *_headline(5, 2)]


def _headline(group: int, seed: int) -> Iterator[Cell]:
    for classes in BOTH:
        for method, title in PLAIN.items():
            first, last = paper.cifar("CE", classes, 100), paper.cifar("Decoupling", classes, 100)
            yield _cell(group, classes, 100, method, title, seed, first, last)
        for method, row in FORMS.items():
            none = paper.ablation("technique", "none") if (row, classes) == ("GCL-E", 10) else None
            yield _cell(group, classes, 100, method, row, seed, none, paper.cifar(row, classes, 100))


def _further() -> Iterator[Cell]:
    for classes in BOTH:
        row = paper.cifar("LDAM-DRW", classes, 100)
        yield _cell(2, classes, 100, "ldam-drw", "LDAM-DRW", 0, None, row)
    row = "RIDE + GCL-A"
    yield _cell(2, 100, 100, "ride-gcl-angular", row, 0, None, paper.cifar(row, 100, 100))


def _changes() -> Iterator[Cell]:
    for name, title, part, row in CHANGES:
        yield _cell(3, 10, 100, name, title, 0, None, paper.ablation(part, row))


def _ratios() -> Iterator[Cell]:
    for classes in BOTH:
        for ratio in (50, 200):
            for method, row in FORMS.items():
                yield _cell(4, classes, ratio, method, row, 0, None, paper.cifar(row, classes, ratio))


def _cell(  # noqa: PLR0913, PLR0917 - one argument a part of the name
    group: int,
    classes: Classes,
    ratio: int,
    method: str,
    title: str,
    seed: int,
    first: Published | None,
    last: Published | None,
) -> Cell:
    name = f"cifar{classes}-r{ratio}-{method}-s{seed}"
    return Cell(name, group, f"CIFAR-{classes}-LT, {ratio} to 1, {title}, seed {seed}", first, last)
