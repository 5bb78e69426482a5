"""NCL as a recipe: whole networks side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from longtail import build
from longtail.errors import UsageError
from longtail.keys import Key
from longtail.recipe import Backbone, Experts
from longtail.recipes import ncl, overrides, paper


def test_three_whole_networks_have_three_times_the_parameters_of_one() -> None:
    made = build.model(ncl.cifar(classes=10).model, 10, Key(0))
    assert sum(parameter.numel() for parameter in made.parameters()) == 3 * (463_504 + 64 * 10 + 10)


def test_each_network_sees_the_image_with_weights_of_its_own() -> None:
    spec = Experts(backbone=Backbone(name="resnet8"), count=2, shares="nothing")
    made = build.model(spec, 5, Key(0)).eval()
    images = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        output = made(images)
        for number, network in enumerate(made.backbone.networks):
            assert torch.equal(output.features[:, number], network(images))
    assert output.scores.shape == (3, 2, 5)
    assert not torch.allclose(output.features[:, 0], output.features[:, 1], atol=1e-3)
    with torch.no_grad():
        swapped = made(images, lambda maps: maps.flip(0)).features
    assert torch.allclose(swapped, output.features.flip(0), atol=1e-5)


def test_whole_networks_have_no_reduced_form() -> None:
    spec = replace(ncl.cifar().model, reduced=True)
    with pytest.raises(UsageError, match="reduced"):
        build.model(spec, 10, Key(0))


def test_it_is_no_row_of_the_papers_tables() -> None:
    assert paper.published(overrides.plain(ncl.cifar())) is None
