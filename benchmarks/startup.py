"""How long a person waits for `longtail --help`, and what `import longtail.losses` adds to `import torch`.

Fresh processes, interleaved, so that a busy spell of the machine falls on all of them alike. Wall time is
what a person waits; processor time is what the program uses, whatever else the machine does meanwhile, and
is what the limit is held against (these processes have one thread, so an idle machine shows the same).

    python benchmarks/startup.py [--repeats 15]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import measure

HELP = "import sys; sys.argv = ['longtail', {words}]; from longtail.cli.main import run; run()"
CASES = {
    "python": "pass",
    "longtail --help": HELP.format(words="'--help'"),
    "longtail train --help": HELP.format(words="'train', '--help'"),
    "longtail recipes": HELP.format(words="'recipes'"),
    "import torch": "import torch",
    "import torch, longtail.losses": "import torch, longtail.losses",
}
COLUMNS = (
    "case",
    "wall_median_s",
    "wall_least_s",
    "wall_spread_s",
    "cpu_median_s",
    "cpu_spread_s",
    "runs",
)
HELP_LIMIT = 0.3  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=15)
    times = measured(parser.parse_args().repeats)
    rows = [row(name, values) for name, values in times.items()]
    measure.write("startup", [dict(zip(COLUMNS, each)) for each in rows], torch.get_num_threads())
    for name, middle, least, _, used, _, _ in rows:
        print(f"{name:32} wall {middle:.3f} s (least {least:.3f}), processor {used:.3f} s")
    pairs = zip(times["import torch"], times["import torch, longtail.losses"])
    print(f"longtail.losses over torch: processor {statistics.median(b[1] - a[1] for a, b in pairs):.3f} s")
    slow = [row[0] for row in rows if row[0].endswith("--help") and row[4] > HELP_LIMIT]
    sys.exit(f"over {HELP_LIMIT} s: {', '.join(slow)}" if slow else 0)


def measured(repeats: int) -> dict[str, list[tuple[float, float]]]:
    """(wall, processor) seconds of each case in each round; the first round only warms the file cache."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
    for number in range(repeats + 1):
        for name, code in CASES.items():
            found = timed(code)
            if number:
                times[name].append(found)
    return times


def timed(code: str) -> tuple[float, float]:
    before, begin = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, cwd=measure.ROOT)
    wall, after = time.perf_counter() - begin, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, used


def row(name: str, values: list[tuple[float, float]]) -> tuple[str, float, float, float, float, float, int]:
    wall, used = zip(*values)
    measures = (
        statistics.median(wall),
        min(wall),
        spread(wall),
        statistics.median(used),
        spread(used),
    )
    return name, *(round(value, 4) for value in measures), len(values)  # type: ignore[return-value]


def spread(values: tuple[float, ...]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


if __name__ == "__main__":
    main()
