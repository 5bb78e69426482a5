"""What a checkpoint costs: one save (hash, flush, rotation) against an epoch of training.

The state is that of ResNet-32 with a cosine head of ten classes: weights, running statistics and momentum.
The epoch time is measured here (the fastest of some steps of cross-entropy on random images, times the steps
of CIFAR-10-LT at ratio 100: the shortest epoch, so the largest share), or given with --epoch-seconds.
Writes benchmarks/results/checkpoint_cost.csv.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from longtail import backbones, counts, heads, losses, models
from longtail.keys import Key
from longtail.run import checkpoint, escape, fsio

HERE = Path(__file__).resolve().parent
BATCH = 64


def network() -> models.Classifier:
    backbone = backbones.make("resnet32", generator=Key(0).fold("backbone").generator())
    head = heads.Cosine(backbone.num_features, 10, generator=Key(0).fold("head").generator())
    return models.Classifier(backbone, head)


def trained(model: nn.Module, steps: int) -> tuple[torch.optim.SGD, list[float]]:
    """An optimiser that holds momentum, and the seconds of each step."""
    images = torch.randn(BATCH, 3, 32, 32, generator=Key(0).fold("images").generator())
    target = torch.arange(BATCH) % 10
    loss = losses.CrossEntropy(scale=30.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    seconds: list[float] = []
    for _ in range(steps):
        began = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss(model(images).scores, target).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - began)
    return optimizer, seconds


def saves(state: dict[str, dict[str, Tensor]], root: Path, times: int) -> list[float]:
    seconds: list[float] = []
    for step in range(1, times + 1):
        began = time.perf_counter()
        checkpoint.save(root, step, state, {"step": step})
        checkpoint.rotate(root, keep=2)
        seconds.append(time.perf_counter() - began)
    return seconds


def commit() -> str:
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epoch-seconds", type=float, help="an epoch's time, when it is known")
    parser.add_argument("--steps", type=int, default=8, help="training steps to measure")
    parser.add_argument("--saves", type=int, default=20)
    parser.add_argument("--folder", help="where to save (default: the temporary folder)")
    options = parser.parse_args()

    model = network()
    optimizer, steps = trained(model, options.steps)
    images = int(counts.exponential(10, 5000, 100).sum())
    epoch = options.epoch_seconds or min(steps) * math.ceil(images / BATCH)
    names = [name for name, _ in model.named_parameters()]
    momentum = dict(
        zip(names, (optimizer.state[p]["momentum_buffer"] for p in model.parameters()), strict=True)
    )
    state = {"model": dict(model.state_dict()), "optimizer": momentum}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        seconds = saves(state, Path(folder), options.saves)
        size = sum(
            path.stat().st_size for path in checkpoint.folder_of(Path(folder), options.saves).iterdir()
        )
    median = statistics.median(seconds)
    row = {
        "commit": commit(),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),
        "torch": torch.__version__,
        "parameters": sum(p.numel() for p in model.parameters()),
        "bytes": size,
        "saves": len(seconds),
        "save_ms_median": round(1000 * median, 2),
        "save_ms_max": round(1000 * max(seconds), 2),
        "epoch_images": images,
        "epoch_seconds": round(epoch, 2),
        "epoch_source": "given" if options.epoch_seconds else "fastest measured step",
        "percent_of_epoch": round(100 * median / epoch, 3),
    }
    target = HERE / "results" / "checkpoint_cost.csv"
    fsio.make_folders(target.parent)
    fsio.write_file(target, escape.csv_text([list(row), list(row.values())]).encode())
    print("\n".join(f"{name:18} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
