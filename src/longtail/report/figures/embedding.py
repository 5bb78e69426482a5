"""Embeddings as arrays (H1, H6, H7): which points, t-SNE, shaded regions, the model's own boundary."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import UsageError
from longtail.keys import Key

Array = NDArray[Any]

PERPLEXITY = 30.0
MOST = 5000
HINT = 'this figure needs scikit-learn: pip install "longtail[viz]"'


def kept(labels: Array, most: int, seed: int) -> Array:
    """Positions of at most `most` points: the largest classes lose points first, so the tail stays whole.

    >>> labels = np.repeat([0, 1, 2], [50, 10, 3])
    >>> np.bincount(labels[kept(labels, 33, 0)]).tolist()
    [20, 10, 3]
    """
    sizes = np.bincount(labels)
    level = int(sizes.max(initial=0))
    while np.minimum(sizes, level).sum() > most and level > 1:
        level -= 1
    generator = Key(seed).fold("figure", "kept").numpy()
    chosen = [generator.permutation(np.flatnonzero(labels == c))[:level] for c in range(len(sizes))]
    return np.sort(np.concatenate([*chosen, np.zeros(0, np.int64)]))


def tsne(features: Array, seed: int, perplexity: float = PERPLEXITY) -> Array:
    """Two coordinates for each row: t-SNE from a PCA start. openTSNE is used when it can be imported."""
    perplexity = min(perplexity, max((len(features) - 1) / 3, 1.0))
    points = np.ascontiguousarray(features, dtype=np.float64)
    if len(points) < 4:
        raise UsageError(f"t-SNE needs at least four points, there are {len(points)}")
    try:
        from openTSNE import TSNE  # pyright: ignore
    except Exception:  # a broken installation is as good as none
        return _by_sklearn(points, seed, perplexity)
    fitted: Any = TSNE(perplexity=perplexity, initialization="pca", random_state=seed, n_jobs=1)
    return np.asarray(fitted.fit(points))


def _by_sklearn(points: Array, seed: int, perplexity: float) -> Array:
    try:
        from sklearn.manifold import TSNE  # pyright: ignore
        from threadpoolctl import threadpool_limits  # pyright: ignore
    except Exception as error:
        raise UsageError(HINT) from error
    one_thread: Any = threadpool_limits(1)  # the same points for any number of cores, and no idle waiting
    with one_thread, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it says of its own dependencies is not the reader's business
        fitted: Any = TSNE(2, perplexity=perplexity, init="pca", random_state=seed)
        return np.asarray(fitted.fit_transform(points), dtype=np.float64)


def normalised(features: Array) -> Array:
    """Rows of length one: what a cosine head sees."""
    return features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)


def hull(points: Array) -> Array:
    """Corners of the convex hull, counter-clockwise (Andrew's monotone chain).

    >>> hull(np.array([[0, 0], [2, 0], [2, 2], [0, 2], [1, 1], [1, 0]])).tolist()
    [[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]]
    """
    ordered = np.unique(np.asarray(points, dtype=np.float64), axis=0)
    if len(ordered) < 3:
        return ordered
    return np.array(_chain(ordered)[:-1] + _chain(ordered[::-1])[:-1])


def _chain(ordered: Array) -> list[Array]:
    corners: list[Array] = []
    for point in ordered:
        while len(corners) > 1 and _turn(corners[-2], corners[-1], point) <= 0:
            corners.pop()
        corners.append(point)
    return corners


def _turn(a: Array, b: Array, c: Array) -> float:
    return float((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))


def area(corners: Array) -> float:
    """The area inside a polygon (shoelace).

    >>> area(np.array([[0, 0], [2, 0], [2, 1], [0, 1]]))
    2.0
    """
    if len(corners) < 3:
        return 0.0
    x, y = corners[:, 0], corners[:, 1]
    return float(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)


def spread(features: Array) -> float:
    """The mean distance between two different rows; NaN for fewer than two."""
    if len(features) < 2:
        return float("nan")
    squares = (features**2).sum(axis=1)
    distance = np.sqrt(np.maximum(squares[:, None] + squares[None, :] - 2 * features @ features.T, 0))
    np.fill_diagonal(distance, 0)
    return float(distance.sum() / (len(features) * (len(features) - 1)))


def boundary(points: Array, decisions: Array, *, steps: int = 120) -> dict[str, Array] | None:
    """Where the model's own two-way decision changes in the plane: a smooth surface fitted to the decisions.

    Returns the grid `x`, `y` and the values on it, whose contour 0 is the boundary; None when the model
    decides the same everywhere.
    """
    if len(np.unique(decisions)) < 2:
        return None
    try:
        from sklearn.svm import SVC  # pyright: ignore
    except Exception as error:
        raise UsageError(HINT) from error
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.05 * (high - low)
    x, y = (np.linspace(low[i] - margin[i], high[i] + margin[i], steps) for i in range(2))
    center, scale = points.mean(axis=0), np.maximum(points.std(axis=0), 1e-12)
    machine: Any = SVC
    surface: Any = machine(kernel="rbf", C=1.0, gamma=1.0)
    surface.fit((points - center) / scale, decisions)
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    return {
        "x": x,
        "y": y,
        "values": surface.decision_function((grid - center) / scale).reshape(steps, steps),
    }


def spaced_classes(counts: Array, number: int) -> Array:
    """Classes at even steps from the most to the least frequent.

    >>> spaced_classes(np.array([5, 80, 10, 40, 20]), 3).tolist()
    [1, 4, 0]
    """
    order = np.argsort(-counts, kind="stable")
    return order[np.linspace(0, len(order) - 1, min(number, len(order))).round().astype(int)]


def sample(labels: Array, classes: Sequence[int], sizes: Sequence[int], seed: int) -> Array:
    """Positions of up to `sizes[i]` random points of each class in `classes`."""
    generator = Key(seed).fold("figure", "sample").numpy()
    chosen = [generator.permutation(np.flatnonzero(labels == c))[:n] for c, n in zip(classes, sizes)]
    return np.concatenate([*chosen, np.zeros(0, np.int64)])
