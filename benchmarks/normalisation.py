"""relu(batch_norm(maps) + shortcut), forward and backward: the compiled passes beside PyTorch's own.

The sizes are those of ResNet-32 at batch 64. Writes benchmarks/results/normalisation.csv.

    python benchmarks/normalisation.py [--rounds 15] [--threads 2]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
import measure
from measure import Contender, Turn

from longtail.backbones import batch_norm, normalization
from longtail.engine import machine

SIZES = ((16, 32), (32, 16), (64, 8))
CALLS = 20  # in a turn; each on maps of its own, as in a network, so that they come from beyond the caches


def turn(channels: int, side: int, dtype: torch.dtype, shortcut: bool, compiled: bool) -> Turn:
    machine.tune()
    if not compiled:
        batch_norm.library_for = lambda layer, maps: None
    shape = (64, channels, side, side)
    draw = torch.Generator().manual_seed(0)
    made = [torch.randn(shape, generator=draw).to(dtype) for _ in range(3 * CALLS)]
    made = [each.contiguous(memory_format=torch.channels_last) for each in made]
    maps, others, given = made[:CALLS], made[CALLS : 2 * CALLS], made[2 * CALLS :]
    layer = nn.BatchNorm2d(channels)
    for each in (*maps, *others):
        each.requires_grad_()

    def once() -> None:
        for one, other, gradient in zip(maps, others, given, strict=True):
            if shortcut:
                result = normalization.norm_add_relu(layer, one, other)
            else:
                result = normalization.norm_relu(layer, one)
            result.backward(gradient)
            one.grad = other.grad = None

    return once


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    rows: list[dict[str, object]] = []
    for dtype in (torch.bfloat16, torch.float32):
        for channels, side in SIZES:
            for shortcut in (False, True):
                case = (channels, side, dtype, shortcut)
                contenders = {
                    name: Contender(turn, *case, name == "compiled", threads=given.threads)
                    for name in ("pytorch", "compiled")
                }
                times = measure.race(contenders, given.rounds)
                row: dict[str, object] = {
                    "maps": f"64 x {channels} x {side} x {side}",
                    "type": str(dtype).removeprefix("torch."),
                    "shortcut": "yes" if shortcut else "no",
                }
                for name, found in times.items():
                    row[f"{name}_ms"] = round(1e3 * measure.middle(found) / CALLS, 3)
                row["ratio"] = round(measure.ratio(times["pytorch"], times["compiled"]), 2)
                row["spread"] = round(measure.spread(times["compiled"]), 3)
                rows.append(row | {"rounds": given.rounds})
                print(*(f"{key}={value}" for key, value in row.items()), flush=True)
    print(measure.write("normalisation", rows, given.threads))


if __name__ == "__main__":
    main()
