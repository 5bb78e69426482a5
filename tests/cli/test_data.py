"""`longtail data`, on the embedded digits and on a folder of images."""

from __future__ import annotations

import hashlib
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from longtail.cli.histogram import MOST_BARS, histogram


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "pictures"
    stream = np.random.default_rng(0)
    for name, count in {"cat": 30, "dog\x1b[31m": 10, "eel": 5}.items():
        (root / name).mkdir(parents=True)
        for index in range(count):
            pixels = stream.integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{index}.png")
    return root


def facts(text: str) -> dict[str, str]:
    top = text.split("\n\n")[0].splitlines()
    return {line.split("  ")[0].strip(): line.split("  ", 1)[1].strip() for line in top}


def test_a_recipe_is_inspected_with_its_arguments(command) -> None:
    outcome = command("data", "inspect", "digits.gcl", "ratio=20")
    assert outcome.code == 0 and outcome.err == ""
    found = facts(outcome.out)
    assert found["classes"] == "10" and found["ratio"].endswith("(asked for 20)")
    head, tail = (int(word) for word in found["counts"].split(" to "))
    assert head / tail == pytest.approx(float(found["ratio"].split()[0]), abs=0.05)
    members = [int(found[name].split()[0]) for name in ("many", "medium", "few")]
    images = [
        int(found[name].split(", ")[1].split()[0].replace(",", "")) for name in ("many", "medium", "few")
    ]
    assert sum(members) == 10 and sum(images) == int(found["images"].split()[0].replace(",", ""))
    bars = outcome.out.split("\n\n")[1].splitlines()
    assert len(bars) == 10 and len(bars[0]) > len(bars[-1])


def test_a_folder_of_images_is_inspected_as_it_is(command, folder) -> None:
    outcome = command("data", "inspect", folder)
    assert outcome.code == 0
    assert "\x1b" not in outcome.out and "eel  " in outcome.out
    assert facts(outcome.out)["classes"] == "3" and "asked for" not in outcome.out


def test_inspect_is_what_data_does(command, folder) -> None:
    assert command("data", folder) == command("data", "inspect", folder)
    assert command("data", "digits.gcl", "ratio=20") == command("data", "inspect", "digits.gcl", "ratio=20")


def test_the_folder_beside_is_offered(refused, folder) -> None:
    for words in (["data"], ["data", "inspect"]):
        assert "did you mean" in (said := refused(2, *words, folder.with_name("picturs")))
        assert "pictures?" in said
    assert "pictures?" in refused(3, "data", "inspect", "folder.gcl", f"data={folder.with_name('picturs')}")


def test_changes_reach_the_data(command, folder) -> None:
    first = facts(command("data", "inspect", folder).out)["images"]
    second = facts(command("data", "inspect", folder, "--set", "data.test_fraction=0.4").out)["images"]
    assert first != second


def test_a_data_error_has_code_3(refused, tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    refused(3, "data", "inspect", tmp_path / "empty")


def test_a_manifest_is_written_and_can_be_trained_on(command, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # never abbreviated: a shell leaves a quoted ~ as it is
    out = tmp_path / "it's a long name for a folder, and so more than a line of a message can show of it"
    out.mkdir()
    out /= "choice.json"
    outcome = command("data", "make-lt", "digits.gcl", "--ratio", "10", "--profile", "step", "--out", out)
    assert outcome.code == 0, outcome
    manifest = json.loads(out.read_text())
    indices = np.array(manifest["indices"], dtype="<i8")
    assert manifest["sha256"] == hashlib.sha256(indices.tobytes()).hexdigest()
    assert manifest["profile"] == "step" and manifest["ratio"] == 10
    assert sum(manifest["counts"]) == len(indices) == len(set(indices.tolist()))
    words = shlex.split(outcome.out.splitlines()[-1].removeprefix("to train on it: "))
    again = command("data", "inspect", "digits.gcl", *words)
    assert again.code == 0
    assert facts(again.out)["images"].startswith(f"{len(indices):,} to train on")


def test_a_manifest_is_not_overwritten_by_accident(command, refused, tmp_path) -> None:
    out = tmp_path / "choice.json"
    out.write_text("precious")
    assert "exists already" in refused(2, "data", "make-lt", "digits.gcl", "--out", out)
    assert out.read_text() == "precious"
    assert command("data", "make-lt", "digits.gcl", "--out", out, "--force").code == 0
    assert json.loads(out.read_text())["profile"] == "exponential"


def test_wrong_choices_are_refused(refused, tmp_path) -> None:
    out = tmp_path / "choice.json"
    assert "'expo' is not one of" in refused(
        2, "data", "make-lt", "digits.gcl", "--out", out, "--profile", "expo"
    )
    assert ".json" in refused(2, "data", "make-lt", "digits.gcl", "--out", tmp_path / "choice.txt")
    assert not out.exists()


def test_many_classes_share_bars() -> None:
    counts = list(range(1000, 0, -1))
    text = histogram(counts, [str(i) for i in range(1000)], ["many"] * 1000, width=60)
    lines = text.splitlines()
    assert len(lines) == MOST_BARS and lines[0].startswith("ranks 1 to 25 ")
    assert max(map(len, lines)) <= 60


def test_the_smallest_class_is_visible_and_the_empty_one_is_not() -> None:
    lines = histogram([100_000, 1, 0], ["a", "b", "c"], ["many", "few", "few"], width=40).splitlines()
    assert lines[1].endswith("▏") and lines[2].endswith("0")


def test_a_class_name_cannot_paint_the_terminal() -> None:
    text = histogram([2, 1], ["dog\x1b[31m\u202e", "x" * 300], ["few", "few"], width=60)
    assert text.splitlines()[0].startswith("dog[31m ") and max(map(len, text.splitlines())) <= 60


def test_bars_are_as_long_as_their_counts() -> None:
    lines = histogram([40, 20, 10], ["a", "b", "c"], ["m"] * 3, width=50).splitlines()
    lengths = [line.count("█") for line in lines]
    assert lengths[0] == 2 * lengths[1] == 4 * lengths[2] > 30
