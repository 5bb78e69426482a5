"""The queue of cells: processes that end with it, failures that are counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from longtail.engine.signals import Stop
from longtail.recipes.campaign import worked_off


def test_cells_that_fail_are_counted_and_the_others_go_on(tmp_path, capfd, monkeypatch):
    """CIFAR is not in an empty folder: each worker ends with a message and its own exit code."""
    monkeypatch.setenv("LONGTAIL_DATA", str(tmp_path))
    todo = [(f"short/{name}-s0", tmp_path / "runs", tmp_path / "results") for name in ("ldam", "focal")]
    assert worked_off(todo, 2, Stop()) == 2
    said = capfd.readouterr().err
    assert "short/ldam-s0: " in said
    assert "short/focal-s0: " in said
    assert "Traceback" not in said


def test_nothing_is_begun_after_a_signal(tmp_path):
    stop = Stop()
    stop.number = signal.SIGTERM
    assert worked_off([("short/ldam-s0", tmp_path, tmp_path)], 1, stop) == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("LONGTAIL_DATA"), reason="LONGTAIL_DATA names no folder of images")
def test_a_signal_to_the_queue_ends_its_workers_and_leaves_what_can_go_on(tmp_path):
    command = [
        sys.executable,
        "-m",
        "longtail.recipes.campaign",
        "results",
        "--set",
        "short",
        "--workers",
        "2",
    ]
    queue = subprocess.Popen(command, cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"})
    runs = tmp_path / "runs" / "campaign" / "short"
    try:
        until = time.monotonic() + 120
        while len(list(runs.glob("*/steps.jsonl"))) < 2 and time.monotonic() < until:
            time.sleep(0.2)
        begun = {path.parent for path in runs.glob("*/steps.jsonl")}
        assert len(begun) == 2
        queue.terminate()
        assert queue.wait(timeout=60) != 0
    finally:
        queue.kill()
    assert {path.parent for path in runs.glob("*/recipe.json")} == begun, "no other cell was begun"
    for run in begun:
        assert list((run / "checkpoints").glob("step-*")), "stopped after a whole step, which was saved"
        assert not (run / "final.json").exists()
