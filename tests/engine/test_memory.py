"""Stages with a memory: what it starts from, that a resumed run has it again, and who may change it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from PIL import Image
from pydantic import ValidationError

import longtail as lt
from longtail import build, heads
from longtail.data.images import EXTENSIONS
from longtail.engine import memory, trainable
from longtail.engine.distributed import World
from longtail.engine.features import features
from longtail.engine.feed import Feed
from longtail.engine.fit import train
from longtail.engine.load import evaluate_run
from longtail.engine.retrain import retrain
from longtail.engine.step import Step
from longtail.errors import Stopped, UsageError
from longtail.keys import Key
from longtail.recipe import (
    SGD,
    Backbone,
    Centroids,
    Classifier,
    CrossEntropy,
    Mixup,
    Remembered,
    Remembering,
    Sampling,
)
from longtail.recipes.retraining import Choices, plan

HERE = World(torch.device("cpu"))
SMALL = Backbone(name="resnet8")
LINEAR = Classifier(backbone=SMALL, head="linear")
MEMORY = Remembering(backbone=SMALL, size=40)


def oltr(tiny, **second):
    given = dict(
        loss=Centroids(),
        head="meta_embedding",
        trains=("backbone", "head", "memory"),
        sampling=Sampling(rule="class_aware"),
        optimizer=SGD(lr=0.01),
        head_lr_factor=10.0,
        epochs=1,
    )
    return tiny.recipe(tiny.stage(epochs=1), tiny.stage("memory", **(given | second)), model=LINEAR)


def mbj(tiny, **loss):
    second = tiny.stage("remembered", loss=Remembered(**loss), optimizer_state="kept")
    return tiny.recipe(tiny.stage(epochs=1), second, model=MEMORY)


RECIPES = {"oltr": oltr, "mbj": mbj}
EVERY = pytest.mark.parametrize("name", RECIPES)


def weights(run):
    return run.read_tensors("model.safetensors")


# ---------------------------------------------------------------------------------------------- beginning


def test_centroids_begin_at_the_class_means_of_the_plain_training_images(tiny):
    recipe = oltr(tiny)
    data, model = build.dataset(recipe.data), build.model(recipe.model, 10, Key(1))
    trainable.reshape_head(model, recipe.stages[1], Key(1))
    assert not model.head.centroids.any()
    memory.begin(HERE, recipe, recipe.stages[1], data, model)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (recipe.images.mean, recipe.images.std))
    with torch.no_grad():
        for label in range(10):
            mine = data.train.images[data.train.targets == label].float() / 255
            expected = model.eval().backbone((mine - mean) / std).double().mean(0)
            torch.testing.assert_close(
                model.head.centroids[label].double(), expected, rtol=1e-4, atol=1e-5, msg=str(label)
            )


def test_the_hallucinator_begins_as_the_classifier_of_stage_one(tiny, whole):
    first = replace(oltr(tiny), stages=oltr(tiny).stages[:1])
    still = oltr(tiny, optimizer=SGD(lr=0.0, weight_decay=0.0))
    before, after = weights(whole(first)), weights(whole(still))
    assert torch.equal(after["head.hallucinator.weight"], before["head.weight"])
    assert torch.equal(after["head.hallucinator.bias"], before["head.bias"])


def test_a_memory_of_features_begins_empty_with_the_chances_of_the_counts(tiny):
    recipe = mbj(tiny)
    data, model = build.dataset(recipe.data), build.model(recipe.model, 10, Key(1))
    model.head.write(torch.ones(3, 64), torch.zeros(3, dtype=torch.int64))
    memory.begin(HERE, recipe, recipe.stages[0], data, model)
    assert (model.head.labels >= 0).any(), "the first stage has no memory and leaves it alone"
    memory.begin(HERE, recipe, recipe.stages[1], data, model)
    assert (model.head.labels == -100).all()
    torch.testing.assert_close(model.head.chances, (data.counts.min() / data.counts).float())


# ------------------------------------------------------------------------------------------------ training


def test_only_the_centroid_term_moves_the_centroids(tiny, whole):
    plain = SGD(lr=0.5, weight_decay=0.0)
    still, moved = (
        weights(whole(oltr(tiny, trains=("memory",), optimizer=plain, loss=Centroids(weight=weight))))
        for weight in (0.0, 1.0)
    )
    changed = {name for name in still if not torch.equal(still[name], moved[name])}
    assert changed == {"head.centroids"}


def test_centroids_learn_at_the_rate_of_the_features(tiny):
    recipe = oltr(tiny)
    model = build.model(recipe.model, 10, Key(1))
    trainable.reshape_head(model, recipe.stages[1], Key(1))
    trainable.select(model, recipe.stages[1])
    factors = {
        name: factor for factor, named in trainable.groups(model, recipe.stages[1]) for name, _ in named
    }
    assert factors["head.centroids"] == factors["backbone.conv1.weight"] == 1.0
    assert factors["head.weight"] == factors["head.hallucinator.weight"] == 10.0


def test_a_memory_that_counts_nothing_leaves_the_training_of_cross_entropy(tiny, whole):
    recipe = mbj(tiny, weight=0.0)
    plain = tiny.recipe(recipe.stages[0], replace(recipe.stages[1], loss=CrossEntropy()), model=MEMORY)
    one, other = weights(whole(recipe)), weights(whole(plain))
    changed = {name for name in one if not torch.equal(one[name], other[name])}
    assert changed == {f"head.{part}" for part in ("features", "labels", "place", "chances")}
    assert "head.head.weight" in set(one) - changed


def test_a_memory_changes_the_classifier(tiny, whole):
    without, with_it = weights(whole(mbj(tiny, weight=0.0))), weights(whole(mbj(tiny)))
    assert not torch.equal(without["head.head.weight"], with_it["head.head.weight"])


def test_a_step_writes_features_of_its_own_images_and_reads_before(tiny):
    recipe = mbj(tiny)
    stage = recipe.stages[1]
    data, model = build.dataset(recipe.data), build.model(recipe.model, 10, Key(1))
    memory.begin(HERE, recipe, stage, data, model)
    loss = build.loss(stage.loss, data.counts)
    optimizer = build.optimizer(stage.optimizer, trainable.groups(model, stage), HERE.device)
    update = Step(HERE, recipe, stage, model, loss, optimizer, memory=memory.of(model))
    _, mixture, batch, _ = next(iter(Feed(HERE, recipe, data).epoch(stage, Key(0), 0, start=0)))
    trainable.set_modes(model, stage)
    seen = model(mixture.images)
    expected = torch.nn.functional.cross_entropy(seen.scores, batch.target)
    update.prepare(0.0, Key(0))
    torch.testing.assert_close(update(mixture, 1.0, progress=0.0), expected.detach())  # it was empty
    held = model.head.labels >= 0
    assert held.any()
    for feature, label in zip(model.head.features[held], model.head.labels[held]):
        same = (seen.features - feature).abs().amax(1) < 1e-4
        assert label in batch.target[same]


# -------------------------------------------------------------------------------------------------- resume


@EVERY
@pytest.mark.parametrize("how, at", [("stopped", 3), ("stopped", 5), ("killed", 6)])
def test_a_resumed_run_has_the_memory_of_a_whole_one(tiny, whole, tmp_path, name, how, at):
    recipe = RECIPES[name](tiny)
    with tiny.interrupted(at, how), pytest.raises(Stopped if how == "stopped" else tiny.Killed):
        train(recipe, out=tmp_path / "run")
    assert tiny.different(train(recipe, out=tmp_path / "run"), whole(recipe)) == []


def test_control_a_memory_that_is_begun_again_is_noticed(tiny, whole, tmp_path):
    recipe, real = mbj(tiny), heads.Remembering.recalled
    with tiny.interrupted(5, "stopped"), pytest.raises(Stopped):
        train(recipe, out=tmp_path / "run")

    def forgetful(self):
        heads.Remembering.recalled = real
        self.begin([1] * 10)
        return real(self)

    heads.Remembering.recalled = forgetful
    try:
        run = train(recipe, out=tmp_path / "run")
    finally:
        heads.Remembering.recalled = real
    assert "model.safetensors" in tiny.different(run, whole(recipe))


# -------------------------------------------------------------------------------------------- a whole run


@EVERY
def test_the_commands_read_such_a_run_and_write_to_no_memory(tiny, whole, tmp_path, name):
    run = whole(RECIPES[name](tiny))
    before = weights(run)
    made = lt.load(run.path)
    images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert made(images).shape == (4, 10)
    after = made.model.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)
    recorded, again = run.read("final.json")["last"], evaluate_run(run.path)
    assert (again["hits"], again["ece"]) == (recorded["hits"], recorded["ece"])
    features(run.path)
    path = tmp_path / f"digit{sorted(EXTENSIONS)[0]}"
    Image.new("RGB", (8, 8), (90, 90, 90)).save(path)
    (prediction,) = lt.predict(run.path, [path])
    assert sum(prediction.probabilities.values()) == pytest.approx(1, abs=1e-4)
    assert all(torch.equal(tensor, before[key]) for key, tensor in weights(run).items())


@pytest.mark.parametrize("name, technique", [("mbj", "crt"), ("mbj", "ncm"), ("oltr", "lws")])
def test_its_first_stage_can_be_trained_further(tiny, whole, tmp_path, name, technique):
    run = whole(RECIPES[name](tiny))
    chosen = plan(run.recipe(), Choices(technique, epochs=1 if technique in ("crt", "lws") else None))
    again = retrain(run.path, chosen.stages, out=tmp_path / "again", provenance=chosen.provenance)
    assert again.is_finished and lt.load(again.path)(torch.zeros(2, 3, 8, 8)).shape == (2, 10)


def test_what_needs_a_plain_head_says_so_in_one_line(tiny, whole, tmp_path):
    run = whole(mbj(tiny))
    chosen = plan(run.recipe(), Choices("tau_norm", held_out="leftover"))
    with pytest.raises(UsageError, match="Remembering") as raised:
        retrain(run.path, chosen.stages, out=tmp_path / "again", held_out=chosen.held_out)
    assert "\n" not in str(raised.value)


# ------------------------------------------------------------------------------------------------ refusals


def test_what_does_not_fit_is_refused_before_anything_is_trained(tiny):
    with pytest.raises(ValidationError, match="linear head of the model classifier"):
        replace(oltr(tiny), model=Classifier(backbone=SMALL, head="cosine"))
    with pytest.raises(ValidationError, match="needs head meta_embedding"):
        oltr(tiny, head="kept", trains=("backbone", "head"))
    with pytest.raises(ValidationError, match="only loss centroids"):
        oltr(tiny, loss=CrossEntropy(scale=16.0))
    with pytest.raises(ValidationError, match="needs the model remembering"):
        replace(mbj(tiny), model=LINEAR)
    with pytest.raises(ValidationError, match="one class each"):
        replace(mbj(tiny), stages=(replace(mbj(tiny).stages[1], mixing=Mixup()),))
    twice = (*oltr(tiny).stages, oltr(tiny).stages[1])
    with pytest.raises(ValidationError, match="once"):
        replace(oltr(tiny), stages=twice)


def test_several_processes_are_refused_for_a_memory_of_features_alone(tiny):
    pair = World(torch.device("cpu"), rank=0, size=2)
    memory.require(pair, oltr(tiny))
    with pytest.raises(UsageError, match="without torchrun") as raised:
        memory.require(pair, mbj(tiny))
    assert "\n" not in str(raised.value)
