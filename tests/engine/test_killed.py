"""Processes that really die: SIGKILL from inside at a chosen call, and from outside at random times."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from longtail.run import canonical
from longtail.run.folder import RunFolder, recipe_json

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are timed by /proc and started by fork"),
]


class Commands:
    """`longtail` commands in processes that a test can kill."""

    def __init__(self, folder: Path):
        self.folder, self.count = folder, 0
        environment = os.environ | {"OMP_NUM_THREADS": "1", "LONGTAIL_COMMIT": "0" * 40}
        self.spawner = subprocess.Popen(
            [sys.executable, Path(__file__).parent / "spawner.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.answer() == "ready"

    def answer(self) -> str:
        assert self.spawner.stdout is not None
        return self.spawner.stdout.readline().strip()

    def start(self, recipe, out: Path, **job) -> int:
        self.count += 1
        file, self.log = self.folder / f"{recipe.name}.json", self.folder / f"{self.count}.log"
        file.write_bytes(canonical.encode(recipe_json(recipe)))
        job |= {"argv": ["train", str(file), "--out", str(out)], "log": str(self.log)}
        assert self.spawner.stdin is not None
        self.spawner.stdin.write(json.dumps(job) + "\n")
        self.spawner.stdin.flush()
        return int(self.answer())

    def ended(self) -> tuple[int, str]:
        code, seconds = self.answer().split()
        self.seconds = float(seconds)
        return int(code), self.log.read_text()

    def train(self, recipe, out: Path, **job) -> int:
        self.start(recipe, out, **job)
        return self.ended()[0]

    def close(self) -> None:
        assert self.spawner.stdin is not None and self.spawner.stdout is not None
        self.spawner.stdin.close()
        self.spawner.wait(60)
        self.spawner.stdout.close()


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    made = Commands(tmp_path_factory.mktemp("commands"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def longer(tiny):
    """44 steps: long enough to be hit somewhere by a killer who only has a clock."""
    recipe = tiny.gcl()
    return tiny.replace(
        recipe,
        name="longer",
        evaluation=tiny.replace(recipe.evaluation, every=2),
        stages=tuple(tiny.replace(stage, batch_size=32) for stage in recipe.stages),
    )


@pytest.fixture(scope="module")
def reference(commands, longer, tmp_path_factory):
    out = tmp_path_factory.mktemp("reference") / "run"
    assert commands.train(longer, out) == 0
    return out, commands.seconds


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended before
        os.kill(pid, number)


def spend(pid: int, seconds: float) -> None:
    """Waits until a process has used so much processor time: a clock that a busy machine cannot bend."""
    ticks = seconds * os.sysconf("SC_CLK_TCK")
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        while sum(map(int, Path(f"/proc/{pid}/stat").read_text().split()[13:15])) < ticks:
            time.sleep(0.002)


RECORD, CHECKPOINT, FOLDER = "longtail.engine.record", "longtail.run.checkpoint", "longtail.run.folder"
POINTS = {
    "stage 1, before a step is recorded": (RECORD, "Record.stepped", 15, "before"),
    "stage 1, before the evaluation is kept": (RECORD, "Record.evaluated", 1, "before"),
    "stage boundary, before the save": (RECORD, "Record.epoch_done", 2, "before"),
    "stage boundary, after the save": (CHECKPOINT, "save", 2, "after"),
    "stage 2, first step": (RECORD, "Record.stepped", 23, "after"),
    "stage 2": (RECORD, "Record.stepped", 35, "after"),
    "inside a checkpoint": ("longtail.run.fsio", "write_new", 7, "after"),
    "at a checkpoint's rename": ("longtail.run.fsio", "rename", 3, "before"),
    "between predictions and thumbnails": (FOLDER, "RunFolder.write_tensors", 2, "after"),
    "before final.json": ("longtail.engine.finish", "summary", 1, "before"),
    "before the seal": (FOLDER, "RunFolder.seal", 1, "before"),
}


@pytest.mark.parametrize("point", POINTS.values(), ids=POINTS.keys())
def test_a_process_that_kills_itself_leaves_a_run_that_goes_on(
    tiny, commands, longer, reference, tmp_path, point
):
    out = tmp_path / "run"
    assert commands.train(longer, out, die=point) == -signal.SIGKILL
    assert not RunFolder(out).is_finished
    assert commands.train(longer, out) == 0
    assert tiny.different(out, reference[0]) == []


def test_twelve_kills_at_random_times(tiny, commands, longer, reference, tmp_path):
    """Four runs of three kills each; a kill that comes after the end does not count, and is repeated."""
    dice, (whole, seconds) = random.Random(11), reference
    for number in range(4):
        out, kills = tmp_path / str(number) / "run", 0
        out.parent.mkdir()
        while kills < 3:
            pid = commands.start(longer, out)
            spend(pid, seconds * dice.uniform(0.05, 0.6))
            send(pid, signal.SIGKILL)
            code, log = commands.ended()
            if code == 0:  # it was faster than the killer: from the start again
                out, seconds, kills = out.parent / f"{out.name}x", 0.8 * seconds, 0
                continue
            assert code == -signal.SIGKILL, log
            kills += 1
        assert not RunFolder(out).is_finished
        assert commands.train(longer, out) == 0
        assert tiny.different(out, whole) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_at_random_times_stop_after_the_step(
    tiny, commands, longer, reference, tmp_path, number, code
):
    dice, (whole, seconds) = random.Random(number), reference
    out, stops, told = tmp_path / "run", 0, 0
    for _ in range(60):
        pid = commands.start(longer, out)
        spend(pid, seconds * dice.uniform(0.3, 0.9))
        send(pid, number)
        signalled = time.perf_counter()
        found, log = commands.ended()
        if found == 0 and told:
            break
        if found == 0:  # it was faster than the clock: from the start again
            out, seconds, stops = out.parent / f"{out.name}x", 0.8 * seconds, 0
            continue
        assert found == code, log
        assert time.perf_counter() - signalled < 5.0
        assert "Traceback" not in log
        if "after step" not in log:  # it came before the training had begun: later next time
            seconds *= 1.1
        else:
            told += 1
            assert f"longtail train {out / 'recipe.json'} --out {out}" in " ".join(log.split())
        stops += 1
    assert stops >= 1 and told >= 1
    assert tiny.different(out, whole) == []


@pytest.mark.parametrize(
    "function", [("longtail.build", "dataset", 60), ("longtail.data.batches", "Resident.plain", 60)]
)
def test_a_signal_ends_the_reading_of_data_at_once(tiny, commands, longer, reference, tmp_path, function):
    """And so does the second one, a long batch of an evaluation."""
    out = tmp_path / "run"
    pid = commands.start(longer, out, slow=function)
    while not (out / ("recipe.json" if function[1] == "dataset" else "data.json")).exists():
        time.sleep(0.02)
    time.sleep(2.0)
    for _ in range(1 if function[1] == "dataset" else 2):
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.2)
    began = time.perf_counter()
    code, log = commands.ended()
    assert code == 143 and "Traceback" not in log
    assert time.perf_counter() - began < 5.0
    assert commands.train(longer, out) == 0
    assert tiny.different(out, reference[0]) == []


def test_the_printed_command_goes_on(tiny, commands, longer, reference, tmp_path):
    out = tmp_path / "run"
    pid = commands.start(longer, out, slow=(RECORD, "Record.stepped", 0.05))
    while not list(out.glob("checkpoints/step-*")):
        time.sleep(0.02)
    os.kill(pid, signal.SIGTERM)
    code, log = commands.ended()
    assert code == 143
    printed = re.search(r"to go on: longtail (.*)", log)
    assert printed
    environment = os.environ | {"OMP_NUM_THREADS": "1", "LONGTAIL_COMMIT": "0" * 40}
    subprocess.run(
        [sys.executable, "-m", "longtail", *shlex.split(printed[1])],
        env=environment,
        check=True,
        capture_output=True,
    )
    assert tiny.different(out, reference[0]) == []


def test_the_second_signal_does_not_wait(commands, longer, tmp_path):
    out = tmp_path / "run"
    pid = commands.start(longer, out, slow=("longtail.engine.step", "Step.__call__", 60))
    while not (out / "data.json").exists():
        time.sleep(0.05)
    time.sleep(0.3)
    os.kill(pid, signal.SIGINT)
    time.sleep(0.3)
    os.kill(pid, signal.SIGINT)
    began = time.perf_counter()
    assert commands.ended()[0] == 130
    assert time.perf_counter() - began < 2.0


def test_the_installed_command_killed_from_outside_goes_on(tiny, longer, reference, tmp_path):
    """A whole new interpreter each time; the kill comes when the second stage has begun."""
    out, file = tmp_path / "run", tmp_path / "longer.json"
    file.write_bytes(canonical.encode(recipe_json(longer)))
    command = [sys.executable, "-m", "longtail", "train", str(file), "--out", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "LONGTAIL_COMMIT": "0" * 40}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not (out / "checkpoints" / "step-00000022").exists():
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not RunFolder(out).is_finished
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert tiny.different(out, reference[0]) == []
