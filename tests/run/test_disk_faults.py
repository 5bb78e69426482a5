"""Reliability R5: a full, broken or forbidden disk is one line, exit code 5, and no harm to what is there."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from longtail.errors import MachineError
from longtail.run import checkpoint, fsio
from longtail.run.folder import RunFolder

FAULTS = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EMFILE]


def failing(code: int, times: int) -> Callable[[int], None]:
    left = [times]

    def act(count: int) -> None:
        if left[0] > 0:
            left[0] -= 1
            raise OSError(code, os.strerror(code))

    return act


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0


@pytest.fixture
def begun(harness: ModuleType, scratch: Path) -> tuple[Path, int]:
    """A run with one step saved, and the number of operations that the second step takes."""
    writer = harness.Product(whole=False)
    begun = scratch / "begun"
    RunFolder(begun).create(harness.RECIPE)
    writer.play(begun, 1, lambda step: None)
    shutil.copytree(begun, scratch / "clean")
    total = harness.clean_run(writer, scratch / "clean", 2)
    assert total > 20
    return begun, total


@pytest.mark.parametrize("code", FAULTS, ids=lambda code: errno.errorcode[code])
def test_a_lasting_fault_at_any_operation_is_one_line_and_keeps_the_last_checkpoint(
    harness: ModuleType, scratch: Path, begun: tuple[Path, int], code: int
) -> None:
    start, total = begun
    writer, folder = harness.Product(whole=False), scratch / "faulty"
    before = open_files()
    for at in range(1, total + 1):
        shutil.copytree(start, folder)
        hook = harness.Counter(at, failing(code, 10**9))
        with harness.hooked(hook), pytest.raises(MachineError) as caught:
            writer.play(folder, 2, lambda step: None)
        assert hook.count >= at  # the fault happened
        assert caught.value.exit_code == 5
        assert "\n" not in str(caught.value) and 10 <= len(str(caught.value)) <= 300
        assert harness.examine(writer, folder, 1) == ""
        RunFolder(folder).create(harness.RECIPE)
        assert harness.resumes(writer, folder, 2, harness.snapshot(scratch / "clean"))
        shutil.rmtree(folder)
    assert open_files() == before


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE], ids=lambda code: errno.errorcode[code])
def test_a_fault_that_passes_is_survived(
    harness: ModuleType, scratch: Path, begun: tuple[Path, int], code: int, times: int
) -> None:
    start, total = begun
    folder = scratch / "shaky"
    for at in range(1, total + 1):
        shutil.copytree(start, folder)
        hook = harness.Counter(at, failing(code, times))
        with harness.hooked(hook):
            harness.Product(whole=False).play(folder, 2, lambda step: None)
        assert hook.count > total  # what failed was tried again
        assert harness.snapshot(folder) == harness.snapshot(scratch / "clean")
        shutil.rmtree(folder)


def test_a_failed_flush_writes_the_file_again_and_never_only_flushes_again(
    harness: ModuleType, scratch: Path
) -> None:
    """After a failed fsync the kernel drops the pages: a second fsync alone succeeds without the data."""
    fails = [True]

    def hook(op: str, path: str) -> None:
        log.append(op)
        if op == "fsync" and fails:
            fails.pop()
            raise OSError(errno.EIO, "lost")

    log: list[str] = []
    with harness.hooked(hook):
        fsio.write_file(scratch / "a.json", b"{}\n")
    assert log == ["open", "write", "fsync", "unlink", "open", "write", "fsync", "rename", "fsync_dir"]


def test_short_writes_are_completed(
    harness: ModuleType, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.write, list[int]()

    def short(fd: int, data: bytes) -> int:
        calls.append(len(data))
        return real(fd, bytes(data)[: max(1, len(data) // 3)])

    monkeypatch.setattr(fsio.os, "write", short)
    harness.Product().play(scratch / "short", 2, lambda step: None)
    monkeypatch.undo()
    harness.Product().play(scratch / "clean", 2, lambda step: None)
    assert len(calls) > 40
    assert harness.snapshot(scratch / "short") == harness.snapshot(scratch / "clean")


def outcome_under(harness: ModuleType, folder: Path, limit: Callable[[], None]) -> str:
    """Plays the second step of a run in a child under a real limit: "done" or the error's number."""

    def action(say: Callable[[object], None]) -> None:
        limit()
        try:
            harness.Product(whole=False).play(folder, 2, lambda step: None)
            say("done")
        except MachineError as error:
            say(error.number)

    ended = harness.forked(action)
    assert ended.code == 0, ended
    return ended.lines[-1]


def test_limits_on_the_file_size_never_leave_a_short_file(
    harness: ModuleType, scratch: Path, begun: tuple[Path, int]
) -> None:
    start, _ = begun
    verdicts: list[str] = []
    for size in range(0, 1200, 60):
        folder = scratch / f"limited-{size}"
        shutil.copytree(start, folder)

        def limit(size: int = size) -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        verdicts.append(outcome_under(harness, folder, limit))
        assert harness.examine(harness.Product(), folder, 2 if verdicts[-1] == "done" else 1) == ""
        RunFolder(folder).create(harness.RECIPE)
        assert harness.resumes(harness.Product(whole=False), folder, 2, harness.snapshot(scratch / "clean"))
    assert {"done", "506"} == set(verdicts)


def mounted(folder: Path, options: bytes) -> None:
    """A small file system of our own over `folder`, seen by this process alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x00020000) and libc.unshare(0x10020000):  # CLONE_NEWNS; with CLONE_NEWUSER
        raise OSError(ctypes.get_errno(), "unshare")
    libc.mount(None, b"/", None, 0x44000, None)  # MS_REC | MS_PRIVATE
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, options):
        raise OSError(ctypes.get_errno(), "mount")


@pytest.mark.parametrize("kind", ["size", "inodes"])
def test_small_file_systems_are_survived_or_named(harness: ModuleType, scratch: Path, kind: str) -> None:
    """Real ENOSPC: the file system is 4 to 160 KiB large, or holds 2 to 40 files."""
    outcomes: list[str] = []

    def action(say: Callable[[object], None], options: bytes) -> None:
        try:
            mounted(scratch, options)
        except OSError as error:
            return say(f"skip {error}")
        writer, committed = harness.Product(whole=False), [0]
        (scratch / "run").mkdir()
        try:
            writer.play(scratch / "run", 4, committed.append)
            say("done")
        except MachineError as error:
            say(error.number)
        say(harness.examine(writer, scratch / "run", max(committed)))
        with contextlib.suppress(MachineError):
            fsio.clean(scratch / "run" / "checkpoints")
        say(sorted(set(harness.snapshot(scratch / "run")) - {"steps.jsonl"})[:1])

    for amount in range(1, 41):
        options = f"size={4 * amount}k" if kind == "size" else f"nr_inodes={amount + 3}"
        ended = harness.forked(lambda say, options=options: action(say, options.encode()))
        if ended.lines and ended.lines[0].startswith("skip"):
            pytest.skip(f"no file system of our own here: {ended.lines[0]}")
        assert ended.code == 0 and ended.lines[1] == "", ended
        assert ".tmp" not in ended.lines[2] and ".trash" not in ended.lines[2]
        outcomes.append(ended.lines[0])
    assert {"501", "done"} == set(outcomes)
    assert outcomes.count("501") > 3


def test_too_little_room_is_said_before_the_run_starts(
    harness: ModuleType, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MachineError, match="MiB free and the run needs"):
        RunFolder(scratch / "a").create(harness.RECIPE, need=1 << 60)
    monkeypatch.setattr(fsio, "free", lambda path: (1 << 60, 3))
    with pytest.raises(MachineError, match="room for 3 more files"):
        RunFolder(scratch / "a").create(harness.RECIPE)
    assert not (scratch / "a" / "recipe.json").exists()


def test_a_failed_replacement_puts_the_old_checkpoint_back(harness: ModuleType, scratch: Path) -> None:
    checkpoint.save(scratch, 1, harness.state(1), {"step": 1})
    hook_calls = list[str]()

    def hook(op: str, path: str) -> None:
        hook_calls.append(op)
        if op == "rename" and path.endswith("step-00000001") and hook_calls.count("rename") == 2:
            raise OSError(errno.ENOSPC, "full")

    with harness.hooked(hook), pytest.raises(MachineError):
        checkpoint.save(scratch, 1, harness.state(1), {"step": 1, "other": True})
    assert hook_calls.count("rename") == 3
    assert checkpoint.load(scratch / "step-00000001")[1] == {"step": 1}
