"""`compare`, `table`, `report`, `figure`, `verify`: thin commands over the report and the run folder."""

from __future__ import annotations

import json
from pathlib import Path


def test_compare_and_table_print_what_the_report_makes(command, replaced, run_folder) -> None:
    replaced(
        "longtail.report.tables", table=lambda runs, format: f"{[run.name for run in runs]} as {format}\n\n"
    )
    assert command("compare", run_folder, run_folder) == (0, "['run', 'run'] as md\n", "")
    assert command("table", run_folder, "--format", "latex") == (0, "['run'] as latex\n", "")


def test_report_writes_a_page(command, run_folder, tmp_path) -> None:
    outcome = command("report", run_folder, "--out", tmp_path / "page.html")
    assert outcome.code == 0, outcome
    page = (tmp_path / "page.html").read_text()
    assert page.lstrip().lower().startswith("<!doctype html>") and "digits" in page


def test_report_of_no_run_is_refused(refused, tmp_path) -> None:
    assert "not a run folder" in refused(2, "report", tmp_path, "--out", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_verify_names_what_is_damaged(command, run_folder) -> None:
    outcome = command("verify", run_folder)
    assert outcome.code == 0 and "not finished" in outcome.out
    (run_folder / "evals.jsonl").write_text("{]\n")
    outcome = command("verify", run_folder)
    assert outcome.code == 4
    assert "damaged: evals.jsonl: " in outcome.out and outcome.err.startswith("error[E400]: ")


def test_verify_of_a_changed_recipe_is_refused(command, run_folder: Path) -> None:
    value = json.loads((run_folder / "recipe.json").read_text())
    (run_folder / "recipe.json").write_text(json.dumps(value | {"seed": -1}))
    assert command("verify", run_folder).code in (2, 4)
