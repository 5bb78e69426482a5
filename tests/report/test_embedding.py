from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

from longtail.errors import UsageError
from longtail.report.figures import embedding


def test_the_tail_is_kept_whole_and_the_head_thinned() -> None:
    labels = np.repeat([0, 1, 2, 3], [5000, 500, 50, 5])
    kept = embedding.kept(labels, 700, 0)
    sizes = np.bincount(labels[kept])
    assert sizes[2:].tolist() == [50, 5] and sizes.sum() <= 700 and sizes[0] == sizes[1] == 322
    assert np.array_equal(kept, embedding.kept(labels, 700, 0))
    assert not np.array_equal(kept, embedding.kept(labels, 700, 1))
    assert len(embedding.kept(labels, 10_000, 0)) == len(labels)


def test_hull_and_area_by_hand() -> None:
    square = np.array([[0, 0], [3, 0], [3, 2], [0, 2], [1, 1], [2, 1], [1.5, 0], [0, 0]])
    corners = embedding.hull(square)
    assert corners.tolist() == [[0, 0], [3, 0], [3, 2], [0, 2]]
    assert embedding.area(corners) == 6.0
    line = embedding.hull(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]))
    assert embedding.area(line) == 0.0
    assert embedding.area(embedding.hull(np.zeros((1, 2)))) == 0.0


def test_hull_holds_every_point() -> None:
    points = np.random.default_rng(0).normal(size=(200, 2))
    corners = embedding.hull(points)
    for a, b in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        side = (b[0] - a[0]) * (points[:, 1] - a[1]) - (b[1] - a[1]) * (points[:, 0] - a[0])
        assert (side >= -1e-12).all()


def test_spread_is_the_mean_distance_of_pairs() -> None:
    assert embedding.spread(np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])) == pytest.approx((5 + 0 + 5) / 3)
    assert np.isnan(embedding.spread(np.zeros((1, 2))))


def test_classes_and_samples() -> None:
    assert embedding.spaced_classes(np.array([9, 1, 5, 3, 7]), 3).tolist() == [0, 2, 1]
    labels = np.repeat([0, 1], [30, 4])
    chosen = embedding.sample(labels, [1, 0], [10, 5], 0)
    assert labels[chosen].tolist() == [1] * 4 + [0] * 5 and len(set(chosen.tolist())) == 9


def test_tsne_keeps_clusters_together_and_repeats_itself() -> None:
    pytest.importorskip("sklearn")
    draw = np.random.default_rng(0)
    features = np.concatenate([draw.normal(size=(20, 8)), 12 + draw.normal(size=(20, 8))])
    points = embedding.tsne(features, 0)
    first, second = points[:20], points[20:]
    between = np.linalg.norm(first.mean(axis=0) - second.mean(axis=0))
    assert between > 2 * max(first.std(axis=0).max(), second.std(axis=0).max())
    assert np.array_equal(points, embedding.tsne(features, 0))
    with pytest.raises(UsageError, match="at least four points"):
        embedding.tsne(features[:3], 0)


def test_boundary_lies_between_the_decisions() -> None:
    pytest.importorskip("sklearn")
    x = np.linspace(-3, 3, 40)
    points = np.stack([x, np.zeros(40)], axis=1) + 0.1 * np.random.default_rng(0).normal(size=(40, 2))
    found = embedding.boundary(points, points[:, 0] > 1)
    assert found is not None
    row = found["values"][len(found["y"]) // 2]
    crossing = found["x"][np.flatnonzero(np.diff(np.sign(row)))]
    assert len(crossing) == 1 and abs(crossing[0] - 1) < 0.35
    assert embedding.boundary(points, np.ones(40, bool)) is None


def test_opentsne_is_asked_for_the_same_as_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    class Stub:
        def __init__(self, **options: object):
            asked.append(options)

        def fit(self, points: np.ndarray) -> list[list[float]]:
            assert points.dtype == np.float64 and points.flags.c_contiguous
            return points[:, :2].tolist()

    module = ModuleType("openTSNE")
    module.TSNE = Stub  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "openTSNE", module)
    features = np.random.default_rng(0).normal(size=(100, 5)).astype(np.float16)
    assert np.array_equal(embedding.tsne(features, 7), features[:, :2])
    embedding.tsne(features[:10], 8)
    wanted = {"initialization": "pca", "n_jobs": 1}
    assert asked == [
        {"perplexity": 30.0, "random_state": 7, **wanted},
        {"perplexity": 3.0, "random_state": 8, **wanted},  # a third of the other points at most
    ]


def test_without_the_extra_the_hint_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("openTSNE", "sklearn", "sklearn.manifold", "sklearn.svm"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=r"longtail\[viz\]"):
        embedding.tsne(np.eye(8), 0)
    with pytest.raises(UsageError, match=r"longtail\[viz\]"):
        embedding.boundary(np.eye(2), np.array([True, False]))
