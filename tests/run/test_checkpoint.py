from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from longtail.errors import MachineError, ModelFileError, NumericsError
from longtail.run import checkpoint, tensors


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def save_all(harness: ModuleType, folder: Path, *steps: int) -> None:
    for step in steps:
        checkpoint.save(folder, step, harness.state(step), {"step": step})


def test_what_is_loaded_is_what_was_saved_bit_for_bit(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(3)
    state = {
        "model": {
            "float": torch.randn(3, 4, generator=draw),
            "half": torch.randn(5, generator=draw).to(torch.bfloat16),
            "double": torch.randn(2, 2, generator=draw, dtype=torch.float64),
            "count": torch.tensor(7),
            "mask": torch.tensor([True, False]),
            "empty": torch.empty(0, 3),
            "channels_last": torch.randn(2, 3, 4, 4, generator=draw).to(memory_format=torch.channels_last),
            "view": torch.arange(12.0).reshape(3, 4).T,
        },
        "optimizer": {},
    }
    facts = {"stage": 0, "names": ["cat", "dög"], "best": 1 / 3, "none": None}
    path = checkpoint.save(tmp_path, 12, state, facts)
    assert path == tmp_path / "step-00000012"
    loaded, loaded_facts = checkpoint.load(path)
    assert loaded_facts == facts
    assert loaded.keys() == state.keys()
    assert loaded["model"].keys() == state["model"].keys()
    for name, tensor in state["model"].items():
        assert loaded["model"][name].dtype == tensor.dtype
        assert torch.equal(loaded["model"][name], tensor)


def test_tied_tensors_are_saved_as_two(tmp_path: Path) -> None:
    weight = torch.ones(3)
    path = checkpoint.save(tmp_path, 1, {"model": {"a": weight, "b": weight}}, {})
    loaded = checkpoint.load(path)[0]["model"]
    loaded["a"].zero_()
    assert torch.equal(loaded["b"], weight)


def test_equal_states_have_equal_bytes(harness: ModuleType, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        checkpoint.save(tmp_path / folder, 1, harness.state(1), {"step": 1})
    assert harness.snapshot(tmp_path / "a") == harness.snapshot(tmp_path / "b")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_never_reach_the_disk(tmp_path: Path, value: float) -> None:
    with pytest.raises(NumericsError, match="w holds NaN or infinity"):
        checkpoint.save(tmp_path / "new", 1, {"model": {"w": torch.tensor([0.0, value])}}, {})
    assert not (tmp_path / "new").exists()


def test_a_missing_checkpoint_is_a_model_file_error(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="not a checkpoint folder"):
        checkpoint.load(tmp_path / "step-00000001")
    (tmp_path / "step-00000001").mkdir()
    with pytest.raises(ModelFileError, match=r"MANIFEST\.json"):
        checkpoint.load(tmp_path / "step-00000001")
    assert checkpoint.latest(tmp_path) is None
    assert checkpoint.latest(tmp_path / "absent") is None


def test_the_newest_is_the_highest_step_whatever_the_clock_says(harness: ModuleType, tmp_path: Path) -> None:
    save_all(harness, tmp_path, 3, 10, 9)
    os.utime(tmp_path / "step-00000003", (2**31, 2**31))
    os.utime(tmp_path / "step-00000010", (1, 1))
    assert checkpoint.latest(tmp_path) == tmp_path / "step-00000010"
    assert checkpoint.steps(tmp_path) == [3, 9, 10]


def test_steps_beyond_eight_digits_are_found(harness: ModuleType, tmp_path: Path) -> None:
    save_all(harness, tmp_path, 99_999_999, 100_000_000)
    assert checkpoint.latest(tmp_path) == tmp_path / "step-100000000"


def test_saving_the_same_again_writes_nothing(harness: ModuleType, tmp_path: Path) -> None:
    save_all(harness, tmp_path, 1)
    counter = harness.Counter()
    with harness.hooked(counter):
        save_all(harness, tmp_path, 1)
    assert set(counter.log) == {"fsync_dir"}


def test_a_damaged_step_is_replaced_when_it_is_reached_again(harness: ModuleType, tmp_path: Path) -> None:
    save_all(harness, tmp_path, 1, 2)
    (tmp_path / "step-00000002" / "model.safetensors").write_bytes(b"")
    assert checkpoint.latest(tmp_path) == tmp_path / "step-00000001"
    save_all(harness, tmp_path, 2)
    assert checkpoint.latest(tmp_path) == tmp_path / "step-00000002"
    assert names(tmp_path) == ["step-00000001", "step-00000002"]


def test_leftovers_of_a_kill_do_not_block_the_next_save(harness: ModuleType, tmp_path: Path) -> None:
    for name in (".tmp-step-00000001", ".trash-step-00000001"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "model.safetensors").write_bytes(b"half")
    save_all(harness, tmp_path, 1)
    assert checkpoint.latest(tmp_path) == tmp_path / "step-00000001"
    assert names(tmp_path) == ["step-00000001"]


def test_rotation_keeps_the_newest_and_the_protected(harness: ModuleType, tmp_path: Path) -> None:
    save_all(harness, tmp_path, 1, 2, 3, 4, 5)
    checkpoint.rotate(tmp_path, keep=2, protect={2})
    assert checkpoint.steps(tmp_path) == [2, 4, 5]
    assert names(tmp_path) == ["step-00000002", "step-00000004", "step-00000005"]


def test_rotation_never_deletes_the_only_sound_one(harness: ModuleType, tmp_path: Path) -> None:
    save_all(harness, tmp_path, 1, 2, 3, 4)
    for step in (2, 3, 4):
        (checkpoint.folder_of(tmp_path, step) / "facts.json").unlink()
    checkpoint.rotate(tmp_path, keep=1)
    assert checkpoint.latest(tmp_path) == tmp_path / "step-00000001"
    with pytest.raises(ValueError, match="at least one"):
        checkpoint.rotate(tmp_path, keep=0)


def test_an_unreadable_checkpoint_is_not_passed_over(harness: ModuleType, scratch: Path) -> None:
    """A missing permission is a fault of the machine; going back to an older step would hide it."""
    save_all(harness, scratch, 1, 2)
    os.chmod(scratch, 0o755)
    os.chmod(scratch / "step-00000002" / "model.safetensors", 0)

    def action(say: Callable[[object], None]) -> None:
        if os.getuid() == 0:  # may read everything: become nobody
            os.setuid(65534)
        with pytest.raises(MachineError, match="no permission"):
            checkpoint.latest(scratch)

    ended = harness.forked(action)
    assert ended.code == 0, ended


def test_a_pipe_in_place_of_a_file_does_not_block(harness: ModuleType, tmp_path: Path) -> None:
    save_all(harness, tmp_path, 1)
    facts = tmp_path / "step-00000001" / "facts.json"
    facts.unlink()
    os.mkfifo(facts)
    with pytest.raises(ModelFileError, match="not a regular file"):
        checkpoint.load(tmp_path / "step-00000001")


def test_another_class_list_is_refused_with_its_first_five_differences() -> None:
    facts = {"names": list("abcdefgh"), "recipe": "1", "extra": 1}
    checkpoint.require(facts, {"names": list("abcdefgh"), "recipe": "1"})
    with pytest.raises(ModelFileError) as caught:
        checkpoint.require(facts, {"names": list("bcdefgha"), "recipe": "1"})
    text = str(caught.value)
    assert "names.0: a there, b here" in text and "names.4: e there, f here" in text
    assert "names.5" not in text and "and 3 more" in text
    with pytest.raises(ModelFileError, match="recipe: nothing there, 1 here"):
        checkpoint.require({}, {"recipe": "1"})
    with pytest.raises(ModelFileError, match=r"names\.8: nothing there, i here"):
        checkpoint.require(facts, {"names": list("abcdefghi")})


def test_only_plain_words_name_the_files_of_a_checkpoint(tmp_path: Path) -> None:
    for group in ("../model", "", "a/b", "Model"):
        with pytest.raises(ValueError, match="cannot name"):
            checkpoint.save(tmp_path, 1, {group: {}}, {})
    assert names(tmp_path) == []


def test_a_large_header_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(ModelFileError, match="header claims"):
        tensors.decode((2**40).to_bytes(8, "little") + b"{}", "x")
