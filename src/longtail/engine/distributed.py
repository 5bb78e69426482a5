"""The waist: the only file that knows about processes. Everything else sees a `World`.

Runs of several processes are started by torchrun, which sets RANK, WORLD_SIZE and LOCAL_RANK.
"""

from __future__ import annotations

import gc
import inspect
import os
import traceback
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from longtail.engine.signals import Interrupted, Stop
from longtail.errors import LongtailError, MachineError, Stopped, UsageError

T = TypeVar("T")

# A rank that waits longer than this for the others gives up instead of hanging for a night.
PATIENCE = timedelta(minutes=10)
# torch 2.13 gave the argument another name and warns of the old one.
_ARGUMENTS = inspect.signature(nn.parallel.DistributedDataParallel).parameters
NO_BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _ARGUMENTS else "broadcast_buffers"


@dataclass(frozen=True)
class World:
    """Who we are among the processes of this run, and where our tensors live."""

    device: torch.device
    rank: int = 0
    size: int = 1
    stop: Stop = field(default_factory=Stop, repr=False, compare=False)

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def program(self) -> list[str]:
        """The words that start `longtail` again as it was started: in as many processes."""
        if self.size == 1:
            return ["longtail"]
        each = int(os.environ.get("LOCAL_WORLD_SIZE", self.size))
        machines = [f"--nnodes={self.size // each}", "..."] if each < self.size else []
        return ["torchrun", *machines, f"--nproc-per-node={each}", "-m", "longtail"]

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model for the forward pass: DDP when there are several processes, else the model itself."""
        if self.size == 1 or not any(p.requires_grad for p in model.parameters()):
            return model
        ids = [self.device] if self.device.type == "cuda" else None
        wrapper = nn.parallel.DistributedDataParallel
        no_buffers: dict[str, Any] = {NO_BUFFERS: False}  # share_buffers does it, when it matters
        return wrapper(model, device_ids=ids, gradient_as_bucket_view=True, **no_buffers)

    def total(self, tensors: Iterable[Tensor]) -> None:
        """Sums each tensor over the processes, in place."""
        if self.size > 1:
            for tensor in tensors:
                dist.all_reduce(tensor)

    def share_buffers(self, model: nn.Module) -> None:
        """Rank 0's buffers become everyone's: BatchNorm statistics, before evaluating and saving."""
        if self.size > 1:
            for buffer in model.buffers():
                dist.broadcast(buffer, src=0)

    def votes(self, flags: list[bool]) -> list[bool]:
        """For each flag, whether any process raised it; all get the same answer."""
        if self.size == 1:
            return flags
        raised = torch.tensor([float(flag) for flag in flags], device=self.device)
        dist.all_reduce(raised)
        return [count > 0 for count in raised.tolist()]

    def any(self, flag: bool) -> bool:
        return self.votes([flag])[0]

    def heeding(self, batches: Iterator[T]) -> Iterator[T]:
        """The batches, as long as nobody asks this process to stop; then Interrupted, on every process.

        Processes may have different numbers of batches, so each waits for the others at its end.
        """
        for batch in batches:
            if self.stop:
                break
            yield batch
        del batches  # its workers end here
        if self.any(bool(self.stop)):
            raise Interrupted

    def agree(self, failure: Exception | None) -> None:
        """Every process raises when one of them failed, so that nobody waits for the dead."""
        if self.size == 1:
            if failure is not None:
                raise failure
            return
        texts: list[tuple[str, int] | None] = [None] * self.size
        mine = None if failure is None else (str(failure), getattr(failure, "exit_code", 70))
        dist.all_gather_object(texts, mine)
        if failure is not None:
            raise failure
        for rank, text in enumerate(texts):
            if text is not None and text[1] > 128:
                raise Stopped(text[0], signal_number=text[1] - 128)
            if text is not None:
                error = LongtailError(f"process {rank} failed: {text[0]}")
                error.exit_code = text[1]
                raise error

    @contextmanager
    def together(self) -> Generator[None]:
        """Wraps work that may fail on one process only (mostly the main one's files)."""
        failure: Exception | None = None
        try:
            yield
        except Exception as error:  # re-raised by agree(), on every process
            failure = error
        self.agree(failure)


def chosen_device(name: str | None = None) -> torch.device:
    """The device of that name: cpu, cuda or cuda:1. Without a name an accelerator, where there is one."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, sign, index = name.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (sign and (kind != "cuda" or not index.isdecimal())):
        raise UsageError(f"device {name[:60]}: there are cpu, cuda and, of several accelerators, cuda:1")
    number = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (kind == "cuda" and not number) or (kind == "mps" and not torch.backends.mps.is_available()):
        raise MachineError(f"device {name}: no accelerator is available here; leave --device out")
    if index and int(index) >= number:
        raise MachineError(f"device {name}: the accelerators here are cuda:0 to cuda:{number - 1}")
    return torch.device(name)


@contextmanager
def world(device: str | None = None) -> Generator[World]:
    """The World of this process; joins and leaves the process group when torchrun started us."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    place = chosen_device(device)
    if size == 1:
        yield World(place)
        return
    if place.type == "cuda":
        place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(place)
    dist.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield World(place, rank, size)
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # they hold the model
        if not _lost_contact(error):
            raise
        raise MachineError(
            "another process of this run has ended, and its own message says why; the same command goes on "
            "from the last checkpoint"
        ) from error
    finally:
        # DDP holds the group in a reference cycle. Left to the end of the interpreter, its threads would be
        # found running there, and the process abort after all its work was done: one run in four did.
        gc.collect()
        dist.destroy_process_group()


def _lost_contact(error: BaseException) -> bool:
    """Whether a sum over the processes failed, rather than something of our own."""
    if not isinstance(error, RuntimeError):
        return False
    return isinstance(error, dist.DistError) or any(name in str(error) for name in ("gloo", "Gloo", "NCCL"))
