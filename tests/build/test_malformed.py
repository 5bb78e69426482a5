"""Bad data of many kinds, each handed to `dataset` as a user would: one line, a name, the disk unchanged."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from longtail import recipe
from longtail.build.data import dataset
from longtail.data import subset
from longtail.errors import DataError

NOISE = np.random.default_rng(0).integers(0, 256, (40, 24, 24, 3), dtype=np.uint8)


def picture(number: int, form: str = "PNG", **more: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(NOISE[number]).save(buffer, form, **more)
    return buffer.getvalue()


def snapshot(root: Path) -> dict[str, str]:
    """What each path is: its kind, and the hash of a file or the target of a link."""
    found: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[str(path)] = os.readlink(path) if stat.S_ISLNK(mode) else oct(mode)
    return found


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A sound folder of three classes, list files for it, and a CIFAR folder of a few records."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LONGTAIL_DATA", str(tmp_path / "data"))
    number = iter(range(40))
    for part, each in (("train", 4), ("test", 2)):
        for name in ("ant", "bee", "cat"):
            folder = tmp_path / "set" / part / name
            folder.mkdir(parents=True)
            for i in range(each):
                (folder / f"{i}.png").write_bytes(picture(next(number)))
        names = [
            f"{part}/{name}/{i}.png {k}" for k, name in enumerate(("ant", "bee", "cat")) for i in range(each)
        ]
        (tmp_path / f"{part}.txt").write_text("\n".join(names) + "\n")
    cifar = tmp_path / "cifar"
    cifar.mkdir()
    records = b"".join(bytes([label]) + NOISE[label].tobytes()[:1024] * 3 for label in range(10))
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        (cifar / name).write_bytes(records)
    return tmp_path


FOLDER = recipe.Folder(root="set")
LISTING = recipe.Listing(root="set", train="train.txt", test="test.txt")
CIFAR = recipe.Cifar(root="cifar", longtail=None)
Spoil = Callable[[Path], object]


def put(name: str, content: bytes) -> Spoil:
    return lambda root: (root / name).write_bytes(content)


def line(text: str) -> Spoil:
    """A list whose fourth line is the given text."""

    def change(root: Path) -> None:
        lines = (root / "train.txt").read_text().splitlines()
        (root / "train.txt").write_text("\n".join([*lines[:3], text, *lines[4:]]))

    return change


def link(target: str) -> Spoil:
    def change(root: Path) -> None:
        (root / "outside.png").write_bytes(picture(39))
        (root / A).unlink()
        (root / A).symlink_to(target)

    return change


def removed(name: str) -> Spoil:
    return lambda root: (root / name).unlink()


def fifo(root: Path) -> None:
    (root / A).unlink()
    os.mkfifo(root / A)


def emptied(root: Path) -> None:
    for path in (root / "set/train/bee").iterdir():
        path.unlink()


def all_bad(root: Path) -> None:
    for path in (root / "set/train/bee").iterdir():
        path.write_bytes(b"")


def copied(source: str, target: str) -> Spoil:
    return lambda root: (root / target).write_bytes((root / source).read_bytes())


def text(name: str, content: str) -> Spoil:
    return put(name, content.encode())


def manifest(**change: object) -> Spoil:
    indices = np.arange(12)
    sound = {"sha256": subset.sha256(indices), "counts": [4, 4, 4], "indices": indices.tolist()}
    return text("manifest.json", json.dumps(sound | change))


def tail(**facts: object) -> recipe.Folder:
    return recipe.Folder(root="set", longtail=recipe.LongTail(**facts))


GIVEN = tail(manifest="manifest.json")
SKIP = recipe.Folder(root="set", on_bad_image="skip")
STRICT = recipe.Folder(root="set", strict=True)
CSV = recipe.Listing(root="set", train="train.csv", test="test.txt")
JSON = recipe.Listing(root="set", train="train.json", test="test.txt")
PARQUET = recipe.Parquet(train="train.parquet", test="train.parquet")
A = "set/train/bee/1.png"
RECORD = 3073
NO_TAIL = recipe.Digits(longtail=None, held_out=recipe.HeldOut(source="leftover"))


def nothing(root: Path) -> None:
    """The spec alone is wrong."""


# kind: what is asked for, what is spoilt, the number, and what the line names
KINDS: dict[str, tuple[recipe.Data, Spoil, int, str]] = {
    # images
    "image empty": (FOLDER, put(A, b""), 309, A),
    "image is text": (FOLDER, put(A, b"hello"), 309, A),
    "image is a web page": (FOLDER, put(A, b"<html>not found</html>"), 309, A),
    "image is SVG": (FOLDER, put(A, b"<svg xmlns='http://www.w3.org/2000/svg'/>"), 309, A),
    "image is PDF": (FOLDER, put(A, b"%PDF-1.4\n%%EOF"), 309, A),
    "image is PostScript": (FOLDER, put(A, b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"), 309, A),
    "image is TIFF": (FOLDER, put(A, picture(0, "TIFF")), 309, A),
    "image is GIF": (FOLDER, put(A, picture(0, "GIF")), 309, A),
    "image is an archive": (FOLDER, put(A, b"PK\x03\x04" + bytes(100)), 309, A),
    "image of zeros": (FOLDER, put(A, bytes(1000)), 309, A),
    "image header alone": (FOLDER, put(A, picture(1)[:30]), 309, A),
    "PNG cut": (FOLDER, put(A, picture(1)[:-200]), 309, A),
    "PNG without its end": (FOLDER, put(A, picture(1)[: len(picture(1)) // 2]), 309, A),
    "PNG with a wrong checksum": (FOLDER, put(A, picture(1)[:400] + b"!!!!" + picture(1)[404:]), 309, A),
    "JPEG cut": (FOLDER, put(A, picture(1, "JPEG")[:-300]), 309, A),
    "progressive JPEG cut": (FOLDER, put(A, picture(1, "JPEG", progressive=True)[:500]), 309, A),
    "WebP cut": (FOLDER, put(A, picture(1, "WEBP")[:-100]), 309, A),
    "BMP cut": (FOLDER, put(A, picture(1, "BMP")[:-100]), 309, A),
    "bad image in the test part": (FOLDER, put("set/test/ant/0.png", b"x"), 309, "set/test/ant/0.png"),
    "bad image in a list": (LISTING, put("set/train/bee/0.png", b"x"), 309, "train.txt:5: train/bee/0.png"),
    "class loses a quarter": (SKIP, put(A, b""), 311, "class bee loses 1 of 4"),
    "class of bad images": (SKIP, all_bad, 311, "class bee loses 4 of 4"),
    # folders
    "root name too long": (recipe.Folder(root="x" * 5000), nothing, 301, "x: no such folder"),
    "test name too long": (recipe.Folder(root="set", test="x" * 5000), nothing, 301, "x: no such folder"),
    "root name with NUL": (recipe.Folder(root="a\0b"), nothing, 301, "a\\x00b"),
    "root name undecodable": (recipe.Folder(root="a\udcff"), nothing, 301, "a\\udcff"),
    "cifar root too long": (recipe.Cifar(root="x" * 5000), nothing, 301, "x; name its folder"),
    "parquet name too long": (recipe.Parquet(train="x" * 5000, test="x"), nothing, 301, "x: no such file"),
    "root missing": (recipe.Folder(root="nowhere"), nothing, 301, "nowhere"),
    "root is a file": (recipe.Folder(root="train.txt"), nothing, 301, "train.txt"),
    "test folder missing": (recipe.Folder(root="set", test="exam"), nothing, 301, "set/exam"),
    "class without images": (FOLDER, emptied, 310, "bee"),
    "folder in a class": (FOLDER, lambda root: (root / "set/train/bee/more").mkdir(), 302, "train/bee/more"),
    "test class unknown": (FOLDER, lambda root: (root / "set/test/dog").mkdir(), 316, "set/test/dog"),
    "classes alike": (FOLDER, lambda root: (root / "set/train/Bee").mkdir(), 316, "'Bee' and 'bee'"),
    "no class at all": (recipe.Folder(root="set/train/ant"), nothing, 302, "set/train/ant"),
    # paths
    "link to a file outside": (FOLDER, link("../../../outside.png"), 307, A),
    "link to an absolute path": (FOLDER, link("/etc/passwd"), 307, A),
    "link to a device": (FOLDER, link("/dev/zero"), 307, A),
    "link to itself": (FOLDER, link("1.png"), 301, A),
    "link to nothing": (FOLDER, link("gone.png"), 301, A),
    "fifo": (FOLDER, fifo, 307, A),
    "list: parent folder": (LISTING, line("../outside.png 0"), 307, "train.txt:4"),
    "list: hidden parent": (LISTING, line("train/../../outside.png 0"), 307, "train.txt:4"),
    "list: absolute": (LISTING, line("/etc/passwd 0"), 307, "train.txt:4"),
    "list: home": (LISTING, line("~/a.png 0"), 307, "train.txt:4"),
    "list: file URL": (LISTING, line("file:///etc/passwd 0"), 307, "train.txt:4"),
    "list: http URL": (LISTING, line("http://169.254.169.254/latest 0"), 307, "train.txt:4"),
    "list: folder": (LISTING, line("train/ant 0"), 307, "train.txt:4"),
    "list: file missing": (LISTING, line("train/ant/9.png 0"), 301, "train.txt:4"),
    "list: name too long": (LISTING, line("x" * 5000 + " 0"), 301, "train.txt:4"),
    # list files
    "list missing": (LISTING, removed("train.txt"), 301, "train.txt"),
    "list is a folder": (recipe.Listing(root="set", train="set", test="test.txt"), nothing, 301, "set"),
    "list empty": (LISTING, put("train.txt", b""), 306, "train.txt"),
    "list of blanks": (LISTING, put("train.txt", b" \n\t\n"), 306, "train.txt"),
    "list UTF-16": (LISTING, put("train.txt", "a 0".encode("utf-16")), 306, "train.txt:1"),
    "list NUL": (LISTING, line("train/ant/\0.png 0"), 306, "train.txt:4"),
    "list column missing": (LISTING, line("train/ant/0.png"), 306, "train.txt:4"),
    "list label text": (LISTING, line("train/ant/0.png ant"), 306, "train.txt:4"),
    "list label negative": (LISTING, line("train/ant/0.png -1"), 306, "train.txt:4"),
    "list label fraction": (LISTING, line("train/ant/0.png 1.0"), 306, "train.txt:4"),
    "list label huge": (LISTING, line("train/ant/0.png 123456789"), 306, "train.txt:4"),
    "list label gap": (LISTING, line("train/ant/0.png 4"), 310, "3"),
    "test label unknown": (LISTING, put("test.txt", b"test/ant/0.png 3\n"), 306, "test.txt:1"),
    "list root missing": (recipe.Listing(root="no", train="train.txt", test="test.txt"), nothing, 301, "no"),
    "csv without columns": (CSV, text("train.csv", "a,b\n1,2\n"), 306, "train.csv:1"),
    "csv short row": (CSV, text("train.csv", "path,label\ntrain/ant/0.png\n"), 306, "train.csv:2"),
    "csv label": (CSV, text("train.csv", "path,label\ntrain/ant/0.png,\n"), 306, "train.csv:2"),
    "csv open quote": (CSV, text("train.csv", 'path,label\n"train/ant/0.png,0\n'), 306, "train.csv:2"),
    "json cut": (JSON, text("train.json", '{"annotations": [\n'), 306, "train.json:2"),
    "json without annotations": (JSON, text("train.json", '{"images": []}'), 306, "train.json:1"),
    "json row": (JSON, text("train.json", '{"annotations": [{"fpath": 3}]}'), 306, "train.json:annotation 0"),
    # Parquet
    "parquet missing": (PARQUET, nothing, 301, "train.parquet"),
    "parquet is text": (PARQUET, text("train.parquet", "path,label\n"), 308, "train.parquet"),
    "parquet magic alone": (PARQUET, put("train.parquet", b"PAR1" * 4), 308, "train.parquet"),
    # CIFAR
    "cifar nowhere": (recipe.Cifar(), nothing, 301, "data.download=true"),
    "cifar short by one": (CIFAR, put("cifar/data_batch_2.bin", bytes(RECORD - 1)), 302, "data_batch_2.bin"),
    "cifar empty batch": (CIFAR, put("cifar/data_batch_2.bin", b""), 302, "data_batch_2.bin"),
    "cifar label": (CIFAR, put("cifar/test_batch.bin", b"\xff" * RECORD), 302, "test_batch.bin: record 0"),
    "cifar batch missing": (CIFAR, removed("cifar/data_batch_4.bin"), 302, "data_batch_4.bin"),
    "cifar names": (CIFAR, put("cifar/batches.meta.txt", b"cat"), 302, "batches.meta.txt"),
    "cifar archive damaged": (
        recipe.Cifar(root="cifar-10-binary.tar.gz"),
        put("cifar-10-binary.tar.gz", b"\x1f\x8b broken"),
        303,
        "cifar-10-binary.tar.gz",
    ),
    "cifar archive of another name": (recipe.Cifar(root="x.zip"), put("x.zip", b"PK"), 302, "x.zip"),
    "cifar class without images": (
        CIFAR,
        lambda root: [(root / f"cifar/data_batch_{i}.bin").write_bytes(bytes(RECORD)) for i in range(1, 6)],
        310,
        "1, 2, 3",
    ),
    # what is asked of sound data
    "ratio too large": (tail(ratio=50), nothing, 313, "ratio 50"),
    "pareto asks too much": (
        recipe.Listing(root="set", train="train.txt", test="test.txt", longtail=recipe.LongTail(ratio=1)),
        line("train/ant/0.png 1"),
        313,
        "class 0 has 3 images",
    ),
    "manifest missing": (GIVEN, nothing, 301, "manifest.json"),
    "manifest is no JSON": (GIVEN, text("manifest.json", "{"), 314, "manifest.json"),
    "manifest without indices": (GIVEN, text("manifest.json", '{"sha256": ""}'), 314, "manifest.json"),
    "manifest changed": (GIVEN, manifest(sha256="0" * 64), 314, "manifest.json"),
    "manifest of other counts": (GIVEN, manifest(counts=[6, 3, 3]), 314, "manifest.json"),
    "manifest out of range": (
        GIVEN,
        manifest(indices=[12], sha256=subset.sha256(np.array([12]))),
        314,
        "manifest.json",
    ),
    "held-out leftover of all": (NO_TAIL, nothing, 315, "leftover"),
    "held-out of nothing": (
        recipe.Folder(root="set", held_out=recipe.HeldOut(fraction=0)),
        nothing,
        315,
        "stratified",
    ),
    "strict: duplicate": (STRICT, copied("set/train/bee/0.png", A), 312, "train: 1 image repeated"),
    "strict: overlap": (STRICT, copied(A, "set/test/bee/0.png"), 312, "train and test share 1 image"),
    "strict: label conflict": (STRICT, copied("set/train/ant/0.png", A), 312, "ant and bee"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_bad_data_is_one_line_that_names_it_and_changes_nothing(root, kind):
    spec, spoil, number, names = KINDS[kind]
    spoil(root)
    before, start = snapshot(root), time.monotonic()
    with pytest.raises(DataError) as caught:
        dataset(spec)
    said = str(caught.value)
    assert names in said and caught.value.number == number and caught.value.exit_code == 3
    assert said.isprintable() and 10 <= len(said) <= 300
    assert str(Path.home()) not in said and str(root) not in said
    assert snapshot(root) == before and time.monotonic() - start < 10


@pytest.mark.parametrize("spec", [FOLDER, LISTING, CIFAR, SKIP, STRICT], ids=lambda spec: type(spec).__name__)
def test_the_same_data_without_the_damage_is_accepted(root, spec):
    """The control: without it, the refusals above would mean nothing."""
    before = snapshot(root)
    assert int(dataset(spec).counts.min()) > 0
    assert snapshot(root) == before


def test_manifest_without_the_damage_is_accepted(root):
    manifest()(root)
    assert dataset(GIVEN).counts.tolist() == [4, 4, 4]
