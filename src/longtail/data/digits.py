"""The embedded data: 1,797 handwritten digits of 8x8 pixels (UCI, CC BY 4.0; embedded/ATTRIBUTION.txt)."""

from __future__ import annotations

from importlib import resources

import numpy as np
import torch

from longtail.data.splits import Sources, Split
from longtail.errors import DataError
from longtail.keys import Key

IMAGES, RECORD = 1797, 65
TRAIN_EACH, TEST_EACH = 120, 54


def read() -> Sources:
    """120 training and 54 test images of each digit, chosen once and for all; the other 57 are held out.

    Both are balanced, so that a profile makes digit 0 the head. Of digit 8 there are just 174 images, so none
    is held out.

    Example:
        >>> sources = read()
        >>> len(sources.train), len(sources.test), tuple(sources.test.images.shape[1:])
        (1200, 540, (3, 8, 8))
    """
    content = resources.files("longtail.data").joinpath("embedded/digits.bin").read_bytes()
    if len(content) != IMAGES * RECORD:
        raise DataError("the embedded digits are damaged; install the package again", number=302)
    rows = np.frombuffer(content, dtype=np.uint8).reshape(IMAGES, RECORD)
    labels = rows[:, 0].astype(np.int64)
    grey = np.rint(rows[:, 1:].reshape(-1, 1, 8, 8) * (255 / 16)).astype(np.uint8)
    names = tuple(str(digit) for digit in range(10))
    whole = Split(torch.from_numpy(grey.repeat(3, axis=1)), torch.from_numpy(labels), names)
    orders = [_order(labels, digit) for digit in range(10)]
    train, test, held_out = (
        whole.select(np.sort(np.concatenate([order[part] for order in orders])))
        for part in (
            slice(TRAIN_EACH),
            slice(TRAIN_EACH, TRAIN_EACH + TEST_EACH),
            slice(TRAIN_EACH + TEST_EACH, None),
        )
    )
    return Sources(train, test, held_out, names, official=True)


def _order(
    labels: np.ndarray[tuple[int], np.dtype[np.int64]], digit: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    members = np.flatnonzero(labels == digit)
    return members[Key(0).fold("digits", digit).numpy().permutation(len(members))]
