"""Stages that train nothing: what they compute, that they are exact under resume, and what refuses them."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy, linear, normalize

from longtail import build, heads, losses
from longtail.engine import posthoc, trainable
from longtail.engine.distributed import World
from longtail.engine.fit import train
from longtail.engine.load import evaluate_run, load
from longtail.errors import UsageError
from longtail.keys import Key
from longtail.recipe import (
    Backbone,
    Classifier,
    CrossEntropy,
    Digits,
    HeldOut,
    LogitAdjust,
    LongTail,
    NearestMean,
    Stage,
    TauNorm,
)

HERE = World(torch.device("cpu"))
LINEAR = Classifier(backbone=Backbone(name="resnet8"), head="linear")
HELD_OUT = Digits(longtail=LongTail(ratio=50), held_out=HeldOut(source="leftover"))


def stage_of(what, loss=None, name: str = "after") -> Stage:
    return Stage(name=name, loss=loss or CrossEntropy(), posthoc=what, epochs=0, trains=())


def applied(tiny, what, *, model=LINEAR, loss=None, data=HELD_OUT):
    """(network before, after, data, what was chosen) of one post-hoc stage on an untrained network."""
    recipe = tiny.recipe(tiny.stage(), stage_of(what, loss), model=model, data=data)
    dataset = build.dataset(recipe.data)
    before, after = (build.model(recipe.model, 10, Key(1)) for _ in range(2))
    chosen = posthoc.transform(HERE, recipe, recipe.stages[1], dataset, after)
    return before.eval(), after.eval(), dataset, chosen


def images_of(dataset) -> torch.Tensor:
    return dataset.test.images[:40].float() / 255


def test_tau_zero_keeps_the_weights_and_drops_the_bias(tiny) -> None:
    before, after, _, chosen = applied(tiny, TauNorm(taus=(0.0,)))
    assert torch.equal(after.head.weight, before.head.weight)
    assert before.head.bias is not None and after.head.bias is None
    assert chosen["tau"] == 0.0


def test_tau_one_gives_rows_of_length_one(tiny) -> None:
    _, after, _, _ = applied(tiny, TauNorm(taus=(1.0,)))
    assert torch.allclose(after.head.weight.norm(dim=1), torch.ones(10), atol=1e-6)


def test_the_rows_of_a_sweep_are_the_recalls_of_their_weights(tiny) -> None:
    """Slowly: recall per class that has held-out images, their mean, and the first best of the taus."""
    taus = (0.0, 0.5, 1.0, 2.0)
    before, after, dataset, chosen = applied(tiny, TauNorm(taus=taus))
    held = dataset.held_out
    recipe = tiny.recipe()
    batch = next(iter(build.batches(recipe.images, held, HERE.device, channels_last=True).plain(len(held))))
    with torch.no_grad():
        features = before(batch.images).features
    expected = []
    for tau in taus:
        rows = [
            [w / math.sqrt(sum(x * x for x in row)) ** tau for w in row]
            for row in before.head.weight.tolist()
        ]
        best = linear(features.double(), torch.tensor(rows, dtype=torch.float64)).argmax(1).tolist()
        recalls = []
        for label in sorted(set(held.targets.tolist())):
            mine = [i for i, target in enumerate(held.targets.tolist()) if target == label]
            recalls.append(sum(best[i] == label for i in mine) / len(mine))
        expected.append(100 * sum(recalls) / len(recalls))
    assert [row["balanced"] for row in chosen["sweep"]] == pytest.approx(expected)
    assert chosen["tau"] == taus[expected.index(max(expected))]
    assert torch.equal(after.head.weight, heads.tau_normalize(before.head.weight, chosen["tau"]))


def test_a_class_without_held_out_images_is_named_and_its_training_recall_noted(tiny, monkeypatch) -> None:
    recipe = tiny.recipe(model=LINEAR, data=HELD_OUT)
    dataset = build.dataset(recipe.data)
    kept = (dataset.held_out.targets != 0).nonzero().flatten()
    dataset = replace(dataset, held_out=dataset.held_out.select(kept))
    chosen = posthoc.transform(HERE, recipe, stage_of(TauNorm()), dataset, build.model(LINEAR, 10, Key(1)))
    assert chosen["unseen_classes"] == [0]
    assert all(0 <= row["unseen"] <= 100 for row in chosen["sweep"])


def test_tau_norm_on_a_cosine_head_is_a_no_op_and_refused(tiny) -> None:
    head, features = heads.Cosine(4, 3), torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    scores = head(features)
    for tau in (0.3, 1.0, 2.0):
        with torch.no_grad():
            head.weight.copy_(heads.tau_normalize(head.weight, tau))
        assert torch.allclose(head(features), scores, atol=1e-6)
    with pytest.raises(UsageError, match="changes nothing on a cosine head"):
        applied(tiny, TauNorm(), model=Classifier(backbone=LINEAR.backbone, head="cosine"))


def test_raw_anchors_at_tau_one_rank_as_the_cosines_do(tiny) -> None:
    cosine = Classifier(backbone=LINEAR.backbone, head="cosine")
    before, after, dataset, _ = applied(tiny, TauNorm(taus=(1.0,), source="raw_anchors"), model=cosine)
    with torch.no_grad():
        images = images_of(dataset)
        assert torch.equal(before(images).scores.argmax(1), after(images).scores.argmax(1))


def test_tau_norm_without_held_out_images_is_refused(tiny) -> None:
    with pytest.raises(UsageError, match=r"data\.held_out"):
        applied(tiny, TauNorm(), data=Digits(longtail=LongTail(ratio=50)))


def test_nearest_means_centred_and_normalised_by_hand() -> None:
    features = torch.tensor([[2.0, 0.0], [4.0, 0.0], [0.0, 2.0]])
    labels = torch.tensor([0, 0, 1])
    head = heads.NearestMean("cl2n").fit(features, labels, 2)
    center = [2.0, 2 / 3]
    unit = []
    for x, y in features.tolist():
        x, y = x - center[0], y - center[1]
        unit.append((x / math.hypot(x, y), y / math.hypot(x, y)))
    means = [((unit[0][0] + unit[1][0]) / 2, (unit[0][1] + unit[1][1]) / 2), unit[2]]
    query = (3.0, 1.0)
    x, y = query[0] - center[0], query[1] - center[1]
    x, y = x / math.hypot(x, y), y / math.hypot(x, y)
    distances = [(x - a) ** 2 + (y - b) ** 2 for a, b in means]
    scores = head(torch.tensor([query]))[0].tolist()
    assert scores[0] - scores[1] == pytest.approx(distances[1] - distances[0], abs=1e-6)


@pytest.mark.parametrize("kind", ["un", "l2n", "cl2n"])
def test_nearest_mean_takes_the_training_features(tiny, kind) -> None:
    before, after, dataset, chosen = applied(tiny, NearestMean(features=kind))
    recipe = tiny.recipe()
    batch = next(
        iter(build.batches(recipe.images, dataset.train, HERE.device, channels_last=True).plain(1000))
    )
    with torch.no_grad():
        features = before(batch.images).features
        prepared = features - features.mean(0) if kind == "cl2n" else features
        prepared = prepared if kind == "un" else normalize(prepared)
        means = torch.stack([prepared[batch.target == label].mean(0) for label in range(10)])
        nearest = (prepared[:, None] - means).square().sum(-1).argmin(1)
        assert (after(batch.images).scores.argmax(1) == nearest).float().mean() > 0.99
    assert chosen == {}


@pytest.mark.parametrize(("scale", "head"), [(1.0, "linear"), (30.0, "cosine")])
def test_adjusting_after_training_equals_the_shift_of_the_loss(tiny, scale, head) -> None:
    """The cross-entropy of adjusted logits z' = z - tau log pi, shifted by the loss, is that of z itself."""
    model = Classifier(backbone=LINEAR.backbone, head=head)
    before, after, dataset, _ = applied(
        tiny, LogitAdjust(tau=1.5), model=model, loss=CrossEntropy(scale=scale)
    )
    clean = losses.CrossEntropy(scale).logits
    with torch.no_grad():
        images = images_of(dataset)
        z, adjusted = clean(before(images).scores), clean(after(images).scores)
    prior = dataset.counts / dataset.counts.sum()
    for j in range(10):
        assert torch.allclose(adjusted[:, j], z[:, j] - 1.5 * math.log(prior[j]), atol=1e-4)
    target = dataset.test.targets[:40]
    shifted = losses.LogitAdjusted(dataset.counts, 1.5).train()(adjusted, target)
    assert shifted.item() == pytest.approx(cross_entropy(z, target).item(), abs=1e-5)


def test_aligned_heads_begin_where_the_formula_says() -> None:
    """DisAlign at initialisation: z' = (1 + k) z with k = sigmoid(0.1 sum of features); the order stays."""
    inner = heads.Linear(3, 4, generator=torch.Generator().manual_seed(2))
    head = heads.Aligned(inner, 3)
    features = torch.randn(6, 3, generator=torch.Generator().manual_seed(3))
    for row, scores, got in zip(
        features.tolist(), inner(features).tolist(), head(features).tolist(), strict=True
    ):
        confidence = 1 / (1 + math.exp(-0.1 * sum(row)))
        assert got == pytest.approx([(1 + confidence) * z for z in scores], abs=1e-6)


def test_scales_of_one_are_the_identity(tiny) -> None:
    model = build.model(LINEAR, 10, Key(1)).eval()
    images = torch.zeros(2, 3, 8, 8)
    before = model(images).scores
    trainable.reshape_head(model, tiny.stage("scales", head="scaled", trains=("scales",)), Key(0))
    assert torch.equal(model(images).scores, before)


def test_weights_of_the_reweighted_loss_follow_the_power_of_the_frequency() -> None:
    counts, rho = [50, 10, 2], 1.2
    raw = [(n / 62) ** -rho for n in counts]
    weights = [3 * w / sum(raw) for w in raw]
    scores, target = (
        torch.randn(5, 3, generator=torch.Generator().manual_seed(1)),
        torch.tensor([0, 1, 2, 0, 1]),
    )
    each = cross_entropy(2.0 * scores, target, reduction="none").tolist()
    mine = [weights[t] for t in target.tolist()]
    expected = sum(w * e for w, e in zip(mine, each, strict=True)) / sum(mine)
    got = losses.Reweighted(torch.tensor(counts), rho, 2.0).train()(scores, target)
    assert got.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("what", [TauNorm(), NearestMean(), LogitAdjust()], ids=lambda what: what.kind)
def test_a_run_that_ends_post_hoc_is_exact_under_resume_and_usable(tiny, tmp_path, what) -> None:
    recipe = tiny.recipe(tiny.stage(), stage_of(what), model=LINEAR, data=HELD_OUT)
    whole = train(recipe, out=tmp_path / "whole")
    with pytest.raises(tiny.Killed), tiny.interrupted(4, "killed"):
        train(recipe, out=tmp_path / "cut")
    cut = train(recipe, out=tmp_path / "cut")
    for name in ("evals.jsonl", "final.json", "model.safetensors", "predictions.safetensors"):
        assert (cut.path / name).read_bytes() == (whole.path / name).read_bytes(), name
    rows = [json.loads(line) for line in (whole.path / "evals.jsonl").read_text().splitlines()]
    assert [(row["stage"], row["epoch"]) for row in rows] == [(0, 1), (0, 2), (1, 0)]
    assert evaluate_run(whole.path)["hits"] == rows[-1]["hits"]
    assert load(whole.path)(torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))).shape == (
        2,
        10,
    )
    assert (whole.path / "choice_after.json").exists() == (what.kind == "tau_norm")


def test_a_stage_trains_or_is_post_hoc() -> None:
    for epochs, what in ((0, None), (1, LogitAdjust())):
        with pytest.raises(ValueError, match="at least one epoch, or has posthoc"):
            Stage(name="x", loss=CrossEntropy(), epochs=epochs, posthoc=what)
