"""What a loss costs: forward and backward, over plain cross-entropy and over its textbook implementation.

    python benchmarks/loss_cost.py [--repeats N] [--threads T]

Every round times each contender once, so that whatever else the machine does hits all alike, and right after
an untimed call of its own, so that none pays for the caches that the one before it has emptied. A ratio is
taken within the round, and the table holds the median of the ratios, in wall time with its quartiles and in
processor time. Before a shape is timed, each loss is checked against its textbook form (textbook_losses.py),
noise included. Cosines are those of random 64-d features and anchors. The draw of the noise alone is a row,
and at (64, 100) so is a whole training step of ResNet-32, of which each loss is a part. Writes
benchmarks/results/loss_cost.csv.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import measure
import textbook_losses
import torch
from torch import Tensor, nn
from torch.nn import functional

from longtail import backbones, counts, heads, losses

SHAPES = ((64, 100), (512, 1000), (512, 8142))
PLAIN, DRAW, STEP = "plain F.cross_entropy", "torch.randn alone", "ResNet-32 training step"
WARM_UP = 3  # rounds that fill caches and the allocator
Run = Callable[[], object]


def modules(images: Tensor, norms: Tensor) -> dict[str, textbook_losses.Loss]:
    """Ours, under the names of the textbook's."""
    fbl = losses.FeatureBalanced(images)
    noisy: dict[str, nn.Module] = {
        f"GCL {form}": losses.GCL(images, form=form) for form in ("euclidean", "angular", "unified")
    }
    plain: dict[str, nn.Module] = {
        "CrossEntropy": losses.CrossEntropy(textbook_losses.SCALE),
        "Focal": losses.Focal(),
        "ClassBalanced": losses.ClassBalanced(images),
        "Reweighted": losses.Reweighted(images),
        "CosFace": losses.CosFace(),
        "ArcFace": losses.ArcFace(),
        "LDAM": losses.LDAM(images),
        "LogitAdjusted": losses.LogitAdjusted(images),
        "BalancedSoftmax": losses.BalancedSoftmax(images),
        "LabelAwareSmoothing": losses.LabelAwareSmoothing(images),
        "LADE": losses.LADE(images),
    }
    return {
        **plain,
        "FeatureBalanced": lambda scores, target: fbl(scores, target, progress=0.5, norms=norms),
        **noisy,
        "GCL euclidean, shared noise": losses.GCL(images, noise="shared"),
    }


def check(ours: textbook_losses.Loss, theirs: textbook_losses.Loss, cosine: Tensor, target: Tensor) -> None:
    """Both must do the same work: value and gradient, from the same state of the default generator."""
    found: list[tuple[Tensor, Tensor]] = []
    for loss in (ours, theirs):
        torch.manual_seed(0)
        made = loss(cosine, target)
        found.append((made.detach(), torch.autograd.grad(made, cosine)[0]))
    torch.testing.assert_close(found[0], found[1], rtol=2e-3, atol=1e-4)


def resnet32_step(target: Tensor) -> Run:
    """One step of the network of CIFAR-100-LT, its cosine head, plain cross-entropy and SGD."""
    source = torch.Generator().manual_seed(0)
    backbone = backbones.make("resnet32", generator=source)
    head = heads.Cosine(backbone.num_features, 100, generator=source)
    images = torch.randn(len(target), 3, 32, 32, generator=source)
    optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.01, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(textbook_losses.SCALE * head(backbone(images)), target).backward()
        optimizer.step()

    return step


def contenders(batch: int, classes: int) -> dict[str, Run]:
    source = torch.Generator().manual_seed(0)
    features, anchors = (torch.randn(n, 64, generator=source) for n in (batch, classes))
    cosine = (functional.normalize(features) @ functional.normalize(anchors).T).requires_grad_()
    target = torch.randint(classes, (batch,), generator=source)
    images, norms = counts.exponential(classes, 1000, 500), features.norm(dim=1)
    ours, theirs = modules(images, norms), textbook_losses.losses(images, norms)
    for name in theirs:
        check(ours[name], theirs[name], cosine, target)

    def learning(loss: textbook_losses.Loss) -> Run:
        def run() -> None:
            cosine.grad = None
            loss(cosine, target).backward()

        return run

    tried = {PLAIN: learning(functional.cross_entropy), DRAW: lambda: torch.randn(batch, classes)}
    if (batch, classes) == SHAPES[0]:
        tried[STEP] = resnet32_step(target)
    for name in theirs:
        tried |= {name: learning(ours[name]), _textbook(name): learning(theirs[name])}
    return tried


def _textbook(name: str) -> str:
    return f"{name}, textbook"


def timed(run: Run) -> tuple[float, float]:
    """(wall, processor) seconds of a second call: the first brings the contender's own data to the caches."""
    run()
    used, begin = time.process_time(), time.perf_counter()
    run()
    return time.perf_counter() - begin, time.process_time() - used


def rows_of(batch: int, classes: int, repeats: int) -> list[dict[str, object]]:
    tried = contenders(batch, classes)
    times: dict[str, measure.Times] = {name: [] for name in tried}
    for number in range(repeats + WARM_UP):
        for name, run in tried.items():
            taken = timed(run)
            if number >= WARM_UP:
                times[name].append(taken)
    rows: list[dict[str, object]] = []
    for name, mine in times.items():
        of_plain = [one[0] / other[0] for one, other in zip(mine, times[PLAIN], strict=True)]
        low, middle, high = statistics.quantiles(of_plain, n=4)
        textbook, step = times.get(_textbook(name)), times.get(STEP)
        rows.append(
            {
                "batch": batch,
                "classes": classes,
                "loss": name,
                "ratio": f"{middle:.2f}",
                "ratio_q1": f"{low:.2f}",
                "ratio_q3": f"{high:.2f}",
                "ratio_processor": f"{measure.ratio(mine, times[PLAIN], 1):.2f}",
                "of_textbook": f"{measure.ratio(mine, textbook):.2f}" if textbook else "",
                "percent_of_resnet32_step": f"{100 * measure.ratio(mine, step):.2f}" if step else "",
                "microseconds": f"{1e6 * measure.middle(mine):.0f}",
                "fastest_microseconds": f"{1e6 * min(wall for wall, _ in mine):.0f}",
                "repeats": repeats,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--repeats", type=int, default=30, help="rounds at the large shapes; five times that at (64, 100)"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    rows = [
        row for shape in SHAPES for row in rows_of(*shape, chosen.repeats * (5 if shape == SHAPES[0] else 1))
    ]
    for row in rows:
        where, spread = f"({row['batch']}, {row['classes']})", f"[{row['ratio_q1']}, {row['ratio_q3']}]"
        part = f"{row['percent_of_resnet32_step']:>7} % of a step" if row["percent_of_resnet32_step"] else ""
        print(
            f"{where:>12}  {row['loss']:<40} {row['ratio']:>7}x {spread:<18} cpu {row['ratio_processor']:>6}x"
            f" textbook {row['of_textbook']:>5} {row['microseconds']:>8} us {part}"
        )
    print(measure.write("loss_cost", rows, chosen.threads))


if __name__ == "__main__":
    main()
