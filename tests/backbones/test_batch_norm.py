"""The compiled normalisation against its equations, and where PyTorch's own passes take its place."""

from __future__ import annotations

import math
import random
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from longtail.backbones import batch_norm, kernels, normalization
from longtail.backbones.cifar_resnet import resnet

DTYPES = {"fp32": (torch.float32, 2e-6), "bf16": (torch.bfloat16, 2**-8)}
needs_compiler = pytest.mark.skipif(not kernels.possible(), reason="no C compiler on this machine")


@pytest.fixture(params=DTYPES)
def kind(request):
    return request.param


def tensors(rows, channels, dtype, shortcut, seed=0):
    """Maps [rows, channels, 1, 1], a shortcut or None, and a gradient; rounded to `dtype` already."""
    draw = torch.Generator().manual_seed(seed)
    made = [2 * torch.randn(rows, channels, 1, 1, generator=draw) + 0.5 for _ in range(3)]
    maps, other, given = (each.to(dtype).to(memory_format=torch.channels_last) for each in made)
    return maps.requires_grad_(), other.requires_grad_() if shortcut else None, given


def layer_of(channels):
    layer, dice = nn.BatchNorm2d(channels), random.Random(1)
    with torch.no_grad():
        for c in range(channels):
            layer.weight[c], layer.bias[c] = dice.uniform(0.5, 1.5), dice.uniform(-1, 1)
    return layer


def slow(maps, shortcut, given, layer):
    """One number after the other, in Python: result and the gradients of maps, shortcut, weight and bias."""
    rows, channels = maps.shape[:2]
    x, g = maps.flatten(1).tolist(), given.flatten(1).tolist()
    s = shortcut.flatten(1).tolist() if shortcut is not None else [[0.0] * channels] * rows
    result, of_maps, of_shortcut = ([[0.0] * channels for _ in range(rows)] for _ in range(3))
    of_weight, of_bias, running = [], [], []
    for c in range(channels):
        weight, bias = layer.weight[c].item(), layer.bias[c].item()
        mean = sum(line[c] for line in x) / rows
        variance = sum((line[c] - mean) ** 2 for line in x) / rows
        deviation = math.sqrt(variance + layer.eps)
        unit = [(line[c] - mean) / deviation for line in x]
        for i in range(rows):
            result[i][c] = max(0.0, weight * unit[i] + bias + s[i][c])
            of_shortcut[i][c] = g[i][c] if result[i][c] > 0 else 0.0
        slopes = [line[c] for line in of_shortcut]
        of_bias.append(sum(slopes))
        of_weight.append(sum(a * b for a, b in zip(slopes, unit, strict=True)))
        for i in range(rows):  # the chain rule through mean and variance
            centred = slopes[i] - of_bias[c] / rows - unit[i] * of_weight[c] / rows
            of_maps[i][c] = weight / deviation * centred
        running.append((0.1 * mean, 0.9 + 0.1 * variance * rows / (rows - 1)))
    return result, of_maps, of_shortcut, of_weight, of_bias, running


def near(found, expected, tolerance):
    expected = torch.tensor(expected, dtype=torch.float64)
    difference = (found.detach().double().reshape(expected.shape) - expected).abs()
    assert (difference <= tolerance * (1 + expected.abs())).all(), difference.max()


@needs_compiler
@pytest.mark.parametrize("shortcut", [False, True])
@pytest.mark.parametrize(("rows", "channels"), [(2, 1), (7, 3), (64, 16), (65, 16), (40, 64), (9, 96)])
def test_the_compiled_passes_compute_the_equations(kind, rows, channels, shortcut):
    dtype, tolerance = DTYPES[kind]
    maps, other, given = tensors(rows, channels, dtype, shortcut)
    layer, library = layer_of(channels), kernels.library(kind)
    assert library is not None
    expected = slow(maps, other, given, layer)
    result = batch_norm.norm_add_relu(library, layer, maps, other)
    result.backward(given)
    near(result, expected[0], tolerance)
    near(maps.grad, expected[1], 4 * tolerance)
    if other is not None:
        near(other.grad, expected[2], 0)
    near(layer.weight.grad, expected[3], 1e-5)
    near(layer.bias.grad, expected[4], 1e-5)
    near(torch.stack([layer.running_mean, layer.running_var], 1), expected[5], 1e-6)
    assert layer.num_batches_tracked.item() == 1


@needs_compiler
def test_a_large_mean_costs_no_precision():
    maps = (torch.randn(4096, 16, 1, 1, generator=torch.Generator().manual_seed(0)) + 300).contiguous(
        memory_format=torch.channels_last
    )
    layer, twin = nn.BatchNorm2d(16), nn.BatchNorm2d(16).double()
    library = kernels.library("fp32")
    assert library is not None
    found = batch_norm.norm_add_relu(library, layer, maps, None)
    expected = F.relu(twin(maps.double()))
    assert (found - expected).abs().max() < 2e-4  # 300 / 2^24 ulps of the input are 2e-5


@needs_compiler
def test_what_is_no_number_is_not_hidden(kind):
    maps, other, given = tensors(64, 16, DTYPES[kind][0], True)
    with torch.no_grad():
        maps[3, 5] = float("nan")
    layer, library = layer_of(16), kernels.library(kind)
    assert library is not None and other is not None
    result = batch_norm.norm_add_relu(library, layer, maps, other)
    result.backward(given)
    assert result[:, 5].isnan().all() and not result[:, 4].isnan().any()
    assert maps.grad[:, 5].isnan().all() and layer.weight.grad[5].isnan() and layer.running_var[5].isnan()


@needs_compiler
def test_the_same_bytes_on_any_number_of_threads(kind):
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            maps, other, given = tensors(5000, 32, DTYPES[kind][0], True)
            layer, library = layer_of(32), kernels.library(kind)
            assert library is not None and library.threads() == threads  # PyTorch's own pool
            result = batch_norm.norm_add_relu(library, layer, maps, other)
            result.backward(given)
            found.append((result, maps.grad, layer.weight.grad, layer.running_var))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))


def gradients(images):
    network = resnet(8, generator=torch.Generator().manual_seed(0)).to(memory_format=torch.channels_last)
    network(images).square().sum().backward()
    return [weight.grad for weight in network.parameters()]


@needs_compiler
def test_a_network_learns_the_same_with_them_and_without(monkeypatch):
    images = torch.randn(16, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    images = images.contiguous(memory_format=torch.channels_last)
    calls, real = [], batch_norm.norm_add_relu
    monkeypatch.setattr(batch_norm, "norm_add_relu", lambda *given: (calls.append(1), real(*given))[1])
    found = gradients(images)
    assert len(calls) == 7  # all of ResNet-8
    monkeypatch.setattr(batch_norm, "library_for", lambda layer, maps: None)
    for one, other in zip(found, gradients(images), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3 * other.abs().max().item())
    assert len(calls) == 7


def test_without_a_compiler_or_when_switched_off_pytorch_does_it(monkeypatch):
    kernels.library.cache_clear()
    try:
        monkeypatch.setenv("LONGTAIL_KERNELS", "off")
        assert not kernels.possible() and kernels.library("fp32") is None
        kernels.library.cache_clear()
        monkeypatch.delenv("LONGTAIL_KERNELS")
        monkeypatch.setenv("PATH", "")
        assert not kernels.possible() and kernels.library("fp32") is None
        maps = torch.randn(64, 16, 32, 32).contiguous(memory_format=torch.channels_last)
        layer = nn.BatchNorm2d(16)
        assert torch.equal(normalization.norm_relu(layer, maps), F.relu(nn.BatchNorm2d(16)(maps)))
    finally:
        kernels.library.cache_clear()


TORCH, BUNDLED = "/torch/lib/libgomp.so.1", "/scikit_learn.libs/libgomp-e985bcbb.so.1.0.0"


def test_one_pool_of_threads_is_shared_and_a_renamed_one_of_another_package_is_not_in_the_way():
    shared = kernels._is_shared
    assert shared({TORCH}, {TORCH})
    assert shared({TORCH, BUNDLED}, {TORCH, BUNDLED})
    assert not shared({TORCH}, {TORCH, "/usr/lib/libgomp.so.1"}), "loading it brought another"
    assert not shared({BUNDLED}, {BUNDLED, "/usr/lib/libgomp.so.1"}), "PyTorch has a renamed one"
    assert not shared({TORCH, "/usr/lib/libomp.so"}, {TORCH, "/usr/lib/libomp.so"}), (
        "which of the two is unknown"
    )
    assert not shared(set(), set()), "nothing can be seen"


@needs_compiler
def test_they_work_beside_scikit_learn():
    pytest.importorskip("sklearn")
    code = "import sklearn.manifold; from longtail.backbones import kernels; assert kernels.library('fp32')"
    subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code], check=True, timeout=120)


@needs_compiler
def test_a_compiler_that_fails_is_told_of_and_done_without(monkeypatch, tmp_path):
    (tmp_path / "cc").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    kernels.library.cache_clear()
    try:
        with pytest.warns(UserWarning, match="LONGTAIL_KERNELS=off"):
            assert kernels.library("fp32") is None
    finally:
        kernels.library.cache_clear()


@pytest.mark.parametrize(
    "maps",
    [
        torch.zeros(2, 16, 8, 8).contiguous(memory_format=torch.channels_last),  # small
        torch.zeros(64, 16, 32, 32),  # channels first
        torch.zeros(64, 16, 32, 32, dtype=torch.float64).contiguous(memory_format=torch.channels_last),
    ],
)
def test_they_are_for_large_maps_of_two_types_with_channels_last(maps):
    assert batch_norm.library_for(nn.BatchNorm2d(16), maps) is None


def test_they_are_for_training_with_statistics_of_the_usual_kind():
    maps = torch.zeros(64, 16, 32, 32).contiguous(memory_format=torch.channels_last)
    for layer in (
        nn.BatchNorm2d(16).eval(),
        nn.BatchNorm2d(16, momentum=None),
        nn.BatchNorm2d(16, track_running_stats=False),
        nn.BatchNorm2d(16).double(),
        nn.BatchNorm2d(16, affine=False),
        nn.GroupNorm(2, 16),
    ):
        assert batch_norm.library_for(layer, maps) is None
