from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from longtail.recipes import cells as campaign
from longtail.report import cells, ledger

MakeRun = Callable[..., Path]

CIFAR = {
    "name": "cifar.gcl",
    "data": {"kind": "cifar", "classes": 10, "longtail": {"profile": "exponential", "ratio": 100.0}},
    "model": {"kind": "classifier", "backbone": {"name": "resnet32"}},
}
EUCLIDEAN = {"kind": "gcl", "form": "euclidean", "cloud": "log", "scale": 30.0}


def lines_with(text: str, part: str) -> list[list[str]]:
    return [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if part in line]


def test_every_cell_of_the_campaign_has_a_row_and_unplanned_rows_of_the_paper_too() -> None:
    names = [cell.name for cell in cells.cells()]
    assert len(names) == len(set(names))
    assert {cell.name for cell in campaign.cells()} <= set(names)
    assert {cell.group for cell in cells.cells()} == set(cells.GROUPS)


def test_figures_beside_the_cells_are_the_papers() -> None:
    found = {cell.name: cell for cell in cells.cells()}
    for name, first, last in (
        ("cifar100-r100-gcl-angular-s0", None, 49.97),
        ("cifar10-r100-gcl-euclidean-s0", 80.55, 82.73),
        ("cifar10-r200-gcl-euclidean-s0", None, 79.03),
        ("cifar10-r100-retrain-lws-s0", 80.55, 82.25),
        ("cifar100-r100-ride-gcl-angular-s0", None, 52.38),
    ):
        cell = found[name]
        assert (cell.first.value if cell.first else None, cell.last.value if cell.last else None) == (
            first,
            last,
        )


def test_cells_that_were_never_run_say_so(tmp_path: Path) -> None:
    text = ledger.text(tmp_path)
    assert f"0 of {len(cells.cells())} planned cells have been run." in text
    rows = lines_with(text, ": GCL-A, seed 0")
    assert len(rows) == 6 and all(row[2] == row[4] == ledger.NOT_RUN for row in rows)
    assert all(len(row) == len(ledger.HEAD) for row in rows)


def test_a_run_cell_shows_its_own_numbers(make_run: MakeRun, tmp_path: Path) -> None:
    note = "The files are not the official ones. " + "x" * 100
    make_run(
        "results/cifar10-r100-gcl-euclidean-s0",
        recipe=CIFAR,
        loss=EUCLIDEAN,
        data={"notes": [note]},
        env={"cpu": "AMD", "parameters": 464144},
    )
    path = ledger.write(tmp_path / "results")
    text = path.read_text(encoding="utf-8")
    (row,) = lines_with(text, "[CIFAR-10-LT, 100 to 1: GCL-E, seed 0](cifar10-r100-gcl-euclidean-s0/)")
    assert row[1:5] == ["80.55", "22.50", "82.73", "**50.00**"]  # stage 1 and the end: the paper's, ours
    assert row[5] == ""  # six epochs are no comparison
    assert row[6:10] == ["90.00", "60.00", "25.00", "51.00"]
    assert row[10:] == ["4 + 2", "1,950", "464,144", "1.5 (2.5)", "cpu: AMD"]
    assert note in text and f"1 of {len(cells.cells())} planned" in text


def test_what_the_keeper_says_of_the_images_stands_before_the_numbers(tmp_path: Path) -> None:
    assert "other images" not in ledger.text(tmp_path)
    (tmp_path / ledger.ABOUT).write_text("- CIFAR-100-LT: other images.\n")
    text = ledger.text(tmp_path)
    assert text.index("- CIFAR-100-LT: other images.") < text.index("## The headline")
    kept = (Path(__file__).parents[2] / "results" / ledger.ABOUT).read_text()
    assert "same counts, other images" in kept and "xactly the images" in kept


def test_a_re_trained_run_says_where_its_first_stage_was_trained(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("results/cifar10-r100-retrain-lws-s0", recipe=CIFAR, loss=EUCLIDEAN, env={"cpu": "AMD"})
    (run / "origin.json").write_text('{"env": {"device": "NVIDIA H200", "cpu": "AMD"}}')
    (row,) = lines_with(ledger.text(tmp_path / "results"), "cifar10-r100-retrain-lws-s0")
    assert row[-1] == "cpu: AMD; stage 1: NVIDIA H200"


def test_the_strong_track_and_short_runs_stand_beside_no_figure_of_the_paper(
    make_run: MakeRun, tmp_path: Path
) -> None:
    make_run("results/short/gcl-s0", recipe=CIFAR, loss=EUCLIDEAN)
    make_run("results/fast/gcl-s0", recipe=CIFAR, loss=EUCLIDEAN)
    text = ledger.text(tmp_path / "results")
    assert "the strong track, beside which no row of the paper stands" in text
    for row in lines_with(text, "/gcl-s0 "):
        assert row[1] == row[3] == "–"


def test_a_full_schedule_is_compared(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run("results/cifar10-r100-gcl-euclidean-s0", recipe=CIFAR, loss=EUCLIDEAN)
    recipe = folder / "recipe.json"
    recipe.write_text(recipe.read_text().replace('"epochs": 4', '"epochs": 200'))
    (row,) = lines_with(ledger.text(tmp_path / "results"), "[CIFAR-10-LT, 100 to 1: GCL-E, seed 0]")
    assert row[5] == "−32.73"


def test_seeds_are_averaged_and_other_runs_are_listed(make_run: MakeRun, tmp_path: Path) -> None:
    for seed, hits in ((0, (9, 6, 4, 1)), (1, (10, 6, 4, 2))):
        make_run(
            f"results/cifar10-r100-gcl-euclidean-s{seed}", recipe=CIFAR, loss=EUCLIDEAN, seed=seed, hits=hits
        )
    make_run("results/short/focal", loss={"kind": "focal"}, leave_out=("final.json",))
    make_run("results/mine")
    text = ledger.text(tmp_path / "results")
    assert "| GCL-E | 0, 1 | 82.73 | **52.50 ± 3.54** | 95.00 ± 7.07 |" in text
    assert "## Series short" in text and "## Further runs" in text
    ((*_, state),) = [row[:5] for row in lines_with(text, "short/focal")]
    assert state == "**50.00** (running)"


def test_the_command_writes_the_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "longtail.report.ledger"]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "README.md" in done.stdout
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == ledger.text(tmp_path)


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["/nowhere/at/all"]])
def test_wrong_arguments_end_with_the_code_for_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ledger.main(arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
