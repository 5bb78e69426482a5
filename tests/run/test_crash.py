"""Reliability R1: a run that is killed before any of its file operations loses nothing that it committed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from longtail.run import checkpoint, fsio


def test_a_kill_before_any_operation_loses_nothing_and_the_next_run_ends_with_the_same_bytes(
    harness: ModuleType, scratch: Path
) -> None:
    total, verdicts = harness.sweep(harness.Product(), scratch, last=3)
    assert total > 100
    assert Counter(verdicts) == {"": total}


@pytest.mark.parametrize(("name", "expected"), [("PerFile", {"torn"}), ("InPlace", {"torn", "corrupt"})])
def test_the_sweep_catches_writers_known_to_be_bad(
    harness: ModuleType, scratch: Path, name: str, expected: set[str]
) -> None:
    _, verdicts = harness.sweep(getattr(harness, name)(), scratch, last=3)
    assert expected <= set(verdicts)


def test_the_sweep_catches_a_commit_before_the_manifest(
    harness: ModuleType, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step folder that becomes visible before it is complete, read by a reader that trusts the name."""

    class Early(harness.Product):
        def read(self, folder: Path) -> object:
            steps = checkpoint.steps(folder / "checkpoints")
            if not steps:
                return None
            held, facts = checkpoint.load(checkpoint.folder_of(folder / "checkpoints", steps[-1]))
            return facts["step"], held

    def write_straight(source: Path, target: Path) -> None:
        """Gives the folder its final name first and moves the files in one by one."""
        if not Path(source).is_dir() or not Path(target).name.startswith("step-"):
            return rename(source, target)
        fsio.mkdir(target)
        for path in sorted(Path(source).iterdir()):
            rename(path, Path(target) / path.name)
        return fsio.remove(source)

    rename = fsio.rename
    monkeypatch.setattr(fsio, "rename", write_straight)
    _, verdicts = harness.sweep(Early(), scratch, last=1)
    assert "corrupt" in verdicts


def test_a_kill_that_does_not_fire_is_an_error_of_the_harness(harness: ModuleType, scratch: Path) -> None:
    with pytest.raises(AssertionError, match="did not fire"):
        harness.sweep(harness.Product(), scratch, last=1, kill=lambda count: None)


def test_a_run_survives_a_kill_in_each_of_its_restarts(harness: ModuleType, scratch: Path) -> None:
    writer, folder = harness.Product(), scratch / "often"
    harness.clean_run(writer, scratch / "clean", 4)
    committed = kills = 0
    for at in range(8, 400, 8):  # each restart gets a little further
        ended, done = harness.crash(writer, folder, 4, at, harness.die)
        committed = max(committed, done)
        if ended.code == 0:
            break
        assert ended.killed
        assert harness.examine(writer, folder, committed) == ""
        kills += 1
    assert kills > 5
    assert harness.snapshot(folder) == harness.snapshot(scratch / "clean")
