"""Three tiny trainings whose losses are kept in losses.json."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def golden() -> ModuleType:
    spec = importlib.util.spec_from_file_location("golden", Path(__file__).parent / "write.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
