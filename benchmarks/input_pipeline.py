"""What the input costs: batched augmentation per step, and streaming JPEG files against bare decoding.

    python benchmarks/input_pipeline.py --threads 2

The share of a step is that of the step in benchmarks/results/train_step.csv, where that was measured on the
same kind of processor with as many threads; `--step-ms` gives another. All cases take turns within a round,
so that a slow moment of the machine hits all of them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))
import measure

from longtail.data import mixing, sampling
from longtail.data.augment import Small
from longtail.data.batches import Resident
from longtail.data.images import FileImages
from longtail.data.splits import Split
from longtail.data.streaming import COLUMNS, Large, Streamed
from longtail.keys import Key, uniforms

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
IMAGES, CLASSES = 12_406, 10  # CIFAR-10-LT, ratio 100

Case = tuple[str, str, Callable[[], float]]  # name, unit, one measurement


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def resident_cases(batch_size: int) -> Iterator[Case]:
    """Milliseconds a step, over a whole epoch: its order and draws, taking the images, augmenting, mixing."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (IMAGES, 3, 32, 32), dtype=torch.uint8, generator=generator)
    targets = torch.randint(0, CLASSES, (IMAGES,), generator=generator)
    split = Split(images, targets, tuple(f"{c}" for c in range(CLASSES)))
    order, steps = torch.randperm(IMAGES, generator=generator), -(-IMAGES // batch_size)

    def case(name: str, kind: mixing.Kind | None, *, channels_last: bool = True, **augment: object) -> Case:
        batches = Resident(
            split, Small(mean=MEAN, std=STD, **augment), device="cpu", channels_last=channels_last
        )

        def epoch() -> None:
            stream = batches.epoch(order, key=Key(0), batch_size=batch_size)
            plan = kind and mixing.plan(kind, 1.0, key=Key(0), steps=steps, batch_size=batch_size)
            for step, batch in enumerate(stream):
                if plan:
                    mixing.mix(batch.images, batch.target, plan, step)

        return name, "ms a step", lambda: 1e3 * seconds(epoch) / steps

    yield case("crop, flip", None)
    yield case("crop, flip, mixup", "mixup")
    yield case("crop, flip, mixup, channels first", "mixup", channels_last=False)
    yield case("crop, flip, CutMix", "cutmix")
    yield case("crop, flip, rotation", None, rotation=15.0)
    yield case("crop, flip, Cutout", None, cutout=16)
    yield case("crop, flip, AutoAugment", None, policy="autoaugment")
    yield case("crop, flip, RandAugment", None, policy="randaugment")
    yield derived_case(targets, batch_size)
    yield pillow_case(images, batch_size)


def derived_case(targets: torch.Tensor, batch_size: int) -> Case:
    """Every number of an epoch that is derived rather than drawn from a stream: the order, crops and flips,
    mixup's plan, and the seed of each step's noise. An upper bound of what deriving costs: a stream would
    have to draw all but the seeds too."""
    view, noise = Small(mean=MEAN, std=STD), torch.Generator()
    steps, key = -(-IMAGES // batch_size), Key(0).fold("representation")

    def epoch() -> None:
        seed = key.fold("first", "order").integer()
        sampling.indices(targets, "instance", seed=seed, epoch=0, classes=CLASSES)
        view.draws(key.fold("first", "augment", 0), np.arange(IMAGES))
        mixing.plan("mixup", 1.0, key=key.fold("mixing", 0), steps=steps, batch_size=batch_size)
        for step in range(steps):
            noise.manual_seed(key.fold("noise", step).fold(0).integer())

    return "derived randomness alone", "ms a step", lambda: 1e3 * seconds(epoch) / steps


def pillow_case(images: torch.Tensor, batch_size: int) -> Case:
    """The usual way: crop, flip and normalise one image after the other."""
    scale, shift = (np.array(v, dtype=np.float32).reshape(3, 1, 1) for v in (STD, MEAN))
    pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images[:batch_size]]
    rows = uniforms(Key(0), np.arange(batch_size), 3).tolist()

    def batch() -> None:
        arrays = []
        for picture, (top, left, flip) in zip(pictures, rows):
            padded = Image.new("RGB", (40, 40))
            padded.paste(picture, (4, 4))
            y, x = int(top * 9), int(left * 9)
            cut = padded.crop((x, y, x + 32, y + 32))
            cut = cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip < 0.5 else cut
            arrays.append((np.asarray(cut, dtype=np.float32).transpose(2, 0, 1) / 255 - shift) / scale)
        torch.from_numpy(np.stack(arrays))

    return "crop, flip, one by one in Pillow", "ms a step", lambda: 1e3 * seconds(batch)


def streaming_cases(root: Path, count: int, batch_size: int) -> Iterator[Case]:
    """Images a second of 500x375 JPEG files: decoded in a bare loop, and as a stream of training batches."""
    generator = np.random.Generator(np.random.Philox(0))
    names = [f"{number}.jpg" for number in range(count)]
    for name in names:
        coarse = Image.fromarray(generator.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        coarse.resize((500, 375), Image.Resampling.BICUBIC).save(root / name, quality=90)
    source = FileImages(str(root), names)
    split = Split(source, torch.zeros(count, dtype=torch.int64), ("only",))
    rows = uniforms(Key(0), np.arange(count), COLUMNS).tolist()
    view = Large()

    def decode() -> None:
        for name in names:
            with Image.open(root / name) as image:
                image.convert("RGB")

    def decode_and_crop() -> None:
        for name, row in zip(names, rows):
            with Image.open(root / name) as image:
                view.train(image.convert("RGB"), row).tobytes()

    def stream(workers: int) -> Callable[[], None]:
        batches = Streamed(split, mean=MEAN, std=STD, workers=workers)

        def consume() -> None:
            deque(batches.epoch(torch.arange(count), key=Key(0), batch_size=batch_size), maxlen=1)

        return consume

    for name, work in (
        ("bare decoding, one process", decode),
        ("bare decoding and cropping, one process", decode_and_crop),
        ("streamed, no workers", stream(0)),
        ("streamed, 1 worker", stream(1)),
        ("streamed, 2 workers", stream(2)),
    ):
        yield name, "images/s", lambda work=work: count / seconds(work)


def measured(cases: list[Case], rounds: int) -> dict[str, list[float]]:
    """One measurement of every case per round; a first round warms up and is thrown away."""
    found: dict[str, list[float]] = {name: [] for name, _, _ in cases}
    for number in range(rounds + 1):
        for name, _, work in cases:
            value = work()
            if number:
                found[name].append(value)
    return found


def rows_of(
    cases: list[Case], found: dict[str, list[float]], step_ms: float | None
) -> Iterator[dict[str, object]]:
    for name, unit, _ in cases:
        values = sorted(found[name])
        median = statistics.median(values)
        share = f"{100 * median / step_ms:.2f}" if step_ms and unit == "ms a step" else ""
        yield {
            "case": name,
            "unit": unit,
            "median": f"{median:.4g}",
            "least": f"{values[0]:.4g}",
            "most": f"{values[-1]:.4g}",
            "repeats": str(len(values)),
            "percent_of_step": share,
            "step_ms": f"{step_ms:.3g}" if share else "",
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--step-ms", type=float, help="milliseconds of a training step, for the share")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--files", type=int, default=96, help="JPEG files of the streaming part")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    known = measure.measured_step(options.batch_size, options.threads)
    step_ms = options.step_ms or (1e3 * known if known else None)
    with tempfile.TemporaryDirectory() as folder:
        groups = (
            list(resident_cases(options.batch_size)),
            list(streaming_cases(Path(folder), options.files, 32)),
        )
        rows = [row for cases in groups for row in rows_of(cases, measured(cases, options.rounds), step_ms)]
    for row in rows:
        print(f"{row['case']:42} {row['median']:>8} {row['unit']:10} {row['percent_of_step']:>6}")
    print(measure.write("input_pipeline", rows, options.threads))


if __name__ == "__main__":
    main()
