from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from longtail.data import audit
from longtail.data.images import FileImages
from longtail.data.splits import Split
from longtail.errors import DataError

NAMES = ("cat", "dog", "owl")


def resident(values: list[int], targets: list[int]) -> Split:
    images = torch.tensor(values, dtype=torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 3, 4, 4).contiguous()
    return Split(images, torch.tensor(targets), NAMES)


def inspected(**parts: Split) -> dict:
    return {name: (split, audit.inspect(split)) for name, split in parts.items()}


def test_clean_parts_give_no_note():
    assert (
        audit.duplicates(inspected(train=resident([1, 2], [0, 1]), test=resident([3], [0])), strict=True)
        == ()
    )


def test_duplicates_overlaps_and_conflicts_are_counted_and_one_is_named():
    parts = inspected(train=resident([1, 1, 1, 2], [0, 0, 1, 2]), test=resident([2, 5], [2, 0]))
    notes = audit.duplicates(parts)
    assert notes == (
        "train: 2 images repeated, 1 under two labels (such as record 0 = record 2: cat and dog)",
        "train and test share 1 image (such as record 3 = record 0)",
    )
    with pytest.raises(DataError, match="train: 2 images repeated") as caught:
        audit.duplicates(parts, strict=True)
    assert caught.value.number == 312


def test_every_pair_of_parts_is_compared():
    parts = inspected(train=resident([1], [0]), test=resident([2], [0]), other=resident([2, 1], [0, 0]))
    assert len(audit.duplicates(parts)) == 2


@pytest.fixture
def files(tmp_path):
    """Thirty pictures: twenty cats, nine dogs, one owl."""
    targets = [0] * 20 + [1] * 9 + [2]
    stream = np.random.default_rng(0)
    for i in range(30):
        Image.fromarray(stream.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
    return Split(FileImages(str(tmp_path), [f"{i}.png" for i in range(30)]), torch.tensor(targets), NAMES)


def damage(split: Split, *indices: int) -> None:
    for i in indices:
        path = Path(split.where(i))
        path.write_bytes(path.read_bytes()[:-60])


def test_copied_file_is_found_by_its_bytes(files):
    Path(files.where(5)).write_bytes(Path(files.where(25)).read_bytes())
    (note,) = audit.duplicates(inspected(train=files))
    assert "1 image repeated, 1 under two labels" in note and "5.png = " in note and "cat and dog" in note


def test_bad_image_stops_and_is_named(files):
    damage(files, 7)
    with pytest.raises(DataError, match=r"7.png: cannot be decoded"):
        audit.inspect(files)


def test_skipping_counts_by_class_and_keeps_the_others(files):
    damage(files, 3, 8)
    kept, notes = audit.without_bad(files, "train")
    assert kept == [i for i in range(30) if i not in (3, 8)]
    assert notes[0].startswith("train: 2 bad images skipped (cat 2); the first: ") and "3.png" in notes[0]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ((1, 2, 3), "class cat loses 3 of 20"),
        ((22,), "class dog loses 1 of 9"),
        ((29,), "class owl loses 1 of 1"),
    ],
)
def test_class_that_loses_too_much_stops_even_when_skipping(files, bad, says):
    damage(files, *bad)
    with pytest.raises(DataError, match=says) as caught:
        audit.without_bad(files, "train")
    assert caught.value.number == 311


def test_missing_file_is_bad_too(files):
    os.unlink(files.where(4))
    assert 4 not in audit.without_bad(files, "train")[0]


def test_nothing_is_skipped_where_nothing_is_bad(files):
    assert audit.without_bad(files, "train") == (list(range(30)), ())


def test_large_sets_are_looked_at_less_deeply_and_say_so(files, monkeypatch):
    damage(files, 7)
    monkeypatch.setattr(audit, "DECODE_UP_TO", 0)
    assert audit.inspect(files).depth == "headers"
    Path(files.where(7)).write_bytes(b"no picture")
    with pytest.raises(DataError, match="7.png: not a JPEG"):
        audit.inspect(files)
    monkeypatch.setattr(audit, "READ_UP_TO", 0)
    found = audit.inspect(files.select([0, 1, 0]))
    assert found.depth == "names"
    notes = audit.duplicates({"train": (files.select([0, 1, 0]), found)})
    assert "train: 1 image repeated" in notes[0] and "too large to be read first" in notes[1]
    os.unlink(files.where(9))
    with pytest.raises(DataError, match="9.png: cannot be found"):
        audit.inspect(files)


def test_skipping_decodes_however_large_the_set(files, monkeypatch):
    damage(files, 7)
    monkeypatch.setattr(audit, "READ_UP_TO", 0)
    monkeypatch.setattr(audit, "DECODE_UP_TO", 0)
    assert list(audit.inspect(files, skip=True).bad) == [7]


def test_empty_classes_are_an_error_unless_allowed():
    counts = torch.tensor([3, 0, 0])
    with pytest.raises(DataError, match="classes without training images: dog, owl") as caught:
        audit.check_classes(counts, NAMES)
    assert caught.value.number == 310
    assert "dog, owl; they are left out" in audit.check_classes(counts, NAMES, allow_empty=True)[0]
    assert audit.check_classes(torch.tensor([1, 1, 1]), NAMES) == ()


def test_every_error_number_used_stands_in_the_table():
    assert audit.__doc__ is not None
    listed = set(re.findall(r"\| E(3\d\d) \|", audit.__doc__))
    folder = Path(audit.__file__).parent
    sources = [*folder.glob("*.py"), folder.parent / "build/data.py"]
    used = {number for path in sources for number in re.findall(r"number=(3\d\d)", path.read_text())}
    assert used == listed - {"300"}
