from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from longtail.errors import UsageError
from longtail.report.tables import latex_text, table

MakeRun = Callable[..., Path]

CIFAR = {
    "name": "cifar.gcl",
    "data": {"kind": "cifar", "classes": 10, "longtail": {"profile": "exponential", "ratio": 100.0}},
    "model": {"kind": "classifier", "backbone": {"name": "resnet32"}},
}


def three(make_run: MakeRun) -> list[Path]:
    return [
        make_run("a", seed=0),
        make_run("b", seed=1, hits=(10, 6, 4, 2)),
        make_run("c", loss={"kind": "cross_entropy"}, hits=(10, 5, 2, 0)),
    ]


def test_markdown_marks_best_and_second(make_run: MakeRun) -> None:
    lines = table(three(make_run), "md").splitlines()
    assert lines[0].startswith("| Data | Method | Top-1 | Many | Medium | Few | Paper | Difference | Seeds |")
    assert lines[2] == (
        "| handwritten digits, 40 to 1 | GCL-A | **52.50 ± 3.54** | <ins>95.00 ± 7.07</ins> "
        "| **60.00 ± 0.00** | **27.50 ± 3.54** | – | – | 0, 1 |"
    )
    assert lines[3] == (
        "| handwritten digits, 40 to 1 | Decoupling | <ins>42.50</ins> | **100.00** | <ins>50.00</ins> "
        "| <ins>10.00</ins> | – | – | 0 |"
    )


def test_the_paper_stands_beside_its_cell(make_run: MakeRun) -> None:
    text = table([make_run(recipe=CIFAR, data={"nominal_ratio": 100.0, "ratio": 100.0})], "md")
    assert "| 82.72 | −32.72 | 0 |" in text
    assert "Paper, GCL-A: 82.72 (main table, CIFAR, row GCL-A, CIFAR-10-LT r=100)." in text


def test_latex_is_a_booktabs_table(make_run: MakeRun) -> None:
    text = table(three(make_run), "latex")
    for part in (
        r"\toprule",
        r"\midrule",
        r"\bottomrule",
        r"\textbf{52.50 $\pm$ 3.54}",
        r"\underline{42.50}",
    ):
        assert part in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\") and "&" in line]
    assert [line.count("&") for line in rows] == [4, 4, 4]  # no figure of the paper applies: no such column
    assert text.isascii()


def test_latex_has_balanced_braces_environments_and_rows(make_run: MakeRun) -> None:
    paper = {"nominal_ratio": 100.0, "ratio": 100.0}
    runs = [
        make_run("a", recipe=CIFAR, data=paper),
        make_run("b", loss={"kind": "focal"}, recipe={"name": "50% & $x_1$\\ {#~^}"}),
        make_run("c", counts=(300, 200, 150, 120)),
    ]
    text = table(runs, "latex")
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")
    assert re.sub(r"\\\$", "", text).count("$") % 2 == 0
    columns = len(re.search(r"\{(lr+)\}", text)[1])
    rows = [line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert len(rows) == 4 and all(len(re.findall(r"(?<!\\)&", line)) == columns - 1 for line in rows)
    assert columns == 7 and "82.72 & $-$32.72" in text and text.count("multicolumn{7}") == 3


def test_csv_holds_plain_numbers(make_run: MakeRun) -> None:
    rows = list(csv.DictReader(io.StringIO(table(three(make_run), "csv"))))
    assert [row["method"] for row in rows] == ["GCL-A", "Decoupling"]
    assert float(rows[0]["top1"]) == 52.5 and float(rows[0]["top1_std"]) == pytest.approx(12.5**0.5)
    assert rows[1]["top1_std"] == "" and rows[0]["seeds"] == "0 1"


@pytest.mark.parametrize(
    "name", ["=HYPERLINK(1)", "+1", "-1", "@x", "a|b", "<img src=x>", "50% & $x_1$\\", "\x1b]0;t"]
)
def test_hostile_method_names_stay_text(make_run: MakeRun, name: str) -> None:
    run = make_run(loss={"kind": "focal"}, recipe={"name": name})
    (row,) = csv.DictReader(io.StringIO(table([run], "csv")))
    assert not row["method"].startswith(("=", "+", "-", "@"))
    text = table([run], "md")
    assert "<img" not in text and "\x1b" not in text
    assert text.splitlines()[2].replace("\\|", "").count("|") == 10
    assert "\x1b" not in table([run], "latex")


def test_latex_text_means_nothing_to_tex() -> None:
    assert latex_text(r"a_b%\x{y}^~&#$") == (
        r"a\_b\%\textbackslash{}x\{y\}\textasciicircum{}\textasciitilde{}\&\#\$"
    )


def test_wrong_requests_are_usage_errors(make_run: MakeRun) -> None:
    with pytest.raises(UsageError, match="at least one"):
        table([])
    with pytest.raises(UsageError, match="md, csv or latex"):
        table([make_run()], "docx")


def test_marks_are_given_among_rows_on_the_same_data_only(make_run: MakeRun) -> None:
    text = table([make_run("a"), make_run("b", counts=(300, 100, 20, 5))], "md")
    assert "**" not in text
