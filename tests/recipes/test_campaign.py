"""The queue of cells: processes that end with it, failures that are counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from longtail.engine.load import evaluate_run
from longtail.engine.signals import Stop
from longtail.errors import ModelFileError
from longtail.recipe import continued
from longtail.recipes import campaign, cifar
from longtail.recipes.campaign import named, worked_off
from longtail.recipes.cells import Cell
from longtail.recipes.retraining import Choices, plan
from longtail.run.folder import RunFolder


def test_cells_that_fail_are_counted_and_the_others_go_on(tmp_path, capfd, monkeypatch):
    """CIFAR is not in an empty folder: each worker ends with a message and its own exit code."""
    monkeypatch.setenv("LONGTAIL_DATA", str(tmp_path))
    todo = [named(f"short/{name}-s0") for name in ("ldam", "focal")]
    assert worked_off(todo, 2, Stop(), runs=tmp_path / "runs", results=tmp_path / "results") == 2
    said = capfd.readouterr().err
    assert "short/ldam-s0: " in said
    assert "short/focal-s0: " in said
    assert "Traceback" not in said


def test_nothing_is_begun_after_a_signal(tmp_path):
    stop = Stop()
    stop.number = signal.SIGTERM
    assert worked_off([named("short/ldam-s0")], 1, stop, runs=tmp_path, results=tmp_path) == 0
    assert not list(tmp_path.iterdir())


def test_what_goes_on_from_a_cell_that_failed_is_not_begun_and_counts_as_failed(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("LONGTAIL_DATA", str(tmp_path))
    todo = [named(f"short/{name}-s0") for name in ("lws", "ce_mixup")]
    assert worked_off(todo, 2, Stop(), runs=tmp_path / "runs", results=tmp_path / "results") == 2
    assert (
        "short/lws-s0: short/ce_mixup-s0, which it goes on from, did not end well" in capfd.readouterr().err
    )


def test_a_missing_source_is_queued_once_before_the_first_cell_that_goes_on_from_it(
    tmp_path, tiny, monkeypatch
):
    """In the order of the list, each source a job of its own: two workers never train the same one."""
    runs, results, base = tmp_path / "runs", tmp_path / "results", "cifar10-r100-gcl-euclidean-s0"
    as_now = {base: tiny.gcl()}
    monkeypatch.setattr(campaign, "named", lambda name: Cell(name, 1, lambda: as_now[name]))

    def names() -> list[str]:
        return [cell.name for cell in campaign.queue(results, runs, "cifar10-r100-retrain-*")]

    retrained = [
        f"cifar10-r100-retrain-{word}-s0" for word in ("crt_ibs", "crt_srs", "crt_ens", "lws", "tau")
    ]
    assert names() == [base, *retrained]
    campaign.export(tiny.train(tiny.gcl(), out=tmp_path / "two"), results / base, keeps_model=True)
    assert names() == [base, *retrained], "the last model of two stages is not the end of the first"
    tiny.train(tiny.gcl(), out=runs / base)
    assert names() == retrained
    as_now[base] = tiny.replace(tiny.gcl(), seed=7)
    assert names() == [base, *retrained], "what the cell was in another version is no source"
    monkeypatch.undo()
    whole = [cell.name for cell in campaign.queue(tmp_path / "none", runs, "*")]
    assert whole.index("cifar10-r100-ce-crt-s0") < whole.index("cifar100-r100-ride-gcl-angular-s0")


def test_a_source_that_is_trained_again_does_not_replace_its_committed_run(tmp_path, tiny, monkeypatch):
    runs, results, name = tmp_path / "runs", tmp_path / "results", "cifar10-r100-gcl-euclidean-s0"
    campaign.export(tiny.train(tiny.gcl(), out=tmp_path / "one"), results / name, keeps_model=False)
    before = (results / name / "MANIFEST.json").read_bytes()
    other = tiny.train(tiny.recipe(tiny.stage(epochs=1)), out=tmp_path / "other")
    monkeypatch.setattr("longtail.engine.fit.train", lambda recipe, out: other)
    campaign.train_cell(name, runs, results)
    assert (results / name / "MANIFEST.json").read_bytes() == before
    assert campaign.source(name, runs, results) is None
    assert RunFolder(results / name).is_finished


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


def test_a_run_that_was_exported_without_its_model_says_so_when_it_is_asked_for(tmp_path, tiny):
    run = tiny.train(tiny.recipe(tiny.stage(epochs=1)), out=tmp_path / "run")
    campaign.export(run, tmp_path / "kept", keeps_model=False)
    with pytest.raises(ModelFileError, match="kept without its model"):
        evaluate_run(tmp_path / "kept")


def test_what_goes_on_from_deferred_re_weighting_is_counted_from_its_end():
    first = cifar.ldam_drw(classes=10)
    made = plan(first, Choices("crt"))
    whole = made.after(first)
    assert campaign.second_provenance(whole) == {
        path: where for path, where in made.provenance.items() if path.startswith("stages.")
    }
    assert continued(first, whole.stages[2:], provenance=campaign.second_provenance(whole)) == whole
