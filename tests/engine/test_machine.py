"""engine/machine.py: freed tensors stay in the process, numbers stay, other systems are left alone."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from collections.abc import Iterator

import pytest

from longtail.engine import machine

needs_glibc = pytest.mark.skipif(
    platform.system() != "Linux" or platform.libc_ver()[0] != "glibc",
    reason="the allocator of glibc on Linux",
)

# In a process of its own, because the setting is for good. Prints page faults of a loop, and a checksum.
FAULTS = """
import resource, sys, torch
from longtail.engine import machine
torch.set_num_threads(1)
if sys.argv[1] == "tuned":
    assert machine.tune()
    assert machine.tune()
total = 0.0
def work():
    one = torch.full((12 << 20,), 1.0)  # 48 MB: glibc keeps smaller blocks by itself, at times
    two = one + one
    return float(two.sum())
for _ in range(5): work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    total += work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, total)
"""


def run(mode: str) -> tuple[int, float]:
    done = subprocess.run([sys.executable, "-c", FAULTS, mode], capture_output=True, text=True, check=True)
    faults, total = done.stdout.split()
    return int(faults), float(total)


@needs_glibc
def test_freed_tensors_are_taken_again_without_a_page_fault() -> None:
    plain, tuned = run("plain"), run("tuned")
    assert tuned[1] == plain[1]
    assert plain[0] > 50_000  # 10 rounds of two tensors at 12,288 pages each
    assert tuned[0] < plain[0] / 4  # not 0: the heap may still settle


@pytest.fixture
def fresh() -> Iterator[None]:
    machine.tune.cache_clear()
    yield
    machine.tune.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("looked for a C library")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert machine.tune() is False


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("error", [OSError, AttributeError])
def test_a_library_without_these_functions_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error("no such thing")

    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(ctypes, "CDLL", refuse)
    assert machine.tune() is False
