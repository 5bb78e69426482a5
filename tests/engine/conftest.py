"""The tiny trainings, and one uninterrupted run of each to compare with."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from longtail.recipe import Recipe
from longtail.run.folder import RunFolder, recipe_digest


@pytest.fixture(scope="session")
def tiny() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tiny", Path(__file__).parent / "tiny.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """env.json names the commit, which may change while the tests run."""
    monkeypatch.setenv("LONGTAIL_COMMIT", "0" * 40)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Recipe], RunFolder]:
    """The uninterrupted run of a recipe, trained once per session."""
    from longtail.engine.fit import train

    held: dict[str, RunFolder] = {}

    def trained(recipe: Recipe) -> RunFolder:
        name = recipe_digest(recipe)
        if name not in held:
            held[name] = train(recipe, out=tmp_path_factory.mktemp("whole") / "run")
        return held[name]

    return trained
