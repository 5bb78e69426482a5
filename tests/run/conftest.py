from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def harness() -> ModuleType:
    """harness.py, beside this file: test files do not import each other."""
    spec = importlib.util.spec_from_file_location("run_harness", Path(__file__).with_name("harness.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_harness"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def scratch(harness: ModuleType) -> Iterator[Path]:
    with harness.scratch() as folder:
        yield Path(folder)
