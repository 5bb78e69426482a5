"""Reliability R17: of several processes on one run folder exactly one proceeds."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from types import ModuleType

import pytest

from longtail import recipe
from longtail.errors import BusyError, MachineError, UsageError
from longtail.run.folder import RunFolder
from longtail.run.lock import RunLock, is_held_here

ROUNDS, RACERS = 20, 4


def race(path: Path, start: int, leave: int, report: int) -> None:
    os.read(start, 1)
    try:
        with RunLock(path):
            os.write(report, f"won {os.getpid()}\n".encode())
            os.read(leave, 1)
    except BusyError as error:
        os.write(report, f"busy {error.exit_code} {error}\n".encode())


def test_exactly_one_of_several_racing_processes_wins_and_is_named(
    harness: ModuleType, scratch: Path
) -> None:
    for number in range(ROUNDS):
        path = scratch / f"run-{number}" / "lock"
        (start, go), (leave, done), (read, write) = os.pipe(), os.pipe(), os.pipe()
        children: list[int] = []
        for _ in range(RACERS):
            if (pid := harness.fork()) == 0:
                try:
                    race(path, start, leave, write)
                finally:
                    os._exit(0)
            children.append(pid)
        os.write(go, b"x" * RACERS)
        said = b""
        while said.count(b"\n") < RACERS:
            said += os.read(read, 4096)
        os.write(done, b"x" * RACERS)
        for pid in children:
            os.waitpid(pid, 0)
        for end in (start, go, leave, done, read, write):
            os.close(end)
        lines = said.decode().splitlines()
        winners = [line.split()[1] for line in lines if line.startswith("won")]
        assert len(winners) == 1, lines
        busy = [line for line in lines if line.startswith("busy 7 ")]
        assert len(busy) == RACERS - 1
        assert all(f"process {winners[0]} on {socket.gethostname()}" in line for line in busy), lines


def test_the_lock_of_a_killed_process_is_free_at_once(harness: ModuleType, scratch: Path) -> None:
    read, write = os.pipe()
    pid = harness.fork()
    if pid == 0:
        with RunLock(scratch / "lock"):
            os.write(write, b"held")
            time.sleep(60)
        os._exit(0)
    assert os.read(read, 4) == b"held"
    with pytest.raises(BusyError, match=f"process {pid} "), RunLock(scratch / "lock"):
        pytest.fail("two holders")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with RunLock(scratch / "lock"):
        assert str(os.getpid()) in (scratch / "lock").read_text()
    os.close(read)
    os.close(write)


def test_a_loader_worker_that_outlives_the_holder_does_not_keep_the_lock(
    harness: ModuleType, scratch: Path
) -> None:
    read, write = os.pipe()
    holder = harness.fork()
    if holder == 0:
        RunLock(scratch / "lock").__enter__()
        worker = harness.fork()
        if worker == 0:
            time.sleep(60)
            os._exit(0)
        os.write(write, f"{worker}\n".encode())
        time.sleep(60)
    worker = int(os.read(read, 20))
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    try:
        os.kill(worker, 0)  # control: the worker still lives
        with RunLock(scratch / "lock"):
            assert is_held_here(scratch / "lock")
    finally:
        os.kill(worker, signal.SIGKILL)
        os.close(read)
        os.close(write)


def test_a_process_does_not_lock_twice_and_can_lock_again_later(scratch: Path) -> None:
    assert not is_held_here(scratch / "lock")
    with RunLock(scratch):  # a folder: the file "lock" in it
        assert is_held_here(scratch / "lock")
        with pytest.raises(BusyError, match=f"process {os.getpid()} "), RunLock(scratch / "lock"):
            pytest.fail("two holders")
        assert is_held_here(scratch / "lock")
    assert not is_held_here(scratch / "lock")
    with RunLock(scratch / "lock"):
        pass


def test_a_lock_that_is_a_link_is_refused_and_its_target_untouched(scratch: Path) -> None:
    (scratch / "victim").write_text("precious")
    (scratch / "lock").symlink_to(scratch / "victim")
    with pytest.raises(MachineError), RunLock(scratch / "lock"):
        pytest.fail("locked through a link")
    assert (scratch / "victim").read_text() == "precious"


def test_two_recipes_racing_for_one_folder_never_mix(harness: ModuleType, scratch: Path) -> None:
    """One proceeds; the other is told that the folder is busy or of another recipe."""
    for number in range(8):
        folder = scratch / f"run-{number}"
        children: list[int] = []
        for seed in (1, 2):
            if (pid := harness.fork()) == 0:
                code = 99
                try:
                    run, stages = RunFolder(folder), harness.RECIPE.stages
                    with run.held():
                        run.create(recipe.Recipe(name="a", data=recipe.Digits(), stages=stages, seed=seed))
                        (run.checkpoints / "step-00000001").mkdir()  # what only its own recipe goes on from
                    code = 0
                except (BusyError, UsageError) as error:
                    code = error.exit_code
                finally:
                    os._exit(code)
            children.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
        assert codes.count(0) == 1 and set(codes) <= {0, 2, 7}, codes
        assert RunFolder(folder).recipe().seed == 1 + codes.index(0)
