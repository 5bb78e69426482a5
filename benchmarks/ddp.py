"""Two processes of one thread against one process of two threads: the same recipe, the same global batches.

Each turn is a whole `longtail train cifar.ce` for two epochs on random images in CIFAR's binary layout; what
counts is the second epoch's time in timing.jsonl, with its steps and its checkpoint and without start-up and
evaluation. Turns alternate. Writes benchmarks/results/ddp.csv.

    python benchmarks/ddp.py [--rounds 5] [--images 4096]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import measure

WAYS = {
    "1 process, 2 threads": (["-m", "longtail"], "2"),
    "2 processes, 1 thread": (
        ["-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "longtail"],
        "1",
    ),
}
SETTINGS = ("precision=bf16", "data.longtail=null", "evaluation.every=100", "evaluation.last=1")


def images(folder: Path, number: int) -> None:
    """CIFAR-10's binary files with random records: a label, then three planes of 1,024 bytes."""
    generator = np.random.default_rng(0)
    names = [*(f"data_batch_{part}.bin" for part in range(1, 6)), "test_batch.bin"]
    for name in names:
        rows = generator.integers(0, 256, (number // 5 if name != names[-1] else 64, 3073), dtype=np.uint8)
        rows[:, 0] = np.arange(len(rows)) % 10
        (folder / name).write_bytes(rows.tobytes())


def epoch(way: str, data: Path, out: Path) -> tuple[float, float]:
    """(wall, processor) seconds of the second epoch; processor time is that of one process."""
    words, threads = WAYS[way]
    shutil.rmtree(out, ignore_errors=True)
    settings = [word for setting in (*SETTINGS, f"data.root={data}") for word in ("--set", setting)]
    command = [
        sys.executable,
        *words,
        "train",
        "cifar.ce",
        "classes=10",
        "epochs=2",
        *settings,
        "--out",
        str(out),
    ]
    done = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": threads}, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    row = json.loads((out / "timing.jsonl").read_text().splitlines()[-1])
    return row["seconds"], row["cpu_seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=4096)
    given = parser.parse_args()
    times: dict[str, measure.Times] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "cifar-10-batches-bin"
        data.mkdir()
        images(data, given.images)
        for _ in range(given.rounds):
            for way in WAYS:
                times[way].append(epoch(way, data, Path(folder) / "run"))
    one = times["1 process, 2 threads"]
    rows: list[dict[str, object]] = []
    for way, found in times.items():
        row: dict[str, object] = {"way": way, "images": given.images // 5 * 5}
        row["images_per_s"] = round(given.images // 5 * 5 / measure.middle(found), 1)
        row["spread"] = round(measure.spread(found), 3)
        row["ratio"] = round(measure.ratio(one, found), 2)
        rows.append(row | {"rounds": given.rounds})
        print(*(f"{key}={value}" for key, value in row.items()))
    print(measure.write("ddp", rows, 2))


if __name__ == "__main__":
    main()
