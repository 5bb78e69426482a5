"""The geometry of margins and logits (H3, H4, H5), as arrays. |e| is the absolute value of a draw from
N(0, 1/3) that is clamped to [-1, 1].

Two conditions that are often printed wrongly, as they are here. GCL-E names the tail class where
cos(t_tail) > cos(t_head) + d|e|; with d = 0.5 and |e| = 1 no angle does where t_head < pi/3. GCL-A names it
where t_tail < t_head - (pi/2) d|e|; with the same values no angle does where t_head < pi/4.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.keys import Key

Array = NDArray[Any]

SIGMA = 1 / 3
BAND = (0.05, 0.5, 0.95)  # the quantiles that are drawn: a band and its middle


def quantile(level: float, sigma: float = SIGMA) -> float:
    """The value that |e| stays below with probability `level`.

    >>> round(quantile(0.5), 4), quantile(0.999)
    (0.2248, 1.0)
    """
    return min(sigma * NormalDist().inv_cdf((1 + level) / 2), 1.0)


def density(values: Array, sigma: float = SIGMA) -> Array:
    """The density of |e| on [0, 1); the rest of its mass sits at 1."""
    return 2 / sigma * np.exp(-0.5 * (values / sigma) ** 2) / np.sqrt(2 * np.pi)


def offsets(head: float, tail: float, strength: float, levels: Sequence[float] = BAND) -> Array:
    """Quantiles of strength * (tail |e_tail| - head |e_head|) for independent draws."""
    if head == 0 or tail == 0:  # one draw is left: its quantiles are known exactly
        sign, size = (1, tail) if head == 0 else (-1, head)
        return np.array([sign * strength * size * quantile(q if sign > 0 else 1 - q) for q in levels])
    grid = np.array([quantile((i + 0.5) / 1000) for i in range(1000)])
    return np.quantile(strength * (tail * grid[:, None] - head * grid[None, :]), levels)


def class_margins(
    counts: Sequence[int],
    head: int,
    tail: int,
    *,
    strength: float = 0.5,
    margin: float = 0.5,
    points: int = 361,
) -> dict[str, Array]:
    """Decision boundaries in the plane of the angles to the anchors of a head and a tail class.

    Each row of a result gives the angle to the tail's anchor on the boundary for every angle in `theta`, the
    angle to the head's; NaN where there is no such angle. LDAM has two boundaries (one a class), GCL three:
    the quantiles `BAND` of its soft margin.
    """
    from longtail import clouds

    theta = np.linspace(0, np.pi, points)
    sizes = clouds.sizes(list(counts), "log").numpy()
    n = np.asarray(counts, dtype=np.float64)
    margins = margin * (n / n.min()) ** -0.25
    soft = offsets(float(sizes[head]), float(sizes[tail]), strength)
    shift = np.array([-margins[head], margins[tail]])
    return {
        "theta": theta,
        "ce": theta[None, :].copy(),
        "ldam": _angle(np.cos(theta)[None, :] + shift[:, None]),
        "gcl_e": _angle(np.cos(theta)[None, :] + soft[:, None]),
        "gcl_a": _inside(theta[None, :] - np.pi / 2 * soft[:, None]),
        "sizes": sizes[[head, tail]],
        "margins": margins[[head, tail]],
        "offsets": soft,
    }


def logit_curves(
    deltas: Sequence[float] = (0.1, 0.5), *, draws: int = 250, seed: int = 0
) -> dict[str, Array]:
    """Logits at scale 1 over the angle: clean, GCL-E and GCL-A at the quantiles `BAND`, and noisy draws.

    `drop_*` are the losses of logit at angle 0 for the median draw: first order in the cloud for GCL-E,
    second order for GCL-A, whose largest drop lies near a right angle.
    """
    theta = np.linspace(0, np.pi, 361)
    sizes = np.asarray(deltas, dtype=np.float64)[:, None, None]
    noise = np.array([quantile(q) for q in BAND])[None, :, None]
    generator = Key(seed).fold("figure", "logit_curves").numpy()
    at = generator.uniform(0, np.pi, (len(deltas), 2, draws))
    drawn = np.abs(np.clip(generator.normal(0, SIGMA, (len(deltas), 2, draws)), -1, 1))
    cloud = sizes * drawn
    euclidean = np.cos(theta) - sizes * noise
    angular = np.cos(theta + np.pi / 2 * sizes * noise)
    return {
        "theta": theta,
        "deltas": np.asarray(deltas, dtype=np.float64),
        "clean": np.cos(theta),
        "gcl_e": euclidean,
        "gcl_a": angular,
        "draw_theta": at,
        "draw_gcl_e": np.cos(at[:, 0]) - cloud[:, 0],
        "draw_gcl_a": np.cos(at[:, 1] + np.pi / 2 * cloud[:, 1]),
        "drop_gcl_e": 1 - euclidean[:, 1, 0],
        "drop_gcl_a": 1 - angular[:, 1, 0],
    }


def _angle(cosine: Array) -> Array:
    return np.arccos(np.where(np.abs(cosine) <= 1, cosine, np.nan))


def _inside(angle: Array) -> Array:
    return np.where((angle >= 0) & (angle <= np.pi), angle, np.nan)
