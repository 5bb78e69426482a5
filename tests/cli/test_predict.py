"""`longtail predict`: the form of its files."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from longtail.engine.predict import Prediction
from longtail.errors import DataError

P = {"cat": 0.2, "=dog": 0.7, "eel": 0.1}
GOOD = Prediction("a.png", "=dog", 0.7, P)
HOSTILE = Prediction('=cmd|"x",y.png', "=dog", 1 / 3, {"cat": 1 / 3, "=dog": 1 / 3, "eel": 1 / 3})
BAD = Prediction("b.png", error="b.png: not an image")


@pytest.fixture
def predicting(replaced):
    """An engine that answers with these predictions; the calls it got."""

    def called(*answers: Prediction) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []

        def predict(
            run: Path, paths: list[Path], *, keep_going: bool, device: str | None
        ) -> list[Prediction]:
            calls.append({"paths": paths, "keep_going": keep_going, "device": device})
            if not keep_going and any(answer.error for answer in answers):
                raise DataError("b.png: not an image", number=320)
            return list(answers)

        replaced("longtail.engine.predict", predict=predict)
        return calls

    return called


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_each_image_is_a_row_with_its_classes_in_order(command, predicting, run_folder) -> None:
    calls = predicting(GOOD, GOOD)
    outcome = command("predict", run_folder, "a.png", "folder", "--device", "cpu")
    assert outcome.code == 0 and outcome.err == ""
    assert calls == [{"paths": [Path("a.png"), Path("folder")], "keep_going": True, "device": "cpu"}]
    found = rows(outcome.out)
    assert len(found) == 2
    assert found[0] == {
        "path": "a.png", "label": "'=dog", "probability": "0.7", "label_2": "cat", "probability_2": "0.2",
        "label_3": "eel", "probability_3": "0.1", "error": "",
    }  # fmt: skip


@pytest.mark.parametrize(("top", "columns"), [(1, 4), (2, 6), (3, 8), (99, 8), (0, 7)])
def test_top_says_how_many_classes_are_named(command, predicting, run_folder, top, columns) -> None:
    predicting(GOOD, BAD)
    outcome = command("predict", run_folder, "x", "--top", top, "--keep-going")
    table = list(csv.reader(io.StringIO(outcome.out)))
    assert [len(line) for line in table] == [columns] * 3


def test_top_zero_gives_every_class_its_column(command, predicting, run_folder) -> None:
    predicting(BAD, GOOD)
    found = rows(command("predict", run_folder, "x", "--top", "0", "--keep-going").out)
    assert (found[1]["cat"], found[1]["'=dog"], found[1]["eel"]) == ("0.2", "0.7", "0.1")
    assert found[0]["cat"] == "" and found[0]["error"] == "b.png: not an image"


def test_no_cell_is_a_formula(command, predicting, run_folder) -> None:
    predicting(HOSTILE)
    for top in (0, 5):
        for line in csv.reader(io.StringIO(command("predict", run_folder, "x", "--top", top).out)):
            assert not [cell for cell in line if cell.startswith(("=", "+", "-", "@"))]


def test_json_holds_the_same(command, predicting, run_folder, tmp_path) -> None:
    predicting(GOOD, BAD)
    out = tmp_path / "x.json"
    outcome = command("predict", run_folder, "a", "b", "--out", out, "--top", "2", "--keep-going")
    assert outcome.code == 0 and "1 of 2 images could not be used; written to " in outcome.out
    assert json.loads(out.read_text()) == [
        {
            "path": "a.png",
            "label": "=dog",
            "probability": 0.7,
            "classes": [{"label": "=dog", "probability": 0.7}, {"label": "cat", "probability": 0.2}],
            "error": None,
        },
        {"path": "b.png", "label": None, "probability": None, "classes": [], "error": "b.png: not an image"},
    ]


def test_a_csv_file_is_what_the_screen_shows(command, predicting, run_folder, tmp_path) -> None:
    predicting(GOOD)
    shown = command("predict", run_folder, "a").out
    assert command("predict", run_folder, "a", "--out", tmp_path / "x.csv").code == 0
    assert (tmp_path / "x.csv").read_text() == shown


def test_a_bad_image_has_its_row_and_makes_code_3(command, predicting, run_folder, tmp_path) -> None:
    predicting(GOOD, BAD)
    outcome = command("predict", run_folder, "x", "--out", tmp_path / "x.csv")
    assert outcome.code == 3
    assert outcome.err == "error[E300]: 1 of 2 images could not be used; the first: b.png: not an image\n"
    assert [row["error"] for row in rows((tmp_path / "x.csv").read_text())] == ["", "b.png: not an image"]


def test_a_place_that_is_not_there_is_refused_before_the_engine(refused, predicting, run_folder) -> None:
    calls = predicting(GOOD)
    assert "no folder" in refused(2, "predict", run_folder, "x", "--out", run_folder / "gone" / "x.csv")
    assert calls == []


def test_a_folder_that_is_no_run_is_refused_before_the_engine(refused, predicting, tmp_path) -> None:
    calls = predicting(GOOD)
    assert "not a run folder" in refused(2, "predict", tmp_path, "x.png")
    assert calls == []


def test_an_existing_file_is_written_over_only_by_force(
    command, refused, predicting, run_folder, tmp_path
) -> None:
    calls, out = predicting(GOOD), tmp_path / "x.csv"
    out.write_text("a week of labels")
    assert "give --force" in refused(2, "predict", run_folder, "x", "--out", out)
    assert out.read_text() == "a week of labels" and not calls
    assert command("predict", run_folder, "x", "--out", out, "--force").code == 0
    assert rows(out.read_text())[0]["label"] == "'=dog"
