"""Checks of plain arguments, so that a typing error is told at once and not by a NaN."""

from __future__ import annotations

import math
from numbers import Real
from typing import cast


def positive(name: str, value: float) -> float:
    if not (_number(name, value) and value > 0):
        raise ValueError(f"{name} must be finite and positive, got {value}")
    return float(value)


def not_negative(name: str, value: float) -> float:
    if not (_number(name, value) and value >= 0):
        raise ValueError(f"{name} must be finite and not negative, got {value}")
    return float(value)


def angle(name: str, value: float) -> float:
    """Beyond pi a margin would turn every target past the opposite direction, where each boundary differs."""
    if not_negative(name, value) > math.pi:
        raise ValueError(f"{name} is an angle in radians and at most pi, got {value}")
    return float(value)


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")


def _number(name: str, value: float) -> bool:
    """Whether it is finite; what is no number at all is an error that names the argument."""
    if not isinstance(cast(object, value), Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    return math.isfinite(value)
