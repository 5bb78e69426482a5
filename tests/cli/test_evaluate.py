"""`longtail eval`: now beside recorded."""

from __future__ import annotations

import json


def test_the_recorded_row_stands_beside_the_new_one(command, replaced, run_folder) -> None:
    last = json.loads((run_folder / "final.json").read_text())["last"]
    asked = []

    def evaluate_run(run, *, split, device):
        asked.append((split, device))
        return last | {"ece": 0.25}

    replaced("longtail.engine.load", evaluate_run=evaluate_run)
    outcome = command("eval", run_folder)
    assert outcome.code == 0 and asked == [(None, None)]
    lines = outcome.out.splitlines()
    assert lines[0].split() == [
        "top-1",
        "balanced",
        "many",
        "medium",
        "few",
        "worst",
        "macro_f1",
        "ece",
        "loss",
    ]
    assert lines[1].split() == [
        "now",
        "65.4",
        "60.0",
        "90.0",
        "55.0",
        "33.3",
        "12.5",
        "58.0",
        "0.2500",
        "1.2500",
    ]
    assert lines[2].split()[0] == "recorded" and lines[2].split()[8] == "0.1250"
    assert lines[3] == "every class has the same number of hits as recorded"


def test_a_difference_is_said(command, replaced, run_folder) -> None:
    last = json.loads((run_folder / "final.json").read_text())["last"]
    replaced("longtail.engine.load", evaluate_run=lambda run, **rest: last | {"hits": [0, 0, 0]})
    assert "NOT the same" in command("eval", run_folder).out


def test_another_split_has_nothing_to_stand_beside(command, replaced, run_folder) -> None:
    last = json.loads((run_folder / "final.json").read_text())["last"]
    replaced("longtail.engine.load", evaluate_run=lambda run, **rest: last)
    out = command("eval", run_folder, "--split", "held_out").out
    assert "recorded" not in out and "65.4" in out


def test_features_names_the_file_it_wrote(command, replaced, run_folder) -> None:
    replaced("longtail.engine.features", features=lambda run, device: run / "features.safetensors")
    outcome = command("features", run_folder)
    assert outcome.code == 0 and outcome.out.endswith("features.safetensors\n")
