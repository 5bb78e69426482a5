"""How long epochs take: timing.jsonl, the only file with clock times, which no comparison reads."""

from __future__ import annotations

import time
from pathlib import Path

from longtail.run.logs import Log


class Timing:
    """Seconds of wall clock and processor between the edges of epochs, evaluation included."""

    def __init__(self, path: Path):
        self.log = Log(path)
        self.start(0)

    def start(self, images_seen: int) -> None:
        self.began = (time.perf_counter(), time.process_time(), images_seen)

    def epoch(self, stage: int, epoch: int, images_seen: int) -> None:
        wall, cpu, images = self.began
        row = {
            "stage": stage,
            "epoch": epoch,
            "seconds": round(time.perf_counter() - wall, 3),
            "cpu_seconds": round(time.process_time() - cpu, 3),
            "images": images_seen - images,
        }
        self.log.append(row)
        self.start(images_seen)
