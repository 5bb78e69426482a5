"""RIDE with routers as a recipe: its constants, and a run from training to prediction."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from pydantic import ValidationError
from safetensors.torch import load_file
from torch import nn

import longtail as lt
from longtail import build
from longtail.engine import trainable
from longtail.engine.features import features
from longtail.engine.fit import train
from longtail.engine.load import evaluate_run
from longtail.errors import UsageError
from longtail.keys import Key
from longtail.models import experts_asked, of_those_asked
from longtail.recipe import RIDE, SGD, Cosine, Experts, PerExpert, Recipe, Routing, Stage
from longtail.recipes import overrides, paper, ride
from longtail.run import checkpoint
from longtail.run.folder import RunFolder


def test_the_constants_are_those_of_the_published_code() -> None:
    made = ride.routed()
    *before, last = made.stages
    assert tuple(before) == ride.ldam().stages
    assert (last.epochs, last.batch_size, last.sampling.rule) == (5, 512, "class_balanced")
    assert last.optimizer == SGD(lr=0.01, weight_decay=5e-4, nesterov=True) and last.schedule == Cosine()
    assert isinstance(last.loss, Routing)
    assert (last.loss.positives, last.loss.top, last.loss.hidden) == (100.0, 30, 16)
    assert (last.trains, last.batchnorm, last.mixing) == (("router",), "frozen", None)


def test_it_is_no_row_of_the_papers_tables() -> None:
    for each in ("ldam", "gcl_e", "gcl_a"):
        assert paper.published(overrides.plain(ride.routed(each=each))) is None


def test_routers_are_added_to_the_published_size() -> None:
    recipe = ride.routed(classes=10)
    made = build.model(recipe.model, 10, Key(0))
    trainable.reshape_head(made, recipe.stages[-1], Key(0))
    assert sum(p.numel() for p in made.parameters()) == 1_344_784 + 2 * (64 * 16 + 16 + 16 + 10 + 1)
    assert made.head.scale == 30.0


def test_head_and_loss_of_the_routers_go_together() -> None:
    *before, last = ride.routed().stages
    for wrong in (replace(last, head="kept"), replace(last, loss=PerExpert())):
        with pytest.raises(ValidationError, match="go together"):
            replace(ride.routed(), stages=(*before, wrong))
    again = replace(last, name="again", head="kept")
    assert len(replace(ride.routed(), stages=(*before, last, again)).stages) == 4


def test_routers_over_routers_are_refused() -> None:
    recipe = ride.routed(classes=10)
    made = build.model(recipe.model, 10, Key(0))
    trainable.reshape_head(made, recipe.stages[-1], Key(0))
    with pytest.raises(UsageError, match="plain heads"):
        trainable.reshape_head(made, recipe.stages[-1], Key(0))


@pytest.fixture(scope="module")
def recipe(tiny) -> Recipe:
    first = tiny.stage(loss=RIDE(), epochs=8, optimizer=SGD(lr=0.05), schedule=Cosine())
    last: Stage = replace(ride.routed().stages[-1], epochs=1, batch_size=128)
    model = Experts(backbone=tiny.recipe().model.backbone, count=3)
    return tiny.recipe(first, last, model=model)


@pytest.fixture(scope="module")
def run(recipe, tmp_path_factory) -> RunFolder:
    return train(recipe, out=tmp_path_factory.mktemp("routed") / "run")


def test_only_routers_move(run) -> None:
    (first,), final = [run.checkpoints / "step-00000024"], run.read_tensors("model.safetensors")
    before = checkpoint.load(first)[0]["model"]
    kept = {name.replace("head.head.", "head."): tensor for name, tensor in final.items()}
    assert all(torch.equal(kept[name], tensor) for name, tensor in before.items())
    routers = set(kept) - set(before)
    assert routers == {
        f"head.{part}.{number}.{what}"
        for part in ("hidden", "decide")
        for number in (0, 1)
        for what in ("weight", "bias")
    }
    fresh = build.model(run.recipe().model, 10, Key(0))
    trainable.reshape_head(fresh, run.recipe().stages[-1], Key(run.recipe().seed).fold("router"))
    drawn = dict(fresh.named_parameters())
    assert not any(torch.equal(kept[name], drawn[name]) for name in routers)


def test_everything_reads_the_experts_that_were_asked(run, recipe) -> None:
    rows = [json.loads(line) for line in (run.path / "evals.jsonl").read_text().splitlines()]
    assert all(("experts_asked" in row) == (row["name"] == "router") for row in rows)
    assert evaluate_run(run.path, device="cpu")["experts_asked"] == rows[-1]["experts_asked"]
    model, test = lt.load(run.path, device="cpu"), build.dataset(recipe.data).test
    images = test.images / 255
    with torch.no_grad():
        scores = model(images)
        output = model.model((images - model.mean) / model.std)
        model.model.head, whole = model.model.head.head, model.model.head
        raw = model.model((images - model.mean) / model.std).scores
        model.model.head = whole
    asked = experts_asked(output.routes)
    assert float(asked.double().mean()) == pytest.approx(rows[-1]["experts_asked"])
    torch.testing.assert_close(scores, 30 * of_those_asked(raw, output.routes).mean(1))
    top1 = 100 * float((scores.argmax(1) == test.targets).double().mean())
    assert top1 == pytest.approx(rows[-1]["top1"])


def test_routers_that_tell_images_apart_choose_for_each(run, recipe) -> None:
    """So short a training may ask the same experts of all: the thresholds go where half the images pass."""
    model, test = lt.load(run.path, device="cpu"), build.dataset(recipe.data).test
    images = test.images / 255
    with torch.no_grad():
        routes = model.model((images - model.mean) / model.std).routes
        for decide, route in zip(model.model.head.decide, routes.unbind(1), strict=True):
            decide.bias -= route.median()
        scores, output = model(images), model.model((images - model.mean) / model.std)
        model.model.head = model.model.head.head
        raw = model.model((images - model.mean) / model.std).scores
    asked = experts_asked(output.routes)
    assert set(asked.tolist()) == {1, 2, 3}
    for image in range(0, len(images), 7):
        mean = 30 * raw[image, : int(asked[image])].mean(0)
        torch.testing.assert_close(scores[image], mean, rtol=1e-4, atol=1e-4)


def test_features_and_predictions_of_such_a_run(run, tmp_path: Path) -> None:
    tensors = load_file(features(run.path, device="cpu"))
    predictions = load_file(run.path / "predictions.safetensors")["logits"]
    torch.testing.assert_close(tensors["test_scores"], predictions, atol=2e-2, rtol=2e-2)
    Image.new("RGB", (8, 8), (90, 90, 90)).save(tmp_path / "one.png")
    (made,) = lt.predict(run.path, [tmp_path / "one.png"], device="cpu")
    assert made.error is None and sum(made.probabilities.values()) == pytest.approx(1)


def test_frozen_statistics_stay(run) -> None:
    model = lt.load(run.path, device="cpu")
    moved = [module.num_batches_tracked for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert {int(number) for number in moved} == {24}
