"""longtail.backbones.weights: files that fit are read whole, everything else is refused in one line."""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor

from longtail import backbones
from longtail.backbones import weights
from longtail.errors import ModelFileError

State = dict[str, Tensor]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network(seed: int = 0, name: str = "resnet8") -> torch.nn.Module:
    return backbones.make(name, generator=seeded(seed))


def write(path: Path, content: object) -> Path:
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(content, path)
    else:
        torch.save(content, path)
    return path


def equal(module: torch.nn.Module, state: State) -> bool:
    return all(torch.equal(tensor, state[name]) for name, tensor in module.state_dict().items())


@pytest.fixture
def source() -> State:
    made = network(seed=1)
    made(torch.rand(4, 3, 8, 8, generator=seeded()))  # so that the running statistics are not the fresh ones
    return {name: tensor.clone() for name, tensor in made.state_dict().items()}


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt"])
def test_a_round_trip_restores_every_tensor(tmp_path: Path, source: State, suffix: str):
    path = write(tmp_path / f"weights{suffix}", source)
    made = backbones.make("resnet8", generator=seeded(), weights=path)
    assert equal(made, source)
    assert all(parameter.requires_grad for parameter in made.parameters())


@pytest.mark.parametrize("prefix", ["module.", "backbone.", "module.backbone."])
def test_prefixes_are_taken_off(tmp_path: Path, source: State, prefix: str):
    path = write(tmp_path / "w.pth", {prefix + name: tensor for name, tensor in source.items()})
    made = network()
    assert weights.load(made, path).differences == ()
    assert equal(made, source)


@pytest.mark.parametrize("wrapper", ["state_dict", "model"])
def test_a_wrapped_state_dict_is_found(tmp_path: Path, source: State, wrapper: str):
    path = write(tmp_path / "w.pth", {"epoch": 3, "arch": "resnet8", wrapper: source})
    made = network()
    weights.load(made, path)
    assert equal(made, source)


@pytest.mark.parametrize("head", ["fc.weight", "classifier.bias", "head.weight", "linear.weight"])
def test_heads_are_ignored_and_counted(tmp_path: Path, source: State, head: str):
    found = weights.load(network(), write(tmp_path / "w.pth", {**source, head: torch.zeros(10)}))
    assert found.ignored == (head,)
    assert len(found.matched) == len(source)


def test_files_older_than_the_batch_counter_are_covered(tmp_path: Path, source: State):
    old = {name: tensor for name, tensor in source.items() if not name.endswith("num_batches_tracked")}
    made = network()
    weights.load(made, write(tmp_path / "old.pth", old))
    assert torch.equal(made.bn1.running_mean, source["bn1.running_mean"])


def test_half_precision_is_widened(tmp_path: Path, source: State):
    half = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in source.items()}
    made = network()
    weights.load(made, write(tmp_path / "half.safetensors", half))
    assert made.conv1.weight.dtype == torch.float32
    assert torch.equal(made.conv1.weight, half["conv1.weight"].float())


def test_an_uncovered_backbone_is_refused_with_the_first_five_differences(tmp_path: Path, source: State):
    gone = [name for name in source if name.startswith("layer2.") and not name.endswith("tracked")]
    part = {name: tensor for name, tensor in source.items() if name not in gone}
    made = network()
    before = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    with pytest.raises(ModelFileError) as raised:
        weights.load(made, write(tmp_path / "part.pth", part))
    message = str(raised.value)
    assert all(f"missing {name}" in message for name in gone[:5])
    assert gone[5] not in message and f"and {len(gone) - 5} more" in message
    assert f"{len(gone)} missing" in message and "\n" not in message
    assert equal(made, before), "a refused file changed the backbone"


def test_another_shape_is_refused_and_both_shapes_are_named(tmp_path: Path):
    path = write(tmp_path / "wide.pth", network(name="resnet32x2").state_dict())
    with pytest.raises(ModelFileError, match=r"conv1.weight is \[32, 3, 3, 3\], not \[16, 3, 3, 3\]"):
        backbones.make("resnet32", generator=seeded(), weights=path)


def test_a_deeper_network_of_the_same_widths_is_refused(tmp_path: Path):
    """Every tensor of ResNet-8 is in ResNet-20 too, with the same shape: covering is not enough."""
    path = write(tmp_path / "deep.safetensors", network(name="resnet20").state_dict())
    with pytest.raises(ModelFileError, match=r"unexpected layer1\.1\."):
        backbones.make("resnet8", generator=seeded(), weights=path)


def test_a_weight_that_is_not_finite_is_refused(tmp_path: Path, source: State):
    source["layer1.0.conv1.weight"][0, 0, 0, 0] = torch.nan
    with pytest.raises(ModelFileError, match=r"layer1\.0\.conv1\.weight is not finite"):
        weights.load(network(), write(tmp_path / "nan.safetensors", source))


def test_a_quantised_weight_is_refused(tmp_path: Path, source: State):
    source["conv1.weight"] = source["conv1.weight"].to(torch.int8)
    with pytest.raises(ModelFileError, match=r"conv1\.weight is torch\.int8"):
        weights.load(network(), write(tmp_path / "int8.pth", source))


def test_a_name_given_twice_is_refused(tmp_path: Path, source: State):
    path = write(tmp_path / "twice.pth", {**source, "module.conv1.weight": torch.zeros(1)})
    with pytest.raises(ModelFileError, match=r"conv1\.weight twice"):
        weights.load(network(), path)


def test_a_file_that_would_run_code_is_refused_and_not_run(tmp_path: Path):
    marker = tmp_path / "ran"

    class Hostile:
        def __reduce__(self):
            return (Path.touch, (marker,))

    path = write(tmp_path / "hostile.pth", {"conv1.weight": Hostile()})
    with pytest.raises(ModelFileError, match="not read unsafely") as raised:
        weights.load(network(), path)
    assert not marker.exists()
    assert "\n" not in str(raised.value) and "weights_only" not in str(raised.value)


def test_a_harmless_object_beside_the_tensors_is_refused_too(tmp_path: Path, source: State):
    path = write(tmp_path / "args.pth", {"state_dict": source, "args": argparse.Namespace(lr=1)})
    with pytest.raises(ModelFileError, match="convert it to .safetensors"):
        weights.load(network(), path)


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])
@pytest.mark.parametrize("damage", ["empty", "cut", "noise"])
def test_a_damaged_file_is_refused(tmp_path: Path, source: State, name: str, damage: str):
    path = write(tmp_path / name, source)
    content = path.read_bytes()
    path.write_bytes({"empty": b"", "cut": content[: len(content) // 2], "noise": b"\x80\x02no" * 99}[damage])
    with pytest.raises(ModelFileError, match=name) as raised:
        weights.load(network(), path)
    assert "\n" not in str(raised.value)


def test_files_without_tensors_or_with_a_plain_pickle_are_refused(tmp_path: Path):
    with pytest.raises(ModelFileError, match="no named tensors"):
        weights.read(write(tmp_path / "list.pth", [torch.zeros(1)]))
    with pytest.raises(ModelFileError, match="no named tensors"):
        weights.read(write(tmp_path / "numbers.pth", {"lr": 0.1}))
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(argparse.Namespace()))
    with pytest.raises(ModelFileError):
        weights.read(tmp_path / "plain.pt")


def test_a_missing_file_a_folder_and_another_format_are_refused(tmp_path: Path):
    (tmp_path / "w.bin").write_bytes(b"x")
    for path, words in [("none.pth", "no such"), (".", "no such"), ("w.bin", "must be a .safetensors")]:
        with pytest.raises(ModelFileError, match=words):
            weights.read(tmp_path / path)


def test_a_resnet152_file_fills_the_places_trunk(tmp_path: Path):
    whole = backbones.make("resnet152", generator=seeded(5)).state_dict()
    path = write(tmp_path / "resnet152.safetensors", {**whole, "fc.weight": torch.zeros(365, 2048)})
    made = backbones.make("places_resnet152", generator=seeded(), weights=path)
    assert equal(made.trunk, whole)
    assert not torch.equal(made.block[0].conv1.weight, whole["layer4.2.conv1.weight"])


def test_a_run_of_a_classifier_can_start_experts(tmp_path: Path, source: State):
    path = write(tmp_path / "w.safetensors", {f"backbone.{name}": tensor for name, tensor in source.items()})
    made = backbones.experts("resnet8", 2, generator=seeded(), weights=path)
    assert torch.equal(made.shared.conv1.weight, source["conv1.weight"])
    for branch in made.branches:
        assert torch.equal(branch.layer3[0].conv2.weight, source["layer3.0.conv2.weight"])
