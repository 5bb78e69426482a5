"""What holds for every run: what moves and what stands still, what is refused, what does not matter."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import longtail as lt
from longtail import build
from longtail.data.batches import Resident
from longtail.engine import trainable
from longtail.engine.distributed import World
from longtail.engine.feed import Feed
from longtail.engine.finish import halved
from longtail.engine.fit import train
from longtail.engine.load import evaluate_run
from longtail.engine.predict import predict
from longtail.engine.record import Record
from longtail.engine.retrain import retrain
from longtail.engine.step import Step
from longtail.errors import (
    DataError,
    LongtailError,
    MachineError,
    ModelFileError,
    NumericsError,
    Stopped,
    UsageError,
)
from longtail.keys import Key
from longtail.run import checkpoint, tensors
from longtail.run.folder import RunFolder

ALONE = World(torch.device("cpu"))


def ends(run: RunFolder, *at: int) -> list[dict[str, torch.Tensor]]:
    return [checkpoint.load(checkpoint.folder_of(run.checkpoints, step))[0]["model"] for step in at]


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


# ------------------------------------------------------------------------------------------- the stages


def test_stage_two_moves_the_head_alone(tiny, whole):
    """BatchNorm's buffers are bit-identical in frozen mode, parameters of the backbone anyway."""
    before, after = ends(whole(tiny.gcl()), 6, 12)
    assert any(name.endswith("running_mean") for name in before)
    assert moved(before, after) == {"head.weight"}


def test_statistics_adapt_with_a_frozen_backbone(tiny, tmp_path):
    first, second = tiny.gcl().stages
    adapting = tiny.recipe(first, tiny.replace(second, batchnorm="adapting"))
    before, after = ends(train(adapting, out=tmp_path / "run"), 6, 12)
    parameters = {n for n in moved(before, after) if n.split(".")[-1] in ("weight", "bias")}
    assert parameters == {"head.weight"}
    buffers = {name for name in before if "running_" in name or "num_batches" in name}
    assert moved(before, after) == buffers | {"head.weight"}


def test_a_kept_head_starts_from_stage_one(tiny, tmp_path):
    """With a rate of zero, the second stage ends where the first one did."""
    first, second = tiny.gcl().stages
    still = tiny.replace(second, optimizer=tiny.SGD(lr=0.0))
    before, after = ends(train(tiny.recipe(first, still), out=tmp_path / "run"), 6, 12)
    assert moved(before, after) == set()


def test_a_restarted_head_depends_on_the_key_only(tiny, tmp_path):
    first, second = tiny.gcl().stages
    again = tiny.replace(second, head="restarted", optimizer=tiny.SGD(lr=0.0))
    other = tiny.replace(first, optimizer=tiny.SGD(lr=0.03))
    made = [
        ends(train(tiny.recipe(*stages, seed=seed), out=tmp_path / str(number)), 6, 12)
        for number, (stages, seed) in enumerate(
            [((first, again), 3), ((other, again), 3), ((first, again), 4)]
        )
    ]
    heads = [after["head.weight"] for _, after in made]
    assert not torch.equal(made[0][0]["head.weight"], heads[0])  # not the one of stage 1
    assert not torch.equal(made[0][0]["head.weight"], made[1][0]["head.weight"])
    assert torch.equal(heads[0], heads[1])  # whatever stage 1 was
    assert not torch.equal(heads[0], heads[2])  # but not whatever the seed is
    assert moved(*made[0]) == {"head.weight"}


# --------------------------------------------------------------------------------------- broken numbers


@pytest.fixture
def no_broken_number():
    def look(folder):
        files = list(folder.rglob("*.safetensors"))
        for file in files:
            for name, tensor in tensors.decode(file.read_bytes(), file.name, finite=False).items():
                assert not tensor.is_floating_point() or tensor.isfinite().all(), (file, name)
        for file in [*folder.rglob("*.json"), *folder.rglob("*.jsonl")]:
            assert not {"NaN", "Infinity"} & set(file.read_text().replace(",", " ").split())
        return files

    return look


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize(("stage", "number"), [("representation", 4), ("classifier", 2)])
@pytest.mark.parametrize("form", ["euclidean", "angular"])
def test_a_broken_image_stops_before_the_update(
    tiny, whole, tmp_path, monkeypatch, no_broken_number, form, stage, number, value
):
    """One pixel of one image. The message names the step, the image and its class; nothing broken is kept."""
    recipe, real, held = tiny.gcl(form=form, mixing=None), Feed.epoch, {}

    def poisoned(self, given, key, epoch, start):
        for step, mixture, batch, share in real(self, given, key, epoch, start):
            if given.name == stage and step + 1 == number:
                batch.images[5, 0, 2, 2] = value
                held["position"], held["name"] = int(batch.positions[5]), self.data.names[batch.target[5]]
                mixture = mixture._replace(images=batch.images)
            yield step, mixture, batch, share

    monkeypatch.setattr(Feed, "epoch", poisoned)
    with pytest.raises(NumericsError) as caught:
        train(recipe, out=tmp_path / "run")
    text = str(caught.value)
    assert f"stage {stage}" in text and f"step {number};" in text
    assert f"samples of that step: {held['position']}, of classes {held['name']};" in text
    assert caught.value.exit_code == 6
    assert no_broken_number(tmp_path / "run")
    assert not RunFolder(tmp_path / "run").is_finished

    monkeypatch.setattr(Feed, "epoch", real)  # the image is repaired: the run goes on as if nothing had been
    assert tiny.different(train(recipe, out=tmp_path / "run"), whole(recipe)) == []


@pytest.mark.parametrize("where", ["loss", "gradient"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_broken_loss_or_gradient_stops_before_the_update(
    tiny, tmp_path, monkeypatch, no_broken_number, where, value
):
    recipe, real, weights = tiny.gcl(), Step.forward, {}

    def broken(self, mixture, progress):
        loss = real(self, mixture, progress)
        if self.stage.name == "classifier":
            weights.setdefault("before", self.parameters[0].detach().clone())
            weights["parameter"] = self.parameters[0]
            if where == "loss":
                return loss * 0 + value  # its gradient is 0: the loss alone is broken
            loss.register_hook(lambda gradient: gradient * value)
        return loss

    monkeypatch.setattr(Step, "forward", broken)
    with pytest.raises(
        NumericsError, match="stage classifier, at or before step 1; samples of that step: .*class"
    ):
        train(recipe, out=tmp_path / "run")
    assert torch.equal(weights["before"], weights["parameter"])
    assert no_broken_number(tmp_path / "run")
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == [3, 6]


def test_a_broken_step_is_never_saved_by_a_stop_signal(tiny, tmp_path, monkeypatch):
    real = Step.forward
    monkeypatch.setattr(Step, "forward", lambda self, *given: real(self, *given) * float("nan"))
    with tiny.interrupted(1, "stopped"), pytest.raises(NumericsError):
        train(tiny.gcl(), out=tmp_path / "run")
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == []


def test_logits_beyond_float16_are_written_as_its_largest():
    wide = torch.tensor([[1e9, -1e9, 70000.0, 1.5]])
    assert halved(wide).tolist() == [[65504.0, -65504.0, 65504.0, 1.5]]


def test_clipping_bounds_the_gradient_and_keeps_its_direction(tiny):
    found = {}
    for clip in (None, 0.01, 1e6):
        update, feed, stage = stepper(tiny.recipe(tiny.stage(gradient_clip=clip)))
        _, mixture, _, share = next(feed.epoch(stage, Key(0), 0, 0))
        update.prepare(0.0, Key(1))
        update(mixture, share, 0.0)
        found[clip] = torch.cat([p.grad.flatten() for p in update.parameters])
    assert found[None].norm() > 0.1
    assert found[0.01].norm() == pytest.approx(0.01, rel=1e-3)
    torch.testing.assert_close(found[0.01] / found[0.01].norm(), found[None] / found[None].norm())
    torch.testing.assert_close(found[1e6], found[None])


def stepper(recipe, device="cpu") -> tuple[Step, Feed, object]:
    stage = recipe.stages[0]
    data = build.dataset(recipe.data)
    model = build.model(recipe.model, len(data.names), Key(0).fold("model")).to(device)
    trainable.select(model, stage)
    trainable.set_modes(model, stage)
    optimizer = build.optimizer(stage.optimizer, trainable.groups(model, stage), ALONE.device)
    loss = build.loss(stage.loss, data.counts).to(device)
    update = Step(ALONE, recipe, stage, model, loss, optimizer)
    return update, Feed(ALONE, recipe, data), stage


# --------------------------------------------------------------------------------- what does not matter


def test_two_cold_runs_leave_the_same_bytes(tiny, whole, tmp_path):
    assert tiny.different(train(tiny.gcl(), out=tmp_path / "run"), whole(tiny.gcl())) == []


def test_global_randomness_is_not_read(tiny, whole, tmp_path, monkeypatch):
    """Poisoned before every step; a run that draws from a global stream would differ."""
    real, dice = Record.stepped, random.Random(1)
    held = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002

    def stepped(self, *given):
        number = dice.randrange(2**31)
        random.seed(number), np.random.seed(number), torch.manual_seed(number)  # noqa: NPY002
        real(self, *given)

    monkeypatch.setattr(Record, "stepped", stepped)
    try:
        assert tiny.different(train(tiny.gcl(), out=tmp_path / "run"), whole(tiny.gcl())) == []
        monkeypatch.setattr(Record, "stepped", real)
        before = torch.get_rng_state()
        train(tiny.gcl(), out=tmp_path / "again")
        assert torch.equal(before, torch.get_rng_state())  # nor moved
    finally:
        random.setstate(held[0]), np.random.set_state(held[1]), torch.set_rng_state(held[2])  # noqa: NPY002


def test_another_seed_is_another_run(tiny, whole):
    other = whole(tiny.replace(tiny.gcl(), seed=4))
    assert {"model.safetensors", "steps.jsonl"} <= set(tiny.different(other, whole(tiny.gcl())))


# --------------------------------------------------------------------------- what a finished run is for


def test_the_loaded_model_gives_the_logits_of_the_evaluation(tiny, whole):
    run = whole(tiny.gcl())
    model, data = lt.load(run.path), build.dataset(run.recipe().data)
    kept = run.read_tensors("predictions.safetensors")
    images = Resident(data.test, plain(run.recipe()), device="cpu").images
    with torch.no_grad():
        logits = model(images.float() / 255)
    assert not model.training
    assert torch.equal(kept["labels"], data.test.targets)
    torch.testing.assert_close(logits, kept["logits"].float(), rtol=2e-3, atol=2e-2)  # kept in 16 bits
    hits = (logits.argmax(1) == data.test.targets).float().mean()
    assert 100 * float(hits) == pytest.approx(run.read("final.json")["last"]["top1"], abs=1e-4)


def plain(recipe):
    from longtail.data.augment import Small

    return Small(size=recipe.images.size, crop=0, flip=False, mean=recipe.images.mean, std=recipe.images.std)


def test_evaluating_again_gives_the_recorded_row(tiny, whole):
    run = whole(tiny.gcl())
    row = json.loads(json.dumps(evaluate_run(run.path), default=float).replace("NaN", "null"))
    last = run.read("final.json")["last"]
    assert row.items() <= last.items()
    assert set(last) - set(row) == {"stage", "name", "epoch", "step", "split"}


def test_prediction_of_image_files_is_that_of_the_evaluation(tiny, whole, tmp_path):
    run = whole(tiny.gcl())
    data = build.dataset(run.recipe().data)
    assert isinstance(data.test.images, torch.Tensor)
    files = []
    for index in range(0, 540, 60):
        files.append(tmp_path / f"{index:03}.png")
        Image.fromarray(data.test.images[index].permute(1, 2, 0).numpy()).save(files[-1])
    found = predict(run.path, [tmp_path])
    wanted = run.read_tensors("predictions.safetensors")["logits"].float()[::60].softmax(1)
    assert [p.path for p in found] == [str(file) for file in files]
    for row, prediction in zip(wanted, found, strict=True):
        assert prediction.label == data.names[int(row.argmax())]
        assert list(prediction.probabilities.values()) == pytest.approx(row.tolist(), abs=5e-3)
        assert sum(prediction.probabilities.values()) == pytest.approx(1.0)


def test_images_are_predicted_through_links_that_were_named_and_no_others(tiny, whole, tmp_path):
    run, folder = whole(tiny.gcl()).path, tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    Image.new("RGB", (8, 8), (200, 0, 0)).save(tmp_path / "outside.png")
    Image.new("RGB", (8, 8)).save(folder / "deep" / "a.png")
    (folder / "b.png").symlink_to("deep/a.png")
    (folder / "c.png").symlink_to("../outside.png")
    (tmp_path / "named.png").symlink_to("outside.png")
    made = predict(run, [folder, tmp_path / "named.png"], keep_going=True)
    assert [Path(one.path).name for one in made] == ["b.png", "c.png", "a.png", "named.png"]
    assert [one.error is None for one in made] == [True, False, True, True]
    assert "leaves the root" in made[1].error and made[0].probabilities == made[2].probabilities
    with pytest.raises(DataError, match="leaves the root"):
        predict(run, [folder])
    (folder / "c.png").unlink()
    (folder / "c.png").write_text("no image")
    (bad,) = predict(run, [folder / "c.png"], keep_going=True)
    assert bad.error.endswith("not a JPEG, PNG, WebP or BMP image; repair or remove it")


# A re-trained run also says where its first stage came from; apart from that, no byte differs.
ORIGIN = ["MANIFEST.json", "origin.json"]


@pytest.mark.parametrize("ema", [None, 0.9])
def test_a_second_stage_put_on_another_run_is_the_whole_training(tiny, whole, tmp_path, ema):
    recipe = tiny.gcl(ema=ema)
    first = train(tiny.replace(recipe, stages=recipe.stages[:1]), out=tmp_path / "first")
    run = retrain(first.path, recipe.stages[1:], out=tmp_path / "run")
    assert tiny.different(run, whole(recipe)) == ORIGIN


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_an_interrupted_retraining_goes_on(tiny, whole, tmp_path, how):
    recipe = tiny.gcl()
    first = train(tiny.replace(recipe, stages=recipe.stages[:1]), out=tmp_path / "first")
    for at in (8, 10):
        with tiny.interrupted(at, how), pytest.raises((Stopped, tiny.Killed)):
            retrain(first.path, recipe.stages[1:], out=tmp_path / "run")
    run = retrain(first.path, recipe.stages[1:], out=tmp_path / "run")
    assert tiny.different(run, whole(recipe)) == ORIGIN


def test_a_retraining_killed_before_its_first_step_does_not_train_stage_one_again(
    tiny, whole, tmp_path, monkeypatch
):
    recipe, steps = tiny.gcl(), []
    first = train(tiny.replace(recipe, stages=recipe.stages[:1]), out=tmp_path / "first")
    real, stepped = checkpoint.save, Record.stepped

    def dies(*given):
        raise tiny.Killed

    with monkeypatch.context() as patched, pytest.raises(tiny.Killed):
        patched.setattr(checkpoint, "save", dies)
        retrain(first.path, recipe.stages[1:], out=tmp_path / "run")
    assert checkpoint.save is real and (tmp_path / "run" / "recipe.json").exists()
    monkeypatch.setattr(
        Record, "stepped", lambda self, *given: (steps.append(self.number), stepped(self, *given))
    )
    run = retrain(first.path, recipe.stages[1:], out=tmp_path / "run")
    assert steps == [1] * 6
    assert tiny.different(run, whole(recipe)) == ORIGIN


def test_an_unfinished_first_stage_is_refused(tiny, tmp_path):
    recipe = tiny.gcl()
    with tiny.interrupted(4, "stopped"), pytest.raises(Stopped):
        train(recipe, out=tmp_path / "first")
    with pytest.raises(LongtailError, match="end of its first training"):
        retrain(tmp_path / "first", recipe.stages[1:], out=tmp_path / "run")


def test_readers_of_a_run_refuse_a_device_that_is_none(tiny, whole, tmp_path):
    run = whole(tiny.gcl()).path
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    for read in (lt.load, evaluate_run, lambda run, device: predict(run, [tmp_path], device=device)):
        with pytest.raises(UsageError, match="there are cpu, cuda"):
            read(run, device="gpu")
        with pytest.raises(MachineError, match="accelerator"):
            read(run, device=f"cuda:{torch.cuda.device_count()}")


@pytest.fixture
def finetuned(tiny, whole, tmp_path):
    """A recipe that begins from the weights of another run, in the file weights.safetensors."""
    first = whole(tiny.gcl())
    held = first.read_tensors("model.safetensors")
    backbone = {n.removeprefix("backbone."): t for n, t in held.items() if n.startswith("backbone.")}
    (tmp_path / "weights.safetensors").write_bytes(tensors.encode(backbone, "here"))
    recipe = tiny.gcl()
    spec = tiny.replace(recipe.model.backbone, weights=str(tmp_path / "weights.safetensors"))
    return tiny.replace(recipe, model=tiny.replace(recipe.model, backbone=spec))


def test_a_run_is_loaded_without_the_file_that_it_began_from(finetuned, tmp_path):
    """The folder holds all its weights; those it was fine-tuned from may be on another machine."""
    run = train(finetuned, out=tmp_path / "run")
    image = torch.rand(2, 3, 8, 8)
    before = lt.load(run.path, device="cpu")(image)
    (tmp_path / "weights.safetensors").unlink()
    assert torch.equal(lt.load(run.path, device="cpu")(image), before)


@pytest.mark.parametrize("at", [2, 7])
def test_a_run_goes_on_without_the_file_that_it_began_from(tiny, finetuned, tmp_path, at):
    reference = train(finetuned, out=tmp_path / "reference")
    with tiny.interrupted(at, "stopped"), pytest.raises(Stopped):
        train(finetuned, out=tmp_path / "run")
    with tiny.interrupted(1, "killed"), pytest.raises(tiny.Killed):
        train(finetuned, out=tmp_path / "begun")
    (tmp_path / "weights.safetensors").unlink()
    assert tiny.different(train(finetuned, out=tmp_path / "run"), reference) == []
    with pytest.raises(ModelFileError, match=r"weights\.safetensors"):  # without a checkpoint it is needed
        train(finetuned, out=tmp_path / "begun")
