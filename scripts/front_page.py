"""Writes the table of results in README.md from the run folders in results/. Text outside the markers stays.

python scripts/front_page.py
"""

from __future__ import annotations

import json
from pathlib import Path

from longtail.report import cells
from longtail.run.folder import RunFolder

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "README.md"
BEGIN, END = "<!-- results: python scripts/front_page.py -->", "<!-- end of results -->"
HEAD = "| | paper | ours | many | medium | few |\n| --- | ---: | ---: | ---: | ---: | ---: |"


def row(cell: cells.Cell) -> str | None:
    """The paper's figure and ours, a link to the file it is in; None while the cell has not been run."""
    folder = ROOT / "results" / cell.name
    if not RunFolder(folder).is_finished:
        return None
    last = json.loads((folder / "final.json").read_text())["last"]
    paper = f"{cell.last.value:.2f}" if cell.last else "-"
    groups = ("-" if last[name] is None else f"{last[name]:.1f}" for name in ("many", "medium", "few"))
    ours = f"[{last['top1']:.2f}](results/{cell.name}/final.json)"
    return f"| {cell.title} | {paper} | {ours} | {' | '.join(groups)} |"


def written(page: str) -> str:
    """The page with its table made anew: the first group, at one seed, without what was re-trained."""
    rows = [row(cell) for cell in cells.cells() if cell.group == 1 and "-crt" not in cell.name]
    before, _, rest = page.partition(BEGIN)
    table = "\n".join([HEAD, *(each for each in rows if each)])
    return f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
