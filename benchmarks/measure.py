"""What benchmarks share: contenders that take turns in their own processes, rows that say where they ran.

A process each, because some of what is compared is a setting of a whole process (the allocator). Turns are
short and interleaved, so that a busy spell of the machine falls on all contenders alike, and a ratio is the
median of the ratios of neighbouring turns.
"""

from __future__ import annotations

import csv
import multiprocessing
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType

from longtail.run import fsio
from longtail.run.escape import csv_text

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
Turn = Callable[[], None]  # does a fixed amount of work
Times = list[tuple[float, float]]  # (wall, processor) seconds


class Contender:
    """A process that made something to time, and does one turn of it whenever asked."""

    def __init__(self, make: Callable[..., Turn], *arguments: object, threads: int):
        context = multiprocessing.get_context("spawn")
        self.here, there = context.Pipe()
        self.process = context.Process(target=_serve, args=(there, threads, make, arguments), daemon=True)

    def __enter__(self) -> Contender:
        self.process.start()
        self.here.recv()  # it is ready and warm
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.is_alive():
            self.here.send(False)
        self.process.join()

    def turn(self) -> tuple[float, float]:
        self.here.send(True)
        return self.here.recv()


def _serve(line: Connection, threads: int, make: Callable[..., Turn], arguments: tuple[object, ...]) -> None:
    import torch

    torch.set_num_threads(threads)
    turn = make(*arguments)
    turn()
    line.send(None)
    while line.recv():
        used, begin = time.process_time(), time.perf_counter()
        turn()
        line.send((time.perf_counter() - begin, time.process_time() - used))


def race(contenders: Mapping[str, Contender], rounds: int) -> dict[str, Times]:
    """(wall, processor) seconds of each contender's turns; every round gives one turn to each."""
    times: dict[str, Times] = {name: [] for name in contenders}
    with ExitStack() as running:
        for contender in contenders.values():
            running.enter_context(contender)
        for _ in range(rounds):
            for name, contender in contenders.items():
                times[name].append(contender.turn())
    return times


def ratio(slow: Times, fast: Times, column: int = 0) -> float:
    """How many times faster: the median over rounds, wall time (0) or processor time (1)."""
    return statistics.median(one[column] / other[column] for one, other in zip(slow, fast, strict=True))


def middle(times: Times, column: int = 0) -> float:
    return statistics.median(each[column] for each in times)


def spread(times: Times, column: int = 0) -> float:
    """Half the distance between the quartiles over the median."""
    if len(times) < 2:
        return 0.0
    low, _, high = statistics.quantiles([each[column] for each in times], n=4)
    return (high - low) / 2 / middle(times, column)


def write(name: str, rows: Sequence[Mapping[str, object]], threads: int) -> Path:
    """benchmarks/results/NAME.csv, each row with what surrounded it."""
    about = surroundings(threads)
    fsio.make_folders(RESULTS)
    path = RESULTS / f"{name}.csv"
    lines = [[*rows[0], *about], *([*row.values(), *about.values()] for row in rows)]
    fsio.write_file(path, csv_text(lines).encode())
    return path


def measured_step(batch_size: int, threads: int) -> float | None:
    """Seconds of stage 1's step in train_step.csv, where it comes from such a machine; None otherwise."""
    wanted = {
        "part": "stage 1",
        "loop": "ours bf16",
        "batch": f"{batch_size}",
        "cpu": processor(),
        "threads": f"{threads}",
    }
    with (RESULTS / "train_step.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if wanted.items() <= row.items()]
    return batch_size / float(rows[0]["images_per_s"]) if rows else None


def surroundings(threads: int) -> dict[str, object]:
    import torch

    return {
        "commit": _git("rev-parse", "--short", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no", "--", "src")),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "load": round(os.getloadavg()[0], 1),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
