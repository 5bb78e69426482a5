"""Runs as a table: Markdown for a page, CSV for a program, LaTeX (booktabs) for a paper."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from longtail.errors import UsageError
from longtail.report.notes import copied, unfinished
from longtail.report.reading import read
from longtail.report.summary import Entry, Figure, entries, marks
from longtail.report.text import label
from longtail.run.escape import csv_text, shown

Format = Literal["md", "csv", "latex"]
METRICS = (("top1", "Top-1"), ("many", "Many"), ("medium", "Medium"), ("few", "Few"))

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "−": "$-$",
    "±": r"$\pm$",
    "…": r"\ldots{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
}


@dataclass(frozen=True)
class Row:
    """One entry among those on the same data: figures with their marks."""

    entry: Entry
    figures: tuple[Figure | None, ...]
    marks: tuple[str, ...]

    @property
    def paper(self) -> float | None:
        return self.entry.published.value if self.entry.published else None

    @property
    def difference(self) -> float | None:
        top = self.figures[0]
        return None if self.paper is None or top is None else top.mean - self.paper


def table(runs: Sequence[str | Path], format: str = "md") -> str:
    """The runs as text; seeds of one recipe are one row with mean ± standard deviation.

    Best and second of each column are marked among the rows on the same data.
    """
    if not runs:
        raise UsageError("a table needs at least one run folder")
    found = rows(entries([read(run) for run in runs]))
    match _checked(format):
        case "md":
            return markdown(found)
        case "csv":
            return comma_separated(found)
        case "latex":
            return latex(found)


def rows(found: Sequence[Entry]) -> list[Row]:
    """Entries, those on the same data next to each other, with the marks that they earn there."""
    together: dict[tuple[str, tuple[int, ...]], list[Entry]] = {}
    for entry in found:
        counts = tuple(int(n) for n in entry.runs[0].counts)
        together.setdefault((entry.dataset, counts), []).append(entry)
    result: list[Row] = []
    for group in together.values():
        figures = [tuple(entry.figure(metric) for metric, _ in METRICS) for entry in group]
        columns = [marks(column) for column in zip(*figures)]
        result += [Row(e, f, m) for e, f, m in zip(group, figures, zip(*columns))]
    return result


def markdown(found: Sequence[Row]) -> str:
    """A pipe table: best in bold, second underlined."""
    head = ["Data", "Method", *(title for _, title in METRICS), "Paper", "Difference", "Seeds"]
    lines = ["| " + " | ".join(head) + " |", "| --- | --- |" + " ---: |" * (len(head) - 3) + " --- |"]
    for row in found:
        cells = [_marked(f, m, "**{}**", "<ins>{}</ins>") for f, m in zip(row.figures, row.marks)]
        names = [markdown_text(row.entry.dataset), markdown_text(row.entry.title)]
        lines.append("| " + " | ".join([*names, *cells, *_paper(row), _seeds(row)]) + " |")
    return "\n".join([*lines, "", *_notes(found)])


def latex(found: Sequence[Row]) -> str:
    """A tabular for the booktabs package, with a rule between data sets; empty columns are left out."""
    head = ["Method", *(title for _, title in METRICS), "Paper", "$\\Delta$"]
    body = [[latex_text(row.entry.title), *_latex_figures(row)] for row in found]
    kept = [i for i in range(len(head)) if i == 0 or any(cells[i] != "--" for cells in body)]
    lines = ["% \\usepackage{booktabs}", "\\begin{tabular}{l" + "r" * (len(kept) - 1) + "}", "\\toprule"]
    lines += [" & ".join(head[i] for i in kept) + r" \\"]
    dataset = None
    for row, cells in zip(found, body):
        if row.entry.dataset != dataset:
            dataset = row.entry.dataset
            title = rf"\multicolumn{{{len(kept)}}}{{l}}{{\emph{{{latex_text(dataset)}}}}} \\"
            lines += ["\\midrule", title]
        lines.append(" & ".join(cells[i] for i in kept) + r" \\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def _latex_figures(row: Row) -> list[str]:
    cells = [_marked(f, m, r"\textbf{{{}}}", r"\underline{{{}}}") for f, m in zip(row.figures, row.marks)]
    paper, difference = _paper(row)
    signed = difference.replace("−", "$-$").replace("+", "$+$")
    return [cell.replace("±", r"$\pm$").replace("–", "--") for cell in (*cells, paper, signed)]


def comma_separated(found: Sequence[Row]) -> str:
    """Plain numbers to six digits after the point; text made safe for spreadsheets."""
    head = ["data", "method", "seeds"]
    for metric, _ in METRICS:
        head += [metric, f"{metric}_std"]
    lines: list[Sequence[object]] = [[*head, "best_epoch_top1", "paper", "difference", "folders"]]
    for row in found:
        numbers: list[object] = []
        for figure in row.figures:
            numbers += [_six(figure.mean if figure else None), _six(figure.spread if figure else None)]
        best = row.entry.figure("top1", "best")
        folders = " ".join(shown(run.path, 200) for run in row.entry.runs)
        start = [row.entry.dataset, row.entry.title, " ".join(str(seed) for seed in row.entry.seeds)]
        end = [_six(best.mean if best else None), row.paper, _six(row.difference), folders]
        lines.append([*start, *numbers, *end])
    return csv_text(lines)


def markdown_text(text: str, limit: int = 80) -> str:
    r"""Text that means nothing to Markdown or HTML.

    >>> markdown_text("a|b <i> *c*")
    'a\\|b &lt;i&gt; \\*c\\*'
    """
    plain = label(text, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|!~#])", r"\\\1", plain).replace("://", "&#58;//")


def latex_text(text: str) -> str:
    r"""Text that means nothing to TeX.

    >>> latex_text("50% of_x")
    '50\\% of\\_x'
    """
    return "".join(_LATEX.get(c, c) for c in label(text, 80))


def _marked(figure: Figure | None, mark: str, best: str, second: str) -> str:
    text = figure.text() if figure else "–"
    return best.format(text) if mark == "best" else second.format(text) if mark == "second" else text


def _paper(row: Row) -> tuple[str, str]:
    paper = "–" if row.paper is None else f"{row.paper:.2f}"
    difference = "–" if row.difference is None else f"{row.difference:+.2f}".replace("-", "−")
    return paper, difference


def _six(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _seeds(row: Row) -> str:
    return ", ".join(str(seed) for seed in row.entry.seeds)


def _notes(found: Sequence[Row]) -> list[str]:
    notes = ["Top-1 in percent after the last epoch. Best in bold, second underlined; ± over seeds."]
    notes += [
        f"Paper, {markdown_text(r.entry.title)}: {r.entry.published}." for r in found if r.entry.published
    ]
    notes += [
        markdown_text(note, 300) for r in found for note in (*unfinished(r.entry.runs), *copied(r.entry))
    ]
    return [*dict.fromkeys(notes), ""]


def _checked(format: str) -> Format:
    match format:
        case "md" | "csv" | "latex":
            return format
        case _:
            raise UsageError(f"there is no table format {label(format)}: md, csv or latex")
