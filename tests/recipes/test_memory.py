"""OLTR and the reconstruction of MBJ as recipes: their constants, their size, what they say of themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from longtail import build
from longtail.keys import Key
from longtail.recipe import SGD, Centroids, Remembered
from longtail.recipes import memory, overrides, paper, short
from longtail.report import describe


def test_the_constants_of_oltr_are_those_of_its_code() -> None:
    first, second = memory.oltr_places("root", "weights").stages
    assert (first.epochs, second.epochs, first.batch_size) == (30, 30, 128)
    assert first.optimizer.lr * first.head_lr_factor == pytest.approx(0.1)
    assert first.optimizer == SGD(lr=0.001, weight_decay=5e-4)
    assert second.optimizer.lr == 1e-4 and second.optimizer.lr * second.head_lr_factor == pytest.approx(0.01)
    for stage in (first, second):
        assert stage.schedule.drops == ((10, 0.1), (20, 0.01)) and stage.schedule.warmup == 0
    assert second.loss == Centroids(scale=16.0, weight=0.01, repulsion=0.01, margin=10.0)
    assert second.sampling.rule == "class_aware" and second.head == "meta_embedding"
    assert "memory" in second.trains


def test_on_cifar_stage_one_is_plain_cross_entropy() -> None:
    first, second = memory.oltr(classes=10).stages
    plain = next(cell for cell in short.short_cells() if cell.name == "short/ce-s0").make().stages[0]
    assert (first.loss, first.mixing, first.optimizer) == (plain.loss, None, plain.optimizer)
    assert (first.epochs, second.epochs) == (200, 30)
    assert second.optimizer.lr == pytest.approx(first.optimizer.lr / 10)


@pytest.mark.parametrize("epochs", [200, 20, 2])
def test_the_memory_is_there_in_the_last_fifth_of_one_training(epochs: int) -> None:
    first, second = memory.mbj(epochs=epochs).stages
    assert first.epochs + second.epochs == epochs and second.optimizer_state == "kept"
    assert second.schedule.start == first.epochs and second.schedule.drops == first.schedule.drops
    assert second.loss == Remembered() and second.mixing is None


def test_neither_adds_parameters_that_are_not_in_the_formulas() -> None:
    plain, classes, width = 463_504, 10, 64
    made = build.model(memory.mbj(classes=10).model, classes, Key(0))
    assert sum(p.numel() for p in made.parameters()) == plain + classes * (width + 1)
    held = dict(made.head.named_buffers())
    assert held["features"].shape == (2048, width) and held["labels"].dtype == torch.int64


def test_the_reconstruction_says_so_wherever_it_is_named() -> None:
    made = memory.mbj(classes=10)
    assert made.provenance and all(text.startswith("reconstruction") for text in made.provenance.values())
    assert "reconstruction" in (memory.mbj.__doc__ or "")
    assert describe.method(overrides.plain(made)) == "MBJ (reconstruction)"
    assert describe.method(overrides.plain(memory.oltr())) == "OLTR"
    first = replace(made, stages=made.stages[:1])
    assert describe.method(overrides.plain(first)) == "CE", "its first stage alone has no memory"
    quoted = paper.published(overrides.plain(made))
    assert quoted is not None and quoted.value == 81.10
    assert paper.published(overrides.plain(memory.oltr(classes=10))) is None


def test_every_path_of_the_provenance_exists() -> None:
    for made in (memory.oltr(), memory.mbj(), memory.oltr_places("root", "weights")):
        plain = overrides.plain(made)
        for path in made.provenance:
            value = plain
            for part in path.split("."):
                value = value[int(part)] if isinstance(value, list) else value[part]


def test_the_short_comparison_shares_the_epochs_between_both_stages() -> None:
    made = next(cell for cell in short.short_cells() if cell.name == "short/oltr-s0").make()
    assert [stage.epochs for stage in made.stages] == [17, 3]
