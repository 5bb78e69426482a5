"""The examples run as they stand, without a warning, and print what they promise."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
PRINTS = {
    "01_loss_in_your_loop.py": "'few'",
    "02_add_a_loss.py": "mixed target",
    "03_two_stages.py": "after stage 2:",
    "04_experts.py": "three experts: top1",
}
SLOW = {"04_experts.py"}


def run(name):
    command = [sys.executable, "-W", "error", str(EXAMPLES / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in PRINTS]
)
def test_an_example_runs_and_says_what_it_found(name):
    printed = run(name)
    assert PRINTS[name] in printed
    if name.startswith("01"):  # ten classes: every group is far better than chance
        found = ast.literal_eval(printed)
        assert all(found[group] > 30 for group in ("top1", "many", "medium", "few")), found


def test_every_numbered_example_is_run():
    assert {path.name for path in EXAMPLES.glob("[0-9]*.py")} == set(PRINTS)
