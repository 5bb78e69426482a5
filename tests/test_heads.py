"""Heads against slow references written from the equations in plain Python."""

from __future__ import annotations

import math

import pytest
import torch

from longtail import heads


def cosine_by_hand(features, anchors):
    rows = []
    for feature in features.tolist():
        row = []
        for anchor in anchors.tolist():
            dot = sum(a * b for a, b in zip(feature, anchor))
            row.append(dot / math.sqrt(sum(a * a for a in feature)) / math.sqrt(sum(b * b for b in anchor)))
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_cosine_is_the_cosine_of_feature_and_anchor():
    head = heads.Cosine(7, 5, generator=seeded())
    features = torch.randn(11, 7, generator=seeded(1))
    torch.testing.assert_close(
        head(features).double(), cosine_by_hand(features, head.weight), atol=1e-6, rtol=0
    )


def test_cosine_ignores_the_lengths_of_features_and_anchors():
    head = heads.Cosine(7, 5, generator=seeded()).double()
    features = torch.randn(11, 7, generator=seeded(1), dtype=torch.float64)
    before = head(features)
    with torch.no_grad():
        head.weight *= torch.tensor([0.1, 1.0, 3.0, 50.0, 1e4])[:, None]
    torch.testing.assert_close(head(features * 37), before, atol=1e-12, rtol=0)


def test_cosine_never_leaves_the_interval():
    head = heads.Cosine(64, 64, generator=seeded())
    scores = head(head.weight.detach() * 3)  # every feature lies on an anchor
    assert scores.abs().max() <= 1
    torch.testing.assert_close(scores.diagonal(), torch.ones(64), atol=1e-6, rtol=0)


def test_cosine_starts_with_unit_anchors_spread_like_a_rescaled_uniform():
    weight = heads.Cosine(64, 1000, generator=seeded()).weight.detach()
    torch.testing.assert_close(weight.norm(dim=1), torch.ones(1000))
    raw = torch.empty(1000, 64).uniform_(-1, 1, generator=seeded())
    torch.testing.assert_close(weight, raw / raw.norm(dim=1, keepdim=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_zero_features_give_cosine_zero_and_finite_gradients(dtype):
    head = heads.Cosine(4, 3, generator=seeded()).to(dtype)
    features = torch.zeros(2, 4, dtype=dtype, requires_grad=True)
    scores = head(features)
    assert torch.equal(scores, torch.zeros(2, 3))
    (scores * torch.tensor([1.0, -2.0, 3.0])).sum().backward()
    assert features.grad.isfinite().all() and head.weight.grad.isfinite().all()


def test_a_zero_anchor_gives_cosine_zero_and_finite_gradients():
    head = heads.Cosine(4, 3, generator=seeded())
    with torch.no_grad():
        head.weight[1] = 0
    features = torch.randn(2, 4, generator=seeded(1), requires_grad=True)
    scores = head(features)
    assert torch.equal(scores[:, 1], torch.zeros(2))
    scores.square().sum().backward()
    assert features.grad.isfinite().all() and head.weight.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_cosine_of_half_features_is_computed_in_float32(dtype):
    head = heads.Cosine(64, 10, generator=seeded()).to(dtype)
    features = torch.randn(8, 64, generator=seeded(1)).to(dtype)
    scores = head(features)
    assert scores.dtype == torch.float32
    reference = cosine_by_hand(features.double(), head.weight.double())
    torch.testing.assert_close(scores.double(), reference, atol=2e-7, rtol=0)


def test_cosine_is_float32_under_autocast():
    head = heads.Cosine(64, 10, generator=seeded())
    features = torch.randn(8, 64, generator=seeded(1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = head(features)
    assert torch.equal(inside, head(features))


def test_cosine_passes_gradcheck():
    head = heads.Cosine(4, 3, generator=seeded()).double()
    features = torch.randn(5, 4, generator=seeded(1), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda f, w: torch.func.functional_call(head, {"weight": w}, f), (features, head.weight)
    )


def test_linear_is_weight_times_features_plus_bias():
    head = heads.Linear(3, 2, generator=seeded()).double().requires_grad_(False)
    features = torch.randn(4, 3, generator=seeded(1), dtype=torch.float64)
    for i, feature in enumerate(features):
        for j in range(2):
            by_hand = sum(float(feature[k] * head.weight[j, k]) for k in range(3)) + float(head.bias[j])
            assert head(features)[i, j].item() == pytest.approx(by_hand, abs=1e-12)


def test_linear_without_bias_has_one_parameter():
    assert [name for name, _ in heads.Linear(3, 2, bias=False).named_parameters()] == ["weight"]


def test_linear_starts_within_one_over_root_of_the_features():
    head = heads.Linear(100, 500, generator=seeded())
    assert 0.099 < head.weight.abs().max() <= 0.1 and 0.09 < head.bias.abs().max() <= 0.1


@pytest.mark.parametrize("kind", [heads.Linear, heads.Cosine])
def test_reset_parameters_draws_what_a_new_head_would_have(kind):
    head = kind(6, 4, generator=seeded(1))
    head.reset_parameters(seeded(2))
    fresh = kind(6, 4, generator=seeded(2))
    assert all(torch.equal(a, b) for a, b in zip(head.parameters(), fresh.parameters()))


@pytest.mark.parametrize("kind", [heads.Linear, heads.Cosine])
def test_no_features_or_no_classes_is_refused(kind):
    for sizes in [(0, 3), (3, 0)]:
        with pytest.raises(ValueError, match="at least one"):
            kind(*sizes)


@pytest.mark.parametrize("kind", [heads.Linear, heads.Cosine])
def test_scales_of_one_change_nothing(kind):
    inner = kind(6, 4, generator=seeded())
    features = torch.randn(5, 6, generator=seeded(1))
    assert torch.equal(heads.Scaled(inner)(features), inner(features))


def test_scales_multiply_the_scores_bias_included():
    inner = heads.Linear(6, 4, generator=seeded())
    head = heads.Scaled(inner)
    with torch.no_grad():
        head.scales.copy_(torch.tensor([0.5, 1.0, 2.0, -1.0]))
    features = torch.randn(5, 6, generator=seeded(1))
    assert torch.equal(head(features), inner(features) * torch.tensor([0.5, 1.0, 2.0, -1.0]))


def test_the_scales_learn_alone_when_the_inner_head_is_frozen():
    inner = heads.Cosine(6, 4, generator=seeded()).requires_grad_(False)
    head = heads.Scaled(inner)
    head(torch.randn(5, 6, generator=seeded(1))).square().sum().backward()
    assert inner.weight.grad is None and head.scales.grad.abs().sum() > 0


@pytest.mark.parametrize("wrap", [heads.Scaled, lambda head: heads.Aligned(head, 3)])
def test_wrapping_something_without_classes_is_refused(wrap):
    with pytest.raises(TypeError, match="num_classes"):
        wrap(torch.nn.ReLU())


def test_aligned_is_the_equation_of_disalign():
    inner = heads.Linear(3, 2, generator=seeded()).double()
    head = heads.Aligned(inner, 3).double().requires_grad_(False)
    with torch.no_grad():
        head.magnitude.copy_(torch.tensor([0.7, -0.2]))
        head.margin.copy_(torch.tensor([0.3, 1.5]))
        head.confidence_bias.fill_(0.4)
    features = torch.randn(4, 3, generator=seeded(1), dtype=torch.float64)
    scores = head(features)
    for i in range(4):
        confidence = 1 / (1 + math.exp(-(0.1 * float(features[i].sum()) + 0.4)))
        for j in range(2):
            score = float(inner(features)[i, j])
            by_hand = (1 + confidence * [0.7, -0.2][j]) * score + confidence * [0.3, 1.5][j]
            assert scores[i, j].item() == pytest.approx(by_hand, abs=1e-8)


def test_aligned_starts_without_changing_any_decision():
    inner = heads.Linear(6, 4, generator=seeded())
    features = torch.randn(50, 6, generator=seeded(1))
    assert torch.equal(heads.Aligned(inner, 6)(features).argmax(1), inner(features).argmax(1))


def test_tau_zero_keeps_the_weights_and_tau_one_gives_unit_rows():
    weight = torch.randn(5, 8, generator=seeded(), dtype=torch.float64)
    assert torch.equal(heads.tau_normalize(weight, 0.0), weight)
    torch.testing.assert_close(
        heads.tau_normalize(weight, 1.0).norm(dim=1), torch.ones(5, dtype=torch.float64)
    )


def test_tau_divides_by_the_length_to_that_power():
    weight = torch.tensor([[3.0, 4.0], [0.0, 2.0], [0.0, 0.0]])
    expected = torch.tensor([[3 / 5**0.7, 4 / 5**0.7], [0.0, 2 / 2**0.7], [0.0, 0.0]])
    torch.testing.assert_close(heads.tau_normalize(weight, 0.7), expected)


def test_tau_normalisation_is_a_no_op_on_a_cosine_head():
    head = heads.Cosine(8, 5, generator=seeded())
    with torch.no_grad():
        head.weight *= torch.arange(1, 6)[:, None]
    features = torch.randn(20, 8, generator=seeded(1))
    before = head(features)
    with torch.no_grad():
        head.weight.copy_(heads.tau_normalize(head.weight, 0.8))
    torch.testing.assert_close(head(features), before)


def test_tau_normalisation_wants_a_matrix():
    with pytest.raises(ValueError, match=r"\[C, D\]"):
        heads.tau_normalize(torch.ones(3), 1.0)


def unit_by_hand(vector):
    length = math.sqrt(sum(v * v for v in vector))
    return [v / length for v in vector]


def nearest_mean_by_hand(kind, distance, features, labels, classes, queries):
    features, labels, queries = features.tolist(), labels.tolist(), queries.tolist()
    size = len(features[0])
    center = [sum(f[d] for f in features) / len(features) for d in range(size)]

    def prepare(vector):
        if kind == "cl2n":
            vector = [v - c for v, c in zip(vector, center)]
        return vector if kind == "un" else unit_by_hand(vector)

    means = []
    for j in range(classes):
        mine = [prepare(f) for f, label in zip(features, labels) if label == j]
        means.append([sum(m[d] for m in mine) / len(mine) for d in range(size)])
    rows = []
    for query in map(prepare, queries):
        if distance == "euclidean":
            rows.append([-sum((q - m) ** 2 for q, m in zip(query, mean)) for mean in means])
        else:
            rows.append(
                [sum(q * m for q, m in zip(unit_by_hand(query), unit_by_hand(mean))) for mean in means]
            )
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
@pytest.mark.parametrize("kind", ["un", "l2n", "cl2n"])
def test_nearest_mean_is_its_definition(kind, distance):
    features = torch.randn(30, 4, generator=seeded(), dtype=torch.float64) + 1
    labels = torch.arange(30) % 3
    queries = torch.randn(6, 4, generator=seeded(1), dtype=torch.float64)
    head = heads.NearestMean(kind, distance=distance).fit(features, labels)
    expected = nearest_mean_by_hand(kind, distance, features, labels, 3, queries)
    torch.testing.assert_close(head(queries), expected, atol=1e-10, rtol=0)


def test_centring_finds_the_class_where_a_large_common_offset_hides_it():
    features = torch.tensor([[101.0, 0.0], [103.0, 0.0], [99.0, 0.0], [97.0, 0.0]])
    head = heads.NearestMean("cl2n").fit(features, torch.tensor([0, 0, 1, 1]))
    assert head(torch.tensor([[100.4, 0.0], [99.6, 0.0]])).argmax(1).tolist() == [0, 1]


def test_a_class_without_features_is_never_predicted():
    head = heads.NearestMean("un").fit(torch.eye(2), torch.tensor([0, 2]), num_classes=4)
    features = torch.randn(50, 2, generator=seeded(), requires_grad=True)
    scores = head(features)
    assert torch.isneginf(scores[:, [1, 3]]).all() and set(scores.argmax(1).tolist()) <= {0, 2}
    scores[:, [0, 2]].sum().backward()
    assert features.grad.isfinite().all()


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
@pytest.mark.parametrize("kind", ["un", "l2n", "cl2n"])
def test_nearest_mean_is_float32_under_autocast(kind, distance):
    head = heads.NearestMean(kind, distance=distance).fit(
        10 + torch.randn(30, 4, generator=seeded()), torch.arange(30) % 3
    )
    queries = 10 + torch.randn(6, 4, generator=seeded(1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = head(queries)
    assert torch.equal(inside, head(queries))


def test_fitted_means_travel_in_the_state_dict():
    head = heads.NearestMean("cl2n").fit(
        torch.randn(9, 4, generator=seeded()), torch.arange(9) % 3, num_classes=5
    )
    fresh = heads.NearestMean("cl2n")
    fresh.load_state_dict(head.state_dict())
    queries = torch.randn(6, 4, generator=seeded(1))
    assert fresh.num_classes == 5 and torch.equal(fresh(queries), head(queries))


def test_nearest_mean_says_what_is_wrong():
    with pytest.raises(ValueError, match="un, l2n or cl2n"):
        heads.NearestMean("l1")
    head = heads.NearestMean()
    with pytest.raises(ValueError, match="fit"):
        head(torch.ones(1, 2))
    with pytest.raises(ValueError, match="features"):
        head.fit(torch.ones(3, 2), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="0..1"):
        head.fit(torch.ones(3, 2), torch.tensor([0, 1, 2]), num_classes=2)
