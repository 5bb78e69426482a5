"""What a loss costs: forward and backward, over plain cross-entropy of the same batch.

    python benchmarks/loss_cost.py [--repeats N] [--threads T]

Every round times each contender once, so that whatever else the machine does hits all alike; the ratio of a
round is taken within the round, and the table holds the median of the ratios with their quartiles. "textbook"
is the equation as one would type it, every line a temporary. The bare draw of the noise is a row of its own.
Cosines are those of random 64-d features and anchors. Writes benchmarks/results/loss_cost.csv.
"""

from __future__ import annotations

import argparse
import csv
import math
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from longtail import counts, losses

SHAPES = ((64, 100), (512, 1000), (512, 8142))
OUT = Path(__file__).parent / "results" / "loss_cost.csv"


def textbook(form: str, images: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """GCL with strength 0.5 and scale 30, as the paper's equations read."""
    cloud = 0.5 * torch.log(images.max() / images) / torch.log(images.max() / images.min())

    def loss(cosine: Tensor, target: Tensor) -> Tensor:
        size = cloud * (torch.randn(cosine.shape) / 3).clamp(-1, 1).abs()
        if form == "euclidean":
            return functional.cross_entropy(30 * (cosine - size), target)
        inside, angle = cosine.clamp(-1 + 1e-7, 1 - 1e-7), math.pi / 2 * size
        turned = inside * torch.cos(angle) - torch.sqrt(1 - inside**2) * torch.sin(angle)
        return functional.cross_entropy(30 * torch.where(inside > -torch.cos(angle), turned, -1.0), target)

    return loss


def contenders(images: Tensor, norms: Tensor) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    fbl = losses.FeatureBalanced(images)
    modules: dict[str, nn.Module] = {
        "CrossEntropy": losses.CrossEntropy(30.0),
        "Focal": losses.Focal(),
        "ClassBalanced": losses.ClassBalanced(images),
        "CosFace": losses.CosFace(),
        "ArcFace": losses.ArcFace(),
        "LDAM": losses.LDAM(images),
        "LogitAdjusted": losses.LogitAdjusted(images),
        "BalancedSoftmax": losses.BalancedSoftmax(images),
        "LabelAwareSmoothing": losses.LabelAwareSmoothing(images),
        "GCL euclidean": losses.GCL(images),
        "GCL angular": losses.GCL(images, form="angular"),
        "GCL unified": losses.GCL(images, form="unified"),
        "GCL euclidean, shared noise": losses.GCL(images, noise="shared"),
    }
    return {
        "plain F.cross_entropy": functional.cross_entropy,
        "torch.randn alone": lambda cosine, _: torch.randn(cosine.shape).sum() * 0 + cosine[0, 0],
        "textbook GCL euclidean": textbook("euclidean", images),
        "textbook GCL angular": textbook("angular", images),
        "FeatureBalanced": lambda cosine, target: fbl(cosine, target, progress=0.5, norms=norms),
        **modules,
    }


def seconds(loss: Callable[[Tensor, Tensor], Tensor], cosine: Tensor, target: Tensor) -> float:
    cosine.grad = None
    start = time.perf_counter()
    loss(cosine, target).backward()
    return time.perf_counter() - start


def measure(batch: int, classes: int, repeats: int) -> list[dict[str, str]]:
    source = torch.Generator().manual_seed(0)
    features, anchors = (torch.randn(n, 64, generator=source) for n in (batch, classes))
    cosine = (functional.normalize(features) @ functional.normalize(anchors).T).requires_grad_()
    target = torch.randint(classes, (batch,), generator=source)
    images = counts.exponential(classes, 1000, 500).double()
    tried = contenders(images, features.norm(dim=1))
    rounds = [
        {name: seconds(loss, cosine, target) for name, loss in tried.items()} for _ in range(repeats + 3)
    ][3:]  # the first rounds fill caches and the allocator
    rows: list[dict[str, str]] = []
    for name in tried:
        ratios = [one[name] / one["plain F.cross_entropy"] for one in rounds]
        low, middle, high = statistics.quantiles(ratios, n=4)
        typical = statistics.median(one[name] for one in rounds)
        rows.append(
            {
                "batch": str(batch),
                "classes": str(classes),
                "loss": name,
                "ratio": f"{middle:.2f}",
                "ratio_q1": f"{low:.2f}",
                "ratio_q3": f"{high:.2f}",
                "microseconds": f"{1e6 * typical:.0f}",
                "fastest_microseconds": f"{1e6 * min(one[name] for one in rounds):.0f}",
            }
        )
    return rows


def machine(threads: int, repeats: int) -> dict[str, str]:
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "repeats": str(repeats),
        "commit": git.stdout.strip() or "unknown",
        "cpu": _cpu(),
        "threads": str(threads),
        "torch": torch.__version__,
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    rows = [row for shape in SHAPES for row in measure(*shape, chosen.repeats * (5 if shape[0] < 512 else 1))]
    about = machine(chosen.threads, chosen.repeats)
    OUT.parent.mkdir(exist_ok=True)
    with OUT.open("w", newline="") as file:
        table = csv.DictWriter(file, [*rows[0], *about], lineterminator="\n")
        table.writeheader()
        table.writerows({**row, **about} for row in rows)
    for row in rows:
        where = f"({row['batch']}, {row['classes']})"
        spread = f"[{row['ratio_q1']}, {row['ratio_q3']}]"
        print(f"{where:>12}  {row['loss']:<28} {row['ratio']:>7}x {spread:<16} {row['microseconds']:>7} us")


if __name__ == "__main__":
    main()
