"""`longtail doctor`: what it finds, and that a missing thing is an error."""

from __future__ import annotations

import builtins
import sys

import pytest


def test_a_machine_that_can_train_is_ready(command, monkeypatch) -> None:
    monkeypatch.delenv("LONGTAIL_DATA", raising=False)
    outcome = command("doctor")
    assert outcome.code == 0 and outcome.out.endswith("ready to train\n")
    names = {line.split("  ")[0] for line in outcome.out.splitlines() if line}
    wanted = {"python", "torch", "threads", "memory", "disk here", "/dev/shm", "accelerator", "LONGTAIL_DATA"}
    assert wanted | {"numpy", "pydantic", "safetensors", "[timm]", "[parquet]"} <= names


def test_a_missing_data_folder_is_an_error(command, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("LONGTAIL_DATA", str(tmp_path / "gone"))
    outcome = command("doctor")
    assert outcome.code == 5
    assert "gone is not a folder  <- mend this" in outcome.out
    assert outcome.err.startswith("error[E520]: one thing is wrong, LONGTAIL_DATA: ")


@pytest.mark.parametrize(
    ("version", "is_old"),
    [("2.9.1", True), ("1.13.1+cu117", True), ("2.10.0", False), ("2.13.0+cpu", False), ("3.0.0a0", False)],
)
def test_a_torch_that_is_too_old_is_an_error(command, monkeypatch, version, is_old) -> None:
    monkeypatch.delenv("LONGTAIL_DATA", raising=False)
    monkeypatch.setattr("torch.__version__", version)
    outcome = command("doctor")
    assert outcome.code == (5 if is_old else 0)
    assert (f"{version}; install torch>=2.10  <- mend this" in outcome.out) == is_old


def test_several_things_are_counted(command, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("LONGTAIL_DATA", str(tmp_path / "gone"))
    monkeypatch.setattr("torch.__version__", "2.9.1")
    assert command("doctor").err.startswith("error[E520]: 2 things are wrong, first torch: 2.9.1")


def test_a_package_that_cannot_be_imported_is_an_error(command, monkeypatch) -> None:
    monkeypatch.delenv("LONGTAIL_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    outcome = command("doctor")
    assert outcome.code == 5 and "safetensors" in outcome.err


def test_a_damaged_torch_is_an_error_and_no_crash(command, monkeypatch) -> None:
    real = builtins.__import__

    def importing(name: str, *rest: object, **more: object) -> object:
        if name == "torch":
            raise OSError("libtorch.so: cannot\nopen")
        return real(name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", importing)
    outcome = command("doctor")
    assert outcome.code == 5 and "torch: cannot be imported: OSError: libtorch.so" in outcome.err
