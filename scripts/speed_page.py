"""Writes the numbers of docs/speed.md from benchmarks/results/*.csv. Text outside the markers stays.

python scripts/speed_page.py
"""

from __future__ import annotations

import csv
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "speed.md"
RESULTS = ROOT / "benchmarks" / "results"

# file -> the columns that the page shows; the rest (commit, processor, ...) goes into the line below it.
TABLES: dict[str, tuple[str, ...]] = {
    "train_step": (
        "part",
        "batch",
        "loop",
        "images_per_s",
        "spread",
        "ratio",
        "cpu_ratio",
        "of_bf16_product",
        "of_fp32_product",
    ),
    "normalisation": ("maps", "type", "shortcut", "pytorch_ms", "compiled_ms", "ratio", "spread"),
    "engine_overhead": ("images", "loop_s", "bare_s", "overhead_percent", "cpu_overhead_percent"),
    "input_pipeline": ("case", "unit", "median", "spread", "percent_of_step"),
    "checkpoint_cost": ("save_ms_median", "save_ms_max", "bytes", "epoch_seconds", "percent_of_epoch"),
    "ddp": ("way", "images_per_s", "spread", "ratio"),
    "startup": ("case", "wall_median_s", "wall_least_s", "cpu_median_s"),
    "cached": ("stage 2", "balanced", "many", "medium", "few", "epochs"),
}
ABOUT = ("commit", "cpu", "cores", "threads", "load", "torch", "rounds", "runs", "repeats")


def table(name: str) -> str:
    """A Markdown table, and where and when it was measured."""
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return "Not measured yet."
    with path.open() as file:
        rows = list(csv.DictReader(file))
    shown = [column for column in TABLES[name] if column in rows[0]]
    lines = [f"| {' | '.join(shown)} |", "| --- " * len(shown) + "|"]
    lines += [f"| {' | '.join(row[column] for column in shown)} |" for row in rows]
    about = ", ".join(f"{column} {rows[0][column]}" for column in ABOUT if rows[0].get(column))
    return "\n".join([*lines, "", f"[{name}.csv](../benchmarks/results/{name}.csv): {about}."])


def written(page: str) -> str:
    for name in TABLES:
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, found, rest = page.partition(begin)
        if found:
            page = f"{before}{begin}\n{table(name)}\n{end}{rest.partition(end)[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
