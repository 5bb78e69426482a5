"""results/README.md from the run folders below results/: `python -m longtail.report.ledger results`.

Every figure is read from a file of the run it stands beside; cells that were never run say so.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from longtail.errors import LongtailError, UsageError
from longtail.recipes import paper
from longtail.recipes.paper_tables import Published
from longtail.report import cells as plan
from longtail.report import describe
from longtail.report.reading import Row, RunFiles, read
from longtail.report.summary import entries
from longtail.report.tables import markdown_text
from longtail.report.text import percent
from longtail.run import fsio
from longtail.run.escape import shown

COMMAND = "python -m longtail.report.ledger"
HEAD = (
    "cell",
    "paper, stage 1",
    "ours, stage 1",
    "paper",
    "**ours, last epoch**",
    "difference",
    "many",
    "medium",
    "few",
    "best on test †",
    "epochs",
    "images seen",
    "parameters",
    "minutes (CPU)",
    "device",
)
NOT_RUN = "not run"

ABOUT = "ABOUT.md"  # what the keeper of the results says of their data, in the folder itself
SERIES = {
    "fast": "`cifar.fast`, GCL from a fifth of the images: the strong track, beside which no row of the "
    "paper stands.",
    "short": "Every method of one network once, under one protocol of 20 epochs (docs/methods.md); a "
    "comparison within itself, beside which no row of the paper stands.",
}


def write(results: Path) -> Path:
    """Write README.md into `results` and return its path."""
    if not results.is_dir():
        raise UsageError(f"{shown(results)} is not a folder")
    path = results / "README.md"
    fsio.write_file(path, text(results).encode("utf-8"))
    return path


def text(results: Path) -> str:
    """The ledger as Markdown."""
    found = {run.path.relative_to(results).as_posix(): run for run in _runs(results)}
    planned = plan.cells()
    done = sum(cell.name in found for cell in planned)
    lines = [
        "# Results",
        "",
        f"Written by `{COMMAND} results` from the files in these folders; not to be edited by hand.",
        f"{done} of {len(planned)} planned cells have been run.",
        "",
        "Top-1 accuracy in percent on the test images. **Ours is the last epoch**, chosen before the run. "
        "† is the best epoch *on the test images*, the way much of the literature reports: for comparison "
        "only. Many: more than 100 training images; few: at most 20. Minutes are wall-clock (CPU) time of "
        "training and its evaluations; of a re-trained run they are those of what was trained anew, and its "
        "device says where the first stage was trained, if that is another. On the accelerator and on the "
        "processor several runs went on at once.",
        "",
        *_told(results),
        *_subsets(list(found.values())),
    ]
    for group, title in plan.GROUPS.items():
        lines += [f"## {title}", "", *_head()]
        members = [cell for cell in planned if cell.group == group]
        lines += [_planned(cell, found.get(cell.name)) for cell in members]
        lines.append("")
    lines += _over_seeds(list(found.values()))
    return "\n".join([*lines, *_others(found, {cell.name for cell in planned})]).rstrip() + "\n"


def _runs(results: Path) -> list[RunFiles]:
    """Run folders one and two levels down, by name."""
    recipes = sorted([*results.glob("*/recipe.json"), *results.glob("*/*/recipe.json")])
    return [read(path.parent) for path in recipes]


def _head() -> list[str]:
    align = [" --- "] + [" ---: "] * (len(HEAD) - 2) + [" --- "]
    return ["| " + " | ".join(HEAD) + " |", "|" + "|".join(align) + "|"]


def _planned(cell: plan.Cell, run: RunFiles | None) -> str:
    if run is None:
        row = [f"{cell.title}", _figure(cell.first), NOT_RUN, _figure(cell.last), NOT_RUN]
        return "| " + " | ".join(row + [""] * (len(HEAD) - len(row))) + " |"
    return _row(f"[{cell.title}]({cell.name}/)", run, cell.first, cell.last)


def _over_seeds(runs: Sequence[RunFiles]) -> list[str]:
    """Means of the finished runs that differ in nothing but the seed."""
    repeated = [e for e in entries([run for run in runs if run.is_finished]) if len(e.runs) > 1]
    if not repeated:
        return []
    names = ("data", "method", "seeds", "paper", "**top-1**", "many", "medium", "few", "best on test †")
    lines = ["## Mean ± standard deviation over seeds", "", "| " + " | ".join(names) + " |"]
    lines.append("| --- | --- | --- |" + " ---: |" * (len(names) - 3))
    for entry in repeated:
        figures = [entry.figure(key) for key in ("top1", "many", "medium", "few")]
        figures.append(entry.figure("top1", "best"))
        start = [markdown_text(entry.dataset), markdown_text(entry.title)]
        seeds = ", ".join(str(seed) for seed in sorted(entry.seeds))
        cells = [f.text() if f else "–" for f in figures]
        row = [*start, seeds, _figure(entry.published), f"**{cells[0]}**", *cells[1:]]
        lines.append("| " + " | ".join(row) + " |")
    return [*lines, ""]


def _others(found: dict[str, RunFiles], planned: set[str]) -> list[str]:
    """Runs that are in no group, each series under its own folder name."""
    series: dict[str, list[str]] = {}
    for name in sorted(set(found) - planned):
        series.setdefault(name.split("/")[0] if "/" in name else "", []).append(name)
    lines: list[str] = []
    for folder, names in series.items():
        lines += [f"## {'Series ' + markdown_text(folder) if folder else 'Further runs'}", ""]
        lines += [SERIES[folder], ""] if folder in SERIES else []
        lines += _head()
        for name in names:
            run = found[name]
            is_alike = not paper.shortfall(run.recipe)
            first = paper.published(run.recipe, stage=0) if len(run.recipe["stages"]) > 1 else None
            last = paper.published(run.recipe)
            lines.append(
                _row(markdown_text(name), run, first if is_alike else None, last if is_alike else None)
            )
        lines.append("")
    return lines


def _row(title: str, run: RunFiles, first: Published | None, last: Published | None) -> str:
    row, stages = run.last, run.stages
    is_staged = len(run.recipe["stages"]) > 1 and len(stages) > 1
    top = row.get("top1")
    is_short = bool(paper.shortfall(run.recipe))  # another budget is no comparison
    gap = None if top is None or last is None or is_short else top - last.value
    difference = "" if gap is None else f"{gap:+.2f}".replace("-", "−")
    state = "" if run.is_finished else " (running)"
    cells = [
        title,
        _figure(first),
        percent(stages[0].get("top1"), 2) if is_staged else "–",
        _figure(last),
        f"**{percent(top, 2)}**{state}",
        difference,
        *(percent(row.get(key), 2) for key in ("many", "medium", "few")),
        percent(run.best.get("top1"), 2),
        " + ".join(str(stage.get("epochs", "?")) for stage in run.recipe["stages"]),
        f"{int(run.final['images_seen']):,}" if run.final.get("images_seen") else "–",
        f"{int(run.env['parameters']):,}" if run.env.get("parameters") else "–",
        _minutes(run),
        _device(run),
    ]
    return "| " + " | ".join(cells) + " |"


def _figure(published: Published | None) -> str:
    return f"{published.value:.2f}" if published else "–"


def _device(run: RunFiles) -> str:
    """The device, and that of the first training where a re-trained run took it from another."""
    here, before = _machine(run.env), _machine(run.origin.get("env") or {})
    return markdown_text(here if before in ("–", here) else f"{here}; stage 1: {before}")


def _machine(env: Row) -> str:
    """The device, with the processor's name where that is what computed."""
    device, processor = str(env.get("device", "–")), str(env.get("cpu", ""))
    return f"{device}: {processor}" if device == "cpu" and processor else device


def _minutes(run: RunFiles) -> str:
    wall, cpu = (
        sum(float(row.get(key) or 0) for row in run.timing) / 60 for key in ("seconds", "cpu_seconds")
    )
    return f"{wall:.1f} ({cpu:.1f})" if wall else "–"


def _told(results: Path) -> list[str]:
    """The keeper's own words, which no run could know."""
    path = results / ABOUT
    return [*path.read_text(encoding="utf-8").splitlines(), ""] if path.exists() else []


def _subsets(runs: Sequence[RunFiles]) -> list[str]:
    """What the data of the runs differ in from the paper's, each said once."""
    notes = {
        f"- {describe.dataset(run.recipe, run.data)}: {markdown_text(str(note), 400)}"
        for run in runs
        for note in run.data.get("notes") or ()
    }
    return [*sorted(notes), ""] if notes else []


def main(arguments: Sequence[str]) -> int:
    """Write the ledger of one folder; the exit code."""
    if len(arguments) != 1:
        print(f"usage: {COMMAND} results", file=sys.stderr)
        return UsageError.exit_code
    try:
        print(f"written to {shown(write(Path(arguments[0])))}")
    except LongtailError as error:
        print(f"error[E{error.number}]: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
