"""Four classes of CIFAR-10-LT as class folders: 500, 200, 100 and 50 random training images (the toy of H1).

python scripts/toy_images.py runs/toy
longtail train folder.ce data=runs/toy size=32 backbone=resnet32 epochs=40 --out runs/toy-ce
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from PIL import Image

from longtail import build
from longtail.keys import Key
from longtail.recipe import Cifar, LongTail

CLASSES, SIZES = (0, 3, 6, 9), (500, 200, 100, 50)


def main(out: Path, seed: int = 0) -> None:
    """Writes out/train/CLASS/NUMBER.png and out/test/CLASS/NUMBER.png; all test images of the classes."""
    data = build.dataset(Cifar(classes=10, longtail=LongTail(ratio=100)))
    for c, size in zip(CLASSES, SIZES):
        for name, split, most in (("train", data.train, size), ("test", data.test, 10_000)):
            folder = out / name / data.names[c]
            folder.mkdir(parents=True)
            own = torch.nonzero(split.targets == c).flatten()
            order = Key(seed).fold("toy", name, c).numpy().permutation(len(own))[:most]
            for number in sorted(own[order].tolist()):
                pixels = split.images[number].permute(1, 2, 0).numpy()
                Image.fromarray(pixels).save(folder / f"{number:05d}.png")
            print(f"{folder}: {min(most, len(own))} images")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
