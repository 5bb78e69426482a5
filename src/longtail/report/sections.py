"""What stands in each section of the page, as plain values for the template, which escapes all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from longtail.report import describe, pictures
from longtail.report.measures import GROUPS
from longtail.report.reading import RunFiles
from longtail.report.summary import Entry, Figure, marks
from longtail.report.text import label, percent, plural
from longtail.report.worst import Worst, classes_of
from longtail.run.escape import shown

COLUMNS = (("top1", "Top-1"), ("many", "Many"), ("medium", "Medium"), ("few", "Few"))
EXTRA = (("balanced", "Balanced"), ("macro_f1", "Macro F1"), ("worst", "Worst class"), ("ece", "ECE"))


ENVIRONMENT = {"dirty": "changes not committed", "cpu": "processor", "kernels": "compiled passes"}


@dataclass(frozen=True)
class Thrift:
    """How much detail a page may hold: rows of the class table, entries with own pictures, samples, and
    recipes and environments in full."""

    rows: int
    entries: int
    samples: int
    recipes: int = 1000


THRIFT = (Thrift(300, 4, 5), Thrift(100, 3, 3), Thrift(30, 2, 0), Thrift(0, 1, 0), Thrift(0, 1, 0, 20))


def page(entries: Sequence[Entry], thrift: Thrift) -> dict[str, Any]:
    """Everything the template needs; entries on different data stand in blocks of their own."""
    blocks: dict[str, list[Entry]] = {}
    for entry in entries:
        blocks.setdefault(json.dumps([entry.dataset, entry.runs[0].data["counts"]]), []).append(entry)
    titles = list(dict.fromkeys(entry.title for entry in entries))
    title = f"{', '.join(titles[:3])}{' and others' if len(titles) > 3 else ''}"
    return {
        "title": label(title, 120),
        "number": sum(len(entry.runs) for entry in entries),
        "blocks": [_block(i, group, thrift) for i, group in enumerate(blocks.values())],
        "entries": [_recipe(entry) for entry in entries[: thrift.recipes]],
        "left_out": max(len(entries) - thrift.recipes, 0),
        "stage_columns": describe.STAGE,
        "environment": _environment(entries[: thrift.recipes]),
        "notes": _notes(entries),
        "version": label(entries[0].runs[0].env.get("version", "")) if entries[0].runs[0].env else "",
    }


def _block(number: int, entries: Sequence[Entry], thrift: Thrift) -> dict[str, Any]:
    alone = [entry for entry in entries[: thrift.entries]]
    confusions = [(entry, pictures.confusions(entry.runs[0])) for entry in alone]
    worst = [(entry.title, classes_of(entry.runs[0], samples=thrift.samples)) for entry in alone]
    return {
        "id": f"data{number + 1}",
        "dataset": _heading(label(entries[0].dataset, 80)),
        "size": _size(entries[0].runs[0]),
        "sentences": [_sentence(entry, len(entries) > 1) for entry in entries],
        "several": any(len(entry.runs) > 1 for entry in entries),
        "tiles": _tiles(entries[0]) if len(entries) == 1 else [],
        "table": _table(entries, COLUMNS),
        "further": _table(entries, EXTRA),
        "more": len(entries) - pictures.MOST,
        "groups": pictures.by_group(entries),
        "classes": pictures.by_class(entries),
        "class_rows": _class_rows(entries[: pictures.MOST], thrift.rows),
        "class_total": len(entries[0].runs[0].counts),
        "titles": [entry.title for entry in entries[: pictures.MOST]],
        "curves": pictures.over_time(entries),
        "confusions": [(entry.title, found[0], found[1]) for entry, found in confusions if found],
        "calibration": pictures.calibrated(entries),
        "errors": _errors(entries),
        "worst": [(title, found) for title, found in worst if found],
        "has_samples": _has_samples(worst),
    }


def _sentence(entry: Entry, is_one_of_many: bool) -> str:
    last = {key: None if (f := entry.figure(key)) is None else f.mean for key, _ in COLUMNS}
    first, number = entry.runs[0], len(entry.runs)
    seeds = f" Mean of {number} seeds." if number > 1 else ""
    if is_one_of_many:  # the table has the numbers
        return f"{describe.training(first.recipe)}.{seeds or f' Seed {entry.seeds[0]}.'}"
    return describe.sentence(first.recipe, first.data, last, entry.seeds) + seeds


def _heading(text: str) -> str:
    return text[:1].upper() + text[1:]


def _size(run: RunFiles) -> str:
    train = int(run.data.get("train_images") or run.counts.sum())
    tests = f", {plural(int(run.data['test_images']), 'test image')}" if run.data.get("test_images") else ""
    high, low = int(run.counts.max()), int(run.counts.min())
    each = f"{low:,}" if high == low else f"{high:,} down to {low:,}"
    return f"{plural(len(run.counts), 'class')}, {plural(train, 'training image')} ({each} a class){tests}"


def _tiles(entry: Entry) -> list[dict[str, str]]:
    names = {"top1": "all test images", **{key: f"{key}-shot classes" for key in GROUPS}}
    found = [(key, entry.figure(key)) for key in names]
    return [
        {"kind": key, "name": names[key], "value": percent(f.mean), "spread": _spread(f)}
        for key, f in found
        if f
    ]


def _spread(figure: Figure) -> str:
    return "" if figure.spread is None else f"± {figure.spread:.1f}"


def _table(entries: Sequence[Entry], wanted: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Rows of cells with their marks; columns that say nothing are left out."""
    columns = [(k, t) for k, t in wanted if _says_something(entries, k)]
    cells: list[list[dict[str, str]]] = [[] for _ in entries]
    for key, _ in columns:
        figures = [entry.figure(key) for entry in entries]
        digits = 3 if key == "ece" else 2
        for row, figure, mark in zip(cells, figures, marks(figures, lower=key == "ece", digits=digits)):
            row.append({"text": figure.text(digits) if figure else "–", "mark": mark})
    rows = [
        {
            "title": entry.title,
            "seeds": ", ".join(str(seed) for seed in entry.seeds),
            "cells": row,
            "best": figure.text() if (figure := entry.figure("top1", "best")) else "–",
            **_published(entry),
        }
        for entry, row in zip(entries, cells)
    ]
    sources = [
        f"{e.title}: {e.published}" + (f". {e.published.note}" if e.published.note else "")
        for e in entries
        if e.published
    ]
    return {"columns": [title for _, title in columns], "rows": rows, "sources": sources}


def _says_something(entries: Sequence[Entry], key: str) -> bool:
    """Some run has the figure; and on a balanced test set the balanced accuracy is the top-1 again."""
    pairs = [(entry.figure(key), entry.figure("top1")) for entry in entries]
    if key == "balanced":
        return any(a and b and abs(a.mean - b.mean) > 0.005 for a, b in pairs)
    return any(a for a, _ in pairs)


def _published(entry: Entry) -> dict[str, str]:
    figure = entry.figure("top1")
    if entry.published is None:
        return {"paper": "", "difference": ""}
    difference = f"{figure.mean - entry.published.value:+.2f}" if figure else ""
    return {"paper": f"{entry.published.value:.2f}", "difference": difference.replace("-", "−")}


def _class_rows(entries: Sequence[Entry], most: int) -> list[dict[str, Any]]:
    """The classes with the fewest images, rarest last; all of them where there are not more than `most`."""
    run = entries[0].runs[0]
    accuracies = [pictures.mean_accuracy(entry) for entry in entries]
    masks = pictures.shots(run)
    order = np.argsort(-run.counts, kind="stable")
    return [
        {
            "name": label(run.names[int(c)]),
            "count": f"{int(run.counts[c]):,}",
            "group": next((name for name, mask in masks.items() if mask[c]), ""),
            "values": [percent(float(a[c])) for a in accuracies],
        }
        for c in (order[-most:] if most else order[:0])
    ]


def _errors(entries: Sequence[Entry]) -> list[str]:
    found = [(entry.title, entry.figure("ece")) for entry in entries]
    return [f"{title}: {figure.text(3)}" for title, figure in found if figure]


def _has_samples(worst: Sequence[tuple[str, Sequence[Worst]]]) -> bool:
    return any(found.samples for _, classes in worst for found in classes)


def _recipe(entry: Entry) -> dict[str, Any]:
    first = entry.runs[0]
    folders = [shown(run.path, 120) for run in entry.runs]
    return {
        "title": entry.title,
        "folders": folders,
        "stages": [describe.stage(stage) for stage in first.recipe["stages"]],
        "json": json.dumps(first.recipe, indent=1, sort_keys=True),
    }


def _environment(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for run in (run for entry in entries for run in entry.runs):
        facts = {key: value for key, value in run.env.items() if value is not None}
        seconds = sum(float(row.get("seconds", 0)) for row in run.timing)
        if seconds:
            facts["minutes"] = f"{seconds / 60:.1f}"
        if run.final.get("images_seen"):
            facts["images seen"] = f"{int(run.final['images_seen']):,}"
        facts["data digest"] = facts.pop("data_digest", run.data.get("digest", ""))
        facts["manifest sha-256"] = run.manifest.get("sha256") or "no manifest"
        pairs = [
            (ENVIRONMENT.get(key, label(key).replace("_", " ")), label(_plain(value), 200))
            for key, value in facts.items()
        ]
        found.append({"path": shown(run.path, 120), "pairs": pairs})
    return found


def _plain(value: object) -> str:
    if isinstance(value, Mapping | list):
        return json.dumps(cast("object", value), sort_keys=True)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _notes(entries: Sequence[Entry]) -> list[str]:
    """Whatever a reader should know before believing a number, each said once."""
    from longtail.report.notes import of_entry

    found = [note for entry in entries for note in of_entry(entry)]
    return list(dict.fromkeys(found))
