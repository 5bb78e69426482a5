"""The defaults of every loss, as they are promised: values of the papers, whose change moves results."""

from __future__ import annotations

import inspect

import pytest

from longtail import losses

DEFAULTS = {
    "CrossEntropy": {"scale": 1.0},
    "Focal": {"gamma": 1.0, "scale": 1.0},
    "ClassBalanced": {"beta": 0.9999, "gamma": 0.0, "scale": 1.0},
    "CosFace": {"scale": 30.0, "margin": 0.35},
    "ArcFace": {"scale": 30.0, "margin": 0.5, "easy": False},
    "LDAM": {"margin": 0.5, "scale": 30.0, "weights": None},
    "LogitAdjusted": {"tau": 1.0, "scale": 1.0},
    "BalancedSoftmax": {"scale": 1.0},
    "Reweighted": {"rho": 1.2, "scale": 1.0},
    "LabelAwareSmoothing": {"head": 0.3, "tail": 0.0, "shape": "concave", "scale": 1.0},
    "FeatureBalanced": {"strength": 60.0},
    "GCL": {
        "form": "euclidean",
        "cloud": "log",
        "power": 1 / 4,
        "strength": 0.5,
        "scale": 30.0,
        "margin": 0.0,
        "boundary": "clip",
        "focal": 0.0,
        "noise": "independent",
        "sigma": 1 / 3,
        "halves": "shared",
        "weights": None,
    },
}
WITHOUT_COUNTS = {"CrossEntropy", "Focal", "CosFace", "ArcFace"}


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_defaults_are_the_promised_ones(name):
    given = inspect.signature(getattr(losses, name)).parameters
    found = {key: each.default for key, each in given.items() if each.default is not inspect.Parameter.empty}
    with_counts = {} if name in WITHOUT_COUNTS else {"zero_count": "error"}
    assert found == {**DEFAULTS[name], **with_counts, "ignore_index": -100}
    assert ("counts" in given) == (name not in WITHOUT_COUNTS)


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_call_takes_scores_target_and_a_generator(name):
    given = inspect.signature(getattr(losses, name).forward).parameters
    assert list(given)[1:4] == ["cosine" if name == "GCL" else "scores", "target", "generator"]
    assert all(each.default is None for each in list(given.values())[3:])
