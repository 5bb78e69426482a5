"""That training works at all: real images are learned, and GCL is ahead where the demo says it is."""

from __future__ import annotations

import json
import os
import statistics
import time

import pytest

from longtail.engine.fit import train
from longtail.recipes import cifar, digits, overrides

CIFAR = pytest.mark.skipif(not os.environ.get("LONGTAIL_DATA"), reason="LONGTAIL_DATA names no folder")
SEEDS = (0, 1, 2)
SHORT = (
    "model.backbone.name=resnet8",
    "precision=bf16",
    "stages.0.epochs=3",
    "stages.1.epochs=1",
    "evaluation.every=1",
    "log_every=10",
)


def evals(run):
    return [json.loads(line) for line in (run.path / "evals.jsonl").read_text().splitlines()]


@CIFAR
@pytest.mark.slow
def test_a_few_epochs_on_real_images_learn(tmp_path):
    """Spec E1: 10,847 images, 500 of the first class and 5 of the last. Chance is 1 percent."""
    recipe = overrides.override(cifar.gcl(classes=100, ratio=100, form="euclidean"), SHORT)
    run = train(recipe, out=tmp_path / "run")
    data = run.read("data.json")
    counts = data["counts"]
    assert (sum(counts), counts[0], counts[-1], len(counts)) == (10_847, 500, 5, 100)
    rows = evals(run)
    steps = [json.loads(line) for line in (run.path / "steps.jsonl").read_text().splitlines()]
    losses = [step["loss"] for step in steps if step["name"] == "representation"]
    assert statistics.mean(losses[-17:]) < statistics.mean(losses[:17])  # the last epoch, the first
    assert rows[2]["top1"] > rows[0]["top1"] and rows[2]["top1"] > 6
    assert rows[-1]["name"] == "classifier" and rows[-1]["top1"] > 6


@pytest.fixture(scope="module")
def demos(tmp_path_factory):
    """The three trainings of `make demo` with each seed: (the few-shot accuracies, processor seconds)."""
    found = []
    for seed in SEEDS:
        folder, began = tmp_path_factory.mktemp("demo"), time.process_time()
        recipes = {"plain": digits.ce(seed=seed)}
        recipes |= {form: digits.gcl(form=form, seed=seed) for form in ("euclidean", "angular")}
        runs = {name: train(recipe, out=folder / name) for name, recipe in recipes.items()}
        seconds = time.process_time() - began
        found.append(({name: run.read("final.json")["last"]["few"] for name, run in runs.items()}, seconds))
    return found


@pytest.mark.slow
def test_gcl_is_ahead_of_cross_entropy_on_rare_digits(demos):
    """What `make demo` shows is no luck of one seed."""
    for form in ("euclidean", "angular"):
        margins = [few[form] - few["plain"] for few, _ in demos]
        assert min(margins) > 5 and statistics.mean(margins) > 10, (form, margins)


@pytest.mark.slow
def test_the_demo_trains_within_its_90_seconds(demos):
    """Processor time, which other programs hardly move: of one thread it is 11 seconds, of two at most twice.

    The rest of the 90 is for starting Python and for machines of half the speed.
    """
    assert min(seconds for _, seconds in demos) < 45
