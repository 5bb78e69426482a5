"""Three experts on the long-tailed digits: each is one network's late layers, the prediction is their mean.

Any loss serves: RIDE gives it to each expert and pays them for disagreeing. Takes about ten seconds.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import torch

import longtail as lt
from longtail.recipe import GCL, RIDE, Experts, PerExpert
from longtail.recipes import digits

one = digits.gcl(form="angular", epochs=25, retrain_epochs=5)
first, second = (replace(stage, mixing=None) for stage in one.stages)  # mixup needs more epochs than these
assert isinstance(first.loss, GCL) and isinstance(second.loss, GCL)
three = replace(
    one,
    name="three experts",
    model=Experts(backbone=one.model.backbone, count=3),
    stages=(
        replace(first, loss=RIDE(base=first.loss)),  # noise for each expert, and the diversity term
        replace(second, loss=PerExpert(base=second.loss)),  # the same heads, re-trained on balanced draws
    ),
)

with tempfile.TemporaryDirectory() as folder:
    for recipe in (replace(one, name="one network", stages=(first, second)), three):
        run = lt.train(recipe, out=Path(folder) / recipe.name)
        last = run.read("final.json")["last"]
        print(f"{recipe.name}: " + ", ".join(f"{name} {last[name]:.1f}" for name in ("top1", "many", "few")))

    test = lt.data.digits.read().test
    model = lt.load(run.path)  # the last of the two
    with torch.no_grad():
        scores = model.model((test.images / 255 - model.mean) / model.std).scores  # [N, experts, C]
    accuracies = [(expert.argmax(1) == test.targets).float().mean() for expert in scores.unbind(1)]
    together = (model.loss.logits(scores).argmax(1) == test.targets).float().mean()
    print(
        "each expert alone:",
        ", ".join(f"{100 * a:.1f}" for a in accuracies),
        f"together: {100 * together:.1f}",
    )
