from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from longtail import recipe
from longtail.build.data import dataset
from longtail.data.splits import Dataset
from longtail.errors import DataError


def fill(root: Path, *, seed: int = 0, **classes: int) -> None:
    stream = np.random.default_rng(seed)
    for name, number in classes.items():
        (root / name).mkdir(parents=True)
        for i in range(number):
            Image.fromarray(stream.integers(0, 256, (6, 6, 3), dtype=np.uint8)).save(
                root / name / f"{i:03}.png"
            )


@pytest.fixture
def root(tmp_path):
    fill(tmp_path / "train", bee=10, cat=40, dog=20)
    fill(tmp_path / "test", seed=1, bee=4, cat=4, dog=4)
    return tmp_path


def folder(root: Path, **more: object) -> Dataset:
    return dataset(recipe.Folder(root=str(root), **more))


def names(split) -> list[str]:
    return [split.where(i) for i in range(len(split))]


def test_data_as_it_is_has_no_ratio_and_no_list_of_indices(root):
    found = folder(root)
    assert found.counts.tolist() == [10, 40, 20] and found.nominal_ratio is None
    assert found.manifest["indices"] is None and found.manifest["profile"] is None and found.notes == ()


def test_long_tail_follows_the_sizes_and_is_written_down(root):
    found = folder(root, longtail=recipe.LongTail(ratio=10))
    assert found.counts.tolist() == [4, 40, 12] and found.nominal_ratio == 10
    assert len(found.manifest["indices"]) == 56 and found.manifest["selection"] == "canonical"
    again = folder(root, longtail=recipe.LongTail(ratio=10))
    assert found.digest == again.digest and names(found.train) == names(again.train)
    assert folder(root, longtail=recipe.LongTail(ratio=10, seed=1)).digest != found.digest


def test_manifest_of_one_run_gives_the_same_images_to_another(root):
    first = folder(root, longtail=recipe.LongTail(ratio=10, seed=3))
    path = root / "manifest.json"
    path.write_text(json.dumps(first.manifest))
    second = folder(root, longtail=recipe.LongTail(manifest=str(path)))
    assert names(first.train) == names(second.train) and second.nominal_ratio == 10
    assert first.digest == second.digest


def test_digest_sees_a_changed_pixel_a_moved_label_and_a_new_class_name(root):
    digests = {folder(root).digest}
    path = root / "train/cat/000.png"
    Image.new("RGB", (6, 6), (1, 2, 3)).save(path)
    digests.add(folder(root).digest)
    os.rename(path, root / "train/bee/zzz.png")
    digests.add(folder(root).digest)
    for part in ("train", "test"):
        os.rename(root / part / "bee", root / part / "ant")
    digests.add(folder(root).digest)
    os.rename(root, root.with_name("elsewhere"))  # the place is no part of the data
    digests.add(folder(root.with_name("elsewhere")).digest)
    assert len(digests) == 4


def test_held_out_stratified_leaves_train_and_its_counts(root):
    found = folder(root, held_out=recipe.HeldOut(fraction=0.2))
    assert found.held_out is not None and found.held_out.counts.tolist() == [2, 8, 4]
    assert found.counts.tolist() == [8, 32, 16]
    assert not set(names(found.train)) & set(names(found.held_out))


def test_held_out_leftover_is_what_the_long_tail_leaves(root):
    tail = recipe.LongTail(ratio=10)
    found = folder(root, longtail=tail, held_out=recipe.HeldOut(source="leftover"))
    assert found.held_out is not None
    assert found.held_out.counts.tolist() == [4, 0, 4]  # at most as many as the test set has of a class
    assert not set(names(found.train)) & set(names(found.held_out))
    with pytest.raises(DataError, match="no image is left"):
        folder(root, held_out=recipe.HeldOut(source="leftover"))


def test_held_out_file_is_needed_when_asked_for(root):
    with pytest.raises(DataError, match="no held-out file") as caught:
        folder(root, held_out=recipe.HeldOut(source="file"))
    assert caught.value.number == 315
    fill(root / "val", seed=2, bee=1, cat=2)
    found = folder(root, held_out=recipe.HeldOut(source="file"))
    assert found.held_out is not None and found.held_out.counts.tolist() == [1, 2, 0]


def test_bad_images_are_skipped_before_the_choice(root):
    (root / "train/cat/000.png").write_bytes(b"")
    with pytest.raises(DataError, match="train/cat/000.png: the file is empty"):
        folder(root)
    found = folder(root, on_bad_image="skip", longtail=recipe.LongTail(ratio=10, selection="first"))
    assert found.counts.tolist()[1] == 39 and not any("cat/000" in name for name in names(found.train))
    assert "1 bad images skipped (cat 1)" in found.notes[0]
    assert np.isin(10, found.manifest["indices"]).item() is False  # cat/000 is the 11th image of the source


def test_empty_class_is_an_error_unless_allowed(root):
    (root / "train/ape").mkdir()
    with pytest.raises(DataError, match="ape") as caught:
        folder(root)
    assert caught.value.number == 310
    found = folder(root, allow_empty_class=True)
    assert found.counts.tolist() == [0, 10, 40, 20] and "ape" in " ".join(found.notes)
    assert "classes without test images: ape" in found.notes[-1]


def test_overlap_is_a_note_and_strict_makes_it_an_error(root):
    (root / "test/dog/copy.png").write_bytes((root / "train/cat/001.png").read_bytes())
    assert "train and test share 1 image, 1 under two labels" in folder(root).notes[0]
    with pytest.raises(DataError, match="share 1 image") as caught:
        folder(root, strict=True)
    assert caught.value.number == 312


def test_digits_are_long_tailed_by_default():
    found = dataset(recipe.Digits())
    assert found.counts.tolist() == [120, 77, 50, 32, 21, 13, 8, 5, 3, 2]
    assert len(found.test) == 540 and "60 realised" in found.notes[0]
    left = dataset(recipe.Digits(held_out=recipe.HeldOut(source="leftover"))).held_out
    assert left is not None and int(left.counts.max()) == 54 and int(left.counts[0]) == 0


def test_listing_and_parquet_are_built_too(root):
    lines = [f"{c}/{i:03}.png {n}" for n, (c, k) in enumerate((("bee", 10), ("cat", 40))) for i in range(k)]
    (root / "train.txt").write_text("\n".join(lines))
    (root / "test.txt").write_text("\n".join(lines[8:12]))
    spec = recipe.Listing(
        root=str(root / "train"), train=str(root / "train.txt"), test=str(root / "test.txt")
    )
    found = dataset(spec)
    assert found.counts.tolist() == [10, 40] and "share 4 images" in found.notes[0]
    held = dataclasses.replace(spec, val=str(root / "val.txt"))
    assert dataset(held).digest == found.digest, "a list for choosing is read where something is chosen"
    (root / "val.txt").write_text("\n".join(lines[:2]))
    held = dataclasses.replace(held, held_out=recipe.HeldOut(source="file"))
    assert dataset(held).held_out.counts.tolist() == [2, 0]
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (the [parquet] extra)")
    pixels = [(root / "train" / line.split()[0]).read_bytes() for line in lines]
    table = arrow.table({"image": pixels, "label": [int(line.split()[1]) for line in lines]})
    pytest.importorskip("pyarrow.parquet").write_table(table, root / "a.parquet")
    again = dataset(recipe.Parquet(train=str(root / "a.parquet"), test=str(root / "a.parquet")))
    assert torch.equal(again.counts, found.counts) and again.digest != found.digest


REAL = bool(os.environ.get("LONGTAIL_DATA"))
real = pytest.mark.skipif(not REAL, reason="LONGTAIL_DATA names no folder with CIFAR")
TOTALS = {
    (10, 50): (13_996, 100),
    (10, 100): (12_406, 50),
    (10, 200): (11_203, 25),
    (100, 50): (12_608, 10),
    (100, 100): (10_847, 5),
    (100, 200): (9_502, 2),
}
CIFAR10 = {
    50: [5000, 3237, 2096, 1357, 878, 568, 368, 238, 154, 100],
    100: [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50],
    200: [5000, 2775, 1540, 854, 474, 263, 146, 81, 45, 25],
}


@real
@pytest.mark.parametrize(("classes", "ratio"), TOTALS)
def test_real_cifar_has_the_published_counts(classes, ratio):
    found = dataset(recipe.Cifar(classes=classes, longtail=recipe.LongTail(ratio=ratio)))
    total, smallest = TOTALS[classes, ratio]
    assert (len(found.train), int(found.counts.min()), len(found.test)) == (total, smallest, 10_000)
    assert classes == 100 or found.counts.tolist() == CIFAR10[ratio]
    assert found.counts.tolist() == sorted(found.counts.tolist(), reverse=True)
    assert found.manifest["selection"] == "first"
    assert any("not the official files" in note for note in found.notes)
    assert any("first images of each class" in note for note in found.notes)


@real
def test_real_cifar100_repeats_what_it_is_known_to_repeat_and_cifar10_nothing():
    held_out = recipe.HeldOut(source="file")
    notes = dataset(recipe.Cifar(classes=100, longtail=None, held_out=held_out)).notes
    assert [note.split(" (")[0] for note in notes[1:]] == [
        "train: 5 images repeated",
        "test: 2 images repeated, 2 under two labels",
        "train and test share 5 images, 1 under two labels",
        "held-out: 1 image repeated, 1 under two labels",
        "train and held-out share 1 image, 1 under two labels",
    ]
    assert "record 11439" in notes[3] and "record 11421" in notes[5]
    assert len(dataset(recipe.Cifar(classes=10, longtail=None, held_out=held_out)).notes) == 1


@real
def test_real_cifar_cannot_give_a_ratio_below_its_own():
    with pytest.raises(DataError, match=r"class automobile has 3237 images.*ratio 10 needs 3871"):
        dataset(recipe.Cifar(longtail=recipe.LongTail(ratio=10)))
