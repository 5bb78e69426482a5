"""Writes the numbers of docs/methods.md: parameters, cost of a step, the paper's figures, and ours when run.

    python scripts/methods_page.py

Every number comes from a file: benchmarks/results/method_cost.csv, longtail.recipes.paper_tables, and the
final.json of the runs under results/. What has not been run is a dash. Text outside the markers stays.
"""

from __future__ import annotations

import csv
import json
import re
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longtail.recipe import Cifar
from longtail.recipes import catalogue, overrides, paper, paper_tables
from longtail.run.folder import RunFolder

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "methods.md"
BEGIN, END = "<!-- numbers: python scripts/methods_page.py -->", "<!-- end of numbers -->"
MARKS = "<!-- short: python scripts/methods_page.py -->", "<!-- end of short -->"
RESULTS = ROOT / "results"
PLAIN = re.compile(r"ce-s\d+$")
COLUMNS = (
    "recipe",
    "parameters",
    "cost of a step",
    "paper, CIFAR-10-LT",
    "ours",
    "paper, CIFAR-100-LT",
    "ours",
    "ours, 20 epochs, CIFAR-10-LT",
)
HEAD = f"| {' | '.join(COLUMNS)} |\n{'| --- ' * len(COLUMNS)}|"


# Rows that were not measured apart: what mixup costs beside them is not known; with another second stage the
# cost, which is that of the first, is the same.
UNMIXED = ("baselines.cosface", "baselines.arcface", "cifar.gcl form=euclidean", "cifar.gcl form=angular")
ALIKE = {name: f"{name} mixup=false" for name in UNMIXED} | {
    "decoupled.crt": "decoupled.crt variant=released"
}


def costs() -> list[dict[str, str]]:
    with (ROOT / "benchmarks" / "results" / "method_cost.csv").open() as file:
        measured = list(csv.DictReader(file))
    made: list[dict[str, str]] = []
    for row in measured:
        made.append(row)
        if other := ALIKE.get(row["recipe"]):
            made.append(row | {"recipe": other} | ({"ratio": ""} if row["recipe"] in UNMIXED else {}))
    return made


def runs() -> list[tuple[Path, Mapping[str, Any], float]]:
    """(folder, recipe as written, top-1 after the last epoch) of every finished run in results/."""
    found: list[tuple[Path, Mapping[str, Any], float]] = []
    for final in sorted(RESULTS.rglob("final.json")):
        if RunFolder(final.parent).is_finished:
            recipe = overrides.plain(RunFolder(final.parent).recipe())  # with what later versions added
            found.append((final, recipe, json.loads(final.read_text())["last"]["top1"]))
    return found


# What a method is. Batches, rates and epochs may differ, and whether the run has the recipe's name.
PARTS = ("loss", "sampling", "mixing", "paired", "views", "head", "trains", "batchnorm", "posthoc")


def same_method(run: Mapping[str, Any], call: str, classes: int) -> bool:
    """Whether a run is this recipe on CIFAR-LT at 100 to 1."""
    plain = wanted(call, classes)
    if run["data"].get("classes") != classes or len(run["stages"]) != len(plain["stages"]):
        return False
    if (run["data"].get("longtail") or {}).get("ratio") != 100 or run["model"] != plain["model"]:
        return False
    pairs = list(zip(run["stages"], plain["stages"], strict=True))
    return all(one.get(part) == other.get(part) for one, other in pairs for part in PARTS) and all(
        one["optimizer"]["filters"] == other["optimizer"]["filters"] for one, other in pairs
    )


def wanted(call: str, classes: int) -> Mapping[str, Any]:
    name, *settings = call.split()
    made = catalogue.make(name, [f"classes={classes}", "ratio=100", *settings])
    assert isinstance(made.data, Cifar)
    return overrides.plain(made)


def epochs_of(run: Mapping[str, Any]) -> int:
    return sum(stage["epochs"] for stage in run["stages"] if "backbone" in stage["trains"])


def cell(chosen: list[tuple[Path, Mapping[str, Any], float]]) -> str:
    """Every seed's figure, each a link to the file that it is in."""
    made = [f"[{top1:.2f}](../{path.relative_to(ROOT).as_posix()})" for path, _, top1 in chosen]
    return ", ".join(made) or "-"


def row(cost: Mapping[str, str], known: list[tuple[Path, Mapping[str, Any], float]]) -> str:
    call = cost["recipe"]
    ratio = f"{cost['ratio']} ({cost['ratio_q1']} to {cost['ratio_q3']})" if cost["ratio"] else "-"
    cells = [f"`{call}`", f"{int(cost['parameters']):,}", ratio]
    for classes in (10, 100):
        plain = wanted(call, classes)
        figure = paper.published(plain)
        mine = [run for run in known if same_method(run[1], call, classes)]
        whole = [run for run in mine if epochs_of(run[1]) == epochs_of(plain)]
        cells += [f"{figure.value:.2f}" if figure else "-", cell(whole)]
    short = [run for run in known if "short" in run[0].parts and same_method(run[1], call, 10)]
    return "| " + " | ".join([*cells, cell(short)]) + " |"


def large_sets() -> str:
    """What the paper prints for the sets that we have not trained on."""
    head = ["method", *paper_tables.LARGE_SETS]
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for name, entry in (paper_tables.LARGE | paper_tables.EXPERTS_LARGE).items():
        figures = ["-" if figure is None else f"{figure:.2f}" for figure in entry.figures]
        lines.append(f"| {' | '.join([name, *figures])} |")
    return "\n".join(lines)


def numbers() -> str:
    measured, known = costs(), runs()
    about = measured[0]
    note = (
        f"Cost: median of {about['repeats']} rounds and its quartiles, {about['cpu']}, {about['threads']} "
        f"thread(s), torch {about['torch']}, commit {about['commit']} (`benchmarks/method_cost.py`)."
    )
    larger = [
        "Published on the large sets (ResNet-50, on Places-LT ResNet-152); not trained here:",
        "",
        large_sets(),
    ]
    return "\n".join([HEAD, *(row(cost, known) for cost in measured), "", note, "", *larger])


def short() -> str:
    """Every run of the short comparison beside cross-entropy with or without mixup, as it has it itself."""
    folders = [path.parent for path in (RESULTS / "short").glob("*/final.json")]
    finals = {
        path.name: json.loads((path / "final.json").read_text())
        for path in folders
        if RunFolder(path).is_finished
    }
    plain = [final["last"]["top1"] for name, final in finals.items() if PLAIN.match(name)]
    beside = {False: statistics.mean(plain), True: finals["ce_mixup-s0"]["last"]["top1"]}
    deviation, rows = statistics.stdev(plain), list[tuple[bool, float, str]]()
    for name, final in finals.items():
        run, last = overrides.plain(RunFolder(RESULTS / "short" / name).recipe()), final["last"]
        mixed = run["stages"][0]["mixing"] is not None
        gap = last["top1"] - beside[mixed]
        cells = [
            f"[{name}](../results/short/{name}/final.json)",
            "mixup" if mixed else "none",
            f"{last['top1']:.2f}",
            f"{last['many']:.1f}",
            f"{last['medium']:.1f}",
            f"{gap:+.2f} ({gap / deviation:+.1f})".replace("-", "−"),
            f"{final['images_seen']:,}",
        ]
        rows.append((mixed, -last["top1"], f"| {' | '.join(cells)} |"))
    head = ("run", "mixing", "top-1", "many", "medium", "against its CE (in deviations)", "images seen")
    mean = f"{beside[False]:.2f} ± {deviation:.2f}"
    note = (
        f"CE without mixup: {mean} over {len(plain)} seeds; of all else one run. Deviations are those of CE "
        "without mixup, for the runs with it too."
    )
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|", *(line for *_, line in sorted(rows))]
    return "\n".join([*lines, "", note])


def filled(page: str, text: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    begin, end = marks
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{text}\n{end}{after}"


def written(page: str) -> str:
    return filled(filled(page, numbers()), short(), MARKS)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
