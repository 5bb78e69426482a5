"""Crash harness: a forked child plays a run and dies before its n-th file operation, for every n."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from longtail import recipe
from longtail.errors import LongtailError
from longtail.run import canonical, checkpoint, fsio, tensors
from longtail.run.folder import RunFolder
from longtail.run.logs import Log

RECIPE = recipe.Recipe(
    name="digits.ce",
    data=recipe.Digits(),
    stages=(recipe.Stage(name="representation", loss=recipe.CrossEntropy(), epochs=1),),
)
Found = tuple[int, dict[str, dict[str, torch.Tensor]]]


def state(step: int) -> dict[str, dict[str, torch.Tensor]]:
    """Weights and momentum that say which step they are of."""
    return {
        "model": {"w": torch.full((60,), float(step)), "seen": torch.tensor(step)},
        "optimizer": {"w": torch.full((60,), -float(step))},
    }


def is_of(held: dict[str, dict[str, torch.Tensor]], step: int) -> bool:
    wanted = state(step)
    return held.keys() == wanted.keys() and all(
        held[group].keys() == wanted[group].keys()
        and all(torch.equal(held[group][name], wanted[group][name]) for name in wanted[group])
        for group in wanted
    )


class Writer(Protocol):
    def read(self, folder: Path) -> Found | None: ...
    def play(self, folder: Path, last: int, committed: Callable[[int], None]) -> None: ...


class Product:
    """The package's own writer: a whole run folder with checkpoints, rotation, logs and the seal."""

    def __init__(self, *, keep: int = 1, whole: bool = True):
        self.keep, self.whole = keep, whole

    def read(self, folder: Path) -> Found | None:
        newest = checkpoint.latest(RunFolder(folder).checkpoints)
        if newest is None:
            return None
        held, facts = checkpoint.load(newest)
        return facts["step"], held

    def play(self, folder: Path, last: int, committed: Callable[[int], None]) -> None:
        run = RunFolder(folder)
        if self.whole:
            run.create(RECIPE)
        newest = checkpoint.latest(run.checkpoints)
        facts = checkpoint.load(newest)[1] if newest else {"step": 0, "log": None}
        checkpoint.rotate(run.checkpoints, keep=self.keep, protect={1})  # a kill may have come before it
        with Log.open(folder / "steps.jsonl", facts["log"]) as log:
            for step in range(facts["step"] + 1, last + 1):
                log.append({"step": step, "loss": 1 / step})
                log.flush()
                log.append({"step": step, "few": float("nan")})
                checkpoint.save(run.checkpoints, step, state(step), {"step": step, "log": log.position()})
                committed(step)
                checkpoint.rotate(run.checkpoints, keep=self.keep, protect={1})
        if self.whole and not run.is_finished:
            run.write_tensors("model.safetensors", state(last)["model"])
            run.write("final.json", {"steps": last})
            run.seal()


class PerFile:
    """Deliberately bad: each file is replaced atomically, but the two are two commits."""

    def put(self, path: Path, data: bytes) -> None:
        fsio.write_file(path, data)

    def read(self, folder: Path) -> Found | None:
        if not (folder / "model").exists():
            return None
        read = {name: fsio.read_bytes(folder / name, limit=1 << 20) for name in state(0)}
        held = {name: tensors.decode(data, name) for name, data in read.items()}
        return int(held["model"]["seen"]), held

    def play(self, folder: Path, last: int, committed: Callable[[int], None]) -> None:
        fsio.make_folders(folder)
        found = self.read(folder)
        for step in range((found[0] if found else 0) + 1, last + 1):
            for name, held in state(step).items():
                self.put(folder / name, tensors.encode(held, name))
            committed(step)


class InPlace(PerFile):
    """Deliberately bad: writes over the old file."""

    def put(self, path: Path, data: bytes) -> None:
        file = fsio.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        fsio.write_all(file, data, path)
        fsio.fsync_file(file, path)
        os.close(file)


# -------------------------------------------------------------------------------------------------- faults


class Counter:
    """A hook that counts operations, and does something before the n-th."""

    def __init__(self, at: int = 0, act: Callable[[int], None] = lambda count: None):
        self.count, self.at, self.act, self.log = 0, at, act, list[str]()

    def __call__(self, op: str, path: str) -> None:
        self.count += 1
        self.log.append(op)
        if self.at and self.count >= self.at:
            self.act(self.count)


class hooked:
    """`with hooked(hook):` every file operation passes `hook`; short chunks, so that files can be torn."""

    def __init__(self, hook: Callable[[str, str], None]):
        self.hook = hook

    def __enter__(self) -> None:
        self.kept = fsio._hook, fsio.CHUNK, fsio.PAUSE
        fsio._hook, fsio.CHUNK, fsio.PAUSE = self.hook, 160, 0.0

    def __exit__(self, *_: object) -> None:
        fsio._hook, fsio.CHUNK, fsio.PAUSE = self.kept


def die(count: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Ended:
    killed: bool
    code: int
    lines: list[str]


def forked(action: Callable[[Callable[[object], None]], None]) -> Ended:
    """Runs `action(say)` in a forked child; torch is not imported again."""
    read, write = os.pipe()
    pid = fork()
    if pid == 0:
        code = 1
        try:
            os.close(read)
            action(lambda text: void(os.write(write, f"{text}\n".encode())))
            code = 0
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read) as pipe:
        lines = pipe.read().split("\n")[:-1]
    status = os.waitpid(pid, 0)[1]
    return Ended(os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status, lines)


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's idle threads; the child starts none
        return os.fork()


def void(value: object) -> None:
    pass


# --------------------------------------------------------------------------------------------------- oracle


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file of the tree with its bytes, apart from the lock."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {os.fspath(path.relative_to(folder)): path.read_bytes() for path in found}


def examine(writer: Writer, folder: Path, committed: int) -> str:
    """What is wrong with what a crash left: "" | corrupt | torn | lost."""
    try:
        found = writer.read(folder)
    except (LongtailError, KeyError):
        return "corrupt"
    if found is None:
        return "lost" if committed else ""
    step, held = found
    if not is_of(held, step):
        return "torn"
    return "lost" if step < committed else ""


def clean_run(writer: Writer, folder: Path, last: int) -> int:
    """Plays the run without faults; the number of its file operations."""
    counter = Counter()
    with hooked(counter):
        writer.play(folder, last, lambda step: None)
    return counter.count


def crash(writer: Writer, folder: Path, last: int, at: int, kill: Callable[[int], None]) -> tuple[Ended, int]:
    """One run in a child that `kill`s itself before operation `at`: its end, the last step it committed."""

    def action(say: Callable[[object], None]) -> None:
        with hooked(Counter(at, kill)):
            writer.play(folder, last, say)

    ended = forked(action)
    return ended, max(map(int, ended.lines), default=0) if ended.killed or ended.code == 0 else 0


def sweep(writer: Writer, root: Path, last: int, kill: Callable[[int], None] = die) -> tuple[int, list[str]]:
    """Kills the run before each of its operations: the number of points, and a verdict for each.

    A point where the kill did not fire is an AssertionError, never a pass.
    """
    total = clean_run(writer, root / "clean", last)
    whole = snapshot(root / "clean")
    verdicts: list[str] = []
    for at in range(1, total + 1):
        folder = root / "crashed"
        ended, committed = crash(writer, folder, last, at, kill)
        assert ended.killed, f"the kill before operation {at} of {total} did not fire: {ended}"
        verdict = examine(writer, folder, committed)
        if not verdict:
            verdict = "" if resumes(writer, folder, last, whole) else "differs"
        verdicts.append(verdict)
        shutil.rmtree(folder, ignore_errors=True)
    ended, committed = crash(writer, root / "crashed", last, total + 1, kill)
    assert ended.code == 0 and committed == last, f"no kill was left, yet the run ended with {ended}"
    return total, verdicts


def resumes(writer: Writer, folder: Path, last: int, whole: dict[str, bytes]) -> bool:
    """The next run needs no help and ends with the same bytes as one that nobody interrupted."""
    writer.play(folder, last, lambda step: None)
    return snapshot(folder) == whole


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder in memory where there is one: a kill leaves the same files there, sooner."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None)


def canonical_manifest(path: Path) -> dict[str, object]:
    return canonical.decode((path / "MANIFEST.json").read_bytes())
