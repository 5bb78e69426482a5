"""Views of an image, contrasted models in the loop, and what a head of targets learns beside the gradient."""

from __future__ import annotations

import pytest
import torch

from longtail import build
from longtail.engine import graphs, trainable
from longtail.engine.distributed import World
from longtail.engine.feed import Feed
from longtail.engine.fit import train
from longtail.engine.load import evaluate_run, load
from longtail.engine.retrain import retrain
from longtail.engine.step import Step
from longtail.errors import Stopped, UsageError
from longtail.keys import Key
from longtail.models import Contrasted as Model
from longtail.recipe import (
    Backbone,
    Contrasted,
    CrossEntropy,
    HybridContrastive,
    Mixup,
    Sampling,
    TargetedContrastive,
)
from longtail.recipes.retraining import Choices, plan

CPU = torch.device("cpu")


def model(against, **changes):
    return Contrasted(backbone=Backbone(name="resnet8"), against=against, width=16, **changes)


@pytest.fixture
def hybrid(tiny):
    def made(among="samples", **changes):
        given = {
            "paired": Sampling(rule="class_balanced"),
            "views": 2,
            "loss": HybridContrastive(among=among),
        }
        return tiny.recipe(tiny.stage(**(given | changes)), model=model(among))

    return made


@pytest.fixture
def tsc(tiny):
    def made(**changes):
        first = tiny.stage(**({"views": 2, "loss": TargetedContrastive()} | changes))
        second = tiny.stage("classifier", loss=CrossEntropy(), head="linear", **tiny.HEAD)
        return tiny.recipe(first, second, model=model("targets", every=2))

    return made


def feed_of(recipe, rank=0, size=1):
    return Feed(World(CPU, rank, size), recipe, build.dataset(recipe.data))


def batches(recipe, epoch=0, start=0, rank=0, size=1):
    stage = recipe.stages[0]
    return list(feed_of(recipe, rank, size).epoch(stage, Key(recipe.seed).fold(stage.name), epoch, start))


def stepper(recipe):
    stage = recipe.stages[0]
    data = build.dataset(recipe.data)
    net = build.model(recipe.model, len(data.names), Key(0))
    trainable.select(net, stage)
    optimizer = build.optimizer(stage.optimizer, trainable.groups(net, stage), CPU)
    step = Step(World(CPU), recipe, stage, net, build.loss(stage.loss, data.counts), optimizer)
    step.prepare(0.01, Key(0))
    return step, net


# -------------------------------------------------------------------------------------------------- views


def test_views_are_the_same_images_with_draws_of_their_own(tiny, tsc):
    one_view = tiny.recipe(tiny.stage())
    for two, one in zip(batches(tsc(), epoch=1), batches(one_view, epoch=1), strict=True):
        size = len(one[2].target)
        for values in (two[2].target, two[2].positions):
            assert torch.equal(values[:size], values[size:])
        assert torch.equal(two[2].positions[:size], one[2].positions)
        first, second = two[1].images.split(size)
        assert torch.equal(first, one[1].images), "the first view is what a single one would be"
        differ = (first != second).flatten(1).any(1).float().mean()
        assert differ > 0.8, "nine offsets of a crop: one image in nine looks the same"
        assert two[3] == one[3] == 1.0


def test_an_epoch_begun_later_has_the_same_views(tsc):
    for (s, mine, _, w), (t, other, _, v) in zip(
        batches(tsc(), 1)[1:], batches(tsc(), 1, start=1), strict=True
    ):
        assert (s, w) == (t, v) and torch.equal(mine.images, other.images)


def test_two_processes_share_out_every_view(hybrid):
    whole = batches(hybrid(batch_size=66), 1)
    parts = [batches(hybrid(batch_size=66), 1, rank=rank, size=2) for rank in range(2)]
    for (_, mixture, batch, _), *halves in zip(whole, *parts, strict=True):
        size = len(batch.target) // 2
        for rank, (_, half, mine, _) in enumerate(halves):
            for view, part in zip(mixture.images.split(size), half.images.chunk(2), strict=True):
                assert torch.equal(part, view[rank::2])
            assert torch.equal(mine.positions[: len(mine.positions) // 2], batch.positions[:size][rank::2])
        shares = [share * (len(mine.target) > 0) for _, _, mine, share in halves]
        assert sum(shares) == pytest.approx(2.0)


def test_views_and_mixing_do_not_go_together(tiny):
    recipe = tiny.recipe(tiny.stage(views=2, mixing=Mixup()))
    with pytest.raises(UsageError, match="stage representation: views of an image are compared, not mixed"):
        feed_of(recipe).steps(recipe.stages[0])


def test_every_view_counts_as_an_image_seen(hybrid, whole, tiny):
    seen = [whole(recipe).read("final.json")["images_seen"] for recipe in (hybrid(), tiny.recipe())]
    assert seen[0] == 3 * seen[1]


# -------------------------------------------------------------------------------------------------- models


def test_a_pair_is_embedded_first_and_scored_second(hybrid):
    _, mixture, _, _ = batches(hybrid())[0]
    net = build.model(hybrid().model, 10, Key(0)).train()
    output = net(*mixture.inputs)
    features = (
        build.model(hybrid().model, 10, Key(0)).train().backbone(torch.cat([mixture.images, mixture.second]))
    )
    first, second = len(mixture.images), len(mixture.second)
    assert first == 2 * second
    torch.testing.assert_close(output.features, features[first:])
    torch.testing.assert_close(output.scores, net.head(features[first:]))
    torch.testing.assert_close(output.contrasted, net.head.embed(features[:first]))
    assert net.backbone.bn1.num_batches_tracked == 1, "one pass, the statistics of all images"


@pytest.mark.parametrize("against", ["samples", "prototypes", "targets"])
def test_at_test_time_there_are_scores_alone(against):
    net = build.model(model(against), 10, Key(0)).eval()
    images = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    output = net(images)
    assert output.scores.shape == (3, 10) and output.features.shape == (3, 64) and output.contrasted is None
    assert torch.equal(output.scores, net.head(net.backbone(images)))


@pytest.mark.parametrize("against", ["samples", "prototypes", "targets"])
def test_what_embeds_learns_with_the_backbone(tiny, against):
    net = build.model(model(against), 10, Key(0))
    parts = {name: trainable.part_of(name, net) for name, _ in net.named_parameters()}
    head = {name for name, part in parts.items() if part == "head"}
    assert head == (set() if against == "targets" else {"head.weight", "head.bias"})
    for kind in ("scaled", "aligned"):  # wrapped, they stay where they are
        wrapped = build.model(model(against), 10, Key(0))
        trainable.reshape_head(wrapped, tiny.stage(head=kind), Key(1))
        inner = {name for name, _ in wrapped.named_parameters() if ".projection." in name}
        assert inner and {trainable.part_of(name, wrapped) for name in inner} == {"backbone"}
    trainable.reshape_head(net, tiny.stage(head="linear"), Key(1))
    assert isinstance(net, Model) and {name for name, _ in net.head.named_parameters()} == {"weight", "bias"}
    assert net.train()(torch.rand(2, 3, 8, 8)).contrasted is None


@pytest.mark.parametrize(
    ("epoch", "embeds", "classifies"), [(0, True, False), (1, True, True)], ids=["first", "second"]
)
@pytest.mark.parametrize("among", ["samples", "prototypes"])
def test_in_the_first_epoch_only_the_projection_learns(hybrid, among, epoch, embeds, classifies):
    recipe = hybrid(among)
    step, net = stepper(recipe)
    _, mixture, _, share = batches(recipe, epoch)[0]
    step(mixture, share, progress=0.0)
    grads = {name: bool(p.grad.any()) for name, p in net.named_parameters() if p.grad is not None}
    assert grads["head.projection.weight"] == embeds and grads["head.weight"] == classifies
    assert grads.get("head.prototypes", embeds) == embeds and grads["backbone.conv1.weight"]


# ------------------------------------------------------------------------------------------------- targets


def test_a_head_of_targets_follows_every_batch_after_its_loss(tsc):
    recipe = tsc()
    step, net = stepper(recipe)
    for number, (_, mixture, _, share) in enumerate(batches(recipe), 1):
        before = net.head.centres.clone()
        step(mixture, share, progress=0.0)
        assert int(net.head.seen) == number
        assert not torch.equal(net.head.centres, before)
    assert not net.head.centres.requires_grad
    assert sorted(net.head.given.tolist()) == list(range(10))
    assert graphs.captured(step) is step, "what it decides on the host cannot be captured"


def test_an_empty_part_of_a_batch_is_told_as_nothing(tsc):
    step, net = stepper(tsc())
    _, mixture, _, _ = batches(tsc())[0]
    empty = mixture._replace(images=mixture.images[:0], target=mixture.target[:0])
    assert float(step(empty, 1.0, progress=0.0)) == 0
    assert int(net.head.seen) == 1 and not net.head.centres.any()
    assert all(p.grad is not None for p in net.parameters()), "or other processes would wait for it"


@pytest.mark.parametrize("at", [1, 4, 6, 9])
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_run_with_targets_goes_on_exactly(tiny, tsc, whole, tmp_path, at, how):
    expected = tiny.Killed if how == "killed" else Stopped
    with tiny.interrupted(at, how), pytest.raises(expected):
        train(tsc(), out=tmp_path / "run")
    assert tiny.different(train(tsc(), out=tmp_path / "run"), whole(tsc())) == []


def test_targets_are_given_anew_on_the_way(tsc, whole):
    """Or a run that is resumed exactly would prove nothing of the giving."""
    from longtail.run import checkpoint

    run = whole(tsc())
    state = checkpoint.load(checkpoint.folder_of(run.checkpoints, 6))[0]["model"]
    assert int(state["head.seen"]) == 6 and bool(state["head.centres"].any())
    assert state["head.given"].tolist() != list(range(10))
    assert "head.targets" not in run.read_tensors("model.safetensors"), "the classifier is linear in the end"


@pytest.mark.parametrize("at", [2, 3, 5])
@pytest.mark.parametrize("among", ["samples", "prototypes"])
def test_a_hybrid_run_goes_on_exactly(tiny, hybrid, whole, tmp_path, at, among):
    with tiny.interrupted(at, "stopped"), pytest.raises(Stopped):
        train(hybrid(among), out=tmp_path / "run")
    assert tiny.different(train(hybrid(among), out=tmp_path / "run"), whole(hybrid(among))) == []


# ---------------------------------------------------------------------------------------------- afterwards


@pytest.mark.parametrize("kind", ["hybrid", "tsc"])
def test_a_finished_run_is_evaluated_loaded_and_its_features_written(kind, request, whole):
    from longtail.engine.features import features

    run = whole(request.getfixturevalue(kind)())
    last = run.read("final.json")["last"]
    assert evaluate_run(run.path)["top1"] == last["top1"]
    predictor = load(run.path)
    images = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    assert predictor(images).shape == (3, 10)
    written = features(run.path)
    assert written.is_file()


@pytest.mark.parametrize("technique", ["crt", "crt_decoupling", "lws", "ncm", "disalign", "logit_adjust"])
@pytest.mark.parametrize("kind", ["hybrid", "tsc"])
def test_its_first_stage_can_be_gone_on_from(kind, technique, request, tiny, whole, tmp_path):
    made = request.getfixturevalue(kind)()
    first = tiny.replace(made, stages=made.stages[:1])
    takes_epochs = technique not in ("ncm", "logit_adjust")
    after = plan(first, Choices(technique, epochs=1 if takes_epochs else None))
    run = retrain(whole(first).path, after.stages, out=tmp_path / "run", provenance=after.provenance)
    assert len(run.read("final.json")["last"]["hits"]) == 10
    assert evaluate_run(run.path)["top1"] == run.read("final.json")["last"]["top1"]


def test_recipes_that_cannot_be_are_refused_at_once(tiny, hybrid):
    with pytest.raises(ValueError, match="hybrid_contrastive needs a model contrasted against samples"):
        tiny.recipe(tiny.stage(loss=HybridContrastive()))
    with pytest.raises(ValueError, match="needs a model contrasted against prototypes"):
        tiny.replace(hybrid(), stages=hybrid("prototypes").stages)
    with pytest.raises(ValueError, match="targeted_contrastive takes one sampling"):
        stage = tiny.stage(loss=TargetedContrastive(), paired=Sampling())
        tiny.recipe(stage, model=model("targets"))
    with pytest.raises(ValueError, match="compares images, none are mixed"):
        hybrid(paired=None, mixing=Mixup())
