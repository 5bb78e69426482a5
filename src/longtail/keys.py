"""Derived randomness: every draw is a pure function of where in the run it happens.

Nothing is stored and no global stream is read, so a resumed run draws what the uninterrupted one would have
drawn (docs/resume.md). A `Key` names a place; `uniforms` gives one row of numbers per sample of an epoch.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Part = int | str


@dataclass(frozen=True)
class Key:
    """A place in a run: the seed, then the stage, the purpose, the epoch or step, the rank.

    Example:
        >>> Key(0).fold("noise", 7) == Key(0).fold("noise").fold(7)
        True
    """

    seed: int
    path: tuple[Part, ...] = ()

    def fold(self, *parts: Part) -> Key:
        return Key(self.seed, self.path + parts)

    def integer(self) -> int:
        """A 63-bit number that only this place has (a hash, so neighbours are unrelated)."""
        text = json.dumps([self.seed, *self.path]).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1

    def generator(self, device: str | torch.device = "cpu") -> torch.Generator:
        import torch

        return torch.Generator(device=device).manual_seed(self.integer())

    def numpy(self) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=self.integer()))


def uniforms(key: Key, positions: NDArray[np.int64], columns: int) -> NDArray[np.float64]:
    """`[len(positions), columns]` numbers in [0, 1); row p depends on the key and on position p alone.

    A counter-based draw (splitmix64 over key, position and column), so that any worker, rank or resumed run
    gets the same numbers for the same sample, and a whole epoch costs one vectorised call.
    """
    counter = positions.astype(np.uint64)[:, None] * np.uint64(columns) + np.arange(columns, dtype=np.uint64)
    mixed = _splitmix(counter + np.uint64(key.integer()))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _splitmix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014), twice: one round leaves weak seeds weak."""
    for _ in range(2):
        state = (state + np.uint64(0x9E3779B97F4A7C15)) & np.uint64(0xFFFFFFFFFFFFFFFF)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state
