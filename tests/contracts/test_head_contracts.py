"""What every head promises. A head added to `longtail.heads` is covered without a change here."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch

from longtail import heads

FEATURES, CLASSES = 8, 5
KINDS = [thing for name in heads.__all__ if isinstance(thing := getattr(heads, name), type)]


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def build(kind, seed=0):
    """Any head, by the names of its parameters; what fits on features is fitted."""
    known = {
        "num_features": FEATURES,
        "num_classes": CLASSES,
        "generator": seeded(seed),
        "head": heads.Linear(FEATURES, CLASSES, generator=seeded(seed)),
    }
    wanted = inspect.signature(kind).parameters
    head = kind(**{name: value for name, value in known.items() if name in wanted})
    if hasattr(head, "fit"):
        head.fit(features(40, seed=9), torch.arange(40) % CLASSES, num_classes=CLASSES)
    return head


def features(rows=6, seed=1):
    return torch.randn(rows, FEATURES, generator=seeded(seed))


def test_the_list_is_not_empty():
    assert {heads.Linear, heads.Cosine, heads.Scaled, heads.NearestMean} <= set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
class TestEveryHead:
    def test_maps_features_to_one_score_per_class(self, kind):
        head = build(kind)
        assert head.num_classes == CLASSES
        assert head(features()).shape == (6, CLASSES)
        assert head(features().reshape(2, 3, FEATURES)).shape == (2, 3, CLASSES)

    def test_scores_a_batch_row_by_row(self, kind):
        head, batch = build(kind).double(), features().double()
        order = torch.tensor([3, 1, 5, 0, 4, 2])
        torch.testing.assert_close(head(batch[order]), head(batch)[order])
        torch.testing.assert_close(head(batch)[:2], head(batch[:2]))

    def test_gives_finite_gradients_even_for_zero_features(self, kind):
        head = build(kind)
        batch = torch.cat([features(3), torch.zeros(2, FEATURES)]).requires_grad_()
        head(batch).square().sum().backward()
        assert batch.grad.isfinite().all()
        assert all(p.grad.isfinite().all() for p in head.parameters() if p.grad is not None)

    def test_is_a_function_of_its_generator_alone(self, kind):
        state = torch.get_rng_state()
        first, second = build(kind, seed=3), build(kind, seed=3)
        assert torch.equal(first(features()), second(features()))
        assert torch.equal(torch.get_rng_state(), state)

    def test_restores_from_its_state_dict(self, kind):
        head, other = build(kind, seed=3), build(kind, seed=4)
        other.load_state_dict(head.state_dict())
        assert torch.equal(head(features()), other(features()))

    def test_survives_deepcopy_and_does_not_share(self, kind):
        head = build(kind)
        twin = copy.deepcopy(head)
        before = twin(features())
        with torch.no_grad():
            for parameter in head.parameters():
                parameter.add_(1)
        assert torch.equal(twin(features()), before)

    def test_depends_on_no_mode(self, kind):
        head = build(kind)
        if hasattr(head, "alpha"):
            head.alpha = 0.0  # what is taken away at test time is the one exception, and has a name
        assert torch.equal(head.train()(features()), head.eval()(features()))

    def test_keeps_double_precision(self, kind):
        scores = build(kind).double()(features().double())
        assert scores.dtype == torch.float64
        torch.testing.assert_close(scores.float(), build(kind)(features()), atol=1e-5, rtol=1e-5)

    def test_works_under_autocast(self, kind):
        head = build(kind)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = head(features())
        torch.testing.assert_close(scores.float(), head(features()), atol=0.05, rtol=0.05)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_takes_half_inputs(self, kind, dtype):
        scores = build(kind).to(dtype)(features().to(dtype))
        torch.testing.assert_close(scores.float(), build(kind)(features()), atol=0.05, rtol=0.05)

    def test_knows_its_weights_by_public_names(self, kind):
        assert not [name for name, _ in build(kind).named_parameters() if name.startswith("_")]

    @pytest.mark.slow
    def test_compiles_to_the_same_scores(self, kind):
        head = build(kind)
        compiled = torch.compile(head, backend="aot_eager")
        torch.testing.assert_close(compiled(features()), head(features()))

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    def test_follows_to_another_device(self, kind):
        head = build(kind)
        expected = head(features())
        torch.testing.assert_close(head.cuda()(features().cuda()).cpu(), expected, atol=1e-5, rtol=1e-5)

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    def test_draws_the_same_weights_on_every_device(self, kind):
        head = build(kind).cuda()
        for module in head.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters(seeded(0))
        expected = dict(build(kind).named_parameters())
        assert all(torch.equal(value.cpu(), expected[name]) for name, value in head.named_parameters())
