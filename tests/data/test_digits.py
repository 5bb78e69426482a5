from __future__ import annotations

import importlib.util
from importlib import resources
from pathlib import Path

import pytest
import torch

from longtail.data import digits


def test_digits_are_balanced_and_disjoint_and_all_used():
    sources = digits.read()
    assert sources.train.counts.tolist() == [120] * 10
    assert sources.test.counts.tolist() == [54] * 10
    assert sources.held_out is not None
    assert sum(len(part) for part in (sources.train, sources.test, sources.held_out)) == 1797


def test_digits_are_grey_from_0_to_255_and_the_same_on_every_reading():
    first, second = digits.read(), digits.read()
    images = first.train.images
    assert isinstance(images, torch.Tensor) and images.dtype == torch.uint8 and images.shape[1:] == (3, 8, 8)
    assert (int(images.min()), int(images.max())) == (0, 255)
    assert torch.equal(images[:, 0], images[:, 1]) and torch.equal(images[:, 0], images[:, 2])
    assert isinstance(second.train.images, torch.Tensor) and torch.equal(images, second.train.images)


def test_a_zero_looks_like_a_ring():
    sources = digits.read()
    assert isinstance(sources.train.images, torch.Tensor)
    mean = sources.train.images[sources.train.targets == 0, 0].float().mean(0)
    assert mean[3:5, 3:5].mean() < 60 < 150 < mean[3:5, 2].mean()


def test_embedded_file_is_what_the_script_writes():
    pytest.importorskip("sklearn", reason="scikit-learn holds the source of the digits (dev extra)")
    script = Path(__file__).parents[2] / "scripts/make_digits.py"
    spec = importlib.util.spec_from_file_location("make_digits", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    embedded = resources.files("longtail.data").joinpath("embedded/digits.bin").read_bytes()
    assert module.records() == embedded


def test_attribution_lies_beside_the_digits():
    text = resources.files("longtail.data").joinpath("embedded/ATTRIBUTION.txt").read_text()
    assert "CC BY 4.0" in text and "Alpaydin" in text and "What was changed" in text
