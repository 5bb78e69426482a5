"""Several processes on this machine, over gloo, as torchrun would start them."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def worker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("worker", HERE / "worker.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def processes() -> Callable[..., list[tuple[int, str]]]:
    """Runs worker.py in `size` processes; (exit code, output) of each."""

    def run(job: str, out: Path, size: int = 2) -> list[tuple[int, str]]:
        with socket.socket() as first, socket.socket() as second, socket.socket() as third:
            for free in (first, second, third):
                free.bind(("127.0.0.1", 0))
            ports = [str(free.getsockname()[1]) for free in (first, second, third)]
        common = {
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": ports[0],
            "SECOND_PORT": ports[1],
            "THIRD_PORT": ports[2],
            "OMP_NUM_THREADS": "1",
            "LONGTAIL_COMMIT": "0" * 40,
        }
        started = [
            subprocess.Popen(
                [sys.executable, "-W", "error::FutureWarning", HERE / "worker.py", job, out],
                env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(size)
        ]
        try:
            outputs = [process.communicate(timeout=120)[0] for process in started]
        finally:
            for process in started:
                process.kill()
                process.communicate()
        return [(process.returncode, output) for process, output in zip(started, outputs, strict=True)]

    return run
