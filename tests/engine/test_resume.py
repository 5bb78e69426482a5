"""An interrupted run that goes on leaves the bytes of one that was never interrupted.

Here the interruption is an exception or the stop flag inside this process, at every step; really killed
processes are in test_killed.py.
"""

from __future__ import annotations

import json
import shlex
import shutil

import pytest
import torch

from longtail.engine import facts
from longtail.engine.distributed import World
from longtail.engine.feed import Feed
from longtail.engine.fit import train
from longtail.engine.record import Record
from longtail.errors import Stopped
from longtail.keys import Key
from longtail.recipe import LDAM, SGD, CutMix, ManifoldMixup, MultiStep, Muon, Remix
from longtail.run import checkpoint, fsio
from longtail.run.folder import RunFolder


@pytest.fixture
def go_on(tiny, tmp_path):
    """Interrupts a run at each of the given steps in turn, then lets it end."""

    def trained(recipe, *at: int, how: str) -> RunFolder:
        for step in at:
            with tiny.interrupted(step, how), pytest.raises(Stopped if how == "stopped" else tiny.Killed):
                train(recipe, out=tmp_path / "run")
            assert not RunFolder(tmp_path / "run").is_finished
        return train(recipe, out=tmp_path / "run")

    return trained


def test_a_whole_run_has_every_file(tiny, whole):
    run = whole(tiny.gcl())
    names = {name for name in tiny.contents(run) if "/" not in name}
    assert names == tiny.EXPECTED
    rows = [json.loads(line) for line in (run.path / "steps.jsonl").read_text().splitlines()]
    assert [(row["stage"], row["step"]) for row in rows] == [(s, i) for s in (0, 1) for i in range(1, 7)]
    evaluated = [json.loads(line) for line in (run.path / "evals.jsonl").read_text().splitlines()]
    assert [(row["stage"], row["epoch"]) for row in evaluated] == [(0, 1), (0, 2), (1, 1), (1, 2)]


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("at", range(1, 13))
def test_interrupted_at_any_step(tiny, whole, go_on, at, how):
    """Two stages of two epochs of three steps; average of weights, mixup and noise on."""
    assert tiny.total_steps(tiny.gcl()) == 12
    assert tiny.different(go_on(tiny.gcl(), at, how=how), whole(tiny.gcl())) == []


@pytest.mark.parametrize("at", range(1, 13))
def test_interrupted_deferred_reweighting(tiny, whole, go_on, at):
    assert tiny.different(go_on(tiny.ldam_drw(), at, how="stopped"), whole(tiny.ldam_drw())) == []


@pytest.mark.parametrize("at", [1, 3, 5, 8, 11])
@pytest.mark.parametrize("filters", [None, Muon()], ids=["sgd", "muon"])
def test_interrupted_in_bf16(tiny, whole, go_on, at, filters):
    """As the cells in results/ are trained, and with the filters' own steps as cifar.fast has them."""
    made = tiny.gcl()
    first = tiny.replace(made.stages[0], optimizer=SGD(lr=0.05, nesterov=True, filters=filters))
    recipe = tiny.replace(made, stages=(first, made.stages[1]), precision="bf16")
    assert tiny.different(go_on(recipe, at, how="killed"), whole(recipe)) == []


def test_control_the_comparison_sees_one_lost_step(tiny, whole, go_on, monkeypatch):
    """Were the momentum forgotten at a restart, the bytes would differ."""
    import longtail.engine.record as record

    monkeypatch.setattr(record, "set_momenta", lambda optimizer, held: None)
    assert "model.safetensors" in tiny.different(go_on(tiny.gcl(), 2, how="stopped"), whole(tiny.gcl()))


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_interrupted_after_every_single_step(tiny, whole, go_on, how):
    """Stopping saves, so each call makes one step; dying does not, so each call dies one step later."""
    assert tiny.different(go_on(tiny.gcl(), *range(1, 13), how=how), whole(tiny.gcl())) == []


def test_killed_and_stopped_several_times_in_one_epoch(tiny, whole, tmp_path):
    recipe = tiny.gcl()
    for at, how in [
        (4, "stopped"),
        (5, "killed"),
        (5, "stopped"),
        (6, "killed"),
        (6, "stopped"),
        (7, "killed"),
    ]:
        with tiny.interrupted(at, how), pytest.raises((Stopped, tiny.Killed)):
            train(recipe, out=tmp_path / "run")
    assert tiny.different(train(recipe, out=tmp_path / "run"), whole(recipe)) == []


@pytest.mark.parametrize(
    "changes",
    [
        dict(mixing=CutMix()),
        dict(mixing=Remix()),
        dict(mixing=ManifoldMixup()),
        dict(gradient_clip=0.5, ema=None),
    ],
    ids=["cutmix", "remix", "manifold", "clipped"],
)
def test_interrupted_with_other_mixing(tiny, whole, go_on, changes):
    recipe = tiny.gcl(**changes)
    assert tiny.different(go_on(recipe, 2, 5, 8, how="stopped"), whole(recipe)) == []


@pytest.mark.parametrize("head", ["restarted", "scaled", "aligned"])
def test_interrupted_with_another_head(tiny, whole, go_on, head):
    first, second = tiny.gcl(form="angular").stages
    trains = ("scales",) if head == "scaled" else ("head", "scales")
    recipe = tiny.recipe(first, tiny.replace(second, head=head, trains=trains))
    assert tiny.different(go_on(recipe, 6, 8, how="stopped"), whole(recipe)) == []


@pytest.mark.parametrize("at", range(1, 6))
def test_stopped_inside_an_evaluation_it_is_done_again(tiny, whole, tmp_path, monkeypatch, at):
    """Four epochs are evaluated, then predictions are made; no step is lost, and no row is there twice."""
    real, calls = World.heeding, []

    def heeding(self, batches):
        calls.append(self)
        if len(calls) == at:
            self.stop.number = 15
        return real(self, batches)

    with monkeypatch.context() as patch, pytest.raises(Stopped, match="to go on: ") as stopped:
        patch.setattr(World, "heeding", heeding)
        train(tiny.gcl(), out=tmp_path / "run")
    assert stopped.value.exit_code == 143 and f"after step {3 * min(at, 4)};" in str(stopped.value)
    run = RunFolder(tmp_path / "run")
    assert checkpoint.steps(run.checkpoints)[-1] == 3 * min(at, 4) and not run.is_finished
    assert tiny.different(train(tiny.gcl(), out=tmp_path / "run"), whole(tiny.gcl())) == []


@pytest.mark.parametrize("stage", ["representation", "classifier"])
@pytest.mark.parametrize("where", ["evaluated", "epoch_done", "save"])
def test_killed_around_the_edge_of_an_epoch(tiny, whole, tmp_path, monkeypatch, where, stage):
    """Before the row of an evaluation is kept, before and after the checkpoint: nothing is done twice."""
    real, recipe = getattr(Record, where), tiny.gcl()

    def dies(self, *given):
        if self.stage.name == stage and where == "save":
            real(self, *given)
        if self.stage.name == stage:
            raise tiny.Killed
        real(self, *given)

    with monkeypatch.context() as patched, pytest.raises(tiny.Killed):
        patched.setattr(Record, where, dies)
        train(recipe, out=tmp_path / "run")
    assert tiny.different(train(recipe, out=tmp_path / "run"), whole(recipe)) == []


@pytest.mark.parametrize("number", range(1, 7))
def test_killed_while_the_end_is_written(tiny, whole, tmp_path, monkeypatch, number):
    """model, its names, predictions, thumbnails, final.json, the seal: at each of them, after half of it."""
    real, recipe, calls = fsio.write_file, tiny.gcl(), []
    names = ["model.safetensors", "model.json", "predictions.safetensors", "samples.safetensors"]
    names += ["final.json", "MANIFEST.json"]

    def dies(path, data, *given, **named):
        if path.name in names and path.parent.name == "run":
            calls.append(path.name)
            if len(calls) == number:
                (path.parent / f".tmp-{path.name}").write_bytes(data[: len(data) // 2])
                raise tiny.Killed
        return real(path, data, *given, **named)

    with monkeypatch.context() as patched, pytest.raises(tiny.Killed):
        patched.setattr(fsio, "write_file", dies)
        patched.setattr(fsio, "write_json", lambda path, value: dies(path, json_bytes(value)))
        train(recipe, out=tmp_path / "run")
    assert calls == names[:number]
    assert not RunFolder(tmp_path / "run").is_finished
    assert tiny.different(train(recipe, out=tmp_path / "run"), whole(recipe)) == []
    assert not list((tmp_path / "run").glob(".tmp-*"))


def json_bytes(value) -> bytes:
    from longtail.run import canonical

    return canonical.encode(value)


def test_a_resumed_run_makes_only_the_steps_that_are_missing(tiny, tmp_path, monkeypatch):
    recipe, made = tiny.gcl(), []
    with tiny.interrupted(5, "stopped"), pytest.raises(Stopped):
        train(recipe, out=tmp_path / "run")
    real = Record.stepped
    monkeypatch.setattr(
        Record, "stepped", lambda self, *given: (made.append(self.total + 1), real(self, *given))
    )
    train(recipe, out=tmp_path / "run")
    assert made == list(range(6, 13))


def test_a_finished_run_is_left_alone(tiny, tmp_path, monkeypatch):
    recipe = tiny.recipe()
    run = train(recipe, out=tmp_path / "run")
    before = {p: p.stat().st_mtime_ns for p in run.path.rglob("*") if p.is_file() and p.name != "lock"}
    monkeypatch.setattr(Record, "stepped", None)
    train(recipe, out=tmp_path / "run")
    assert before == {
        p: p.stat().st_mtime_ns for p in run.path.rglob("*") if p.is_file() and p.name != "lock"
    }


@pytest.mark.parametrize("name", ["data.json", "manifest.json", "env.json", "model.json", "final.json"])
def test_a_damaged_file_of_a_finished_run_is_made_again_and_not_vouched_for(tiny, whole, tmp_path, name):
    shutil.copytree(whole(tiny.gcl()).path, tmp_path / "run")
    path = tmp_path / "run" / name
    path.write_bytes(path.read_bytes().replace(b"1", b"2"))
    train(tiny.gcl(), out=tmp_path / "run")
    assert tiny.different(tmp_path / "run", whole(tiny.gcl())) == []


def test_the_command_to_go_on_can_be_typed_as_it_stands(tiny, tmp_path, monkeypatch):
    out = tmp_path / "my runs; $HOME"
    with tiny.interrupted(2, "stopped"), pytest.raises(Stopped) as caught:
        train(tiny.gcl(), out=out)
    words = shlex.split(str(caught.value).split("to go on: ")[1])
    assert words == ["longtail", "train", f"{out}/recipe.json", "--out", str(out)]
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert facts.command(World(torch.device("cpu")), RunFolder(out)).endswith(" --device cpu")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    two, four = (World(torch.device("cpu"), 0, size) for size in (2, 4))
    assert facts.command(two, RunFolder("a")) == (
        "torchrun --nproc-per-node=2 -m longtail train a/recipe.json --out a"
    )
    assert four.program == ["torchrun", "--nnodes=2", "...", "--nproc-per-node=2", "-m", "longtail"]


def test_a_run_goes_on_in_a_version_with_more_fields(tiny, whole, tmp_path):
    run = RunFolder(tmp_path / "run")
    with tiny.interrupted(4, "stopped"), pytest.raises(Stopped):
        train(tiny.gcl(), out=run.path)
    written = json.loads((run.path / "recipe.json").read_text())
    del written["stages"][0]["views"]  # as if a version without it had begun the run
    fsio.write_json(run.path / "recipe.json", written)
    path = checkpoint.folder_of(run.checkpoints, 4)
    state, about = checkpoint.load(path)
    checkpoint.save(run.checkpoints, 4, state, about | {"recipe": run.digest()})
    train(tiny.gcl(), out=run.path)
    assert run.is_finished
    one, other = (each.read_tensors("model.safetensors") for each in (run, whole(tiny.gcl())))
    assert all(torch.equal(one[name], other[name]) for name in other)


def test_a_damaged_newest_checkpoint_costs_steps_but_no_bytes(tiny, whole, tmp_path):
    recipe, notes = tiny.gcl(), []
    for at in (2, 5):
        with tiny.interrupted(at, "stopped"), pytest.raises(Stopped):
            train(recipe, out=tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    newest = checkpoint.folder_of(folder.checkpoints, 5) / "model.safetensors"
    data = bytearray(newest.read_bytes())
    data[-100] ^= 1
    newest.write_bytes(bytes(data))

    class Watch:
        began = stepped = evaluated = lambda self, *given: None

        def note(self, text):
            notes.append(text)

    run = train(recipe, out=tmp_path / "run", progress=Watch())
    assert any("step-00000005" in note for note in notes)
    assert tiny.different(run, whole(recipe)) == []


def test_two_checkpoints_and_the_stage_ends_stay(tiny, tmp_path):
    recipe = tiny.gcl()
    for at in (1, 2, 4, 5, 7, 8, 10):
        with tiny.interrupted(at, "stopped"), pytest.raises(Stopped):
            train(recipe, out=tmp_path / "run")
    run = train(recipe, out=tmp_path / "run")
    assert checkpoint.steps(run.checkpoints) == [6, 10, 12]


def test_a_kill_between_saving_and_clearing_away_leaves_nothing_behind(tiny, whole, tmp_path, monkeypatch):
    recipe = tiny.gcl()
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "rotate", lambda *given, **named: None)
        for at in (1, 2, 4, 5):
            with tiny.interrupted(at, "stopped"), pytest.raises(Stopped):
                train(recipe, out=tmp_path / "run")
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == [1, 2, 3, 4, 5]
    with tiny.interrupted(6, "killed"), pytest.raises(tiny.Killed):
        train(recipe, out=tmp_path / "run")
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == [4, 5]
    assert tiny.different(train(recipe, out=tmp_path / "run"), whole(recipe)) == []


def test_two_stages_with_a_kept_optimiser_are_one_training(tiny, tmp_path, monkeypatch):
    """Momentum and rate carry over: with one stream of images for both, two stages end where one does."""
    split = tiny.ldam_drw(reweight=False)
    whole = tiny.recipe(tiny.stage(loss=LDAM(), epochs=4, schedule=split.stages[0].schedule))
    real = Feed.epoch

    def one_stream(self, stage, key, epoch, start):
        past = stage.schedule.start if isinstance(stage.schedule, MultiStep) else 0
        for step, *rest in real(self, stage, Key(0).fold("one stream"), epoch + past, start):
            yield step - past * tiny.STEPS, *rest

    monkeypatch.setattr(Feed, "epoch", one_stream)
    one, two = train(whole, out=tmp_path / "one"), train(split, out=tmp_path / "two")
    ends = [checkpoint.load(checkpoint.folder_of(run.checkpoints, 12))[0] for run in (one, two)]
    for group in ("model", "optimizer"):
        for name, tensor in ends[0][group].items():
            assert torch.equal(tensor, ends[1][group][name]), name
    rates = [
        [json.loads(line)["lr"] for line in (run.path / "steps.jsonl").read_text().splitlines()]
        for run in (one, two)
    ]
    assert rates[0] == rates[1]
    assert rates[0][-1] == pytest.approx(0.01)

    restarted = tiny.replace(split.stages[1], optimizer_state="restarted")
    afresh = train(tiny.recipe(split.stages[0], restarted), out=tmp_path / "afresh")
    assert not torch.equal(
        afresh.read_tensors("model.safetensors")["head.weight"],
        two.read_tensors("model.safetensors")["head.weight"],
    )
