"""How long a person waits for `longtail --help`, and what `import longtail.losses` adds to `import torch`.

Fresh processes, interleaved, so that a busy spell of the machine falls on all of them alike. The row's
headline is the median; `least` is what the program needs when nothing else runs.

    python benchmarks/startup.py [--repeats 15]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

from longtail.run import fsio
from longtail.run.escape import csv_text

ROOT = Path(__file__).resolve().parents[1]
HELP = "import sys; sys.argv = ['longtail', {words}]; from longtail.cli.main import run; run()"
CASES = {
    "python": "pass",
    "longtail --help": HELP.format(words="'--help'"),
    "longtail train --help": HELP.format(words="'train', '--help'"),
    "longtail recipes": HELP.format(words="'recipes'"),
    "import torch": "import torch",
    "import torch, longtail.losses": "import torch, longtail.losses",
}
HELP_LIMIT = 0.3  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "startup.csv")
    arguments = parser.parse_args()
    times = measured(arguments.repeats)
    rows = [row(name, values) for name, values in times.items()]
    header = ["case", "median_s", "least_s", "spread_s", "runs", *surroundings()]
    fsio.make_folders(arguments.out.parent)
    fsio.write_file(
        arguments.out, csv_text([header, *([*r, *surroundings().values()] for r in rows)]).encode()
    )
    for name, middle, least, spread, _ in rows:
        print(f"{name:32} median {middle:.3f} s, least {least:.3f} s, spread {spread:.3f} s")
    slow = [name for name, *_ in rows if name.endswith("--help") and min(times[name]) > HELP_LIMIT]
    extra = [b - a for a, b in zip(times["import torch"], times["import torch, longtail.losses"])]
    print(f"longtail.losses over torch: median {statistics.median(extra):.3f} s")
    sys.exit(f"over {HELP_LIMIT} s: {', '.join(slow)}" if slow else 0)


def measured(repeats: int) -> dict[str, list[float]]:
    """Wall seconds of each case in each round; the first round only warms the file cache."""
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for number in range(repeats + 1):
        for name, code in CASES.items():
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
            if number:
                times[name].append(time.perf_counter() - begin)
    return times


def row(name: str, values: list[float]) -> tuple[str, float, float, float, int]:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return name, round(statistics.median(values), 4), round(min(values), 4), round(spread, 4), len(values)


def surroundings() -> dict[str, object]:
    import torch

    asked = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return {
        "commit": commit,
        "cpu": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    main()
