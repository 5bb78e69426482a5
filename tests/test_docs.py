"""The documents say what the code says: every name they give exists, every public part is in them."""

from __future__ import annotations

import doctest
import importlib
import re
import typing
from pathlib import Path

import pytest

import longtail
from longtail import clouds, heads, losses
from longtail.data import sampling
from longtail.losses import functional

ROOT = Path(__file__).parent.parent
METHOD = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
PAGES = sorted(
    path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "results").glob("*.md"))
)
SOURCE = ROOT / "src"
WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if "    >>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_the_examples_of_the_docstrings_are_right(module):
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted and not found.failed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page):
    links = re.findall(r"\]\((?!https?:|mailto:)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_public_loss_head_rule_and_cloud_is_on_the_page_of_equations():
    names = [f"`losses.{name}`" for name in losses.__all__ if name not in ("Mixed", "Target")]
    names += [f"`heads.{name}`" for name in heads.__all__]
    names += [f"| `{rule}` |" for rule in typing.get_args(sampling.Rule)]
    names += [
        f'clouds.sizes(counts, "{cloud}"' for cloud in typing.get_args(clouds.CloudName) if cloud != "none"
    ]
    names += [f"| `{boundary}`" for boundary in typing.get_args(functional.Boundary)]
    assert [name for name in names if name not in METHOD] == []


def test_every_function_of_the_page_of_equations_exists():
    said = set(re.findall(r"`((?:losses|functional|counts|clouds|heads|data)\.[\w.]+)", METHOD))
    assert len(said) > 40
    for name in said:
        found: object = losses if name.startswith("functional.") else longtail
        for part in name.removesuffix(".py").split("."):
            if "/" not in part:
                found = getattr(found, part)


def test_every_function_of_an_equation_is_on_the_page():
    steps = {"clamped", "each", "scaled"}  # of an equation, and no equation
    own = {
        name
        for name, thing in vars(functional).items()
        if getattr(thing, "__module__", "") == functional.__name__ and not name.startswith("_")
    }
    assert steps < own
    assert sorted(name for name in own - steps if f"functional.{name}`" not in METHOD) == []
