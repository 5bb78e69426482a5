"""The rows of results/README.md: every cell of the campaign with its title and the paper's figures.

A cell is a folder name: data, ratio, method, form, seed; e.g. `cifar100-r100-gcl-angular-s0`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from longtail.recipes import cells as campaign
from longtail.recipes import paper
from longtail.recipes.paper_tables import Published
from longtail.report import describe

GROUPS: Mapping[int, str] = {
    1: "The headline: 100 to 1, seed 0",
    2: "LDAM-DRW and three experts, 100 to 1",
    3: "One part changed: CIFAR-10-LT, 100 to 1, GCL-E",
    4: "Other ratios: 50 to 1 and 200 to 1",
    5: "Seeds 1 and 2 of the headline",
}


@dataclass(frozen=True)
class Cell:
    """One experiment: its folder, its title, the paper's figures after stage 1 and at the end."""

    name: str
    group: int
    title: str
    first: Published | None
    last: Published | None


def cells() -> list[Cell]:
    """Every cell, in the order in which they are worth having.

    >>> {cell.name: cell.last.value for cell in cells() if cell.last}["cifar100-r100-gcl-angular-s0"]
    49.97
    """
    return [_trained(cell) for cell in campaign.cells()]


def _trained(cell: campaign.Cell) -> Cell:
    recipe = asdict(cell.make())
    first = paper.published(recipe, stage=0) if len(recipe["stages"]) > 1 else None
    last = paper.published(recipe)
    return Cell(cell.name, cell.group, title(recipe, last), first, last)


def title(recipe: Mapping[str, Any], published: Published | None) -> str:
    """Data, method, the part that differs from the method's own recipe, seed."""
    longtail = recipe["data"].get("longtail") or {}
    data = describe.dataset(recipe, {"nominal_ratio": longtail.get("ratio")})
    method, part = describe.method(recipe), ""
    if published is not None and published.row != method:
        part = f", {published.table} {published.row}"
    if recipe["stages"][0]["loss"]["kind"] == "cross_entropy":
        part = ", mixup" if recipe["stages"][0].get("mixing") else ", no mixup"
        if len(recipe["stages"]) > 1:  # the paper has one row for both
            fresh = recipe["stages"][1]["head"] == "restarted"
            part += ", decoupling's stage 2" if fresh else ", the released stage 2"
    return f"{data}: {method}{part}, seed {recipe['seed']}"
