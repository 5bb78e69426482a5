"""What a checkpoint costs: one save (hash, flush, rotation) against an epoch of training.

The state is that of ResNet-32 with a cosine head: weights, running statistics and momentum.
The epoch is that of CIFAR-100-LT at ratio 100, the shortest, so the share is the largest. Its steps take what
train_step.csv says of such a machine, or else what the fastest of some steps of cross-entropy takes here.
Writes benchmarks/results/checkpoint_cost.csv.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
import measure

from longtail import backbones, counts, heads, losses, models
from longtail.keys import Key
from longtail.run import checkpoint

BATCH, CLASSES = 64, 100


def network() -> models.Classifier:
    backbone = backbones.make("resnet32", generator=Key(0).fold("backbone").generator())
    head = heads.Cosine(backbone.num_features, CLASSES, generator=Key(0).fold("head").generator())
    return models.Classifier(backbone, head)


def trained(model: nn.Module, steps: int) -> tuple[torch.optim.SGD, list[float]]:
    """An optimiser that holds momentum, and the seconds of each step."""
    images = torch.randn(BATCH, 3, 32, 32, generator=Key(0).fold("images").generator())
    target = torch.arange(BATCH) % CLASSES
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8, help="training steps to measure")
    parser.add_argument("--saves", type=int, default=20)
    parser.add_argument("--folder", help="where to save (default: the temporary folder)")
    options = parser.parse_args()

    model = network()
    optimizer, steps = trained(model, options.steps)
    images = int(counts.exponential(CLASSES, 500, 100).sum())
    threads = torch.get_num_threads()
    step, source = measure.measured_step(BATCH, threads), "train_step.csv"
    if step is None:
        step, source = min(steps), "fastest measured step of cross-entropy in fp32"
    epoch = step * math.ceil(images / BATCH)
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
    row: dict[str, object] = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "bytes": size,
        "saves": len(seconds),
        "save_ms_median": round(1000 * median, 2),
        "save_ms_max": round(1000 * max(seconds), 2),
        "epoch_images": images,
        "epoch_seconds": round(epoch, 2),
        "epoch_source": source,
        "percent_of_epoch": round(100 * median / epoch, 3),
    }
    measure.write("checkpoint_cost", [row], threads)
    print("\n".join(f"{name:18} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
