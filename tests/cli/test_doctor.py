"""`longtail doctor`: what it finds, and that a missing thing is an error."""

from __future__ import annotations

import builtins
import sys


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
    assert outcome.err.startswith("error[E520]: 1 things are missing, first LONGTAIL_DATA")


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
    assert outcome.code == 5 and "first torch: cannot be imported: OSError: libtorch.so" in outcome.err
