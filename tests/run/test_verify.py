from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch

from longtail.errors import UsageError
from longtail.run import checkpoint
from longtail.run.folder import RunFolder, recipe_digest
from longtail.run.logs import Log
from longtail.run.verify import verify


@pytest.fixture
def run(harness: ModuleType, tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    run.create(harness.RECIPE)
    run.write("data.json", {"names": ["cat", "dog"], "digest": "d"})
    with Log.open(run.path / "evals.jsonl", None) as log:
        for step in (1, 2):
            log.append({"step": step})
            facts = {"names": ["cat", "dog"], "data": "d", "recipe": recipe_digest(harness.RECIPE)}
            facts["logs"] = {"evals.jsonl": log.position()}
            checkpoint.save(run.checkpoints, step, harness.state(step), facts)
    run.write("final.json", {"steps": 2})
    run.write_tensors("model.safetensors", harness.state(2)["model"])
    run.write_tensors("predictions.safetensors", {"labels": torch.arange(3)})
    run.seal()
    return run


def damaged(run: RunFolder) -> list[str]:
    return [finding.where for finding in verify(run.path) if finding.is_damage]


def test_a_sound_run_has_no_findings(run: RunFolder) -> None:
    assert verify(run.path) == []


@pytest.mark.parametrize(
    "name",
    [
        "final.json",
        "model.safetensors",
        "predictions.safetensors",
        "evals.jsonl",
        "data.json",
        "MANIFEST.json",
    ],
)
def test_a_flipped_bit_in_any_file_is_found(run: RunFolder, name: str) -> None:
    data = bytearray((run.path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (run.path / name).write_bytes(data)
    assert name in damaged(run)


def test_damage_in_a_checkpoint_is_found(run: RunFolder) -> None:
    path = run.checkpoints / "step-00000001" / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert damaged(run) == ["checkpoints/step-00000001"]


def test_a_checkpoint_of_another_class_list_or_recipe_is_found(harness: ModuleType, run: RunFolder) -> None:
    checkpoint.save(run.checkpoints, 3, harness.state(3), {"names": ["dog", "cat"]})
    checkpoint.save(run.checkpoints, 4, harness.state(4), {"recipe": "0"})
    findings = verify(run.path)
    assert [finding.where for finding in findings] == [
        "checkpoints/step-00000003",
        "checkpoints/step-00000004",
    ]
    assert "names.0: dog there, cat here" in findings[0].what


def test_a_log_changed_after_a_checkpoint_is_found_before_the_run_is_sealed(run: RunFolder) -> None:
    (run.path / "MANIFEST.json").unlink()
    (run.path / "evals.jsonl").write_text('{"step": 9}\n{"step": 2}\n')
    assert damaged(run) == ["checkpoints/step-00000001", "checkpoints/step-00000002"]


def test_a_missing_file_is_damage_unless_it_is_kept_out_of_version_control(run: RunFolder) -> None:
    (run.path / "predictions.safetensors").unlink()
    assert [(finding.where, finding.is_damage) for finding in verify(run.path)] == [
        ("predictions.safetensors", False)
    ]
    (run.path / "model.safetensors").unlink()
    assert damaged(run) == ["model.safetensors"]


def test_an_unfinished_run_and_leftovers_are_remarks(run: RunFolder) -> None:
    (run.path / "MANIFEST.json").unlink()
    (run.checkpoints / ".tmp-step-00000003").mkdir()
    with open(run.path / "evals.jsonl", "ab") as file:
        file.write(b'{"half')
    findings = verify(run.path)
    assert [finding.where for finding in findings] == ["MANIFEST.json", ".tmp-step-00000003"]
    assert not any(finding.is_damage for finding in findings)


def test_no_run_at_all_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        verify(tmp_path)
