"""The learning rate as a pure function of the step (spec D, F2, J27)."""

from __future__ import annotations

import math
from typing import assert_never

from longtail.recipe import Cosine, MultiStep, OneCycle, Schedule


def factor(schedule: Schedule, step: int, *, steps: int, epochs: int) -> float:
    """What the rate is multiplied by at `step` (0-based) of a stage of `epochs` epochs of `steps` steps."""
    match schedule:
        case MultiStep():
            return _multistep(schedule, step // steps + schedule.start)
        case Cosine():
            epoch = (step / steps if schedule.by_step else step // steps) + schedule.start
            return _cosine(schedule, epoch, schedule.total or epochs)
        case OneCycle():
            return _onecycle(schedule, (step + 1) / (steps * epochs))
        case _:
            assert_never(schedule)


def first_weight(epoch: int, epochs: int) -> float:
    """How much of the loss a pair's first batch has: 1 in the first epoch (0-based), then less and less.

    `1 - (epoch / epochs)^2`: BBN's alpha, and hybrid contrastive learning's curriculum (spec B1, B2).
    """
    return 1 - (epoch / epochs) ** 2


def _multistep(schedule: MultiStep, epoch: int) -> float:
    if epoch < schedule.warmup:
        return (epoch + 1) / schedule.warmup
    passed = [factor for after, factor in schedule.drops if epoch >= after]
    return passed[-1] if passed else 1.0


def _cosine(schedule: Cosine, epoch: float, total: int) -> float:
    if epoch < schedule.warmup:
        return (epoch + 1) / schedule.warmup
    return (1 + math.cos(math.pi * epoch / total)) / 2


def _onecycle(schedule: OneCycle, done: float) -> float:
    if done < schedule.rise:
        return done / schedule.rise
    left = (1 - done) / (1 - schedule.rise) if schedule.rise < 1 else 1.0
    return schedule.final + (1 - schedule.final) * left
