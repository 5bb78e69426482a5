"""Muon against its definition: the polynomial on singular values, and the step in plain loops."""

from __future__ import annotations

import pytest
import torch

from longtail import build
from longtail.muon import Muon, orthogonalized
from longtail.recipe import SGD
from longtail.recipe import Muon as Spec

A, B, C, STEPS = 3.4445, -4.7750, 2.0315, 5


def by_decomposition(matrix: torch.Tensor) -> torch.Tensor:
    """U p(p(...p(S / |S|))) V^T, each singular value by itself, in float64."""
    left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    length = float((values**2).sum().sqrt())
    sent = []
    for value in values.tolist():
        s = value / length
        for _ in range(STEPS):
            s = A * s + B * s**3 + C * s**5
        sent.append(s)
    return left @ torch.diag(torch.tensor(sent, dtype=torch.float64)) @ right


@pytest.mark.parametrize("shape", [(16, 27), (64, 288), (32, 8), (5, 5)])
def test_the_polynomial_acts_on_the_singular_values_alone(shape):
    matrices = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for made, matrix in zip(orthogonalized(matrices), matrices, strict=True):
        torch.testing.assert_close(made, by_decomposition(matrix), rtol=1e-6, atol=1e-7)


def test_all_directions_move_about_alike():
    matrices = torch.randn(8, 64, 288, generator=torch.Generator().manual_seed(1))
    values = torch.linalg.svdvals(orthogonalized(matrices))
    assert values.min() > 0.65
    assert values.max() < 1.25


def test_the_length_of_the_gradient_does_not_count_and_zero_stays_zero():
    matrix = torch.randn(1, 16, 27, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(orthogonalized(matrix), orthogonalized(1e4 * matrix), rtol=1e-4, atol=1e-5)
    assert not orthogonalized(torch.zeros(2, 4, 6)).any()


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 4, 3),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 2),
    ).double()


def made_for(net: torch.nn.Module, spec: SGD) -> torch.optim.SGD:
    return build.optimizer(spec, [(1.0, list(net.named_parameters()))], torch.device("cpu"))


def gradients(net: torch.nn.Module, number: int) -> None:
    draw = torch.Generator().manual_seed(number)
    for parameter in net.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)


def test_three_steps_equal_the_definition():
    """Filters: M = beta M + (1 - beta) G, w -= lr (O((1 - beta) G + beta M) + decay w); the rest is SGD."""
    net, plain = model(), model()
    spec = SGD(
        lr=0.1, momentum=0.9, weight_decay=1e-3, filters=Spec(lr=0.02, momentum=0.8, weight_decay=0.05)
    )
    optimizer = made_for(net, spec)
    others = torch.optim.SGD(
        [p for p in plain.parameters() if p.ndim != 4], lr=0.1, momentum=0.9, weight_decay=1e-3
    )
    held = {name: torch.zeros_like(p) for name, p in plain.named_parameters() if p.ndim == 4}
    for number in range(3):
        gradients(net, number)
        gradients(plain, number)
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * group["factor"]
        optimizer.step()
        with torch.no_grad():
            for name, p in plain.named_parameters():
                if p.ndim == 4:
                    held[name] = 0.8 * held[name] + 0.2 * p.grad
                    ahead = 0.2 * p.grad + 0.8 * held[name]
                    out, width = p.shape[0], p[0].numel()
                    direction = by_decomposition(ahead.reshape(out, width)) * max(1.0, out / width) ** 0.5
                    p.sub_(0.02 * (direction.reshape(p.shape) + 0.05 * p))
        others.step()
    for (name, one), (_, other) in zip(net.named_parameters(), plain.named_parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8, msg=name)


def test_a_broken_gradient_moves_nothing():
    net = model()
    optimizer = made_for(net, SGD(lr=0.1, filters=Spec()))
    assert isinstance(optimizer, Muon)
    before = [p.detach().clone() for p in net.parameters()]
    gradients(net, 0)
    next(net.parameters()).grad[0, 0, 0, 0] = float("nan")
    optimizer.found_inf = torch.ones(())
    optimizer.step()
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))


def test_without_filters_the_optimizer_is_plain_sgd():
    assert type(made_for(model(), SGD())) is torch.optim.SGD


def test_a_rate_of_zero_cannot_carry_another():
    with pytest.raises(ValueError, match="in proportion to lr"):
        SGD(lr=0.0, filters=Spec())
