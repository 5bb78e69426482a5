"""The meter against slow definitions in plain Python."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from longtail.metrics import Meter

COUNTS = [500, 101, 100, 60, 21, 20, 3]


def batch_of(images, classes, seed=0, spread=2.0):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(classes, (images,), generator=generator)
    logits = torch.randn(images, classes, generator=generator) * spread
    logits[torch.arange(images), targets] += 1.5
    return logits, targets


def measured(counts, logits, targets, **kwargs):
    meter = Meter(counts, **kwargs)
    meter.update(logits, targets)
    return meter.compute()


def mean(values):
    return sum(values) / len(values) if values else math.nan


def measures_by_hand(counts, logits, targets, bins=15):
    """Every measure from its definition, sample by sample."""
    rows, truth, classes = logits.double().tolist(), targets.tolist(), len(counts)
    guesses = [row.index(max(row)) for row in rows]
    softmax = [[math.exp(z - max(row)) for z in row] for row in rows]
    confidence = [max(row) / sum(row) for row in softmax]
    hits = [sum(t == g == j for t, g in zip(truth, guesses)) for j in range(classes)]
    totals = [truth.count(j) for j in range(classes)]
    seen = [j for j in range(classes) if totals[j]]
    recall = {j: 100 * hits[j] / totals[j] for j in seen}
    f1 = []
    for j in seen:
        predicted = guesses.count(j)
        precision = hits[j] / predicted if predicted else 0.0
        share = hits[j] / totals[j]
        f1.append(100 * 2 * precision * share / (precision + share) if hits[j] else 0.0)
    error = 0.0
    for b in range(bins):
        inside = [i for i, c in enumerate(confidence) if b / bins < c <= (b + 1) / bins]
        if inside:
            accuracy = mean([float(guesses[i] == truth[i]) for i in inside])
            error += len(inside) / len(rows) * abs(accuracy - mean([confidence[i] for i in inside]))
    values = list(recall.values())
    return {
        "top1": 100 * sum(hits) / len(truth),
        "balanced": mean(values),
        "many": mean([recall[j] for j in seen if counts[j] > 100]),
        "medium": mean([recall[j] for j in seen if 20 < counts[j] <= 100]),
        "few": mean([recall[j] for j in seen if counts[j] <= 20]),
        "macro_f1": mean(f1),
        "geometric_mean": math.prod(values) ** (1 / len(values)),
        "harmonic_mean": len(values) / sum(1 / v for v in values) if all(values) else 0.0,
        "worst": min(values),
        "ece": error,
        "loss": mean([math.log(sum(row)) + max(z) - z[t] for row, z, t in zip(softmax, rows, truth)]),
        "hits": hits,
        "totals": totals,
    }


def assert_same(found, expected, tolerance=1e-5):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=tolerance, abs=tolerance, nan_ok=True), name


@settings(deadline=None, max_examples=60)
@given(
    counts=st.lists(st.integers(1, 300), min_size=1, max_size=8),
    images=st.integers(1, 60),
    seed=st.integers(0, 1000),
    spread=st.sampled_from([0.1, 1.0, 5.0]),
)
def test_every_measure_is_its_definition(counts, images, seed, spread):
    logits, targets = batch_of(images, len(counts), seed, spread)
    assert_same(measured(counts, logits.double(), targets), measures_by_hand(counts, logits, targets))


def test_the_loss_is_the_mean_cross_entropy():
    logits, targets = batch_of(200, 7)
    expected = functional.cross_entropy(logits.double(), targets).item()
    assert measured(COUNTS, logits, targets)["loss"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("rule", "many", "medium", "few"),
    [
        ("paper", [0, 1], [2, 3, 4], [5, 6]),
        ("decoupling", [0, 1], [2, 3, 4, 5], [6]),
        ("lfme", [0, 1, 2], [3, 4], [5, 6]),
    ],
)
def test_the_shot_rule_decides_who_is_many_medium_and_few(rule, many, medium, few):
    logits, targets = batch_of(300, 7)
    found = measured(COUNTS, logits, targets, shot_rule=rule)
    recall = [100 * h / t for h, t in zip(found["hits"], found["totals"])]
    for name, members in [("many", many), ("medium", medium), ("few", few)]:
        assert found[name] == pytest.approx(mean([recall[j] for j in members]))


def test_an_empty_group_is_nan_and_not_zero():
    found = measured([500, 400], *batch_of(10, 2))
    assert math.isnan(found["few"]) and math.isnan(found["medium"]) and not math.isnan(found["many"])


def test_a_group_whose_classes_have_no_test_image_is_nan():
    found = measured([500, 3], torch.eye(2)[:1], torch.tensor([0]))
    assert math.isnan(found["few"]) and found["many"] == 100 and found["balanced"] == 100


def test_a_class_without_training_images_is_few():
    found = measured([500, 0], torch.eye(2), torch.tensor([0, 1]))
    assert found["few"] == 100


def test_nothing_measured_is_nan_everywhere():
    found = Meter(COUNTS).compute()
    assert found.pop("hits") == found.pop("totals") == [0] * 7
    assert all(math.isnan(value) for value in found.values())


def test_one_class_never_found_zeroes_both_means():
    logits = torch.tensor([[9.0, 0.0], [9.0, 0.0]])
    found = measured([5, 5], logits, torch.tensor([0, 1]))
    assert found["geometric_mean"] == found["harmonic_mean"] == found["worst"] == 0
    assert found["macro_f1"] == pytest.approx(100 * (2 / 3) / 2)


def test_perfect_confident_predictions_are_calibrated():
    found = measured([5, 5], torch.tensor([[50.0, 0.0], [0.0, 50.0]]), torch.tensor([0, 1]))
    assert found["ece"] == pytest.approx(0, abs=1e-12) and found["top1"] == 100


def test_confident_errors_have_calibration_error_one():
    found = measured([5, 5], torch.tensor([[50.0, 0.0], [0.0, 50.0]]), torch.tensor([1, 0]))
    assert found["ece"] == pytest.approx(1) and found["top1"] == 0


def test_a_model_that_diverged_is_not_calibrated():
    logits = torch.tensor([[50.0, 0.0], [math.nan, math.nan]])
    found = measured([5, 5], logits, torch.tensor([0, 1]))
    assert math.isnan(found["ece"]) and math.isnan(found["loss"])


def test_a_confidence_on_an_edge_belongs_to_the_lower_bin():
    """Two bins; confidences 0.5 (wrong) and 0.9 (right): apart, |0 - .5| / 2 + |1 - .9| / 2."""
    logits = torch.tensor([[0.0, 0.0], [math.log(9.0), 0.0]], dtype=torch.float64)
    assert measured([5, 5], logits, torch.tensor([1, 0]), bins=2)["ece"] == pytest.approx(0.3)


def test_batches_add_up_to_the_whole():
    logits, targets = batch_of(101, 7)
    meter = Meter(COUNTS)
    for part in torch.arange(101).split(17):
        meter.update(logits[part], targets[part])
    assert_same(meter.compute(), measured(COUNTS, logits, targets), tolerance=1e-12)


def test_an_empty_batch_changes_nothing():
    meter = Meter(COUNTS)
    meter.update(*batch_of(20, 7))
    before = meter.compute()
    meter.update(torch.zeros(0, 7), torch.zeros(0, dtype=torch.int64))
    assert_same(meter.compute(), before, tolerance=0)


def test_merged_meters_are_one_meter():
    logits, targets = batch_of(101, 7)
    first, second = Meter(COUNTS), Meter(COUNTS)
    first.update(logits[:40], targets[:40])
    second.update(logits[40:], targets[40:])
    first.merge(second.tensors())
    assert_same(first.compute(), measured(COUNTS, logits, targets), tolerance=1e-12)
    whole = Meter(COUNTS)
    whole.update(logits, targets)
    assert torch.equal(first.confusion(), whole.confusion())
    alone = Meter(COUNTS)
    alone.merge(whole)  # a meter of the same process needs no detour
    assert_same(alone.compute(), whole.compute(), tolerance=0)


@pytest.mark.parametrize("other", [Meter([500, 100, 6]), Meter([500, 100, 5], shot_rule="lfme")])
def test_a_meter_of_other_classes_is_not_merged(other):
    meter = Meter([500, 100, 5])
    meter.update(*batch_of(20, 3))
    before = meter.compute()
    with pytest.raises(ValueError, match="other counts"):
        meter.merge(other)
    assert_same(meter.compute(), before, tolerance=0)


def test_lists_in_place_of_tensors_are_named():
    logits, targets = batch_of(20, 7)
    with pytest.raises(TypeError, match=r"logits must be a tensor \[B, 7\], got list"):
        Meter(COUNTS).update(logits.tolist(), targets)
    with pytest.raises(TypeError, match=r"targets must be a tensor \[B\], got ndarray"):
        Meter(COUNTS).update(logits, targets.numpy())


def test_adding_to_the_tensors_in_place_is_an_all_reduce():
    meter = Meter(COUNTS)
    meter.update(*batch_of(20, 7))
    alone = meter.compute()
    for values in meter.tensors().values():
        values *= 2  # a second process with the same images
    assert meter.compute()["totals"] == [2 * t for t in alone["totals"]]
    assert meter.compute()["top1"] == alone["top1"]


def test_meters_of_different_shape_do_not_merge():
    with pytest.raises(ValueError, match="other classes or bins"):
        Meter([5, 5]).merge(Meter([5, 5, 5]).tensors())
    with pytest.raises(ValueError, match="other classes or bins"):
        Meter([5, 5]).merge(Meter([5, 5], bins=10).tensors())


def test_confusion_has_true_rows_and_predicted_columns():
    logits, targets = batch_of(300, 7)
    meter = Meter(COUNTS)
    meter.update(logits, targets)
    expected = [[0] * 7 for _ in range(7)]
    for truth, guess in zip(targets.tolist(), logits.argmax(1).tolist()):
        expected[truth][guess] += 1
    assert meter.confusion().tolist() == expected


def test_confusion_ends_at_a_thousand_classes_and_hits_do_not():
    meter = Meter([5] * 1001)
    meter.update(*batch_of(50, 1001))
    assert sum(meter.compute()["totals"]) == 50
    with pytest.raises(ValueError, match="up to 1000 classes; here are 1001"):
        meter.confusion()
    assert Meter([5] * 1000).confusion().shape == (1000, 1000)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_logits_are_measured_in_float32(dtype):
    logits, targets = batch_of(100, 7)
    logits = logits.to(dtype)
    assert_same(measured(COUNTS, logits, targets), measured(COUNTS, logits.float(), targets), tolerance=0)


def test_measures_are_plain_numbers():
    for value in measured(COUNTS, *batch_of(20, 7)).values():
        assert type(value) is float or {type(item) for item in value} == {int}


def test_update_keeps_no_graph():
    logits, targets = batch_of(20, 7)
    meter = Meter(COUNTS)
    meter.update(logits.requires_grad_(), targets)
    assert not any(values.requires_grad for values in meter.tensors().values())


@pytest.mark.parametrize(
    ("logits", "targets", "message"),
    [
        (torch.zeros(2, 3), torch.tensor([0, 1]), r"\[B, 7\], not \[2, 3\]"),
        (torch.zeros(7), torch.tensor(0), r"\[B, 7\]"),
        (torch.zeros(2, 7), torch.tensor([0]), r"int64 \[2\]"),
        (torch.zeros(2, 7), torch.tensor([0.0, 1.0]), "int64"),
        (torch.zeros(2, 7), torch.tensor([0, 7]), "0..6, found 0..7"),
        (torch.zeros(2, 7), torch.tensor([-1, 3]), "0..6, found -1..3"),
    ],
)
def test_wrong_batches_are_named(logits, targets, message):
    with pytest.raises(ValueError, match=message):
        Meter(COUNTS).update(logits, targets)


def test_wrong_settings_are_named():
    with pytest.raises(ValueError, match="bins"):
        Meter(COUNTS, bins=0)
    with pytest.raises(ValueError, match="shot rule"):
        Meter(COUNTS, shot_rule="ours")


def test_update_never_reads_the_device():
    """On the meta device no value exists, so any look at one raises."""
    meter = Meter(COUNTS).to("meta")
    meter.update(torch.zeros(4, 7, device="meta"), torch.zeros(4, dtype=torch.int64, device="meta"))
    assert all(values.device.type == "meta" for values in meter.tensors().values())
    assert {values.dtype for values in meter.tensors().values()} == {torch.int64, torch.float64}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_update_never_waits_for_a_cuda_device():
    logits, targets = batch_of(300, 7)
    meter = Meter(COUNTS).to("cuda")
    on_device = logits.cuda(), targets.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        meter.update(*on_device)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert_same(meter.compute(), measured(COUNTS, logits, targets))
