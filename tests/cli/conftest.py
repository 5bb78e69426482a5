"""Commands run in this process: fast, and with the engine replaced where a test is about what is printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    from longtail.cli.main import main

    monkeypatch.delenv("RANK", raising=False)

    def called(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    return called


@pytest.fixture
def refused(command: Callable[..., Outcome]) -> Callable[..., str]:
    """Runs a command that must fail: one line on stderr in the agreed form, and nothing on stdout."""
    import re

    def called(code: int, *arguments: object) -> str:
        outcome = command(*arguments)
        assert outcome.code == code, outcome
        assert re.fullmatch(r"error\[E\d{3}\]: .{10,300}\n", outcome.err), outcome.err
        assert outcome.out == ""
        return outcome.err

    return called


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a module with the given functions in the place of `longtail.engine.NAME`."""

    def called(name: str, **functions: object) -> None:
        fake = ModuleType(name)
        for key, function in functions.items():
            setattr(fake, key, function)
        monkeypatch.setitem(sys.modules, name, fake)

    return called


ROW = {
    "stage": 0,
    "name": "representation",
    "epoch": 3,
    "step": 30,
    "split": "test",
    "loss": 1.25,
    "top1": 61.54,
    "balanced": 60.0,
    "many": 90.0,
    "medium": 55.04,
    "few": None,
    "macro_f1": 58.0,
    "geometric_mean": 50.0,
    "harmonic_mean": 40.0,
    "worst": 12.5,
    "ece": 0.125,
    "hits": [9, 5, 2],
    "totals": [10, 10, 6],
}
DATA: dict[str, Any] = {
    "names": ["cat", "dog\x1b[31m", "eel"],
    "counts": [200, 40, 4],
    "nominal_ratio": 40.0,
    "ratio": 50.0,
    "digest": "0" * 64,
    "train_images": 244,
    "test_images": 26,
    "notes": [],
    "mean": [0.5, 0.5, 0.5],
    "std": [0.5, 0.5, 0.5],
    "size": 8,
}


@pytest.fixture
def row() -> dict[str, Any]:
    return dict(ROW)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A finished run as files, without weights."""
    from longtail.recipes import catalogue, overrides

    folder = tmp_path / "run"
    folder.mkdir()
    last = ROW | {"stage": 1, "name": "classifier", "epoch": 2, "top1": 65.38, "few": 33.333}
    final = {
        "last": last,
        "best": last,
        "stages": [ROW, last],
        "images_seen": 732,
        "steps": 50,
        "parameters": 9,
    }
    files = {
        "recipe.json": overrides.plain(catalogue.make("digits.gcl")),
        "data.json": DATA,
        "final.json": final,
    }
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value))
    (folder / "evals.jsonl").write_text("".join(json.dumps(each) + "\n" for each in (ROW, last)))
    return folder
