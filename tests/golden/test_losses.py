"""Numbers that only change on purpose.

Two runs on one machine agree to the bit. Between builds of torch and kinds of processor sums are rounded
otherwise, and training amplifies that; so the kept numbers are held to a tolerance.
"""

from __future__ import annotations

import json

import pytest

NAMES = ("cross-entropy", "gcl-euclidean, two stages", "gcl-angular, mixup")


@pytest.mark.parametrize("name", NAMES)
def test_losses_are_the_kept_ones(golden, tmp_path, name):
    kept = json.loads(golden.FILE.read_text())
    assert tuple(kept) == tuple(golden.recipes()) == NAMES
    found = golden.losses(golden.recipes()[name], tmp_path / "one")
    assert found == pytest.approx(kept[name], rel=1e-4)
    assert found == golden.losses(golden.recipes()[name], tmp_path / "two")  # to the bit


def test_control_another_seed_is_outside_the_tolerance(golden, tmp_path):
    kept = json.loads(golden.FILE.read_text())
    recipe = golden.replace(golden.recipes()["cross-entropy"], seed=5)
    found = golden.losses(recipe, tmp_path / "run")
    assert all(
        value != pytest.approx(wanted, rel=1e-4) for value, wanted in zip(found, kept["cross-entropy"])
    )
