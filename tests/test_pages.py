"""The tables of the pages are what their scripts make of the files now: none is old, none was typed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from longtail.report import ledger

ROOT = Path(__file__).parents[1]


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["front_page", "methods_page", "speed_page"])
def test_a_page_is_what_its_script_writes(name):
    page = script(name)
    assert page.written(page.PAGE.read_text()) == page.PAGE.read_text(), "run `make table`"


def test_the_ledger_is_what_its_command_writes():
    kept = (ROOT / "results" / "README.md").read_text()
    assert ledger.text(ROOT / "results") == kept, "run `make table`"


def test_a_page_without_its_table_gets_one(monkeypatch):
    front = script("front_page")
    page = f"before\n{front.BEGIN}\nold\n{front.END}\nafter\n"
    made = front.written(page)
    assert made.startswith("before\n") and made.endswith(f"{front.END}\nafter\n") and "old" not in made
    assert made.count("](results/") >= 8
