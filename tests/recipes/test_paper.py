from __future__ import annotations

from typing import Any

import pytest

from longtail.recipes import paper
from longtail.recipes import paper_tables as tables


def stage(loss: dict[str, Any], **fields: Any) -> dict[str, Any]:
    plain = {"name": "representation", "epochs": 200, "trains": ["backbone", "head"], "head": "kept"}
    return {**plain, "sampling": {"rule": "instance"}, **fields, "loss": loss}


def retrained(loss: dict[str, Any], rule: str = "class_balanced", **fields: Any) -> dict[str, Any]:
    plain = {"name": "classifier", "epochs": 30, "trains": ["head"], "sampling": {"rule": rule}}
    return stage(loss, **{**plain, **fields})


def recipe(*stages: dict[str, Any], classes: int = 10, ratio: float = 100, **fields: Any) -> dict[str, Any]:
    longtail = {"profile": "exponential", "ratio": ratio}
    return {
        "name": "cifar.test",
        "data": {"kind": "cifar", "classes": classes, "longtail": longtail},
        "images": {"kind": "small", "policy": "none", "cutout": 0},
        "model": {"kind": "classifier", "backbone": {"name": "resnet32"}},
        "stages": list(stages),
        **fields,
    }


EUCLIDEAN = {"kind": "gcl", "form": "euclidean", "cloud": "log"}
ANGULAR = {"kind": "gcl", "form": "angular", "cloud": "log"}
CE = {"kind": "cross_entropy"}


def test_printed_gains_follow_from_the_tables() -> None:
    base = tables.EXPERTS["RIDE"].figures + tables.EXPERTS_LARGE["RIDE"].figures
    for row, printed in tables.EXPERT_GAINS.items():
        ours = tables.EXPERTS[row].figures + tables.EXPERTS_LARGE[row].figures
        gains = [round(float(a) - float(b), 2) for a, b in zip(ours, base, strict=True) if a and b]
        assert gains == list(printed)


def test_group_weighted_splits_give_the_printed_overall_column() -> None:
    off = {}
    for row, entry in tables.SPLITS.items():
        *groups, overall = (float(x or 0) for x in entry.figures)
        weighted = sum(g * n for g, n in zip(groups, tables.IMAGENET_LT_GROUPS, strict=True)) / 1000
        off[row] = abs(weighted - overall)
    assert max(off.values()) <= 0.05
    gcl = [float(x or 0) for x in tables.SPLITS["GCL-E"].figures[:3]]
    weighted = sum(g * n for g, n in zip(gcl, tables.IMAGENET_LT_GROUPS, strict=True)) / 1000
    assert weighted == pytest.approx(tables.RELEASED["ImageNet-LT"][1], abs=0.001)


def test_every_row_has_every_column_and_every_figure_is_a_percentage() -> None:
    for table, width in (
        (tables.CIFAR, 6),
        (tables.EXPERTS, 6),
        (tables.LARGE, 3),
        (tables.EXPERTS_LARGE, 3),
    ):
        for entry in table.values():
            assert len(entry.figures) == width
            assert all(x is None or 20 < x < 90 for x in entry.figures)


@pytest.mark.parametrize(
    ("row", "classes", "ratio", "value"),
    [
        ("CE", 10, 200, 65.68),
        ("CE", 100, 50, 43.90),
        ("GCL-E", 100, 100, 48.69),
        ("GCL-A", 10, 50, 85.58),
        ("RIDE + GCL-A", 100, 100, 52.38),
        ("TSC", 10, 200, None),
        ("GCL-E", 10, 10, None),
        ("GCL-E", 20, 100, None),
        ("nobody", 10, 100, None),
    ],
)
def test_cifar_cells(row: str, classes: int, ratio: float, value: float | None) -> None:
    found = paper.cifar(row, classes, ratio)
    assert (found.value if found else None) == value


@pytest.mark.parametrize(
    ("stages", "row", "value"),
    [
        ((stage(CE),), "CE", 70.70),
        ((stage(CE), retrained(CE)), "Decoupling", 79.15),
        ((stage(EUCLIDEAN), retrained(EUCLIDEAN)), "GCL-E", 82.73),
        ((stage(ANGULAR), retrained(ANGULAR)), "GCL-A", 82.72),
        ((stage(EUCLIDEAN),), "GCL-E", 80.55),
        ((stage(ANGULAR),), "GCL-A", None),
        ((stage(EUCLIDEAN), retrained(EUCLIDEAN, "effective_number")), "GCL-E", 82.45),
        ((stage(EUCLIDEAN), retrained(EUCLIDEAN, head="scaled", trains=["scales"])), "GCL-E", 82.25),
        ((stage({**EUCLIDEAN, "cloud": "cosine"}), retrained(EUCLIDEAN)), "GCL-E", 79.21),
        ((stage({**EUCLIDEAN, "cloud": "power", "power": 1 / 3}), retrained(EUCLIDEAN)), "GCL-E", 80.80),
        ((stage({**EUCLIDEAN, "cloud": "cosine"}), retrained(EUCLIDEAN, "instance")), "GCL-E", None),
        ((stage({"kind": "ldam"}), stage({"kind": "ldam", "reweight": True})), "LDAM-DRW", 77.03),
        ((stage({"kind": "ldam"}),), None, None),
        ((stage({"kind": "focal"}),), None, None),
        ((stage({"kind": "cosface"}),), "CosFace", 72.08),
        ((stage({"kind": "feature_balanced"}),), "FBL", 82.46),
        ((stage({"kind": "gcl", "form": "unified"}), retrained(EUCLIDEAN)), None, None),
    ],
)
def test_a_recipe_stands_beside_its_row(
    stages: tuple[Any, ...], row: str | None, value: float | None
) -> None:
    plain = recipe(*stages)
    found = paper.published(plain)
    assert paper.row_of(plain) == row
    assert (found.value if found else None) == value


def test_experts_have_rows_of_their_own_through_a_wrapping_loss() -> None:
    wrapped = {"kind": "ride", "base": ANGULAR}
    model = {"kind": "experts", "backbone": {"name": "resnet32"}}
    found = paper.published(recipe(stage(wrapped), retrained(ANGULAR), classes=100, model=model))
    assert found is not None and found.value == 52.38


def test_the_first_stage_has_its_own_figure_where_the_paper_gives_one() -> None:
    two = recipe(stage(EUCLIDEAN), retrained(EUCLIDEAN))
    first = paper.published(two, stage=0)
    assert first is not None and first.value == 80.55
    plain = paper.published(recipe(stage(CE), retrained(CE), classes=100), stage=0)
    assert plain is not None and (plain.row, plain.value) == ("CE", 38.43)
    assert paper.published(recipe(stage(EUCLIDEAN), retrained(EUCLIDEAN), classes=100), stage=0) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"images": {"policy": "autoaugment"}},
        {"images": {"policy": "none", "cutout": 16}},
        {"model": {"kind": "classifier", "backbone": {"name": "resnet18"}}},
        {"data": {"kind": "digits", "longtail": {"profile": "exponential", "ratio": 100}}},
        {"data": {"kind": "cifar", "classes": 10, "longtail": {"profile": "step", "ratio": 100}}},
        {"data": {"kind": "cifar", "classes": 10, "longtail": None}},
    ],
)
def test_the_strong_track_and_other_data_have_no_figure(changed: dict[str, Any]) -> None:
    assert paper.published({**recipe(stage(EUCLIDEAN), retrained(EUCLIDEAN)), **changed}) is None


def test_large_sets_are_found_by_the_recipe_name() -> None:
    plain = recipe(stage(EUCLIDEAN), retrained(EUCLIDEAN), name="places_lt.gcl", data={"kind": "listing"})
    found = paper.published(plain)
    assert found is not None and (found.value, found.column) == (40.62, "Places-LT")


def test_short_schedules_are_named() -> None:
    assert paper.shortfall(recipe(stage(CE))) == ""
    assert "40 epochs" in paper.shortfall(recipe(stage(CE, epochs=40)))
    deferred = recipe(stage(CE, epochs=160), stage(CE, epochs=40, optimizer_state="kept"))
    assert paper.shortfall(deferred) == ""


def test_what_is_re_trained_after_another_method_is_not_that_method() -> None:
    """LDAM-DRW and MBJ are one training in two stages; a classifier trained after it is no row."""
    from longtail.recipes import cifar, memory, overrides, ride
    from longtail.recipes.retraining import Choices, plan

    for first in (cifar.ldam_drw(10), memory.mbj(10), ride.ldam(10)):
        assert paper.published(overrides.plain(first)) is not None
        for technique in ("crt", "lws"):
            after = plan(first, Choices(technique)).after(first)
            assert paper.row_of(overrides.plain(after)) is None
            assert paper.published(overrides.plain(after)) is None


def test_gcl_without_mixup_stands_beside_no_figure() -> None:
    from longtail.recipes import cifar, overrides

    for form in ("euclidean", "angular"):
        assert paper.published(overrides.plain(cifar.gcl(10, form=form, mixup=False))) is None
        assert paper.published(overrides.plain(cifar.gcl(10, form=form))) is not None


def test_disalign_on_a_gcl_run_is_not_lws() -> None:
    from longtail.recipes import cifar, overrides
    from longtail.recipes.retraining import Choices, plan

    first = cifar.gcl(10)
    figures = {
        name: paper.published(overrides.plain(plan(first, Choices(name, "class_balanced")).after(first)))
        for name in ("lws", "disalign")
    }
    assert figures["lws"] is not None and figures["lws"].value == 82.25
    assert figures["disalign"] is None


def test_mislas_put_on_a_finished_run_is_the_row_mislas() -> None:
    from longtail.recipes import cifar, overrides
    from longtail.recipes.retraining import Choices, plan

    first = cifar.ce(10)
    found = paper.published(overrides.plain(plan(first, Choices("mislas")).after(first)))
    assert found is not None and (found.row, found.value) == ("MisLAS", 82.06)
