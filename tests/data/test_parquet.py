from __future__ import annotations

import builtins
import io
import json
from pathlib import Path

import pytest
from PIL import Image

from longtail.data import parquet
from longtail.errors import DataError

arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (the [parquet] extra)")
write_table = pytest.importorskip("pyarrow.parquet").write_table


def png(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), (value, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def write(path: Path, images: list, labels: list, *, metadata: dict | None = None, **names: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = arrow.table({names.get("image", "image"): images, names.get("label", "label"): labels})
    write_table(table.replace_schema_metadata(metadata), path, row_group_size=2)
    return str(path)


def test_bytes_and_structs_are_read_when_needed(tmp_path):
    train = write(tmp_path / "a.parquet", [png(i) for i in range(5)], [0, 1, 2, 0, 1])
    test = write(tmp_path / "b.parquet", [{"bytes": png(9), "path": "x.png"}], [2])
    sources = parquet.read(train, test)
    assert sources.names == ("0", "1", "2") and sources.train.targets.tolist() == [0, 1, 2, 0, 1]
    picked = sources.train.select([4, 1])
    assert [picked.images.read(i).getpixel((0, 0))[0] for i in range(2)] == [4, 1]
    assert picked.where(0) == f"{train}: row 4" and sources.test.images.read(0).getpixel((0, 0))[0] == 9


def test_folder_of_shards_is_read_in_byte_order_of_names(tmp_path):
    for i, name in enumerate(("b", "B", "a")):
        write(tmp_path / "train" / f"{name}.parquet", [png(i)], [i])
    sources = parquet.read(str(tmp_path / "train"), str(tmp_path / "train"))
    assert sources.train.targets.tolist() == [1, 2, 0]


def test_text_labels_are_classes_in_byte_order(tmp_path):
    train = write(tmp_path / "a.parquet", [png(0)] * 3, ["dog", "Cat", "dog"])
    sources = parquet.read(train, write(tmp_path / "b.parquet", [png(0)], ["dog"]))
    assert sources.names == ("Cat", "dog") and sources.test.targets.tolist() == [1]


def test_class_names_come_from_the_features_and_columns_can_be_named(tmp_path):
    features = {"info": {"features": {"fine": {"names": ["ant", "bee"], "_type": "ClassLabel"}}}}
    metadata = {"huggingface": json.dumps(features)}
    train = write(tmp_path / "a.parquet", [png(0)], [1], metadata=metadata, image="img", label="fine")
    assert parquet.read(train, train, image="img", label="fine").names == ("ant", "bee")
    broken = write(tmp_path / "c.parquet", [png(0)], [1], metadata={"huggingface": "{"})
    assert parquet.read(broken, broken).names == ("0", "1")


def text_file(path):
    path.write_text("not a parquet file")


FAULTS = {
    "not parquet": (text_file, 308, "not readable as Parquet"),
    "missing": (lambda path: None, 301, "no such file"),
    "no image column": (lambda path: write(path, [png(0)], [0], image="picture"), 308, "no column 'image'"),
    "no label column": (lambda path: write(path, [png(0)], [0], label="y"), 308, "no column 'label'"),
    "image is text": (lambda path: write(path, ["a.png"], [0]), 308, "not image bytes"),
    "image is a path": (lambda path: write(path, [{"path": "a.png"}], [0]), 308, "not image bytes"),
    "no rows": (
        lambda path: write(path, arrow.array([], arrow.binary()), arrow.array([], arrow.int64())),
        308,
        "no rows",
    ),
    "label missing": (lambda path: write(path, [png(0)] * 2, [0, None]), 308, "row 1: label None"),
    "label negative": (lambda path: write(path, [png(0)] * 2, [0, -2]), 308, "row 1: label -2"),
    "label fraction": (lambda path: write(path, [png(0)] * 2, [0.0, 1.0]), 308, "row 0: label 0.0"),
    "label huge": (lambda path: write(path, [png(0)] * 2, [0, 10**12]), 308, "row 1: label 10000"),
    "empty folder": (lambda path: path.mkdir(), 301, "holds no .parquet file"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_unusable_file_is_one_line(tmp_path, kind):
    make, number, says = FAULTS[kind]
    good = write(tmp_path / "good.parquet", [png(0)], [0])
    make(tmp_path / "bad.parquet")
    with pytest.raises(DataError, match=says) as caught:
        parquet.read(str(tmp_path / "bad.parquet"), good)
    assert (
        caught.value.number == number and "\n" not in str(caught.value) and "bad.parquet" in str(caught.value)
    )


def test_truncated_file_is_one_line(tmp_path):
    path = Path(write(tmp_path / "a.parquet", [png(i) for i in range(5)], [0] * 5))
    whole = path.read_bytes()
    for share in (0.1, 0.5, 0.9):
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(DataError, match="not readable"):
            parquet.read(str(path), str(path))


def test_row_without_bytes_and_row_that_is_no_image_are_named(tmp_path):
    path = write(tmp_path / "a.parquet", [png(0), None, b"text"], [0, 0, 0])
    images = parquet.read(path, path).train.images
    for row, says in ((1, "row 1: holds no image bytes"), (2, "row 2: not a JPEG")):
        with pytest.raises(DataError, match=says):
            images.read(row)


def test_class_that_only_the_test_file_has_is_named(tmp_path):
    train = write(tmp_path / "a.parquet", [png(0)], ["dog"])
    with pytest.raises(DataError, match="row 0: class cow has no training images"):
        parquet.read(train, write(tmp_path / "b.parquet", [png(0)], ["cow"]))


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    whole = builtins.__import__

    def without(name, *arguments, **more):
        if name.startswith("pyarrow"):
            raise RuntimeError("broken install")
        return whole(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DataError, match=r"pip install 'longtail\[parquet\]'") as caught:
        parquet.read("a.parquet", "b.parquet")
    assert caught.value.number == 317
