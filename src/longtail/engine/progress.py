"""What a run tells whoever watches it. The command line draws it; a library call stays silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from longtail.recipe import Recipe, Stage


@dataclass(frozen=True)
class Place:
    """Where a run is: the stage, the step within it (steps done), and the same counted over all stages."""

    stage: int = 0
    step: int = 0
    total: int = 0


class Progress(Protocol):
    def began(self, recipe: Recipe, steps: int, place: Place) -> None:
        """A run starts, or goes on, at `place` of `steps` steps in all."""

    def stepped(self, stage: Stage, epoch: int, images: int, loss: Tensor, lr: float) -> None:
        """One step is done. `loss` lives on the device: reading it makes the device wait."""

    def evaluated(self, row: Mapping[str, object]) -> None:
        """A row of evals.jsonl."""

    def note(self, text: str) -> None:
        """Something a person should know: a warning, a fallback, the subset."""


class Silent:
    """The default outside the command line."""

    def began(self, recipe: Recipe, steps: int, place: Place) -> None: ...

    def stepped(self, stage: Stage, epoch: int, images: int, loss: Tensor, lr: float) -> None: ...

    def evaluated(self, row: Mapping[str, object]) -> None: ...

    def note(self, text: str) -> None: ...
