"""`make campaign`: trains every cell of the paper track that is not finished, and continues interrupted ones.

`--set short` trains the short comparison of all single-model methods instead, `--set fast` the recipe that
sees a fifth of the images.

Runs live under runs/campaign (not in version control); what a table needs of a finished one is exported to
results/<cell>, so that each can be committed at once.
"""

from __future__ import annotations

import fnmatch
import re
import sys
import time
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from longtail.engine.signals import Stop, watch
from longtail.errors import LongtailError
from longtail.recipe import Recipe, first_training
from longtail.recipes.cells import Cell, cells, fast_cells
from longtail.recipes.short import short_cells
from longtail.run import fsio
from longtail.run.folder import RunFolder

FACTS = ("recipe.json", "env.json", "data.json", "manifest.json", "final.json", "origin.json")
LOGS = ("evals.jsonl", "steps.jsonl", "timing.jsonl")
SETS = {"paper": cells, "short": short_cells, "fast": fast_cells}
STAGE = re.compile(r"stages\.(\d+)(?=\.|$)")
WITH_MODEL = ("model.safetensors", "model.json")


def train_cell(name: str, runs: Path, results: Path) -> str:
    """Trains or continues one cell and exports it. Returns a line for people."""
    from longtail.engine.fit import train
    from longtail.engine.retrain import retrain

    began = time.monotonic()
    cell = named(name)
    recipe, out = cell.make(), runs / cell.name
    if cell.after is None:
        run = train(recipe, out=out)
    else:
        run = retrain(
            source(cell.after, runs, results) or train(named(cell.after).make(), out=runs / cell.after).path,
            recipe.stages[first_training(recipe) :],
            out=out,
            name=recipe.name,
            provenance=second_provenance(recipe),
            held_out=recipe.data.held_out,
        )
    if not RunFolder(results / cell.name).is_finished:  # a source that was trained again stays apart
        export(run, results / cell.name, keeps_model=cell.keeps_model)
    last = run.read("final.json")["last"]
    return f"{cell.name}: top-1 {last['top1']:.2f} at the last epoch ({time.monotonic() - began:.0f} s)"


def second_provenance(recipe: Recipe) -> dict[str, str]:
    """Of what follows the first training, its stages counted from 1, as `retrain` takes it."""
    begun = first_training(recipe)
    numbered = {path: STAGE.match(path) for path in recipe.provenance}
    return {
        f"stages.{int(found[1]) - begun + 1}{path[found.end() :]}" if found else path: recipe.provenance[path]
        for path, found in numbered.items()
        if found is None or int(found[1]) >= begun
    }


def named(name: str) -> Cell:
    return next(cell for every in SETS.values() for cell in every() if cell.name == name)


def source(name: str, runs: Path, results: Path) -> Path | None:
    """The run to go on from, where there is one on this machine.

    Checkpoints do not travel with results, so that on a new machine it is the kept model of a run of one
    stage, which is the end of that stage, or nothing: then it is trained again. A run of what the cell was
    in an older version is no source.
    """
    recipe, made, kept = named(name).make(), RunFolder(runs / name), RunFolder(results / name)
    if made.is_finished and made.holds(recipe):
        return made.path
    has_end = len(recipe.stages) == 1 and (kept.path / WITH_MODEL[0]).exists()
    return kept.path if has_end and kept.is_finished and kept.holds(recipe) else None


def export(run: RunFolder, target: Path, *, keeps_model: bool) -> None:
    """Copies what tables and `longtail eval` need, and seals the copy with its own hashes."""
    fsio.make_folders(target)
    chosen = sorted(path.name for path in run.path.glob("choice_*.json"))
    names = (*FACTS, *chosen, *LOGS, *(WITH_MODEL if keeps_model else ()))
    for name in names:
        if (run.path / name).exists():
            fsio.write_file(target / name, (run.path / name).read_bytes())
    RunFolder(target).seal()


def pending(results: Path, pattern: str, chosen: str = "paper") -> list[Cell]:
    wanted = [cell for cell in SETS[chosen]() if fnmatch.fnmatch(cell.name, pattern)]
    return [cell for cell in wanted if not RunFolder(results / cell.name).is_finished]


def queue(results: Path, runs: Path, pattern: str, chosen: str = "paper") -> list[Cell]:
    """The pending cells in order; before the first that goes on from a run that is nowhere, that run."""
    made: dict[str, Cell] = {}
    for cell in pending(results, pattern, chosen):
        if cell.after is not None and source(cell.after, runs, results) is None:
            made.setdefault(cell.after, named(cell.after))
        made.setdefault(cell.name, cell)
    return list(made.values())


def campaign(results: Path, *, pattern: str, workers: int, runs: Path, chosen: str = "paper") -> int:
    """Trains on `workers` processes; cells that go on from another wait for it. How many failed.

    A signal stops every worker after its step; the same command goes on from there.
    """
    with watch() as stop:
        return worked_off(queue(results, runs, pattern, chosen), workers, stop, runs=runs, results=results)


def worked_off(todo: list[Cell], workers: int, stop: Stop, *, runs: Path, results: Path) -> int:
    """One process a cell, `workers` at a time. How many did not end well, or could not begin."""
    make, running, failed = get_context("spawn").Process, list[BaseProcess](), 0

    def ready(cell: Cell) -> bool:
        return cell.after is None or source(cell.after, runs, results) is not None

    while not stop or running:
        while not stop and len(running) < workers and (cell := next(filter(ready, todo), None)):
            todo.remove(cell)
            running.append(make(target=cell_process, args=(cell.name, runs, results)))
            running[-1].start()
        if not running:
            break
        wait([process.sentinel for process in running], timeout=1.0)
        if stop:
            for process in running:
                process.terminate()
                process.join()
        ended = [process for process in running if process.exitcode is not None]  # looked at once
        failed += sum(process.exitcode != 0 for process in ended)
        running = [process for process in running if process not in ended]
    for cell in todo if not stop else ():
        print(f"{cell.name}: {cell.after}, which it goes on from, did not end well", file=sys.stderr)
    return failed + (0 if stop else len(todo))


def cell_process(name: str, runs: Path, results: Path) -> None:
    try:
        print(train_cell(name, runs, results), flush=True)
    except LongtailError as error:
        print(f"{name}: {error}", file=sys.stderr, flush=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="?", default=Path("results"))
    parser.add_argument("--only", default="*", help="a pattern of cell names")
    parser.add_argument("--set", dest="chosen", choices=SETS, default="paper", help="which cells to train")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=Path("runs/campaign"))
    given = parser.parse_args()
    failures = campaign(
        given.results, pattern=given.only, workers=given.workers, runs=given.runs, chosen=given.chosen
    )
    sys.exit(1 if failures else 0)
