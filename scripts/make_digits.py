"""Writes the embedded digits from scikit-learn's copy of the UCI set. Its result is in the repository.

usage: python scripts/make_digits.py [src/longtail/data/embedded/digits.bin]

One record per image, in the order of the source: a label byte, then 64 bytes of grey 0..16, row by row.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits


def records() -> bytes:
    pixels, labels = load_digits(return_X_y=True)
    if pixels.shape != (1797, 64) or pixels.min() < 0 or pixels.max() > 16 or (pixels % 1).any():
        raise SystemExit("scikit-learn's digits are not the 1,797 images of 8x8 grey values 0..16")
    return np.hstack([labels[:, None], pixels]).astype(np.uint8).tobytes()


if __name__ == "__main__":
    default = Path(__file__).parent.parent / "src/longtail/data/embedded/digits.bin"
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    target.write_bytes(records())
    print(f"{target}: {target.stat().st_size} bytes")
