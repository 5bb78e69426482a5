"""`longtail retrain` from a finished run to another, and what it refuses in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from longtail.engine.fit import train
    from longtail.recipes import digits

    return train(digits.gcl(epochs=1, retrain_epochs=1), out=tmp_path_factory.mktemp("cli") / "run").path


def test_a_finished_run_gets_another_classifier(command, source, tmp_path) -> None:
    out = tmp_path / "lws"
    done = command("retrain", source, "technique=lws", "sampling=square_root", "epochs=1", "--out", out)
    assert done.code == 0 and done.err == ""
    assert "recipe: digits.gcl, seed 0: representation for 1 epoch, then scales for 1 epoch" in done.out
    assert json.loads((out / "recipe.json").read_text())["stages"][1]["sampling"]["rule"] == "square_root"
    assert command("verify", out).code == 0
    assert "has the same number of hits as recorded" in command("eval", out).out


def test_a_transformation_that_trains_nothing(command, source, tmp_path) -> None:
    out = tmp_path / "ncm"
    done = command("retrain", source, "technique=ncm", "--out", out)
    assert done.code == 0 and "then nearest_mean, which trains nothing" in done.out
    assert "nearest_mean        0" in done.out
    assert "has the same number of hits as recorded" in command("eval", out).out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "retrain needs technique=VALUE"),
        (("technique=lsw",), "technique: 'lsw' is not one of"),
        (("technique=crt", "sampling=none"), "sampling: 'none' is not one of"),
        (("technique=crt", "epochs=0"), "epochs: at least 1"),
        (("technique=crt", "epoch=3"), "retrain has no argument epoch; did you mean epochs?"),
        (("technique=ncm", "epochs=3"), "technique ncm has no use for epochs"),
        (("technique=mislas",), "linear head"),
        (("technique=tau_norm",), "data.held_out"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(command, source, tmp_path, words, expected) -> None:
    outcome = command("retrain", source, *words, "--out", tmp_path / "out")
    assert outcome.code == 2 and expected in outcome.err and outcome.err.count("\n") <= 1
    assert list(tmp_path.iterdir()) == []


def test_a_technique_that_cannot_follow_leaves_the_folder_to_another(command, source, tmp_path) -> None:
    """It is found out only when stage 1 has been taken over, with data and model at hand."""
    assert command("retrain", source, "technique=tau_norm", "--out", tmp_path / "out").code == 2
    assert command("retrain", source, "technique=ncm", "--out", tmp_path / "out").code == 0
    there = tmp_path / "there already"
    there.mkdir()
    assert command("retrain", source, "technique=tau_norm", "--out", there).code == 2
    assert list(there.iterdir()) == []


def test_a_folder_that_is_no_run_is_refused(refused, tmp_path) -> None:
    assert "is not a run folder" in refused(
        2, "retrain", tmp_path, "technique=crt", "--out", tmp_path / "out"
    )


def test_several_processes_are_refused(refused, source, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "one process" in refused(2, "retrain", source, "technique=crt", "--out", tmp_path / "out")
