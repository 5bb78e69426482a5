"""Everything that a run writes while it goes: logs, checkpoints, timing; and how it finds its place again."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from longtail import counts as profiles
from longtail.data.batches import Batch
from longtail.data.splits import Dataset
from longtail.engine import environment
from longtail.engine.average import Average
from longtail.engine.distributed import World
from longtail.engine.momenta import momenta, set_momenta
from longtail.engine.progress import Place, Progress
from longtail.engine.signals import Stop
from longtail.errors import NumericsError, Stopped
from longtail.recipe import Recipe, Stage
from longtail.run import checkpoint
from longtail.run.folder import RunFolder, recipe_digest
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
        self.number, self.step, self.total, self.images_seen = 0, 0, 0, 0
        self.pending: list[tuple[dict[str, Any], Tensor]] = []
        self.found: tuple[dict[str, dict[str, Tensor]], dict[str, Any]] | None = None
        self.saved = time.monotonic()
        with here.together():
            self._open()
        self._start_clock()

    def __enter__(self) -> Record:
        return self

    def __exit__(self, *_: object) -> None:
        for log in (*self.logs.values(), self.timing) if self.here.is_main else ():
            log.close()

    # ------------------------------------------------------------------------------------------ beginning

    def _open(self) -> None:
        latest = checkpoint.latest(self.folder.checkpoints, warn=self.progress.note)
        if latest is not None:
            self.found = checkpoint.load(latest)
            checkpoint.require(self.found[1], self._identity())
        if not self.here.is_main:
            return
        positions = self.found[1]["logs"] if self.found else {}
        self.logs = {name: Log.open(self.folder.path / name, positions.get(name)) for name in LOGS}
        self.timing = Log(self.folder.path / "timing.jsonl")
        if self.found is None:
            self.folder.write("env.json", environment.facts(self.here, self.data, self.model))
            self.folder.write("data.json", self._data_facts())
            self.folder.write("manifest.json", self.data.manifest)

    def place(self) -> Place:
        facts = self.found[1] if self.found else {"stage": 0, "step": 0, "total": 0}
        return Place(facts["stage"], facts["step"], facts["total"])

    def began(self, steps: int, place: Place) -> None:
        for text in self.data.notes:
            self.progress.note(text)
        self.progress.began(self.recipe, steps, place)

    def restore(self, number: int, stage: Stage, optimizer: torch.optim.SGD, steps: int) -> int:
        """Loads what the newest checkpoint holds for this stage; the step of the stage to go on from."""
        kept = momenta(self.optimizer) if self.optimizer and stage.optimizer_state == "kept" else {}
        self.number, self.stage, self.step, self.steps, self.optimizer = number, stage, 0, steps, optimizer
        self.average = Average(self.model, stage.ema) if stage.ema is not None else None
        if self.found is not None:
            (tensors, facts), self.found = self.found, None
            self.model.load_state_dict(tensors["model"])
            self.step, self.total, self.images_seen = facts["step"], facts["total"], facts["images_seen"]
            kept = tensors.get("optimizer", {})
            if self.average is not None:
                self.average.load(tensors["average"])
        set_momenta(optimizer, kept)
        return self.step

    # ----------------------------------------------------------------------------------------- on the way

    def stepped(self, step: int, lr: float, loss: Tensor, batch: Batch, trouble: Tensor) -> None:
        """After each whole step: log, look at the guard, save when due, stop when asked."""
        images = min(
            self.stage.batch_size,
            len(self.data.train.targets) - (step - 1) % self.steps * self.stage.batch_size,
        )
        self.step, self.total, self.images_seen = step, self.total + 1, self.images_seen + images
        epoch = (step - 1) // self.steps + 1
        if self.average is not None:
            self.average.update(self.model)
        self.progress.stepped(self.stage, epoch, images, loss, lr)
        logs_now = step % self.recipe.log_every == 0
        if logs_now:
            row = {"stage": self.number, "name": self.stage.name, "epoch": epoch, "step": step}
            self.pending.append(
                (row | {"lr": lr}, loss.clone())
            )  # a replayed graph writes into the same place
        # Reading the device's flag makes it wait; a processor of our own does not mind.
        if self.here.device.type == "cpu" or logs_now or step % self.steps == 0:
            self._guard(trouble, batch)
        self._pause_or_stop()

    def _guard(self, trouble: Tensor, batch: Batch) -> None:
        if not self.here.any(bool(trouble.item())):
            return
        positions = batch.positions.tolist()
        classes = sorted(
            {self.data.names[t] for t in self.data.train.targets[batch.positions.cpu()].tolist()}
        )
        where = f"stage {self.stage.name}, at or before step {self.step}"
        raise NumericsError(
            f"the loss or a gradient is not finite: {where}; batch at that step: samples "
            f"{positions[:8]}{'...' if len(positions) > 8 else ''} of classes {classes[:5]}; nothing was "
            f"updated. Lower the learning rate or set stages.{self.number}.gradient_clip"
        )

    def _pause_or_stop(self) -> None:
        late = time.monotonic() - self.saved > SAVE_EVERY_SECONDS
        votes = [bool(self.stop), late] if self.here.size == 1 else self.here.votes([bool(self.stop), late])
        if any(votes):
            self.save()
        if votes[0]:
            number = self.stop.number or 15
            raise Stopped(
                f"stopped after step {self.total}; to go on: "
                f"longtail train {self.folder.path / 'recipe.json'} --out {self.folder.path}",
                signal_number=number,
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
        self.progress.evaluated(row)

    def averaged(self) -> AbstractContextManager[None]:
        return self.average.in_place_of(self.model) if self.average else nullcontext()

    def epoch_done(self, epoch: int) -> None:
        """Saved after the evaluation, so that a resumed run never evaluates an epoch twice."""
        self._stop_clock(epoch)
        if epoch == self.stage.epochs and self.average is not None:
            self.average.put(self.model)
        self.save(stage_end=epoch == self.stage.epochs)

    # -------------------------------------------------------------------------------------------- saving

    def save(self, *, stage_end: bool = False) -> None:
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
        for log in (*self.logs.values(), self.timing):
            log.flush()
        assert self.optimizer is not None
        tensors = {"model": dict(self.model.state_dict()), "optimizer": momenta(self.optimizer)}
        if self.average is not None:
            tensors["average"] = self.average.held
        facts = self._identity() | {
            "stage": self.number,
            "step": self.step,
            "total": self.total,
            "images_seen": self.images_seen,
            "logs": {name: log.position() for name, log in self.logs.items()},
        }
        checkpoint.save(self.folder.checkpoints, self.total, tensors, facts)
        checkpoint.rotate(self.folder.checkpoints, keep=2, protect=self._stage_ends())

    def _stage_ends(self) -> set[int]:
        steps = -(-len(self.data.train.targets) // 1)
        ends, total = set[int](), 0
        for stage in self.recipe.stages:
            total += -(-steps // stage.batch_size) * stage.epochs
            ends.add(total)
        return ends

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint must agree with before it is used."""
        return {
            "recipe": recipe_digest(self.recipe),
            "data": self.data.digest,
            "names": list(self.data.names),
            "world_size": self.here.size,
        }

    def _data_facts(self) -> dict[str, Any]:
        images = self.recipe.images
        return {
            "names": list(self.data.names),
            "counts": self.data.counts.tolist(),
            "nominal_ratio": self.data.nominal_ratio,
            "ratio": profiles.ratio(self.data.counts),
            "digest": self.data.digest,
            "train_images": len(self.data.train.targets),
            "test_images": len(self.data.test.targets),
            "notes": list(self.data.notes),
            "mean": list(images.mean),
            "std": list(images.std),
            "size": images.size,
        }

    # -------------------------------------------------------------------------------------------- timing

    def _start_clock(self) -> None:
        self.clock = (time.perf_counter(), time.process_time(), self.images_seen)

    def _stop_clock(self, epoch: int) -> None:
        """Seconds since the last edge, evaluation included. The only file with clock times."""
        wall, cpu, images = self.clock
        if self.here.is_main:
            self.timing.append(
                {
                    "stage": self.number,
                    "epoch": epoch,
                    "seconds": round(time.perf_counter() - wall, 3),
                    "cpu_seconds": round(time.process_time() - cpu, 3),
                    "images": self.images_seen - images,
                }
            )
        self._start_clock()
