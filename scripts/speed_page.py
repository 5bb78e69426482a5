"""Writes the numbers of docs/speed.md from benchmarks/results and results. Text outside the markers stays.

python scripts/speed_page.py
"""

from __future__ import annotations

import csv
import itertools
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "speed.md"
RESULTS = ROOT / "benchmarks" / "results"

# file -> the columns that the page shows; the rest (commit, processor, ...) goes into the line below it.
STEP = (
    "part",
    "batch",
    "loop",
    "images_per_s",
    "spread",
    "ratio",
    "cpu_ratio",
    "of_bf16_product",
    "of_fp32_product",
)
TABLES: dict[str, tuple[str, ...]] = {
    "train_step": STEP,
    "train_step_intel": STEP,
    "normalisation": ("maps", "type", "shortcut", "pytorch_ms", "compiled_ms", "ratio", "spread"),
    "engine_overhead": ("images", "loop_s", "bare_s", "overhead_percent", "cpu_overhead_percent"),
    "input_pipeline": ("case", "unit", "median", "spread", "percent_of_step"),
    "checkpoint_cost": ("save_ms_median", "save_ms_max", "bytes", "epoch_seconds", "percent_of_epoch"),
    "ddp": ("way", "images_per_s", "spread", "ratio"),
    "startup": ("case", "wall_median_s", "wall_least_s", "cpu_median_s"),
    "cached": ("stage 2", "balanced", "many", "medium", "few", "epochs"),
}
ABOUT = ("commit", "cpu", "cores", "threads", "load", "torch", "rounds", "runs", "repeats")


SHOWN_LOSSES = ("torch.randn", "GCL euclidean", "GCL angular", "GCL unified", "LDAM", "LogitAdjusted")


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def markdown(columns: Sequence[str], rows: Sequence[dict[str, str]]) -> list[str]:
    head = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    return head + [f"| {' | '.join(row[column] for column in columns)} |" for row in rows]


def about(name: str, row: dict[str, str]) -> str:
    known = ", ".join(f"{column} {row[column]}" for column in ABOUT if row.get(column))
    return f"[{name}.csv](../benchmarks/results/{name}.csv): {known}."


def table(name: str) -> str:
    """A Markdown table, and where and when it was measured."""
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return "Not measured yet."
    rows = read(path)
    shown = [column for column in TABLES[name] if column in rows[0]]
    return "\n".join([*markdown(shown, rows), "", about(name, rows[0])])


def losses() -> str:
    """The rows of loss_cost.csv that the targets are about."""
    rows = read(RESULTS / "loss_cost.csv")
    chosen = [row for row in rows if any(row["loss"].startswith(name) for name in SHOWN_LOSSES)]
    chosen = [row for row in chosen if "textbook" not in row["loss"] and "shared" not in row["loss"]]
    for row in chosen:
        row["shape"] = f"{row['batch']} x {row['classes']}"
    columns = ("shape", "loss", "ratio", "ratio_q1", "ratio_q3", "ratio_processor", "of_textbook")
    columns = (*columns, "percent_of_resnet32_step")
    return "\n".join([*markdown(columns, chosen), "", about("loss_cost", rows[0])])


HELD_OUT = {"full": "the full recipe", "budget": "the fast recipe, longer or shorter", "fast": "candidates"}
GROUPS = ("balanced", "many", "medium", "few")


def chosen() -> str:
    """What was tried on held-out images, and the full recipe there."""
    rows: list[dict[str, str]] = []
    for name, what in HELD_OUT.items():
        path = ROOT / "results" / "choices" / f"{name}.csv"
        for row in read(path) if path.exists() else ():
            values = {group: row.get(f"stage2_{group}") or row[group] for group in GROUPS}
            images = f"{int(row['images_seen']):,}"
            rows.append({"": what, "name": row["name"], **values, "images seen": images})
    files = ", ".join(f"[{name}.csv](../results/choices/{name}.csv)" for name in HELD_OUT)
    return "\n".join(
        [*markdown(tuple(rows[0]), rows), "", f"{files}: `scripts/choose.py`, `scripts/held_out.py`."]
    )


def run_of(folder: Path) -> dict[str, float]:
    final = json.loads((folder / "final.json").read_text())
    timing = [json.loads(line) for line in (folder / "timing.jsonl").read_text().splitlines()]
    seconds = sum(float(row["cpu_seconds"]) for row in timing)
    groups = {name: final["last"][name] for name in ("top1", "many", "medium", "few")}
    return {name: float("nan") if value is None else value for name, value in groups.items()} | {
        "images": final["images_seen"],
        "seconds": seconds,
    }


def spread(values: Sequence[float]) -> str:
    if any(value != value for value in values):
        return "-"
    mean = f"{statistics.mean(values):.2f}"
    return f"{mean} ± {statistics.stdev(values):.2f}" if len(values) > 1 else mean


FORMS = {"euclidean": "GCL-E", "angular": "GCL-A"}
KINDS = {"full": "cifar{}-r100-gcl-{}-s*", "fast": "fast/cifar{}-gcl-{}-s*"}


def budget() -> str:
    """Top-1 on the test images after the last epoch beside what was spent: the full recipe, the fast one."""
    rows: list[dict[str, str]] = []
    for classes, form, kind in itertools.product((100, 10), FORMS, KINDS):
        pattern = KINDS[kind].format(classes, form)
        folders = sorted(path.parent for path in (ROOT / "results").glob(f"{pattern}/final.json"))
        if folders:
            cell = f"CIFAR-{classes}-LT, {FORMS[form]}"
            rows.append({"cell": cell, "recipe": kind, **spent(folders)})
    return "\n".join(markdown(tuple(rows[0]), rows))


def spent(folders: Sequence[Path]) -> dict[str, str]:
    runs, env = [run_of(folder) for folder in folders], json.loads((folders[0] / "env.json").read_text())
    accuracy = {name: spread([run[name] for run in runs]) for name in ("top1", "many", "medium", "few")}
    return {
        "seeds": str(len(runs)),
        **accuracy,
        "images seen": f"{runs[0]['images']:,.0f}",
        "CPU seconds": f"{statistics.mean(run['seconds'] for run in runs):,.0f}",
        "on": env["cpu"] if env["device"] == "cpu" else env["device"],
    }


def written(page: str) -> str:
    made: dict[str, Callable[[], str]] = {"losses": losses, "chosen": chosen, "budget": budget}
    for name in (*TABLES, *made):
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, found, rest = page.partition(begin)
        if found:
            text = made[name]() if name in made else table(name)
            page = f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
