"""How fast a run goes, over the last minute: what the progress bar says about speed and time left."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

Clock = Callable[[], float]


class Pace:
    """Counts steps and images; `mark` closes an interval. Rates are over the last 60 of them.

    The first mark starts the clock: what comes before it (data, the first step) tells no speed.

    Example:
        >>> seconds = iter([0.0, 2.0])
        >>> pace = Pace(lambda: next(seconds))
        >>> pace.add(64); pace.mark(); pace.images_per_second
        >>> pace.add(64); pace.add(64); pace.mark()
        >>> pace.images_per_second, pace.seconds_for(10)
        (64.0, 10.0)
    """

    def __init__(self, clock: Clock = time.monotonic):
        self.clock = clock
        self.steps = self.images = 0
        self._marks: deque[tuple[float, int, int]] = deque(maxlen=60)

    def add(self, images: int) -> None:
        self.steps += 1
        self.images += images

    def mark(self) -> None:
        self._marks.append((self.clock(), self.steps, self.images))

    @property
    def images_per_second(self) -> float | None:
        seconds, _, images = self._spans()
        return images / seconds if seconds > 0 else None

    def seconds_for(self, steps: int) -> float | None:
        """The time that so many steps take at this pace; None while nothing is known."""
        seconds, done, _ = self._spans()
        return steps * seconds / done if done else None

    def _spans(self) -> tuple[float, int, int]:
        if not self._marks:
            return 0.0, 0, 0
        (t0, steps0, images0), (t1, steps1, images1) = self._marks[0], self._marks[-1]
        return t1 - t0, steps1 - steps0, images1 - images0
