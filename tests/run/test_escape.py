"""D16: text from outside reaches terminal, CSV and error lines without any power of its own."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

import pytest

from longtail.run import escape

HOSTILE = [
    "\x1b]0;title\x07",
    "a\x00b",
    "\u202eevil",
    "line\r\nforged: ok",
    "\x9b31m",
    "\udcff",
    "\ufeffx",
    "\u2066x",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_terminal_line_has_no_controls(text: str) -> None:
    shown = escape.terminal(text)
    assert all(character.isprintable() for character in shown)
    assert shown.encode()


def test_ordinary_text_stays(tmp_path: Path) -> None:
    for text in ("cat", "Größe 5", "猫", "a-b_c.d (e)", "\U0001f600"):
        assert escape.terminal(text) == text
        assert escape.csv_cell(text) == text


@pytest.mark.parametrize(
    "text", ["=HYPERLINK(1)", "+1", "-1", "@x", "\t=1", "\r=1", " =1", '=cmd|"/c calc"!A1', *HOSTILE]
)
def test_csv_cells_are_no_formulas_and_come_back(text: str) -> None:
    written = escape.csv_text([["name", "p"], [text, 0.25]])
    assert written.encode()
    rows = list(csv.reader(io.StringIO(written, newline="")))
    assert rows[0] == ["name", "p"] and rows[1][1] == "0.25" and len(rows) == 2
    cell = rows[1][0]
    assert not cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r"))
    assert cell.removeprefix("'") == escape.encodable(text).replace("\0", "").replace("\r", "")


def test_numbers_stay_numbers() -> None:
    assert escape.csv_text([[-1.5, 3, None]]) == "-1.5,3,\n"


def test_paths_are_shown_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert escape.shown(tmp_path / "runs" / "a") == os.path.join("runs", "a")
    assert escape.shown("runs/a") == "runs/a"
    assert escape.shown("/home/somebody/runs/a") == "~/runs/a"
    assert escape.shown("/elsewhere/a") == "/elsewhere/a"
    long = escape.shown("/" + "x" * 300 + "/the_end")
    assert len(long) == 100 and long.endswith("/the_end") and "..." in long
