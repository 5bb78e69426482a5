from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from types import ModuleType

import pytest
import torch

from longtail import recipe
from longtail.errors import BusyError, LongtailError, ModelFileError, NumericsError, UsageError
from longtail.run import fsio
from longtail.run.folder import RunFolder, recipe_digest
from longtail.run.lock import RunLock


def gcl(**changes: object) -> recipe.Recipe:
    made = recipe.Recipe(
        name="cifar.gcl",
        data=recipe.Cifar(classes=100, longtail=recipe.LongTail(ratio=1 / 3 + 100)),
        stages=(
            recipe.Stage(name="representation", loss=recipe.GCL(), epochs=200, mixing=recipe.Mixup()),
            recipe.Stage(name="classifier", loss=recipe.GCL(), epochs=30, trains=("head",)),
        ),
        provenance={"stages.0.epochs": "paper"},
    )
    return dataclasses.replace(made, **changes)


def finished(path: Path) -> RunFolder:
    run = RunFolder(path)
    run.create(gcl())
    run.write("final.json", {"last": {"top1": 42.0, "few": float("nan")}})
    run.write_tensors("model.safetensors", {"w": torch.ones(3)})
    run.write_tensors("predictions.safetensors", {"labels": torch.arange(4)})
    (path / "timing.jsonl").write_text('{"seconds": 1}\n')
    run.seal()
    return run


def test_a_recipe_comes_back_equal_and_with_its_digest(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "deep" / "run")
    assert run.create(gcl()) is True
    assert run.recipe() == gcl()
    assert recipe_digest(run.recipe()) == recipe_digest(gcl())
    assert recipe_digest(gcl(seed=1)) != recipe_digest(gcl())
    assert RunFolder.open(run.path).recipe() == gcl()


def test_the_same_recipe_takes_the_run_up_again(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "a")
    assert run.create(gcl()) is True
    before = (run.path / "recipe.json").read_bytes()
    (run.path / ".tmp-half").write_text("half")
    (run.checkpoints / ".trash-step-00000001").mkdir()
    assert RunFolder(tmp_path / "a").create(gcl()) is False
    assert (run.path / "recipe.json").read_bytes() == before
    assert sorted(os.listdir(run.path)) == ["checkpoints", "lock", "recipe.json"]
    assert os.listdir(run.checkpoints) == []


def test_a_recipe_whose_provenance_is_told_otherwise_takes_the_run_up_again(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "a")
    run.create(gcl())
    (run.checkpoints / "step-00000004").mkdir()
    before = run.digest()
    assert run.create(gcl(provenance={"stages.0.epochs": "inferred"})) is False
    assert run.digest() == before


def test_a_run_that_died_before_its_first_checkpoint_keeps_no_other_out(tmp_path: Path) -> None:
    run, other = RunFolder(tmp_path / "a"), gcl(seed=3)
    run.create(gcl())
    for name in ("env.json", "data.json", "steps.jsonl"):
        (run.path / name).write_text("of the first")
    (run.checkpoints / ".tmp-step-00000001").mkdir()
    assert run.create(other) is True
    assert run.recipe() == other
    assert sorted(os.listdir(run.path)) == ["checkpoints", "lock", "recipe.json"]
    assert os.listdir(run.checkpoints) == []


@pytest.mark.parametrize("name", ["checkpoints/step-00000004", "final.json", "MANIFEST.json"])
def test_a_run_with_anything_to_lose_keeps_others_out(tmp_path: Path, name: str) -> None:
    run = RunFolder(tmp_path / "a")
    run.create(gcl())
    (run.path / name).mkdir()
    with pytest.raises(UsageError, match="holds a run of another recipe"):
        run.create(gcl(seed=3))
    assert run.recipe() == gcl()


def test_another_recipe_is_refused_with_the_first_five_differences(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "a")
    run.create(gcl())
    (run.checkpoints / "step-00000004").mkdir()
    before = (run.path / "recipe.json").read_bytes()
    first, second = gcl().stages
    other = gcl(
        seed=3,
        log_every=10,
        stages=(dataclasses.replace(first, epochs=2, batch_size=8), second),
        precision="bf16",
        compile=True,
    )
    with pytest.raises(UsageError) as caught:
        run.create(other)
    text = str(caught.value)
    for path in (
        "stages.0.epochs: 200 there, 2 here",
        "stages.0.batch_size",
        "seed",
        "precision",
        "compile",
    ):
        assert path in text
    assert "log_every" not in text and "and 1 more" in text
    assert "\n" not in text and len(text) <= 300
    assert (run.path / "recipe.json").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ('{"name": 1, "name": 2}', "appears twice"),
        ("[]", "whole file"),
        ('{"name": "a"}', "data"),
        ("[" * 100_000, "nested too deeply"),
        ('{"name": NaN}', "NaN"),
        ("\ufeff{}", "BOM"),
        ('{"name": 1e999}', "out of range"),
    ],
)
def test_a_bad_recipe_file_is_one_line_with_its_name(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "recipe.json").write_text(text)
    with pytest.raises(UsageError, match=reason) as caught:
        RunFolder(tmp_path).recipe()
    assert "recipe.json" in str(caught.value) and "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 300


def test_bytes_that_are_no_text_and_files_that_are_too_large_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "recipe.json").write_bytes(b'{"name": "\xff"}')
    with pytest.raises(UsageError, match="not UTF-8 at byte 10"):
        RunFolder(tmp_path).recipe()
    with open(tmp_path / "recipe.json", "wb") as file:
        file.truncate(5 << 20)
    with pytest.raises(UsageError, match="at most"):
        RunFolder(tmp_path).recipe()


def test_a_wrong_key_in_a_recipe_names_its_path(tmp_path: Path) -> None:
    RunFolder(tmp_path / "a").create(gcl())
    path = tmp_path / "a" / "recipe.json"
    path.write_text(path.read_text().replace('"epochs"', '"epoch"'))
    with pytest.raises(UsageError, match=r"stages\.0"):
        RunFolder.open(tmp_path / "a").recipe()


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("cat")
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="not a run folder"):
        RunFolder(tmp_path / "photos").create(gcl())
    with pytest.raises(UsageError, match="is a file"):
        RunFolder(tmp_path / "file").create(gcl())
    assert os.listdir(tmp_path / "photos") == ["cat.jpg"]


def test_readers_are_told_the_nearest_run(tmp_path: Path) -> None:
    RunFolder(tmp_path / "runs" / "gcl_100").create(gcl())
    for path in (tmp_path / "runs" / "gcl_10", tmp_path / "runs"):
        with pytest.raises(UsageError, match=r"did you mean .*gcl_100\?"):
            RunFolder.open(path)
    with pytest.raises(UsageError, match=r"no recipe\.json\)$"):
        RunFolder.open(tmp_path / "elsewhere" / "a")
    assert not (tmp_path / "elsewhere").exists()


def test_the_lock_is_held_while_the_run_goes(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "a")
    with run.held():
        run.create(gcl())  # under the lock that is held already
        with pytest.raises(BusyError), run.held():
            pytest.fail("two holders")
        with run.held(main=False):  # other ranks take no lock
            pass
    with RunLock(run.path / "lock"):
        run.create(gcl())


def test_a_busy_folder_is_not_cleaned_by_the_second_process(harness: ModuleType, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "a")
    run.create(gcl())
    with run.held():
        (run.path / ".tmp-in-progress").write_text("of the first")

        def second(say: object) -> None:
            with pytest.raises(BusyError):
                RunFolder(tmp_path / "a").create(gcl())

        assert harness.forked(second).code == 0
        assert (run.path / ".tmp-in-progress").exists()


def test_written_values_come_back_and_nan_is_null(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "a")
    run.create(gcl())
    run.write("data.json", {"counts": torch.tensor([5, 1]), "few": float("nan"), "names": ("ä", "\udcff")})
    assert run.read("data.json") == {"counts": [5, 1], "few": None, "names": ["ä", "\udcff"]}
    run.write_tensors("samples.safetensors", {"images": torch.zeros(2, 3, dtype=torch.uint8)})
    assert torch.equal(
        run.read_tensors("samples.safetensors")["images"], torch.zeros(2, 3, dtype=torch.uint8)
    )
    with pytest.raises(ModelFileError, match=r"absent\.json"):
        run.read("absent.json")
    with pytest.raises(ModelFileError, match="absent"):
        run.read_tensors("absent.safetensors")
    for name in ("../a.json", "a/b.json", "", ".hidden"):
        with pytest.raises(ValueError, match="cannot name"):
            run.write(name, {})


def test_a_model_that_is_not_finite_is_not_written_unless_asked(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "a")
    run.create(gcl())
    with pytest.raises(NumericsError):
        run.write_tensors("model.safetensors", {"w": torch.tensor([float("nan")])})
    assert not (run.path / "model.safetensors").exists()
    run.write_tensors("logits.safetensors", {"w": torch.tensor([float("-inf")])}, finite=False)
    with pytest.raises(ModelFileError, match="NaN or infinity"):
        run.read_tensors("logits.safetensors")
    assert run.read_tensors("logits.safetensors", finite=False)["w"].item() == float("-inf")


def test_a_run_is_finished_when_it_is_sealed_and_whole(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "a")
    run.create(gcl())
    assert not run.is_finished
    with pytest.raises(ValueError, match=r"final\.json"):
        run.seal()
    run = finished(tmp_path / "b")
    assert run.is_finished
    (run.path / "report.html").write_text("made later")
    (run.path / "timing.jsonl").write_text("other clock\n")
    (run.path / "predictions.safetensors").unlink()  # left out of version control
    assert run.is_finished
    (run.path / "model.safetensors").write_bytes(b"")
    assert not run.is_finished
    with pytest.raises(ModelFileError, match="0 bytes in place of"):
        run.read_tensors("model.safetensors")
    run = finished(tmp_path / "c")
    (run.path / "final.json").unlink()
    assert not run.is_finished


def test_equal_runs_have_equal_manifests_whatever_the_clock(tmp_path: Path) -> None:
    first, second = finished(tmp_path / "a"), finished(tmp_path / "b")
    (second.path / "timing.jsonl").write_text('{"seconds": 2}\n')
    second.seal()
    assert (first.path / "MANIFEST.json").read_bytes() == (second.path / "MANIFEST.json").read_bytes()


@pytest.mark.parametrize(
    "name",
    ["with space", "new\nline", "\u202eright to left", "caf\u00e9 \U0001f600", "x" * 250, "byte\udcff"],
)
def test_any_folder_name_works_and_never_reaches_the_terminal_raw(tmp_path: Path, name: str) -> None:
    run = RunFolder(tmp_path / name)
    run.create(gcl())
    (run.checkpoints / "step-00000004").mkdir()
    with pytest.raises(LongtailError) as caught:
        run.create(gcl(seed=9))
    text = str(caught.value)
    assert text.encode() and not set(text) & {"\n", "\u202e", "\udcff"} and len(text) <= 300


def test_files_written_by_name_alone_may_have_the_longest_name(tmp_path: Path) -> None:
    fsio.write_file(tmp_path / ("n" * 251 + ".csv"), b"a\n")
    assert [len(name) for name in os.listdir(tmp_path)] == [255]


def test_the_umask_decides_who_may_read(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        fsio.write_file(tmp_path / "a", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def test_the_digest_of_a_folder_is_that_of_the_file_so_that_new_fields_do_not_orphan_old_runs(tmp_path):
    run = RunFolder(tmp_path / "run")
    with run.held():
        run.create(gcl())
    assert run.digest() == recipe_digest(gcl())
    written = json.loads((run.path / "recipe.json").read_text())
    del written["log_every"]  # as if a version without this field had written it
    (run.path / "recipe.json").write_text(json.dumps(written))
    assert run.recipe() == gcl()
    assert run.digest() != recipe_digest(gcl())


def test_every_file_of_a_finished_run_is_compared_before_it_is_used(tmp_path: Path) -> None:
    run = finished(tmp_path / "a")
    assert run.read("final.json")["last"]["top1"] == 42.0
    path = run.path / "final.json"
    path.write_bytes(path.read_bytes().replace(b"42.0", b"43.0"))
    with pytest.raises(ModelFileError, match=r"final\.json is damaged: its SHA-256"):
        run.read("final.json")


def test_a_damaged_run_is_reopened_without_what_can_be_made_again(tmp_path: Path) -> None:
    run = finished(tmp_path / "a")
    for name in ("data.json", "env.json", "origin.json", "notes.json"):
        run.write(name, {"counts": [5, 1]})
    run.seal()
    for name in ("data.json", "notes.json"):
        run.write(name, {"counts": [1, 5]})
    assert not run.is_finished and run.create(gcl()) is False
    assert not (run.path / "data.json").exists()
    assert (run.path / "notes.json").exists() and (run.path / "env.json").exists()
    run.write("origin.json", {})
    with pytest.raises(ModelFileError, match=r"origin\.json is damaged"):
        run.create(gcl())
