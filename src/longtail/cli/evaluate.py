"""`longtail eval`: the final model of a run, evaluated again beside what the run recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def evaluate(
    run: Annotated[Path, typer.Argument(help="A finished run folder.")],
    split: Annotated[
        str | None, typer.Option(help="test or held_out; what the run was evaluated on, when left out.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1.")] = None,
) -> None:
    """Evaluate a finished run again, beside what it recorded."""
    from longtail.errors import UsageError
    from longtail.run.folder import RunFolder

    if split not in (None, "test", "held_out"):
        raise UsageError(f"--split {split}: there are test and held_out")
    RunFolder.open(run)  # a wrong folder is refused before torch is loaded
    from longtail.engine.load import evaluate_run

    found = evaluate_run(run, split=split, device=device)
    print(beside(found, recorded(run, split)))


def recorded(run: Path, split: str | None) -> dict[str, Any] | None:
    """The last row of final.json, where it is of the same split."""
    from longtail.run import fsio

    last: dict[str, Any] = fsio.read_json(run / "final.json")["last"]
    return last if split in (None, last["split"]) else None


def beside(found: dict[str, Any], before: dict[str, Any] | None) -> str:
    from longtail.cli.columns import aligned

    percents = ("top1", "balanced", "many", "medium", "few", "worst", "macro_f1")
    header = ["", "top-1", *percents[1:], "ece", "loss"]

    def cells(name: str, row: dict[str, Any]) -> list[object]:
        values = [row.get(key) for key in percents]
        exact = [f"{row[key]:.4f}" if row.get(key) is not None else "-" for key in ("ece", "loss")]
        return [name, *("-" if value is None else value for value in values), *exact]

    rows = [cells("now", found)] + ([cells("recorded", before)] if before else [])
    same = before is not None and found.get("hits") == before.get("hits")
    verdict = (
        f"\nevery class has {'the same' if same else 'NOT the same'} number of hits as recorded"
        if before
        else ""
    )
    return aligned(header, rows) + verdict
