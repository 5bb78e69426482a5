"""The tiny trainings of the engine's tests, for recipes that are made as small."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def tiny() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tiny", Path(__file__).parents[1] / "engine" / "tiny.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """env.json names the commit, which may change while the tests run."""
    monkeypatch.setenv("LONGTAIL_COMMIT", "0" * 40)
