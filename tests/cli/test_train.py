"""`longtail train` around the engine: what reaches it, what is printed before, during and after."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from longtail.engine.progress import Place
from longtail.errors import Stopped
from longtail.recipes import catalogue


@pytest.fixture
def trained(replaced, run_folder: Path, row: dict[str, Any]) -> list[dict[str, Any]]:
    """An engine that takes three steps and leaves a finished run; the calls it got."""
    calls: list[dict[str, Any]] = []

    def train(recipe: Any, *, out: Path, device: str | None = None, progress: Any = None) -> None:
        calls.append({"recipe": recipe, "out": out, "device": device, "progress": progress})
        if out != run_folder:
            shutil.copytree(run_folder, out)
        if progress is None:
            return
        progress.note("the class \x1b[31mdog has 4 images")
        progress.began(recipe, 50, Place(0, 4, 4))
        for _ in range(3):
            progress.stepped(recipe.stages[0], 1, 32, torch.tensor(2.5), 0.1)
        progress.evaluated(row)

    replaced("longtail.engine.fit", train=train)
    return calls


def test_arguments_changes_and_options_reach_the_engine(command, trained, tmp_path) -> None:
    words = ["digits.gcl", "seed=3", "--out", tmp_path / "a", "--set", "stages.1.epochs=5", "--device", "cpu"]
    assert command("train", *words).code == 0
    assert trained[0]["recipe"].seed == 3 and trained[0]["recipe"].stages[1].epochs == 5
    assert trained[0]["out"] == tmp_path / "a" and trained[0]["device"] == "cpu"


def test_a_run_is_told_in_plain_lines(command, trained, tmp_path) -> None:
    outcome = command("train", "digits.gcl", "--out", tmp_path / "a")
    assert outcome.code == 0 and outcome.err == ""
    lines = outcome.out.splitlines()
    assert lines[:4] == [
        "note: the class [31mdog has 4 images",
        "data: 3 classes, 244 training images from 200 (cat) to 4 (eel), ratio 50 (asked for 40); "
        "1 many, 1 medium, 1 few; 26 test images",
        "recipe: digits.gcl, seed 0: representation for 40 epochs, then classifier for 10 epochs",
        "going on after step 4 of 50",
    ]
    assert lines[4].startswith("representation 1/2, epoch 1/40: loss 2.500, lr 0.1")
    assert lines[5] == "representation after epoch 3: 61.5 % right (many 90.0, medium 55.0, few -)"
    assert lines[7:11] == [
        "percent right on test, after the last epoch of each stage",
        "stage           epoch  top-1  many  medium   few  balanced",
        "representation      3   61.5  90.0    55.0     -      60.0",
        "classifier          2   65.4  90.0    55.0  33.3      60.0",
    ]
    assert lines[-1].startswith("run folder: ") and lines[-1].endswith("a")


def test_a_recipe_file_and_a_run_folder_replay(command, trained, run_folder, tmp_path) -> None:
    assert command("train", run_folder / "recipe.json", "--out", tmp_path / "a").code == 0
    assert command("train", run_folder, "--out", tmp_path / "b", "--set", "seed=9").code == 0
    assert trained[0]["recipe"] == catalogue.make("digits.gcl")
    assert trained[1]["recipe"].seed == 9


def test_only_the_main_process_prints(command, trained, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert command("train", "digits.gcl", "--out", tmp_path / "a") == (0, "", "")
    assert trained[0]["progress"] is None


def test_a_stopped_run_says_how_to_go_on(command, replaced, tmp_path) -> None:
    def train(recipe: object, **rest: object) -> None:
        raise Stopped(
            "stopped after step 7; to go on: longtail train a/recipe.json --out a", signal_number=15
        )

    replaced("longtail.engine.fit", train=train)
    outcome = command("train", "digits.gcl", "--out", tmp_path / "a")
    assert outcome == (143, "", "stopped after step 7; to go on: longtail train a/recipe.json --out a\n")


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Two classes of ten images each."""
    root = tmp_path / "pictures"
    for label, name in enumerate(("cat", "dog")):
        (root / name).mkdir(parents=True)
        for index in range(10):
            Image.new("RGB", (8, 8), (100 * label, 10 * index, 0)).save(root / name / f"{index}.png")
    return root


SMALL = ("backbone=resnet8", "size=8", "epochs=1", "retrain_epochs=1", "batch_size=16")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (3, ["data=gone"]),
        (2, ["data=pictures", "backbone=resnet9"]),
        (4, ["data=pictures", "weights=gone.pth"]),
        (2, ["data=pictures", "--set", "evaluation.split=held_out"]),
        (3, ["data=pictures", "--set", 'data.longtail={"manifest": "gone.json"}']),
    ],
    ids=["data", "backbone", "weights", "found after the first files are written", "manifest"],
)
def test_a_run_that_cannot_begin_leaves_nothing(
    refused, pictures, tmp_path, monkeypatch, code, words
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(code, "train", "folder.gcl", *words, "--out", "runs/a", "--device", "cpu")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pictures"]
    (tmp_path / "made by hand").mkdir()
    refused(code, "train", "folder.gcl", *words, "--out", "made by hand", "--device", "cpu")
    assert list((tmp_path / "made by hand").iterdir()) == []


def test_the_corrected_command_takes_the_same_folder(
    command, refused, pictures, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(3, "train", "folder.gcl", "data=picture", *SMALL, "--out", "a", "--device", "cpu")
    assert command("train", "folder.gcl", "data=pictures", *SMALL, "--out", "a", "--device", "cpu").code == 0
    assert command("verify", "a").code == 0
    # A run that is there keeps what it has, whatever is wrong with the next command.
    before = sorted((tmp_path / "a").iterdir())
    (tmp_path / "a" / "MANIFEST.json").unlink()
    (pictures / "cat").rename(pictures / "cow")
    refused(4, "train", "a/recipe.json", "--out", "a", "--device", "cpu")
    assert sorted([*(tmp_path / "a").iterdir(), tmp_path / "a" / "MANIFEST.json"]) == before


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cuda:", "cpu:0", ""])
def test_a_device_that_is_none_is_a_wrong_command_line(refused, tmp_path, name) -> None:
    assert "there are cpu, cuda" in refused(
        2, "train", "digits.gcl", "--out", tmp_path / "a", "--device", name
    )
    assert list(tmp_path.iterdir()) == []


def test_an_accelerator_that_is_not_there_is_a_matter_of_the_machine(refused, tmp_path) -> None:
    absent = f"cuda:{torch.cuda.device_count()}"
    refused(5, "train", "digits.gcl", "--out", tmp_path / "a", "--device", absent)
    assert list(tmp_path.iterdir()) == []
