"""Stages that draw two batches (BBN): what they draw, how it is weighed, and that no step of it is lost."""

from __future__ import annotations

import math

import pytest
import torch

from longtail import build
from longtail.data.mixing import Mixture
from longtail.engine import graphs, schedule, trainable
from longtail.engine.distributed import World
from longtail.engine.feed import Feed, pair
from longtail.engine.fit import train
from longtail.engine.step import Step
from longtail.errors import Stopped, UsageError
from longtail.keys import Key
from longtail.losses import CrossEntropy, Mixed
from longtail.recipe import Backbone, ManifoldMixup, Mixup, Sampling, TwoBranch

CPU = torch.device("cpu")


@pytest.fixture
def bbn(tiny):
    def made(**changes):
        stage = tiny.stage(**({"paired": Sampling(rule="reverse")} | changes))
        return tiny.recipe(stage, model=TwoBranch(backbone=Backbone(name="resnet8")))

    return made


@pytest.fixture
def feed_of():
    def made(recipe, rank=0, size=1):
        return Feed(World(CPU, rank, size), recipe, build.dataset(recipe.data))

    return made


def batches(feed, recipe, epoch, start=0):
    stage = recipe.stages[0]
    return list(feed.epoch(stage, Key(recipe.seed).fold(stage.name), epoch, start))


def test_alpha_starts_at_one_and_ends_near_zero():
    """The equation counts epochs from 1: alpha = 1 - ((epoch - 1) / T)^2."""
    for total in (1, 2, 200):
        given = [schedule.first_weight(epoch - 1, total) for epoch in range(1, total + 1)]
        assert given == [1 - ((epoch - 1) / total) ** 2 for epoch in range(1, total + 1)]
    assert given[0] == 1 and given[-1] == 1 - (199 / 200) ** 2 and given == sorted(given, reverse=True)


def test_a_pair_is_two_batches_of_one_size_with_the_weight_of_the_epoch(bbn, feed_of):
    recipe = bbn()
    feed = feed_of(recipe)
    for epoch, alpha in ((0, 1.0), (1, 0.75)):
        for _, mixture, batch, _ in batches(feed, recipe, epoch):
            assert mixture.second.shape == mixture.images.shape
            assert torch.equal(mixture.images, batch.images) and torch.equal(
                mixture.target.first, batch.target
            )
            assert float(mixture.target.weight) == alpha
            assert mixture.inputs == (mixture.images, mixture.second, mixture.target.weight)


def test_the_second_batch_is_drawn_by_its_own_rule(bbn, feed_of):
    recipe = bbn()
    feed = feed_of(recipe)
    counts = feed.data.counts.double()
    first, second = (torch.zeros(len(counts), dtype=torch.float64) for _ in range(2))
    for epoch in range(20):
        for _, mixture, _, _ in batches(feed, recipe, epoch):
            first += torch.bincount(mixture.target.first, minlength=len(counts))
            second += torch.bincount(mixture.target.second, minlength=len(counts))
    assert torch.equal(first / 20, counts)
    expected = (1 / counts) / (1 / counts).sum()
    drawn = second.sum()
    error = (expected * (1 - expected) / drawn).sqrt()
    assert bool(((second / drawn - expected).abs() < 4 * error).all())


def test_an_epoch_begun_later_has_the_same_pairs(bbn, feed_of):
    recipe = bbn()
    feed = feed_of(recipe)
    for (s, mine, _, w), (t, other, _, v) in zip(
        batches(feed, recipe, 1)[1:], batches(feed, recipe, 1, start=1)
    ):
        assert (s, w) == (t, v)
        assert torch.equal(mine.second, other.second) and torch.equal(mine.images, other.images)
        assert torch.equal(mine.target.second, other.target.second)


def test_two_processes_share_out_both_batches(bbn, feed_of):
    recipe = bbn()
    whole = batches(feed_of(recipe), recipe, 1)
    parts = [batches(feed_of(recipe, rank, 2), recipe, 1) for rank in range(2)]
    for (_, mixture, _, _), *halves in zip(whole, *parts):
        for rank, (_, half, _, _) in enumerate(halves):
            assert torch.equal(half.target.first, mixture.target.first[rank::2])
            assert torch.equal(half.target.second, mixture.target.second[rank::2])
            assert torch.equal(half.second, mixture.second[rank::2])


@pytest.mark.parametrize("alpha", [1.0, 0.75, 0.0])
def test_the_loss_is_that_of_both_batches_by_hand(alpha):
    source = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 4, generator=source, dtype=torch.float64)
    common, rare = [0, 1, 0], [3, 3, 2]
    expected = 0.0
    for row, c, r in zip(scores.tolist(), common, rare):
        total = math.log(sum(math.exp(value) for value in row))
        expected += (alpha * (total - row[c]) + (1 - alpha) * (total - row[r])) / 3
    target = Mixed(torch.tensor(common), torch.tensor(rare), torch.tensor(alpha, dtype=torch.float64))
    assert float(CrossEntropy()(scores, target)) == pytest.approx(expected, rel=1e-12)


def test_a_step_gives_the_model_the_pair_and_at_alpha_one_the_second_branch_learns_nothing(bbn, feed_of):
    recipe = bbn()
    feed, stage = feed_of(recipe), recipe.stages[0]
    for epoch, learns in ((0, False), (1, True)):
        model = build.model(recipe.model, len(feed.data.names), Key(0))
        groups = trainable.groups(model, stage)
        step = Step(
            World(CPU), recipe, stage, model, CrossEntropy(), build.optimizer(stage.optimizer, groups, CPU)
        )
        step.prepare(0.0, Key(0))
        _, mixture, _, share = batches(feed, recipe, epoch)[0]
        step(mixture, share, progress=0.0)
        touched = [bool(p.grad.any()) for p in model.backbone.branches[1].parameters() if p.grad is not None]
        assert any(touched) == learns


def test_a_captured_step_holds_every_tensor_of_a_pair(bbn, feed_of):
    recipe = bbn()
    _, mixture, _, _ = batches(feed_of(recipe), recipe, 1)[0]
    held = graphs.tensors(mixture)
    again = graphs.rebuilt(mixture, held)
    assert len(held) == 5 and again.hidden is None
    for one, other in zip(graphs.tensors(again), held, strict=True):
        assert one is other
    single = Mixture(mixture.images, mixture.target.first)
    assert graphs.rebuilt(single, graphs.tensors(single)) == single


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_captured_pair_learns_as_an_eager_one(bbn, monkeypatch, tmp_path):
    recipe = bbn(epochs=4)
    captured = train(recipe, out=tmp_path / "captured", device="cuda")
    monkeypatch.setattr("longtail.engine.fit.captured", lambda step: step)
    eager = train(recipe, out=tmp_path / "eager", device="cuda")
    assert (captured.path / "steps.jsonl").read_bytes() == (eager.path / "steps.jsonl").read_bytes()


@pytest.mark.parametrize("at", [1, 3, 4, 6])
def test_a_stopped_run_of_pairs_goes_on_exactly(tiny, bbn, whole, tmp_path, at):
    with tiny.interrupted(at, "stopped"), pytest.raises(Stopped):
        train(bbn(), out=tmp_path / "run")
    assert tiny.different(train(bbn(), out=tmp_path / "run"), whole(bbn())) == []


def test_both_batches_count_as_seen(bbn, whole, tiny):
    seen = [whole(recipe).read("final.json")["images_seen"] for recipe in (bbn(), tiny.recipe())]
    assert seen[0] == 2 * seen[1]


def test_pairs_are_refused_where_nothing_can_take_them(tiny, bbn, feed_of):
    wrong = (
        tiny.recipe(tiny.stage(paired=Sampling())),
        bbn(mixing=Mixup()),
        bbn(paired=None, mixing=ManifoldMixup()),
    )
    for recipe in wrong:
        with pytest.raises(UsageError) as raised:
            feed_of(recipe).steps(recipe.stages[0])
        assert "stage representation" in str(raised.value) and "\n" not in str(raised.value)


def test_two_branches_take_mixup_and_no_pair(bbn, feed_of):
    recipe = bbn(paired=None, mixing=Mixup())
    mixture = batches(feed_of(recipe), recipe, 0)[0][1]
    assert mixture.second is None and mixture.inputs == (mixture.images,)


@pytest.mark.parametrize("head", ["kept", "restarted", "scaled", "aligned"])
def test_every_reshaped_head_fits_two_branches(tiny, bbn, head):
    model = build.model(bbn().model, 10, Key(0))
    trainable.reshape_head(model, tiny.stage(head=head), Key(1))
    assert model(torch.rand(2, 3, 8, 8)).scores.shape == (2, 10)


def test_a_pair_has_the_second_batchs_classes_second(bbn, feed_of):
    feed = feed_of(bbn())
    one, two = (next(feed.train.plain(size)) for size in (4, 4))
    made = pair(one, two._replace(target=two.target + 1), torch.tensor(0.25))
    assert torch.equal(made.target.second, made.target.first + 1)
