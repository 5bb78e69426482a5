"""The truth about system calls: what reaches the kernel in which order, and kills that the kernel delivers.

The hook of fsio sees only what passes through it, and a kill never reveals a missing flush (the page cache
survives it). strace sees every call of the process, so it checks both.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from longtail.run import checkpoint, fsio

TRACED = "openat,open,creat,write,pwrite64,writev,fsync,fdatasync,rename,renameat,renameat2,mkdir,mkdirat"
TRACED += ",unlink,unlinkat,rmdir,ftruncate,truncate,link,linkat,symlink"
WRITING = re.compile(r"^(?:\d+ +)?(\w+)\((.*)$")
pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


class Call(NamedTuple):
    name: str
    arguments: str

    def is_on(self, path: Path) -> bool:
        """A call on a descriptor of `path`, or naming it."""
        return f"<{path}>" in self.arguments.split(",")[0] or f'"{path}"' in self.arguments


def traced(
    harness: ModuleType, folder: Path, action: Callable[[], None], *, inject: str | None = None
) -> tuple[list[Call], int]:
    """Runs `action` in a forked child under strace: the calls it made and its wait status."""
    (ready, go), (attached_read, attached_write) = os.pipe(), os.pipe()
    pid = harness.fork()
    if pid == 0:
        code = 1
        try:
            ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # PR_SET_PTRACER, any
            os.write(attached_write, b"x")
            os.read(ready, 1)
            action()
            code = 0
        finally:
            os._exit(code)
    os.read(attached_read, 1)
    out = folder / "trace"
    command = ["strace", "-y", "-s", "0", "-o", str(out), "-e", f"trace={TRACED}", "-p", str(pid)]
    command += ["-e", f"inject={inject}"] if inject else []
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    said = tracer.stderr.readline()
    if "attached" not in said:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        tracer.communicate()
        pytest.skip(f"strace may not attach here: {said.strip()}")
    os.write(go, b"x")
    status = os.waitpid(pid, 0)[1]
    tracer.communicate(timeout=30)
    for end in (ready, go, attached_read, attached_write):
        os.close(end)
    found = (WRITING.match(line) for line in out.read_text().splitlines())
    return [Call(match[1], match[2]) for match in found if match], status


def order(calls: list[Call], name: str, path: Path, *, last: bool = False) -> int:
    """The index of a call; an AssertionError when it was never made."""
    found = [i for i, call in enumerate(calls) if call.name == name and call.is_on(path)]
    assert found, f"no {name} of {path.name} among {[call.name for call in calls]}"
    return found[-1] if last else found[0]


def flushes_of_a_save(harness: ModuleType, scratch: Path) -> None:
    """Asserts the order of one save: everything flushed, then the rename, then the folder above."""
    folder = scratch / "checkpoints"
    checkpoint.save(folder, 1, harness.state(1), {})
    calls, status = traced(harness, scratch, lambda: void(checkpoint.save(folder, 2, harness.state(2), {})))
    assert status == 0
    beside, target = folder / ".tmp-step-00000002", folder / "step-00000002"
    commit = order(calls, "rename", target)
    names = ["model.safetensors", "optimizer.safetensors", "facts.json", "MANIFEST.json"]
    assert sorted(path.name for path in target.iterdir()) == sorted(names)
    for name in names:
        written = order(calls, "write", beside / name, last=True)
        assert written < order(calls, "fsync", beside / name) < commit
    opened = order(calls, "openat", beside / "MANIFEST.json", last=True)
    assert max(order(calls, "write", beside / name, last=True) for name in names[:-1]) < opened
    assert order(calls, "fsync", beside / "MANIFEST.json") < order(calls, "fsync", beside) < commit
    assert commit < order(calls, "fsync", folder, last=True)
    assert commit == max(i for i, call in enumerate(calls) if call.name == "rename")


def void(value: object) -> None:
    pass


def test_a_save_flushes_files_and_folder_before_the_rename_and_the_parent_after(
    harness: ModuleType, scratch: Path
) -> None:
    flushes_of_a_save(harness, scratch)


@pytest.mark.parametrize("name", ["fsync_file", "fsync_dir"])
def test_a_missing_flush_is_caught(
    harness: ModuleType, scratch: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(fsio, name, lambda *arguments: None)
    with pytest.raises(AssertionError, match="no fsync of"):
        flushes_of_a_save(harness, scratch)


def test_a_run_writes_nowhere_but_in_its_folder_and_only_through_fsio(
    harness: ModuleType, scratch: Path
) -> None:
    def play() -> None:
        with harness.hooked(harness.Counter()):
            harness.Product().play(scratch / "run", 2, lambda step: None)

    calls, status = traced(harness, scratch, play)
    assert status == 0
    changing = [call for call in calls if not (call.name == "openat" and "O_CREAT" not in call.arguments)]
    changing = [call for call in changing if call.name != "fsync"]
    outside = [call for call in changing if f"{scratch / 'run'}" not in call.arguments]
    assert outside == []
    counter = harness.Counter()
    with harness.hooked(counter):
        harness.Product().play(scratch / "again", 2, lambda step: None)
    for op, calls_of in (("write", "write"), ("rename", "rename"), ("mkdir", "mkdir")):
        assert counter.log.count(op) == sum(call.name == calls_of for call in calls), op
    flushed = sum(call.name == "fsync" for call in calls)
    assert counter.log.count("fsync") + counter.log.count("fsync_dir") == flushed


@pytest.mark.parametrize(
    ("call", "ordinals"),
    [("fsync", [1, 3, 6, 9]), ("rename", [1, 2, 3]), ("write", [2, 9]), ("unlinkat", [1])],
)
def test_kills_by_the_kernel_agree_with_those_of_the_hook(
    harness: ModuleType, scratch: Path, call: str, ordinals: list[int]
) -> None:
    writer = harness.Product()
    total = harness.clean_run(writer, scratch / "clean", 3)
    assert total > 50
    whole = harness.snapshot(scratch / "clean")

    def play(folder: Path) -> None:
        with harness.hooked(harness.Counter()):
            writer.play(folder, 3, lambda step: None)

    made, _ = traced(harness, scratch, lambda: play(scratch / "traced"))
    if call == "unlinkat" and not any(each.name == call for each in made):
        call = "unlink"  # the name depends on the C library
    for ordinal in ordinals:
        assert sum(each.name == call for each in made) >= ordinal
        folder = scratch / f"killed-{ordinal}"
        _, status = traced(
            harness,
            scratch,
            lambda folder=folder: play(folder),
            inject=f"{call}:signal=SIGKILL:when={ordinal}",
        )
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (
            f"{call} {ordinal} did not fire"
        )
        assert harness.examine(writer, folder, 0) == ""
        assert harness.resumes(writer, folder, 3, whole)
