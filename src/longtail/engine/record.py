"""Everything that a run writes while it goes: logs, checkpoints, timing; and how it finds its place again."""

from __future__ import annotations

import signal
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from longtail.data.batches import Batch
from longtail.data.splits import Dataset
from longtail.engine import environment, facts
from longtail.engine.average import Average
from longtail.engine.distributed import World
from longtail.engine.momenta import momenta, set_momenta
from longtail.engine.progress import Place, Progress
from longtail.engine.signals import Stop
from longtail.engine.timing import Timing
from longtail.errors import NumericsError, Stopped
from longtail.recipe import Recipe, Stage
from longtail.run import checkpoint
from longtail.run.escape import terminal
from longtail.run.folder import RunFolder
from longtail.run.logs import Log

SAVE_EVERY_SECONDS = 300.0  # between epoch edges; the clock decides only when to save, never what
LOGS = ("steps.jsonl", "evals.jsonl")


class Record:
    """The run folder's hand in the loop. Only the main process writes; all of them stop together."""

    def __init__(  # noqa: PLR0913  (the loop's collaborators, once)
        self,
        here: World,
        folder: RunFolder,
        recipe: Recipe,
        data: Dataset,
        model: nn.Module,
        stop: Stop,
        progress: Progress,
    ):
        self.here, self.folder, self.recipe, self.data = here, folder, recipe, data
        self.model, self.stop, self.progress = model, stop, progress
        self.average: Average | None = None
        self.optimizer: torch.optim.SGD | None = None
        self.stage, self.steps = recipe.stages[0], 1
        self.number, self.step, self.epochs, self.total, self.images_seen = 0, 0, 0, 0, 0
        self.pending: list[tuple[dict[str, Any], Tensor]] = []
        self.found: tuple[dict[str, dict[str, Tensor]], dict[str, Any]] | None = None
        self.saved = time.monotonic()
        with here.together():
            self._open()

    def __enter__(self) -> Record:
        return self

    def __exit__(self, *_: object) -> None:
        for log in (*self.logs.values(), self.timing.log) if self.here.is_main else ():
            log.close()

    # ------------------------------------------------------------------------------------------ beginning

    def _open(self) -> None:
        latest = checkpoint.latest(self.folder.checkpoints, warn=self.progress.note)
        if latest is not None:
            self.found = checkpoint.load(latest)
            checkpoint.require(self.found[1], facts.identity(self.here, self.folder, self.data))
        if not self.here.is_main:
            return
        self._rotate()  # a run that was killed after saving may have left one too many
        positions = self.found[1]["logs"] if self.found else {}
        self.logs = {name: Log.open(self.folder.path / name, positions.get(name)) for name in LOGS}
        self.timing = Timing(self.folder.path / "timing.jsonl")
        first = {
            "env.json": lambda: environment.facts(self.here, self.data, self.model),
            "data.json": lambda: facts.about_data(self.recipe, self.data),
            "manifest.json": lambda: self.data.manifest,
        }
        for name, made in first.items():
            # Not there yet though steps are: taken over by retrain, or damaged and removed.
            if self.found is None or not (self.folder.path / name).exists():
                self.folder.write(name, made())

    def place(self) -> Place:
        at = self.found[1] if self.found else {"stage": 0, "step": 0, "total": 0}
        return Place(at["stage"], at["step"], at["total"])

    def began(self, steps: int, place: Place) -> None:
        for text in self.data.notes:
            self.progress.note(text)
        self.progress.began(self.recipe, steps, place)

    def restore(self, number: int, stage: Stage, optimizer: torch.optim.SGD, steps: int) -> tuple[int, int]:
        """Loads what the newest checkpoint holds for this stage: (steps done, epochs done) of the stage.

        The last step of an epoch may be done and the epoch not: its evaluation is still to come.
        """
        kept = momenta(self.optimizer) if self.optimizer and stage.optimizer_state == "kept" else {}
        self.number, self.stage, self.steps, self.optimizer = number, stage, steps, optimizer
        self.step, self.epochs = 0, 0
        self.average = Average(self.model, stage.ema) if stage.ema is not None else None
        if self.found is not None:
            (tensors, at), self.found = self.found, None
            self.model.load_state_dict(tensors["model"])
            self.step, self.total, self.images_seen = at["step"], at["total"], at["images_seen"]
            self.epochs = at.get("epochs", self.step // steps)
            kept = tensors.get("optimizer", {})
            if self.average is not None:
                self.average.load(tensors["average"])
        set_momenta(optimizer, kept)
        if self.here.is_main:
            self.timing.start(self.images_seen)
        return self.step, self.epochs

    def entered(self, number: int, stage: Stage) -> None:
        """A stage without steps begins; it leaves no checkpoint, for it can be done again."""
        self.number, self.stage, self.step, self.epochs, self.average = number, stage, 0, 0, None

    def chosen(self, facts: dict[str, Any]) -> None:
        """What a stage chose on held-out images, with everything that it compared."""
        if facts and self.here.is_main:
            self.folder.write(f"choice_{self.stage.name}.json", facts)

    # ----------------------------------------------------------------------------------------- on the way

    def stepped(self, step: int, lr: float, loss: Tensor, batch: Batch, trouble: Tensor) -> None:
        """After each whole step: log, look at the guard, save when due, stop when asked."""
        images = min(
            self.stage.batch_size,
            len(self.data.train.targets) - (step - 1) % self.steps * self.stage.batch_size,
        )
        images *= self.stage.views + (self.stage.paired is not None)
        self.step, self.total, self.images_seen = step, self.total + 1, self.images_seen + images
        epoch = (step - 1) // self.steps + 1
        if self.average is not None:
            self.average.update(self.model)
        self.progress.stepped(self.stage, epoch, images, loss, lr)
        logs_now = step % self.recipe.log_every == 0
        if logs_now:
            self._log(epoch, lr, loss)
        late = time.monotonic() - self.saved > SAVE_EVERY_SECONDS
        stop, late = self.here.votes([bool(self.stop), late])
        # Reading the flag makes an accelerator wait; before saving it must be read.
        if self.here.device.type == "cpu" or logs_now or step % self.steps == 0 or stop or late:
            self._guard(trouble, batch)
        if stop or late:
            self.save()
        if stop:
            raise self.stopped()

    def stopped(self) -> Stopped:
        return Stopped(
            f"stopped after step {self.total}; to go on: {facts.command(self.here, self.folder)}",
            signal_number=self.stop.number or signal.SIGTERM,
        )

    def _log(self, epoch: int, lr: float, loss: Tensor) -> None:
        """The mean over the global batch; kept on the device until the next save."""
        loss = loss.clone()  # a replayed graph writes into the same place
        self.here.total([loss])
        row = {"stage": self.number, "name": self.stage.name, "epoch": epoch, "step": self.step, "lr": lr}
        self.pending.append((row, loss / self.here.size))

    def _guard(self, trouble: Tensor, batch: Batch) -> None:
        if not self.here.any(bool(trouble.item())):
            return
        sound, positions = torch.isfinite(batch.images).flatten(1).all(1).cpu(), batch.positions.cpu()
        positions = positions if sound.all() else positions[~sound]
        targets = self.data.train.targets[positions].tolist()
        names = sorted({terminal(self.data.names[target]) for target in targets})
        raise NumericsError(
            f"the loss or a gradient is not finite: stage {self.stage.name}, at or before step {self.step}; "
            f"samples of that step: {_few(positions.tolist())}, of classes {_few(names)}; nothing was "
            f"updated. Lower the learning rate or set stages.{self.number}.gradient_clip"
        )

    def evaluated(self, epoch: int, split: str, measures: dict[str, Any]) -> None:
        row = {
            "stage": self.number,
            "name": self.stage.name,
            "epoch": epoch,
            "step": self.step,
            "split": split,
        }
        row |= measures
        if self.here.is_main:
            self.logs["evals.jsonl"].append(row)
            if self.stage.posthoc is not None:  # no checkpoint follows that would
                self.logs["evals.jsonl"].flush()
        self.progress.evaluated(row)

    def averaged(self) -> AbstractContextManager[None]:
        return self.average.in_place_of(self.model) if self.average else nullcontext()

    def epoch_done(self, epoch: int) -> None:
        """Saved after the evaluation, so that a resumed run never evaluates an epoch twice."""
        self.epochs = epoch
        if self.here.is_main:
            self.timing.epoch(self.number, epoch, self.images_seen)
        if epoch == self.stage.epochs and self.average is not None:
            self.average.put(self.model)
        self.save()

    # -------------------------------------------------------------------------------------------- saving

    def save(self) -> None:
        """A whole checkpoint; written by the main process, waited for by all."""
        self.here.share_buffers(self.model)
        with self.here.together():
            if self.here.is_main:
                self._write()
        self.saved = time.monotonic()

    def _write(self) -> None:
        for row, loss in self.pending:
            self.logs["steps.jsonl"].append(row | {"loss": float(loss)})
        self.pending.clear()
        self.timing.log.flush()
        assert self.optimizer is not None
        tensors = {"model": dict(self.model.state_dict()), "optimizer": momenta(self.optimizer)}
        if self.average is not None:
            tensors["average"] = self.average.held
        about = facts.identity(self.here, self.folder, self.data) | {
            "stage": self.number,
            "step": self.step,
            "epochs": self.epochs,
            "total": self.total,
            "images_seen": self.images_seen,
            "logs": {name: log.position() for name, log in self.logs.items()},
        }
        checkpoint.save(self.folder.checkpoints, self.total, tensors, about)
        self._rotate()

    def _rotate(self) -> None:
        ends = facts.stage_ends(self.recipe, len(self.data.train.targets))
        checkpoint.rotate(self.folder.checkpoints, keep=2, protect=ends)


def _few(items: list[int] | list[str], limit: int = 8) -> str:
    return ", ".join(map(str, items[:limit])) + (
        f" and {len(items) - limit} more" if len(items) > limit else ""
    )
