"""engine/frozen.py: a folded copy has the features of the network in eval mode, and nothing that learns."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from longtail import backbones, heads, models
from longtail.backbones import fused
from longtail.engine.frozen import folded, folds, still


def lived(network: nn.Module) -> nn.Module:
    """The network with statistics and affine parameters that are not those of the start."""
    generator = torch.Generator().manual_seed(1)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            size = module.num_features
            module.running_mean.copy_(torch.randn(size, generator=generator) * 0.2)
            module.running_var.copy_(torch.rand(size, generator=generator) + 0.5)
            with torch.no_grad():
                module.weight.copy_(torch.rand(size, generator=generator) * 0.5 + 0.25)
                module.bias.copy_(torch.randn(size, generator=generator) * 0.2)
    return network.eval()


def make(name: str) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    match name:
        case "experts":
            return lived(backbones.experts("resnet8", 2, generator=generator))
        case "depths":
            return lived(backbones.at_depths("resnet8", 3, generator=generator))
        case "two_branch":
            return lived(backbones.two_branch("resnet8", generator=generator))
        case _:
            return lived(backbones.make(name, generator=generator))


def images(batch: int, size: int) -> torch.Tensor:
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(2))


NETWORKS = [
    ("resnet8", 16),
    ("resnet32", 16),
    ("experts", 16),
    ("two_branch", 16),
    ("depths", 16),
    ("resnet18", 32),
    ("resnet50", 32),
]


@pytest.mark.parametrize(("name", "size"), NETWORKS)
@torch.no_grad()
def test_folded_features_are_those_of_eval_mode(name: str, size: int) -> None:
    network = make(name)
    for given in (images(3, size), images(3, size).contiguous(memory_format=torch.channels_last)):
        expected, got = network(given), folded(network)(given)
        assert got.shape == expected.shape
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


@torch.no_grad()
def test_bfloat16_is_as_near_to_float32_as_autocast() -> None:
    network = make("resnet32")
    given = images(64, 32)
    expected = network(given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        usual = (network(given).float() - expected).norm()
    got = folded(network, dtype=torch.bfloat16)(given.contiguous(memory_format=torch.channels_last))
    assert got.dtype == torch.float32
    assert 0 < (got - expected).norm() < 1.5 * usual


@torch.no_grad()
def test_slices_of_a_batch_are_put_together_in_order() -> None:
    still, given = folded(make("resnet8")), images(150, 8)
    torch.testing.assert_close(still(given), torch.cat([still(part) for part in given.split(50)]))


def test_one_primitive_and_several_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    still, given = folded(make("resnet8")), images(5, 16)
    one = still(given)
    monkeypatch.setattr(fused, "_one_primitive", lambda maps: False)
    torch.testing.assert_close(still(given), one, rtol=1e-5, atol=1e-5)


def test_the_copy_stands_still_and_leaves_the_network_alone() -> None:
    network = make("resnet8")
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    still, given = folded(network), images(4, 8)
    first = still(given)
    assert not first.requires_grad and not list(still.parameters())
    assert not any(isinstance(module, nn.BatchNorm2d) for module in still.modules())
    assert network.state_dict().keys() == before.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    assert torch.equal(still(given), first)


def test_autocast_around_it_changes_nothing() -> None:
    still, given = folded(make("resnet8")), images(4, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = still(given)
    assert torch.equal(inside, still(given))


def test_an_unknown_network_is_refused() -> None:
    network = nn.Linear(2, 2)
    assert not folds(network)
    with pytest.raises(TypeError, match="cannot fold a Linear"):
        folded(network)


def test_training_the_head_of_the_still_model_trains_the_model_itself() -> None:
    network = make("resnet8")
    model = models.Classifier(network, heads.Linear(64, 5))
    fast, given = still(model), images(6, 8)
    fast(given).scores.sum().backward()
    (gradient,) = (p.grad for name, p in model.named_parameters() if name == "head.weight")
    expected = network(given).sum(0)
    torch.testing.assert_close(gradient, expected.expand(5, 64).detach(), rtol=1e-4, atol=1e-4)
    assert all(p.grad is None for p in network.parameters())
    assert [id(p) for p in fast.parameters()] == [id(p) for p in model.head.parameters()]


def test_a_model_that_cannot_be_folded_is_used_as_it_is() -> None:
    model = models.Classifier(nn.Flatten(), heads.Linear(4, 2))
    assert still(model) is model
