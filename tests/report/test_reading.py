from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from longtail.errors import LongtailError, ModelFileError, UsageError
from longtail.report.reading import read
from longtail.run import seal

MakeRun = Callable[..., Path]


def test_a_run_folder_is_read_file_by_file(make_run: MakeRun) -> None:
    run = read(make_run())
    assert run.counts.tolist() == [200, 100, 20, 5]
    assert run.names[3] == "class 3"
    assert (run.last["top1"], run.last["many"], run.last["medium"], run.last["few"]) == (
        50.0,
        90.0,
        60.0,
        25.0,
    )
    assert run.best["top1"] == 51.0
    assert [row["top1"] for row in run.stages] == [22.5, 50.0]  # half of the hits, rounded down: 4, 3, 2, 0
    assert run.accuracies().tolist() == [90.0, 60.0, 40.0, 10.0]
    assert len(run.steps) == 6 and len(run.evals) == 4 and run.is_finished
    assert run.predictions is not None and run.predictions["logits"].shape == (40, 4)


def test_only_recipe_and_data_are_needed(make_run: MakeRun) -> None:
    names = ("env.json", "manifest.json", "final.json", "steps.jsonl", "evals.jsonl", "timing.jsonl")
    tensors = ("predictions.safetensors", "samples.safetensors", "features.safetensors")
    run = read(make_run(leave_out=(*names, *tensors)))
    assert run.env == run.manifest == run.final == run.last == run.best == {}
    assert run.steps == run.evals == run.timing == run.stages == []
    assert run.predictions is run.samples is run.features is None
    assert not run.is_finished
    assert np.isnan(run.accuracies()).all()


def test_an_unfinished_run_shows_its_newest_evaluation(make_run: MakeRun) -> None:
    run = read(make_run(leave_out=("final.json",)))
    assert run.last["epoch"] == 2 and run.last["stage"] == 1
    assert [row["epoch"] for row in run.stages] == [4, 2]


@pytest.mark.parametrize("name", ["recipe.json", "data.json"])
def test_a_folder_without_the_needed_files_is_refused(make_run: MakeRun, name: str) -> None:
    with pytest.raises(UsageError, match=f"not a run folder: it has no {name}"):
        read(make_run(leave_out=(name,)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("recipe.json", b"{", "not JSON"),
        ("recipe.json", b"[1]", "other than JSON objects"),
        ("recipe.json", b'{"name": "x"}', "is not a recipe"),
        ("data.json", b'{"counts": []}', "no class counts"),
        ("data.json", b'{"counts": [NaN]}', "NaN"),
        ("evals.jsonl", b'{"a": 1}\n{"b"\n', "not JSON"),
        ("predictions.safetensors", b"x" * 100, "cannot read"),
    ],
)
def test_damaged_files_are_named_in_one_line(
    make_run: MakeRun, name: str, content: bytes, message: str
) -> None:
    folder = make_run()
    (folder / name).write_bytes(content)
    with pytest.raises(LongtailError, match=message) as caught:
        run = read(folder)
        _ = run.evals, run.predictions
    assert name in str(caught.value) and "\n" not in str(caught.value)
    assert caught.value.exit_code == (2 if "is not a recipe" in message else 4)


@pytest.mark.parametrize(
    "name", ["recipe.json", "data.json", "final.json", "evals.jsonl", "samples.safetensors"]
)
def test_a_file_that_is_not_what_was_sealed_is_refused(make_run: MakeRun, name: str) -> None:
    """Each change leaves a file that reads well: only the seal knows."""
    folder = make_run()
    seal.seal(folder)
    assert read(folder).is_finished
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole.replace(b"5", b"6", 1) if name.startswith(("f", "e")) else whole + b" ")
    with pytest.raises(ModelFileError, match=name):
        run = read(folder)
        _ = run.final, run.evals, run.samples


def test_a_sealed_file_that_is_gone_is_damage_unless_it_is_left_out_of_version_control(
    make_run: MakeRun,
) -> None:
    folder = make_run()
    seal.seal(folder)
    (folder / "predictions.safetensors").unlink()
    (folder / "final.json").unlink()
    run = read(folder)
    assert run.predictions is not None  # those of the features
    with pytest.raises(ModelFileError, match="final.json"):
        _ = run.final


def test_a_run_without_a_seal_is_not_finished(make_run: MakeRun) -> None:
    folder = make_run()
    (folder / "MANIFEST.json").unlink()
    run = read(folder)
    assert run.last["top1"] == 50.0 and not run.is_finished


def test_missing_tensors_are_named(make_run: MakeRun) -> None:
    folder = make_run()
    (folder / "samples.safetensors").write_bytes((folder / "features.safetensors").read_bytes())
    with pytest.raises(ModelFileError, match="lacks images, index"):
        _ = read(folder).samples


def test_names_that_do_not_fit_the_counts_become_numbers(make_run: MakeRun) -> None:
    assert read(make_run(names=["a", "b"])).names == ["0", "1", "2", "3"]


def test_predictions_of_the_features_stand_in_for_missing_ones_of_the_same_images(make_run: MakeRun) -> None:
    missing = ("predictions.safetensors",)
    run = read(make_run("a", leave_out=missing))
    assert run.predictions is not None and run.features is not None
    assert np.array_equal(run.predictions["labels"], run.features["test_labels"])
    assert np.array_equal(run.predictions["logits"], run.features["test_scores"])
    other = read(make_run("b", leave_out=missing, recipe={"evaluation": {"split": "held_out"}}))
    assert other.predictions is None  # features are of the test images: other images, other numbers
