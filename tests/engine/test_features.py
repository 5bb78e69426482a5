"""What a run folder gets when its data is at hand again."""

from __future__ import annotations

import json
import shutil

import pytest

from longtail.engine.features import features


@pytest.fixture
def copied(tiny, whole, tmp_path):
    """A finished run as a repository has it: without its large files."""
    run = tmp_path / "run"
    shutil.copytree(whole(tiny.recipe()).path, run)
    for name in ("samples", "predictions"):
        (run / f"{name}.safetensors").unlink()
    return run


def test_missing_samples_are_made_again_to_the_byte(tiny, whole, copied):
    features(copied, device="cpu")
    made, first = (path / "samples.safetensors" for path in (copied, whole(tiny.recipe()).path))
    assert made.read_bytes() == first.read_bytes()
    made.write_bytes(b"kept")
    features(copied, device="cpu")
    assert made.read_bytes() == b"kept"


def test_other_data_gives_no_samples(copied):
    facts = json.loads((copied / "data.json").read_text())
    (copied / "MANIFEST.json").unlink()
    (copied / "data.json").write_text(json.dumps(facts | {"digest": "0" * 64}))
    features(copied, device="cpu")
    assert not (copied / "samples.safetensors").exists()
