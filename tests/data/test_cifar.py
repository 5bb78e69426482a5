"""A small CIFAR written by the test, in each layout; the real folder when LONGTAIL_DATA names it."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from longtail.data import cifar
from longtail.data.cifar_layouts import BINARY_10, BINARY_100, PYTHON_10, PYTHON_100, Layout
from longtail.errors import DataError

TEN = b"airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n"


def batch(seed: int, number: int = 20, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    stream = np.random.default_rng(seed)
    return stream.integers(0, 256, (number, 3072), dtype=np.uint8), stream.integers(0, classes, number)


def binary_files(layout: Layout, names: bytes) -> dict[str, bytes]:
    files = {layout.names: names}
    for seed, name in enumerate(layout.files):
        pixels, labels = batch(seed, classes=layout.classes)
        columns = [labels // 5, labels] if layout.classes == 100 else [labels]
        files[name] = np.hstack([np.stack(columns, 1), pixels]).astype(np.uint8).tobytes()
    return files


def python_files(layout: Layout) -> dict[str, bytes]:
    key = "label_names" if layout.classes == 10 else "fine_label_names"
    files = {layout.names: pickle.dumps({key: [f"class{i}" for i in range(layout.classes)]}, protocol=4)}
    label = "labels" if layout.classes == 10 else "fine_labels"
    for seed, name in enumerate(layout.files):
        pixels, labels = batch(seed, classes=layout.classes)
        files[name] = pickle.dumps({"data": pixels, label: labels.tolist()}, protocol=4)
    return files


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def packed(folder: str, files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.USTAR_FORMAT) as made:
        for name, content in files.items():
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def expected(layout: Layout) -> tuple[np.ndarray, list[int]]:
    parts = [batch(seed, classes=layout.classes) for seed in range(len(layout.train))]
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]).tolist()


@pytest.mark.parametrize(
    "layout", [BINARY_10, BINARY_100, PYTHON_10, PYTHON_100], ids=lambda item: item.folder
)
@pytest.mark.parametrize("place", ["folder itself", "parent", "archive", "folder of the archive"])
def test_every_layout_gives_the_same_images(tmp_path, layout, place):
    names = TEN if layout.classes == 10 else "\n".join(f"class{i}" for i in range(100)).encode()
    files = binary_files(layout, names) if layout.kind == "binary" else python_files(layout)
    if "archive" in place:
        (tmp_path / layout.archive).write_bytes(packed(layout.folder, files))
    else:
        write(tmp_path / layout.folder, files)
    root = {"folder itself": tmp_path / layout.folder, "archive": tmp_path / layout.archive}.get(
        place, tmp_path
    )
    sources = cifar.read(layout.classes, str(root))
    pixels, labels = expected(layout)
    assert isinstance(sources.train.images, torch.Tensor)
    assert np.array_equal(sources.train.images.numpy(), pixels.reshape(-1, 3, 32, 32))
    assert sources.train.targets.tolist() == labels and len(sources.test) == 20
    assert len(sources.names) == layout.classes and sources.held_out is None
    assert not sources.official and "not the official files" in sources.notes[0]


def with_hashes(layout: Layout, files: dict[str, bytes]) -> Layout:
    return dataclasses.replace(layout, files={n: hashlib.sha256(files[n]).hexdigest() for n in layout.files})


def test_files_with_the_published_hashes_are_official_without_a_note(tmp_path):
    files = binary_files(BINARY_10, TEN)
    write(tmp_path / BINARY_10.folder, files)
    sources = cifar.read(10, str(tmp_path), layouts=(with_hashes(BINARY_10, files),))
    assert sources.official and sources.notes == ()
    assert sources.names[0] == "airplane" and sources.names[9] == "truck"


def test_the_extra_file_of_records_is_held_out(tmp_path):
    files = binary_files(BINARY_10, TEN)
    write(tmp_path, files | {BINARY_10.held_out: files["test_batch.bin"]})
    sources = cifar.read(10, str(tmp_path))
    assert sources.held_out is not None and torch.equal(sources.held_out.targets, sources.test.targets)


def test_environment_then_cache_are_searched(tmp_path, monkeypatch):
    monkeypatch.setenv("LONGTAIL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(DataError, match=r"CIFAR-10 is not in .*data.download=true") as caught:
        cifar.read(10)
    assert caught.value.number == 301 and "\n" not in str(caught.value)
    cache = tmp_path / "longtail"
    write(cache, {BINARY_10.archive: packed(BINARY_10.folder, binary_files(BINARY_10, TEN))})
    assert len(cifar.read(10).train) == 100
    few = binary_files(BINARY_10, TEN) | {"data_batch_1.bin": bytes(3073)}
    write(tmp_path / "data" / BINARY_10.folder, few)
    assert len(cifar.read(10).train) == 81


def test_download_is_asked_for_and_then_kept(tmp_path, monkeypatch):
    monkeypatch.delenv("LONGTAIL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    files = binary_files(BINARY_10, TEN)
    body = packed(BINARY_10.folder, files)
    layout = dataclasses.replace(
        with_hashes(BINARY_10, files), size=len(body), sha256=hashlib.sha256(body).hexdigest()
    )
    asked: list[str] = []

    def fetch(url: str, target: Path, *, size: int, sha256: str, **_: object) -> Path:
        assert (size, sha256) == (layout.size, layout.sha256)
        asked.append(url)
        write(target.parent, {target.name: body})
        return target

    monkeypatch.setattr(cifar.download, "fetch", fetch)
    assert cifar.read(10, fetch=True, layouts=(layout,)).official
    assert cifar.read(10, fetch=True, layouts=(layout,)).official
    assert asked == ["https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"]


FAULTS = {
    "one byte short": ("data_batch_3.bin", lambda content: content[:-1], "no whole number"),
    "empty": ("data_batch_3.bin", lambda content: b"", "no whole number"),
    "label 255": ("data_batch_2.bin", lambda content: b"\xff" + content[1:], "record 0 has label 255"),
    "label 10": ("test_batch.bin", lambda content: content[:-3073] + b"\x0a" + content[-3072:], "record 19"),
    "names short": ("batches.meta.txt", lambda content: b"cat dog", "10 different class names"),
    "names repeated": ("batches.meta.txt", lambda content: b"cat " * 10, "10 different class names"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_damaged_file_is_named(tmp_path, kind):
    name, change, says = FAULTS[kind]
    files = binary_files(BINARY_10, TEN)
    write(tmp_path, files | {name: change(files[name])})
    with pytest.raises(DataError, match=says) as caught:
        cifar.read(10, str(tmp_path))
    assert name in str(caught.value) and caught.value.number == 302


@pytest.mark.parametrize("name", ["data_batch_5.bin", "test_batch.bin"])
def test_half_copied_folder_names_the_missing_file(tmp_path, name):
    files = binary_files(BINARY_10, TEN)
    write(tmp_path, {key: content for key, content in files.items() if key != name})
    with pytest.raises(DataError, match=f"{name}: missing"):
        cifar.read(10, str(tmp_path))


def test_python_batch_that_runs_code_is_refused(tmp_path):
    write(tmp_path, python_files(PYTHON_10) | {"data_batch_1": b"cos\nsystem\n(S'true'\ntR."})
    with pytest.raises(DataError, match=r"data_batch_1: pickle refused: it asks for os.system"):
        cifar.read(10, str(tmp_path))


def test_other_file_given_as_archive_is_refused(tmp_path):
    (tmp_path / "photos.tar.gz").write_bytes(b"x")
    with pytest.raises(DataError, match="not one of the official archives"):
        cifar.read(10, str(tmp_path / "photos.tar.gz"))


real = pytest.mark.skipif(
    not os.environ.get("LONGTAIL_DATA"), reason="LONGTAIL_DATA names no folder with CIFAR"
)


@real
@pytest.mark.parametrize(("classes", "train", "held_out"), [(10, 13_996, 4_500), (100, 12_608, 4_908)])
def test_real_folder_is_known_as_partial_and_used(classes, train, held_out):
    sources = cifar.read(classes, os.environ["LONGTAIL_DATA"])
    assert (len(sources.train), len(sources.test)) == (train, 10_000)
    assert sources.held_out is not None and len(sources.held_out) == held_out
    assert sources.test.counts.tolist() == [10_000 // classes] * classes
    assert not sources.official and f"going on with {train} training images" in sources.notes[0]


@real
def test_real_test_file_of_cifar10_has_the_published_hash():
    """The one published file at hand: its hash ties the table of hashes to the world."""
    content = (Path(os.environ["LONGTAIL_DATA"]) / BINARY_10.folder / BINARY_10.test).read_bytes()
    assert hashlib.sha256(content).hexdigest() == BINARY_10.files[BINARY_10.test]
