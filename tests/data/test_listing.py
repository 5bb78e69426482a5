from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from longtail.data import listing
from longtail.errors import DataError


@pytest.fixture
def root(tmp_path):
    for i, name in enumerate(("a/1.png", "a/2.png", "b/3 x.png", "b/4.png")):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (i, 0, 0)).save(path)
    return tmp_path


def read(root: Path, name: str, train: str | bytes, test: str | bytes | None = None, **more):
    files = []
    for part, content in (("train", train), ("test", train if test is None else test)):
        file = root / f"{part}.{name}"
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        files.append(str(file))
    return listing.read(str(root / "images"), *files, **more)


def test_plain_lines_keep_spaces_in_paths_and_skip_empty_lines(root):
    sources = read(root, "txt", "a/1.png 0\n\nb/3 x.png\t1\r\na/2.png 0", "b/4.png 1\n")
    assert sources.train.targets.tolist() == [0, 1, 0] and sources.names == ("0", "1")
    assert [sources.train.images.read(i).getpixel((0, 0))[0] for i in range(3)] == [0, 2, 1]
    assert sources.train.where(1) == f"{root}/train.txt:3: b/3 x.png"


def test_byte_order_mark_is_no_part_of_the_first_path(root):
    assert read(root, "txt", "\ufeffa/1.png 0\n").train.images.read(0).size == (4, 4)


def test_csv_with_labels_and_class_names(root):
    text = 'id,path,label,class\n7,a/1.png,0,ant\n8,"b/3 x.png",1,bee\n'
    sources = read(root, "csv", text)
    assert sources.names == ("ant", "bee") and sources.train.targets.tolist() == [0, 1]
    assert sources.train.where(1).startswith(f"{root}/train.csv:3: ")


def test_csv_with_class_names_alone_numbers_them_in_byte_order(root):
    sources = read(root, "csv", "file,class\na/1.png,bee\na/2.png,Ant\n", "file,class\nb/4.png,bee\n")
    assert sources.names == ("Ant", "bee")
    assert (sources.train.targets.tolist(), sources.test.targets.tolist()) == ([1, 0], [1])


def test_bbn_json(root):
    rows = [{"fpath": "a/1.png", "category_id": 1}, {"fpath": "b/4.png", "category_id": 0}]
    sources = read(root, "json", json.dumps({"num_classes": 2, "annotations": rows}))
    assert sources.train.targets.tolist() == [1, 0]
    assert sources.train.where(1) == f"{root}/train.json:annotation 1: b/4.png"


def test_inaturalist_json(root):
    content = {
        "images": [{"id": 5, "file_name": "a/1.png"}, {"id": 9, "file_name": "b/4.png"}],
        "annotations": [
            {"id": 1, "image_id": 9, "category_id": 0},
            {"id": 2, "image_id": 5, "category_id": 1},
        ],
        "categories": [{"id": 0, "name": "Aves"}, {"id": 1, "name": "Fungi"}],
    }
    sources = read(root, "json", json.dumps(content))
    assert sources.names == ("Aves", "Fungi")
    assert [sources.train.images.read(i).getpixel((0, 0))[0] for i in range(2)] == [3, 0]


def test_prefix_is_exchanged_once(root):
    prefix = (("data_256/", ""), ("train/", "b/"))
    sources = read(root, "txt", "data_256/a/1.png 0\ntrain/4.png 1\n", prefix=prefix)
    assert [sources.train.images.read(i).getpixel((0, 0))[0] for i in range(2)] == [0, 3]


def test_gap_in_the_ids_is_a_class_without_images(root):
    assert read(root, "txt", "a/1.png 0\na/2.png 3\n").train.counts.tolist() == [1, 0, 0, 1]


def test_totals_of_a_list_of_places_size(tmp_path):
    """62,500 training, 7,300 validation and 36,500 test lines of 365 classes, as Places-LT has them."""
    (tmp_path / "images").mkdir()
    lines = [f"data_256/x/{i:08}.jpg {i % 365}" for i in range(62_500)]
    sources = read(tmp_path, "txt", "\n".join(lines), "\n".join(lines[:36_500]))
    assert (len(sources.train), len(sources.test)) == (62_500, 36_500)
    assert torch.equal(sources.test.counts, torch.full((365,), 100)) and len(sources.names) == 365


OK = "a/1.png 0\na/2.png 1\n"
LINES = {
    "column missing": ("txt", "a/1.png 0\na/2.png\n", 2, "a column is missing"),
    "label is text": ("txt", "a/1.png 0\na/2.png dog\n", 2, "label 'dog'"),
    "label is a fraction": ("txt", "a/1.png 0.5\n", 1, "label '0.5'"),
    "label is negative": ("txt", "a/1.png -1\n", 1, "label '-1'"),
    "label is huge": ("txt", "a/1.png 99999999999999999999\n", 1, "label '9999"),
    "label in other digits": ("txt", "a/1.png ٣\n", 1, "label"),
    "label with underscore": ("txt", "a/1.png 1_0\n", 1, "label '1_0'"),
    "NUL byte": ("txt", "a/1.png 0\na/\0.png 0\n", 2, "NUL"),
    "UTF-16": ("txt", OK.encode("utf-16"), 1, "not UTF-8"),
    "Latin-1": ("txt", OK.encode() + "é 1\n".encode("latin-1"), 3, "not UTF-8"),
    "parent": ("txt", "a/1.png 0\n../x.png 0\n", 2, "not a plain path"),
    "absolute": ("txt", "/etc/passwd 0\n", 1, "not a plain path"),
    "home": ("txt", "~/x.png 0\n", 1, "not a plain path"),
    "file URL": ("txt", "file:///etc/passwd 0\n", 1, "not a plain path"),
    "http URL": ("txt", "http://169.254.169.254/x 0\n", 1, "not a plain path"),
    "csv without header": ("csv", "a/1.png,0\n", 1, "the header needs"),
    "csv empty": ("csv", "\n", 1, "the header needs"),
    "csv short row": ("csv", "path,label\na/1.png,0\na/2.png\n", 3, "not as many columns"),
    "csv long row": ("csv", "path,label\na/1.png,0,5\n", 2, "not as many columns"),
    "csv open quote": ("csv", 'path,label\n"a/1.png,0\n', 2, "bad CSV"),
    "csv label": ("csv", "path,label\na/1.png,x\n", 2, "label 'x'"),
    "csv two names": ("csv", "path,label,class\na/1.png,0,a\na/2.png,0,b\n", 3, "two class names"),
    "csv no name": ("csv", "path,class\na/1.png,\n", 2, "class name is empty"),
    "json broken": ("json", '{"annotations":\n [}', 2, "not JSON"),
    "json deep": ("json", "[" * 100_000, 1, "nested too deeply"),
    "json long number": ("json", f'{{"annotations": [{"1" * 5000}]}}', 1, "number is too long"),
    "json list": ("json", "[1, 2]", 1, "no list 'annotations'"),
    "json no annotations": ("json", "{}", 1, "no list 'annotations'"),
}


@pytest.mark.parametrize("kind", LINES)
def test_bad_line_is_named_by_file_and_number(root, kind):
    name, content, line, says = LINES[kind]
    with pytest.raises(DataError, match=says) as caught:
        read(root, name, content)
    assert str(caught.value).startswith(f"{root}/train.{name}:{line}: ") and "\n" not in str(caught.value)
    assert caught.value.number in (306, 307)


ROWS = {
    "no path": {"annotations": [{"category_id": 0}]},
    "no label": {"annotations": [{"fpath": "a"}]},
    "label is text": {"annotations": [{"fpath": "a", "category_id": "0"}]},
    "unknown image": {
        "images": [{"id": 1, "file_name": "a"}],
        "annotations": [{"image_id": 2, "category_id": 0}],
    },
    "image id is a list": {"annotations": [{"image_id": [], "category_id": 0}]},
    "row is no object": {"annotations": [7]},
    "negative": {"annotations": [{"fpath": "a", "category_id": -1}]},
    "leaves the root": {"annotations": [{"fpath": "../a", "category_id": 0}]},
}


@pytest.mark.parametrize("kind", ROWS)
def test_bad_annotation_is_named(root, kind):
    with pytest.raises(DataError, match=r"train.json:.*annotations? ?0"):
        read(root, "json", json.dumps(ROWS[kind]))


def test_test_label_that_training_does_not_know_is_named(root):
    with pytest.raises(DataError, match=r"test.txt:2: class 2 has no training images"):
        read(root, "txt", OK, "a/1.png 0\na/2.png 2\n")
    with pytest.raises(DataError, match=r"test.csv:2: class cow has no training images"):
        read(root, "csv", "path,class\na/1.png,dog\n", "path,class\na/1.png,cow\n")


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_empty_list_is_an_error(root, content):
    with pytest.raises(DataError, match=r"train.txt: names no image"):
        read(root, "txt", content)


def test_missing_list_and_missing_root_are_named(root):
    with pytest.raises(DataError, match=r"gone.txt: cannot be read"):
        listing.read(str(root), str(root / "gone.txt"), str(root / "gone.txt"))
    with pytest.raises(DataError, match=r"nowhere: no such folder"):
        listing.read(str(root / "nowhere"), "x", "x")
