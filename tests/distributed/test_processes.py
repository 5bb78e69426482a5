"""Two processes against one: the same sums where nothing random differs, the same stream of images always."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import torch

from longtail import build
from longtail.engine.distributed import World
from longtail.engine.feed import Feed
from longtail.errors import UsageError
from longtail.run import canonical, checkpoint, tensors
from longtail.run.folder import RunFolder, recipe_json

ALONE = World(torch.device("cpu"))
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pair(processes, tmp_path_factory) -> Path:
    """One start of two processes that does everything the tests below look at."""
    out = tmp_path_factory.mktemp("pair")
    for code, output in processes("main", out):
        assert code == 0, output
        assert "Warning" not in output
    return out


def read(path: Path) -> dict[str, torch.Tensor]:
    return tensors.decode(path.read_bytes(), path.name)


@pytest.mark.parametrize(
    ("part", "trains"), [("rank", ("backbone", "head")), ("head", ("head",)), ("deferred", ("head",))]
)
def test_two_processes_find_the_gradients_of_one(worker, pair, part, trains):
    """Loss and gradient to 1e-6, in batches of 66 and a last one of 1, where process 1 has none; by a plain
    mean, and by a weighted one, which divides by the class weights of the whole batch."""
    one = worker.first_epoch(ALONE, trains=trains, deferred=part == "deferred")
    ranks = [read(pair / f"{part}-{rank}.safetensors") for rank in (0, 1)]
    assert ranks[0].pop("sizes").tolist() == [33] * 5 + [1]
    assert ranks[1].pop("sizes").tolist() == [33] * 5 + [0]
    assert one.pop("sizes").tolist() == [66] * 5 + [1]
    assert one.keys() == ranks[0].keys() == ranks[1].keys()
    moved = 0
    for name, tensor in one.items():
        assert torch.equal(ranks[0][name], ranks[1][name]), name
        near(ranks[0][name], tensor, 1e-6, name)
        moved += "gradient" in name and bool(tensor.abs().max() > 1e-3)
    # A comparison of zeros would prove nothing. By a weighted mean the last image has hardly a gradient.
    assert moved >= (5 if part == "deferred" else 6)
    assert any("backbone" in name for name in one if "gradient" in name) == ("backbone" in trains)


def test_two_processes_arrive_where_one_does(worker, pair):
    """Six real steps; rounding grows from step to step, hence the wider tolerance."""
    one = worker.first_epoch(ALONE, lr=0.05)
    still = worker.first_epoch(ALONE)
    ranks = [read(pair / f"moved-{rank}.safetensors") for rank in (0, 1)]
    for name in (name for name in one if name.startswith("weights/")):
        assert torch.equal(ranks[0][name], ranks[1][name]), name
        near(ranks[0][name], one[name], 1e-5, name)
    assert (one["weights/head.weight"] - still["weights/head.weight"]).abs().max() > 1e-2


def test_two_processes_give_the_targets_that_one_gives(worker, pair):
    """Means over the classes of the whole batch; in the last one process 1 has no image."""
    one = worker.targeted_epoch(ALONE)
    ranks = [read(pair / f"targeted-{rank}.safetensors") for rank in (0, 1)]
    assert int(one["seen"]) == 6 and bool(one["centres"].any())
    for name, tensor in one.items():
        assert torch.equal(ranks[0][name], ranks[1][name]), name
        near(ranks[0][name], tensor, 1e-5, name)


def test_two_processes_of_a_hybrid_network_stay_together(worker, pair):
    """Each compares its own part of the batch, so one process finds another contrast, but both the same."""
    still = worker.stepped(ALONE, worker.even_recipe()).state_dict()
    ranks = [read(pair / f"hybrid-{rank}.safetensors") for rank in (0, 1)]
    assert ranks[0].keys() == ranks[1].keys() > still.keys() - {"weight"}
    assert all(torch.equal(tensor, ranks[1][name]) for name, tensor in ranks[0].items())


def near(found: torch.Tensor, wanted: torch.Tensor, tolerance: float, name: str) -> None:
    torch.testing.assert_close(
        found, wanted, rtol=tolerance, atol=tolerance, msg=lambda text: f"{name}: {text}"
    )


def test_measures_are_merged_as_one_process_counts_them(worker, pair):
    one = worker.measures(ALONE)
    for rank in (0, 1):
        row = json.loads((pair / f"rank-{rank}.json").read_text())["measures"]
        assert row.keys() == one.keys()
        for name, value in one.items():
            assert row[name] == pytest.approx(value, rel=1e-9), name
        assert sum(row["totals"]) == 540


def test_a_batch_that_cannot_be_divided_is_refused(worker, pair):
    for rank in (0, 1):
        message = json.loads((pair / f"rank-{rank}.json").read_text())["refusal"]
        assert "batch_size 7 is not divisible by 2 processes" in message
    recipe = worker.even_recipe(batch_size=66)
    with pytest.raises(UsageError, match="batch_size 66 is not divisible by 4 processes"):
        Feed(World(torch.device("cpu"), 0, 4), recipe, build.dataset(recipe.data)).steps(recipe.stages[0])


def test_a_failure_of_one_process_is_told_to_all(pair):
    failures = [json.loads((pair / f"rank-{rank}.json").read_text())["failure"] for rank in (0, 1)]
    assert failures[0] == ["LongtailError", "process 1 failed: cat/7.png: cannot be read", 3]
    assert failures[1] == ["DataError", "cat/7.png: cannot be read", 3]


def test_one_module_is_wrapped_once_per_stage(worker, pair):
    """The second stage freezes the backbone of a module that was wrapped before: only the head moves."""
    run = RunFolder(pair / "run")
    assert run.is_finished
    one, two = (checkpoint.load(checkpoint.folder_of(run.checkpoints, end))[0]["model"] for end in (6, 12))
    changed = {name for name, tensor in one.items() if not torch.equal(tensor, two[name])}
    assert changed == {"head.weight"}
    assert run.read("env.json")["world_size"] == 2
    assert run.read("final.json")["images_seen"] == 4 * 331


def test_nothing_holds_the_group_when_it_is_left(pair):
    """What outlives the group is destroyed with the interpreter, and aborts the process one time in four."""
    for rank in (0, 1):
        assert json.loads((pair / f"left-{rank}.json").read_text()) == [0, 0]


def test_a_process_that_fails_ends_the_others_with_a_message(worker, processes, tmp_path):
    (tmp_path / "recipe-in.json").write_bytes(canonical.encode(recipe_json(worker.tiny.gcl())))
    (code_0, output_0), (code_1, output_1) = processes("dies", tmp_path)
    assert code_1 == 3
    assert "process 1: dog/3.png: cannot be read" in output_1
    assert code_0 not in (0, -9)
    assert output_0.count("error[") == 1 and "Traceback" not in output_0
    assert "another process" in output_0
    assert not RunFolder(tmp_path / "run").is_finished


def test_two_processes_of_which_one_is_killed_go_on_to_the_same_bytes(
    worker, processes, tmp_path, monkeypatch
):
    """Killed in stage 1, at the last step before the boundary, and in stage 2; each process in turn."""
    whole, run = tmp_path / "whole", tmp_path / "killed"
    for out in (whole, run):
        out.mkdir()
        (out / "recipe-in.json").write_bytes(canonical.encode(recipe_json(worker.tiny.gcl())))
    assert [code for code, _ in processes("trains", whole)] == [0, 0]
    for rank, step in ((0, 5), (1, 6), (0, 8)):
        monkeypatch.setenv("KILL", f"{rank}:{step}")
        codes = [code for code, _ in processes("trains", run)]
        assert codes[rank] == -signal.SIGKILL and codes[1 - rank] not in (0, -signal.SIGKILL)
        assert not RunFolder(run / "run").is_finished
    monkeypatch.delenv("KILL")
    assert [code for code, _ in processes("trains", run)] == [0, 0]
    assert worker.tiny.different(run / "run", whole / "run") == []
