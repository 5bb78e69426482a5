"""`compare`, `table`, `report`, `figure`, `verify`: thin commands over the report and the run folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from longtail.recipes import catalogue, overrides
from longtail.run import seal


def test_table_prints_what_the_report_makes(command, replaced, run_folder) -> None:
    replaced(
        "longtail.report.tables", table=lambda runs, format: f"{[run.name for run in runs]} as {format}\n\n"
    )
    assert command("table", run_folder, "--format", "latex") == (0, "['run'] as latex\n", "")


@pytest.fixture
def seeds(run_folder, tmp_path) -> list[Path]:
    """Two seeds of a recipe of the paper's CIFAR track, and one of its baseline."""
    folders = []
    for name, top1, settings in (
        ("a0", 80.0, ["seed=0"]), ("a1", 82.0, ["seed=1"]), ("short", 75.0, ["seed=2", "epochs=20"])
    ):  # fmt: skip
        folder = tmp_path / name
        shutil.copytree(run_folder, folder)
        recipe = catalogue.make("cifar.gcl", ["classes=10", *settings])
        (folder / "recipe.json").write_text(json.dumps(overrides.plain(recipe)))
        final = json.loads((folder / "final.json").read_text())
        final["last"] |= {"top1": top1}
        (folder / "final.json").write_text(json.dumps(final))
        folders.append(folder)
    return folders


def test_compare_joins_seeds_and_sets_them_beside_the_paper(command, seeds) -> None:
    outcome = command("compare", *seeds)
    assert outcome.code == 0, outcome
    rows = {line.split("  ")[0]: line.split() for line in outcome.out.splitlines()}
    joined = next(words for name, words in rows.items() if name.startswith("GCL-E") and "81.00" in words)
    assert joined[-4:] == ["82.73", "-1.73", "0,", "1"]
    assert joined[1:9] == ["200", "+", "30", "epochs", "81.00", "±", "1.41", "*"]
    assert "the first stage has 20 epochs where the released code has 200" in outcome.out


def test_compare_names_the_runs_that_no_seal_vouches_for(command, seeds) -> None:
    seal.seal(seeds[0])
    out = command("compare", *seeds).out
    marked = [line for line in out.splitlines() if "the run is not finished" in line]
    assert [Path(line.split(": ")[1]).name for line in marked] == ["a1", "short"]


def test_compare_counts_a_copied_run_once(command, seeds, tmp_path) -> None:
    shutil.copytree(seeds[0], tmp_path / "copy")
    out = command("compare", seeds[0], tmp_path / "copy").out
    (row,) = (line for line in out.splitlines() if line.startswith("GCL-E"))
    assert "±" not in row and row.endswith("  0")
    assert "copy: not counted, the recipe and seed of " in out


def test_compare_refuses_a_run_that_is_not_what_was_sealed(command, refused, seeds) -> None:
    for folder in seeds:
        seal.seal(folder)
    assert "not finished" not in command("compare", *seeds).out
    final = seeds[1] / "final.json"
    final.write_bytes(final.read_bytes().replace(b"82.0", b"92.0"))
    assert "final.json is damaged" in refused(4, "compare", *seeds)
    final.write_bytes(final.read_bytes()[:-20])
    assert "final.json is damaged" in refused(4, "compare", *seeds)
    (seeds[1] / "MANIFEST.json").unlink()
    assert "final.json" in refused(4, "compare", *seeds)


def test_compare_of_no_run_is_refused(refused, tmp_path) -> None:
    assert "not a run folder" in refused(2, "compare", tmp_path)


def test_figure_of_a_formula_is_written_with_its_arrays(command, tmp_path) -> None:
    outcome = command("figure", "clouds", "--out", tmp_path / "clouds", "--counts", "500,50,5")
    assert outcome.code == 0, outcome
    assert {path.suffix for path in tmp_path.iterdir()} == {".svg", ".pdf", ".png", ".npz"}
    assert outcome.out.count("written to ") == 4


def test_a_wrong_figure_is_refused(refused, tmp_path) -> None:
    out = tmp_path / "x"
    assert "did you mean clouds?" in refused(2, "figure", "cloud", "--out", out)
    assert "500,50,5" in refused(2, "figure", "clouds", "--out", out, "--counts", "many")
    assert list(tmp_path.iterdir()) == []


def test_report_writes_a_page(command, run_folder, tmp_path) -> None:
    outcome = command("report", run_folder, "--out", tmp_path / "page.html")
    assert outcome.code == 0, outcome
    page = (tmp_path / "page.html").read_text()
    assert page.lstrip().lower().startswith("<!doctype html>") and "digits" in page


def test_report_writes_its_own_page_anew_and_no_other_file(command, refused, run_folder, tmp_path) -> None:
    page = tmp_path / "page.html"
    assert command("report", run_folder, "--out", page).code == 0
    assert command("report", run_folder, run_folder, "--out", page).code == 0
    page.write_text("<!doctype html>my thesis")
    assert "give --force" in refused(2, "report", run_folder, "--out", page)
    assert page.read_text() == "<!doctype html>my thesis"
    assert command("report", run_folder, "--out", page, "--force").code == 0
    assert "digits" in page.read_text()


def test_report_of_no_run_is_refused(refused, tmp_path) -> None:
    assert "not a run folder" in refused(2, "report", tmp_path, "--out", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_verify_names_what_is_damaged(command, run_folder) -> None:
    outcome = command("verify", run_folder)
    assert outcome.code == 0 and "not finished" in outcome.out
    assert outcome.out.endswith("what is sealed or saved is sound; the run is unfinished\n")
    seal.seal(run_folder)
    assert command("verify", run_folder).out.endswith("/run: every file is as it was written\n")
    (run_folder / "evals.jsonl").write_text("{]\n")
    outcome = command("verify", run_folder)
    assert outcome.code == 4
    assert "damaged: evals.jsonl: " in outcome.out and outcome.err.startswith("error[E400]: ")


def test_verify_of_a_changed_recipe_is_refused(command, run_folder: Path) -> None:
    value = json.loads((run_folder / "recipe.json").read_text())
    (run_folder / "recipe.json").write_text(json.dumps(value | {"seed": -1}))
    assert command("verify", run_folder).code in (2, 4)
