from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from longtail.data import folder
from longtail.errors import DataError


def fill(root: Path, **classes: int) -> Path:
    for name, number in classes.items():
        (root / name).mkdir(parents=True)
        for i in range(number):
            Image.new("RGB", (4, 4), (i, len(name), ord(name[0]))).save(root / name / f"{i:03}.png")
    return root


def test_train_test_and_val_folders_are_the_three_parts(tmp_path):
    fill(tmp_path / "train", dog=5, cat=3)
    fill(tmp_path / "test", dog=2, cat=2)
    fill(tmp_path / "val", dog=1, cat=1)
    sources = folder.read(str(tmp_path))
    assert sources.names == ("cat", "dog") and sources.train.targets.tolist() == [0] * 3 + [1] * 5
    assert sources.train.where(0).endswith("train/cat/000.png")
    assert sources.held_out is not None and (len(sources.test), len(sources.held_out)) == (4, 2)
    assert sources.notes == ()


def test_val_alone_is_the_test_set(tmp_path):
    fill(tmp_path / "train", dog=5, cat=3)
    fill(tmp_path / "val", dog=1, cat=1)
    sources = folder.read(str(tmp_path))
    assert len(sources.test) == 2 and sources.held_out is None


def test_without_a_test_folder_a_share_is_split_off_and_stays_the_same(tmp_path):
    fill(tmp_path, dog=20, cat=10, cow=2, ant=1)
    first, second = folder.read(str(tmp_path)), folder.read(str(tmp_path))
    assert first.test.counts.tolist() == [0, 2, 1, 4] and first.train.counts.tolist() == [1, 8, 1, 16]
    names = [{part.where(i) for i in range(len(part))} for part in (first.train, first.test, second.test)]
    assert not names[0] & names[1] and names[1] == names[2]
    assert "7 of 33 images" in first.notes[0]


def test_another_test_folder_can_be_named(tmp_path):
    fill(tmp_path / "data", dog=3, cat=3)
    fill(tmp_path / "exam", dog=1)
    sources = folder.read(str(tmp_path / "data"), "../exam")
    assert sources.test.targets.tolist() == [1] and len(sources.train) == 6


def test_classes_stand_in_byte_order(tmp_path):
    fill(tmp_path, **dict.fromkeys(("b", "A", "a10", "a9", "é", "z"), 2))
    assert folder.read(str(tmp_path)).names == ("A", "a10", "a9", "b", "z", "é")


def test_files_of_file_managers_and_other_endings_are_no_images(tmp_path):
    fill(tmp_path, dog=3, cat=3, **{".hidden": 2})
    for name in (".DS_Store", "Thumbs.db", "desktop.ini", "notes.txt", "film.gif"):
        (tmp_path / "dog" / name).write_text("x")
    (tmp_path / "dog" / "UPPER.JPG").write_bytes(b"")
    sources = folder.read(str(tmp_path))
    assert len(sources.train) + len(sources.test) == 7 and sources.names == ("cat", "dog")
    assert "2 other files ignored, such as dog/film.gif" in sources.notes[0]


def test_one_class_is_said(tmp_path):
    fill(tmp_path, dog=5)
    assert "only one class (dog)" in folder.read(str(tmp_path)).notes[-1]


def test_name_with_control_characters_is_printed_as_escapes(tmp_path):
    fill(tmp_path, **{"dog\x1b[31m": 2, "cat\nfish": 2})
    assert folder.read(str(tmp_path)).names == ("cat\\nfish", "dog\\x1b[31m")


def test_empty_class_keeps_its_place(tmp_path):
    fill(tmp_path / "train", dog=5, cat=3)
    (tmp_path / "train" / "bee").mkdir()
    fill(tmp_path / "test", dog=1, cat=1)
    assert folder.read(str(tmp_path)).train.counts.tolist() == [0, 3, 5]


def missing(root):
    return root / "nowhere", None


def a_file(root):
    (root / "file").write_text("x")
    return root / "file", None


def empty(root):
    return root, None


def flat(root):
    Image.new("RGB", (2, 2)).save(root / "a.png")
    return root, None


def no_images(root):
    (root / "dog").mkdir()
    return root, None


def nested(root):
    fill(root / "dog", puppy=2)
    return root, None


def case_fold(root):
    fill(root, Dog=2, dog=2)
    return root, None


def unicode_forms(root):
    fill(root, **{"caf\u00e9": 2, "cafe\u0301": 2})
    return root, None


def unknown_test_class(root):
    fill(root / "train", dog=2)
    fill(root / "test", dog=1, cow=1)
    return root, None


def named_test_inside(root):
    fill(root, dog=2, exam=2)
    return root, "exam"


def named_test_absent(root):
    fill(root, dog=2)
    return root, "exam"


def single_images(root):
    fill(root, dog=1, cat=1)
    return root, None


FAULTS = {
    missing: (301, "no such folder"),
    a_file: (301, "no such folder"),
    empty: (302, "holds no class folders"),
    flat: (302, "holds no class folders"),
    no_images: (302, "holds no image"),
    nested: (302, "dog/puppy: a folder inside a class folder"),
    case_fold: (316, "'Dog' and 'dog' are one class"),
    unicode_forms: (316, "are one class"),
    unknown_test_class: (316, "test/cow: a class without a training folder"),
    named_test_inside: (302, "lies among the class folders"),
    named_test_absent: (301, "exam: no such folder"),
    single_images: (315, "no image is left for a test set"),
}


@pytest.mark.parametrize("make", FAULTS, ids=lambda make: make.__name__)
def test_folder_of_another_shape_is_one_line(tmp_path, make):
    root, test = make(tmp_path)
    number, says = FAULTS[make]
    with pytest.raises(DataError, match=says) as caught:
        folder.read(str(root), test)
    assert caught.value.number == number and "\n" not in str(caught.value)
