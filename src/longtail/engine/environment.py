"""What surrounds a run: the facts of env.json, and settings that make equal commands give equal bytes."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import nn

import longtail
from longtail.backbones import kernels
from longtail.data.splits import Dataset
from longtail.engine import machine
from longtail.engine.distributed import World
from longtail.recipe import Recipe


@contextmanager
def steady(here: World) -> Generator[None]:
    """Deterministic kernels on an accelerator and full float32 products; the old settings come back after.

    On a processor, freed memory is kept for the next step.
    """
    cudnn = torch.backends.cudnn
    before = (cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32)
    cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32 = True, False, False
    if here.device.type == "cpu":
        machine.tune()
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32 = before


def placed(model: nn.Module, recipe: Recipe, here: World) -> nn.Module:
    """The model on its device, in the recipe's memory layout."""
    layout = torch.channels_last if recipe.channels_last else torch.contiguous_format
    # the stubs of torch know memory_format only beside other arguments
    return model.to(here.device).to(memory_format=layout)  # pyright: ignore[reportCallIssue]


def compiled(recipe: Recipe, net: nn.Module) -> nn.Module:
    return torch.compile(net) if recipe.compile else net  # type: ignore[return-value]


def facts(here: World, data: Dataset, model: nn.Module) -> dict[str, Any]:
    """env.json: everything that a number depends on besides the recipe. No clock times."""
    commit, dirty = _commit()
    gpu = torch.cuda.get_device_name(here.device) if here.device.type == "cuda" else None
    return {
        "version": longtail.__version__,
        "commit": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "device": gpu or here.device.type,
        "cpu": _processor(),
        "threads": torch.get_num_threads(),
        "kernels": here.device.type == "cpu" and kernels.possible(),
        "world_size": here.size,
        "data_digest": data.digest,
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def _commit() -> tuple[str | None, bool | None]:
    """The commit of the source tree we run from; None when installed from a wheel.

    LONGTAIL_COMMIT names it for a copy of the tree that travels without its version control.
    """
    if "LONGTAIL_COMMIT" in os.environ:
        return os.environ["LONGTAIL_COMMIT"], False
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None, None
    try:
        changes = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "src")
        return _git(root, "rev-parse", "HEAD"), bool(changes)
    except (OSError, subprocess.SubprocessError):
        return None, None


def _git(root: Path, *words: str) -> str:
    asked = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, timeout=10, check=True)
    return asked.stdout.strip()


def _processor() -> str:
    """The processor's own name where the system tells it (Linux), else what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
