"""`longtail doctor`: what this machine has, and what is missing for training."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

NEEDED = ("numpy", "PIL", "pydantic", "safetensors", "matplotlib", "jinja2")
EXTRAS = (
    ("timm", "timm", "timm:NAME backbones"),
    ("viz", "scikit-learn", "t-SNE figures"),
    ("viz", "openTSNE", "t-SNE of new points"),
    ("export", "onnx", "export"),
    ("export", "onnxruntime", "export"),
    ("tensorboard", "tensorboard", "TensorBoard logs"),
    ("parquet", "pyarrow", "Parquet files"),
    ("hub", "huggingface-hub", "weights from the hub"),
)
LEAST_TORCH = (2, 10)  # older ones read some damaged weight files into the wrong memory
GIB = 1 << 30


class Finding(NamedTuple):
    """One line of the report; `is_wrong` where training cannot work like this."""

    name: str
    what: str
    is_wrong: bool = False


def doctor() -> None:
    """Say what this machine has; exit code 5 if it cannot train."""
    from longtail.cli.columns import facts
    from longtail.errors import MachineError

    findings = list(examined())
    print(facts([(one.name, f"{one.what}{'  <- mend this' if one.is_wrong else ''}") for one in findings]))
    wrong = [one for one in findings if one.is_wrong]
    if wrong:
        number = f"{len(wrong)} things are wrong, first" if len(wrong) > 1 else "one thing is wrong,"
        raise MachineError(f"{number} {wrong[0].name}: {wrong[0].what}", number=520)
    print("\nready to train")


def examined() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", f"{version} in {_short(sys.prefix)}", sys.version_info < (3, 11))
    yield from _torch()
    for name in NEEDED:
        yield _package(name)
    yield _memory()
    yield _disk()
    yield _shared_memory()
    yield _data()
    for extra, package, purpose in EXTRAS:
        found = _version(package)
        yield Finding(f"[{extra}]", f"{package} {found or 'is not installed'} ({purpose})")


def _torch() -> Iterator[Finding]:
    try:
        import torch
    except Exception as error:  # a damaged installation raises anything, OSError above all
        yield Finding("torch", f"cannot be imported: {_one_line(error)}; install torch>=2.10", True)
        return
    is_old = _release(torch.__version__) < LEAST_TORCH
    yield Finding("torch", f"{torch.__version__}{'; install torch>=2.10' if is_old else ''}", is_old)
    threads, cores = (
        torch.get_num_threads(),
        len(os.sched_getaffinity(0)) if _has_affinity() else os.cpu_count(),
    )
    yield Finding("threads", f"{threads} for {cores} cores (OMP_NUM_THREADS sets them)")
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(index)
            what = f"{torch.cuda.get_device_name(index)}, {free / GIB:.0f} of {total / GIB:.0f} GiB free"
            yield Finding("accelerator", f"cuda:{index} {what}")
    else:
        yield Finding("accelerator", "none found; training runs on the processor")
        yield _kernels()


def _release(version: str) -> tuple[int, ...]:
    """The first two numbers: (2, 10) of 2.10.0a0+cpu; one that has none is taken as new."""
    parts = re.match(r"(\d+)\.(\d+)", version)
    return tuple(map(int, parts.groups())) if parts else LEAST_TORCH


def _kernels() -> Finding:
    from longtail.backbones import kernels

    if not kernels.possible():
        return Finding("kernels", "PyTorch's own; with a C compiler (cc) training is about a quarter faster")
    compiled = kernels.library("fp32") is not None
    return Finding("kernels", "compiled" if compiled else "the C compiler fails; PyTorch's own are used")


def _package(name: str) -> Finding:
    try:
        module = import_module(name)
    except Exception as error:  # see above
        return Finding(name.lower(), f"cannot be imported: {_one_line(error)}; install longtail again", True)
    return Finding(name.lower(), str(getattr(module, "__version__", "installed")))


def _memory() -> Finding:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return Finding("memory", "unknown on this system")
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith("kB")}
    free, total = sizes.get("MemAvailable", 0), sizes.get("MemTotal", 0)
    return Finding("memory", f"{free / GIB:.1f} of {total / GIB:.1f} GiB free", 0 < free < GIB // 2)


def _disk() -> Finding:
    free = shutil.disk_usage(".").free
    return Finding("disk here", f"{free / GIB:.1f} GiB free", free < GIB // 4)


def _shared_memory() -> Finding:
    if not os.path.isdir("/dev/shm"):
        return Finding(
            "/dev/shm", "not there; workers that load images need it (images.workers=0 does without)"
        )
    free = shutil.disk_usage("/dev/shm").free
    hint = "; little, set images.workers=0 for large images" if free < GIB // 4 else ""
    return Finding("/dev/shm", f"{free / GIB:.1f} GiB free{hint}")


def _data() -> Finding:
    folder = os.environ.get("LONGTAIL_DATA")
    if not folder:
        return Finding("LONGTAIL_DATA", "not set; CIFAR is then looked for in the cache folder")
    is_there = Path(folder).is_dir()
    return Finding("LONGTAIL_DATA", f"{_short(folder)}{'' if is_there else ' is not a folder'}", not is_there)


def _version(package: str) -> str | None:
    from importlib import metadata  # slow enough to be felt in --help

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _has_affinity() -> bool:
    return hasattr(os, "sched_getaffinity")


def _short(path: str) -> str:
    from longtail.run.escape import shown

    return shown(path)


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:160]
