"""SIGINT and SIGTERM only set a flag while a run trains (reliability D8).

The loop looks at it after each whole step, and what goes through a whole data set after each batch. Before,
while data is read, the signals end the process as they always do.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether somebody asked the run to stop, and with which signal."""

    number: int = 0

    def __bool__(self) -> bool:
        return self.number != 0

    def receive(self, number: int, frame: FrameType | None) -> None:
        if self.number:  # the second signal does not wait
            os._exit(128 + number)
        self.number = number


class Interrupted(Exception):
    """A stop between two batches of something that will be done again from its first one."""


@contextmanager
def watch(stop: Stop | None = None) -> Generator[Stop]:
    """Handles both signals while a run is in progress and puts the old handlers back afterwards."""
    stop = Stop() if stop is None else stop  # one that nobody has used yet is false
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread may set handlers; a run in a thread is stopped by its owner
        return
    before = {number: signal.signal(number, stop.receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
