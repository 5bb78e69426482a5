"""Run folders written by hand: what a trained run would leave, with numbers that can be checked on paper."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from longtail.run import manifest

MakeRun = Callable[..., Path]

COUNTS = (200, 100, 20, 5)  # one class with many images, one medium, two few
HITS = (9, 6, 4, 1)  # of ten each: 50 in all, many 90, medium 60, few 25
GCL = {"kind": "gcl", "form": "angular", "cloud": "log", "scale": 30.0}


def stages(loss: dict[str, Any]) -> list[dict[str, Any]]:
    first: dict[str, Any] = {
        "name": "representation",
        "loss": loss,
        "epochs": 4,
        "batch_size": 64,
        "sampling": {"rule": "instance"},
        "mixing": {"kind": "mixup", "alpha": 1.0},
        "trains": ["backbone", "head"],
        "batchnorm": "adapting",
        "head": "kept",
        "optimizer": {"lr": 0.1, "momentum": 0.9, "weight_decay": 2e-4},
        "schedule": {"kind": "multistep"},
    }
    second = {
        **first,
        "name": "classifier",
        "epochs": 2,
        "trains": ["head"],
        "sampling": {"rule": "class_balanced"},
        "batchnorm": "frozen",
    }
    return [first, second]


def row(
    stage: int, epoch: int, hits: Sequence[int], totals: Sequence[int], groups: dict[str, Any]
) -> dict[str, Any]:
    accuracy = 100 * np.asarray(hits) / np.maximum(totals, 1)
    return {
        "stage": stage,
        "name": ("representation", "classifier")[stage],
        "epoch": epoch,
        "step": 10 * epoch,
        "split": "test",
        "loss": 1.5,
        "top1": float(100 * sum(hits) / max(sum(totals), 1)),
        "balanced": float(accuracy.mean()),
        "macro_f1": 48.5,
        "worst": float(accuracy.min()),
        "ece": 0.125,
        "hits": list(hits),
        "totals": list(totals),
        **groups,
    }


def _groups(counts: Sequence[int], hits: Sequence[int], totals: Sequence[int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    masks = {"many": lambda n: n > 100, "medium": lambda n: 20 < n <= 100, "few": lambda n: n <= 20}
    for name, holds in masks.items():
        values = [100 * h / t for n, h, t in zip(counts, hits, totals, strict=True) if holds(n) and t]
        found[name] = sum(values) / len(values) if values else None
    return found


def write_tensors(folder: Path, counts: Sequence[int], hits: Sequence[int], totals: Sequence[int]) -> None:
    """Predictions that agree with the hits, thumbnails of every class, features that separate the classes."""
    classes = len(counts)
    labels = np.repeat(np.arange(classes), totals).astype(np.int64)
    right = np.concatenate([np.arange(t) < h for h, t in zip(hits, totals, strict=True)])
    said = np.where(right, labels, (labels + 1) % classes)
    logits = np.zeros((len(labels), classes), np.float16)
    logits[np.arange(len(labels)), said] = 3
    save_file({"logits": logits, "labels": labels}, str(folder / "predictions.safetensors"))
    shown = np.arange(0, len(labels), 2).astype(np.int64)
    images = np.broadcast_to((labels[shown] * 40 % 256)[:, None, None, None], (len(shown), 3, 8, 8))
    save_file(
        {"images": np.ascontiguousarray(images).astype(np.uint8), "index": shown},
        str(folder / "samples.safetensors"),
    )
    draw = np.random.default_rng(0)
    train = np.repeat(np.arange(classes), np.minimum(counts, 40)).astype(np.int64)
    centers = 4 * np.eye(classes, max(classes, 6))
    features: dict[str, np.ndarray[Any, Any]] = {}
    for split, truth in (("train", train), ("test", labels)):
        cloud = centers[truth] + draw.normal(size=(len(truth), centers.shape[1]))
        features[f"{split}_features"] = cloud.astype(np.float16)
        features[f"{split}_labels"] = truth
        features[f"{split}_scores"] = (cloud @ centers.T).astype(np.float16)
    save_file(features, str(folder / "features.safetensors"))


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Writes a run folder; `leave_out` names files that it shall not have."""

    def make(
        name: str = "run",
        *,
        counts: Sequence[int] = COUNTS,
        hits: Sequence[int] | None = None,
        names: Sequence[str] | None = None,
        seed: int = 0,
        loss: dict[str, Any] = GCL,
        recipe: dict[str, Any] | None = None,
        data: dict[str, Any] | None = None,
        env: dict[str, Any] | None = None,
        leave_out: Sequence[str] = (),
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        totals = [10] * len(counts)
        hits = (
            hits
            if hits is not None
            else (HITS if len(counts) == 4 else [max(1, 9 - i // 12) for i in range(len(counts))])
        )
        groups = _groups(counts, hits, totals)
        plan = stages(loss)
        early = [row(0, e, [h // 2 for h in hits], totals, groups) for e in (2, 4)]
        late = [row(1, e, hits, totals, groups) for e in (1, 2)]
        best = {**late[0], "top1": late[0]["top1"] + 1}
        files: dict[str, Any] = {
            "recipe.json": {
                "name": "digits.gcl",
                "data": {"kind": "digits", "longtail": {"profile": "exponential", "ratio": 40.0}},
                "images": {"kind": "small", "policy": "none", "cutout": 0},
                "model": {"kind": "classifier", "backbone": {"name": "resnet20"}},
                "stages": plan,
                "evaluation": {"shot_rule": "paper"},
                "seed": seed,
                **(recipe or {}),
            },
            "data.json": {
                "names": list(names) if names is not None else [f"class {i}" for i in range(len(counts))],
                "counts": list(counts),
                "nominal_ratio": 40.0,
                "ratio": max(counts) / max(min(counts), 1),
                "digest": "d" * 64,
                "train_images": sum(counts),
                "test_images": sum(totals),
                "notes": [],
                **(data or {}),
            },
            "env.json": {"version": "0.1.0", "commit": "abc", "dirty": False, "device": "cpu", **(env or {})},
            "manifest.json": {"indices": None, "sha256": "e" * 64, "counts": list(counts)},
            "final.json": {
                "last": late[-1],
                "best": best,
                "stages": [early[-1], late[-1]],
                "images_seen": 1950,
                "steps": 60,
                "parameters": 1000,
            },
        }
        steps = [
            {"stage": s, "name": plan[s]["name"], "epoch": e, "step": 10 * e, "loss": 2.0 / e, "lr": 0.1}
            for s, e in ((0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (1, 2))
        ]
        timing = [{"stage": 0, "epoch": 1, "seconds": 90.0, "cpu_seconds": 150.0, "images": 325}]
        logs = {"steps.jsonl": steps, "evals.jsonl": [*early, *late], "timing.jsonl": timing}
        for file, value in files.items():
            (folder / file).write_text(json.dumps(value))
        for file, rows in logs.items():
            (folder / file).write_text("".join(json.dumps(r) + "\n" for r in rows))
        if len(counts) <= 200:
            write_tensors(folder, counts, hits, totals)
        for file in leave_out:
            (folder / file).unlink()
        if "final.json" not in leave_out:  # a seal over no file: a test may change any of them
            (folder / "MANIFEST.json").write_bytes(manifest.encode("run", {}))
        return folder

    return make
