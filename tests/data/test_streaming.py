from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance

from longtail.data import streaming
from longtail.data.batches import Batch
from longtail.data.images import FileImages
from longtail.data.splits import Split
from longtail.data.streaming import COLUMNS, TRIES, Large, Streamed, window
from longtail.errors import DataError
from longtail.keys import Key, uniforms

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
KEY = Key(5).fold("augment", 2)


def picture(seed: int) -> Image.Image:
    generator = np.random.Generator(np.random.Philox(seed))
    width, height = generator.integers(40, 90, 2).tolist()
    coarse = Image.fromarray(generator.integers(0, 256, (6, 6, 3), dtype=np.uint8))
    return coarse.resize((width, height), Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> FileImages:
    root = tmp_path_factory.mktemp("images")
    names = [f"{number:02}.{'png' if number % 5 == 0 else 'jpg'}" for number in range(26)]
    for number, name in enumerate(names):
        picture(number).save(root / name)
    return FileImages(str(root), names)


@dataclass
class Troubled:
    """The same files, with something done when one of them is read."""

    files: FileImages
    at: int
    trouble: Callable[[], object]

    def __len__(self) -> int:
        return len(self.files)

    def read(self, index: int) -> Image.Image:
        if index == self.at:
            self.trouble()
        return self.files.read(index)

    def where(self, index: int) -> str:
        return self.files.where(index)

    def encoded(self, index: int) -> bytes:
        return self.files.encoded(index)

    def select(self, indices: object) -> Troubled:
        return replace(self, files=self.files.select(indices))


def streamed(images: object, **changes: object) -> Streamed:
    split = Split(images, torch.arange(len(images)) % 4, tuple("abcd"))
    given = {"size": 24, "resize": 28, "jitter": 0.4, "mean": MEAN, "std": STD, "workers": 0, "timeout": 60.0}
    return Streamed(split, **{**given, **changes})


def order() -> torch.Tensor:
    return torch.randint(0, 26, (29,), generator=torch.Generator().manual_seed(1))


def digest(batches: Iterator[Batch] | list[Batch]) -> str:
    stream = hashlib.sha256()
    for batch in batches:
        for part in batch:
            stream.update(part.contiguous().numpy().tobytes())
    return stream.hexdigest()


def slow_train(image: Image.Image, row: list[float], large: Large) -> Image.Image:
    """Random resized crop, flip, jitter, step by step."""
    for attempt in range(10):
        area = (
            image.width * image.height * (large.area[0] + (large.area[1] - large.area[0]) * row[2 * attempt])
        )
        ratio = (3 / 4) * (16 / 9) ** row[2 * attempt + 1]
        w, h = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if w <= image.width and h <= image.height:
            break
    else:
        raise AssertionError("choose images that fit")
    y, x = int(row[20] * (image.height - h + 1)), int(row[21] * (image.width - w + 1))
    image = image.crop((x, y, x + w, y + h)).resize((large.size, large.size), Image.Resampling.BILINEAR)
    if row[22] < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    steps = [ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color]
    turns = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]][int(row[26] * 6)]
    for turn in turns:
        image = steps[turn](image).enhance(0.6 + 0.8 * row[23 + turn])
    return image


def normalised(image: Image.Image) -> torch.Tensor:
    pixels = np.asarray(image).transpose(2, 0, 1) / 255
    return torch.tensor((pixels - np.array(MEAN)[:, None, None]) / np.array(STD)[:, None, None])


def test_an_epoch_is_one_image_at_a_time_in_order(files):
    batches, index = streamed(files, workers=2), order()
    rows = uniforms(KEY, np.arange(29), COLUMNS).tolist()
    place = 0
    for batch in batches.epoch(index, key=KEY, batch_size=6):
        for image, target, position in zip(*batch):
            assert position == index[place] and target == position % 4
            wanted = normalised(slow_train(files.read(int(position)), rows[place], batches.reading.view))
            torch.testing.assert_close(image.double(), wanted, atol=2e-6, rtol=2e-6)
            place += 1
    assert place == 29


@pytest.fixture(scope="module")
def golden(files) -> str:
    return digest(streamed(files).epoch(order(), key=KEY, batch_size=6))


@pytest.mark.parametrize("prefetch", [1, 3])
@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_the_stream_is_the_same_for_any_number_of_workers(files, golden, workers, prefetch, monkeypatch):
    monkeypatch.setattr(streaming, "PREFETCH", prefetch)
    assert digest(streamed(files, workers=workers).epoch(order(), key=KEY, batch_size=6)) == golden


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_the_stream_is_the_same_for_any_start_method(files, golden, method):
    assert digest(streamed(files, workers=2, method=method).epoch(order(), key=KEY, batch_size=6)) == golden


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_processes_share_the_global_batch(files, world_size, workers):
    whole = list(streamed(files).epoch(order(), key=KEY, batch_size=8))
    batches = streamed(files, workers=workers)
    for rank in range(world_size):
        mine = list(batches.epoch(order(), key=KEY, batch_size=8, rank=rank, world_size=world_size))
        assert len(mine) == len(whole) == 4
        for part, every in zip(mine, whole):
            assert all(torch.equal(a, b[rank::world_size]) for a, b in zip(part, every))


@pytest.mark.parametrize("workers", [0, 3])
def test_a_later_start_is_the_rest_of_the_epoch(files, workers):
    whole = list(streamed(files).epoch(order(), key=KEY, batch_size=6))
    for start in (0, 1, 4, 5, 9):
        rest = streamed(files, workers=workers).epoch(order(), key=KEY, batch_size=6, start=start)
        assert digest(rest) == digest(whole[start:])


@pytest.mark.parametrize("workers", [0, 2])
def test_plain_is_the_middle_of_every_image_once(files, workers):
    found = list(streamed(files, workers=workers).plain(10))
    assert [len(batch.target) for batch in found] == [10, 10, 6]
    for batch in found:
        for image, position in zip(batch.images, batch.positions.tolist()):
            whole = files.read(position)
            w, h = whole.size
            w, h = (28, int(h * 28 / w)) if w <= h else (int(w * 28 / h), 28)
            left, top = round((w - 24) / 2), round((h - 24) / 2)
            middle = whole.resize((w, h), Image.Resampling.BILINEAR).crop((left, top, left + 24, top + 24))
            torch.testing.assert_close(image.double(), normalised(middle), atol=2e-6, rtol=2e-6)
    assert [int(p) for batch in found for p in batch.positions] == list(range(26))


def test_two_streams_run_side_by_side(files, golden):
    batches = streamed(files, workers=2)
    pairs = list(
        zip(*(batches.epoch(order(), key=KEY, batch_size=6) for _ in range(2)), batches.plain(6), strict=True)
    )
    assert digest([a for a, _, _ in pairs]) == digest([b for _, b, _ in pairs]) == golden


def test_layout_changes_no_value(files):
    one = list(streamed(files).epoch(order(), key=KEY, batch_size=6))
    two = list(streamed(files, channels_last=True).epoch(order(), key=KEY, batch_size=6))
    assert all(torch.equal(a.images, b.images) for a, b in zip(one, two))
    assert one[0].images.is_contiguous()
    assert two[0].images.is_contiguous(memory_format=torch.channels_last)


def global_state() -> tuple[object, ...]:
    legacy = np.random.get_state()[1]  # noqa: NPY002  (nothing may move it)
    return random.getstate(), legacy.tolist(), torch.get_rng_state().tolist()


def test_global_randomness_is_neither_read_nor_moved(files, golden):
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  (poison)
        torch.manual_seed(seed)
        before = global_state()
        assert digest(streamed(files, workers=2).epoch(order(), key=KEY, batch_size=6)) == golden
        assert before == global_state()


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_bad_image_is_one_line_that_names_the_file(files, tmp_path, workers):
    broken = list(files.paths)
    broken[11] = "bad\n11.jpg"
    for name in set(files.paths):
        shutil.copy(os.path.join(files.root, name), tmp_path)
    (tmp_path / broken[11]).write_bytes(b"\xff\xd8\xff not a picture")
    with pytest.raises(DataError) as caught:
        list(streamed(FileImages(str(tmp_path), broken), workers=workers).plain(4))
    assert "11.jpg" in str(caught.value) and "\n" not in str(caught.value) and caught.value.exit_code == 3


@pytest.mark.parametrize("workers", [0, 2])
def test_whatever_a_source_raises_names_the_file(files, workers):
    def trouble() -> None:
        raise RuntimeError("first line\nsecond line")

    with pytest.raises(DataError, match=r"13.jpg: cannot be read \(RuntimeError: first line\)$"):
        list(streamed(Troubled(files, 13, trouble), workers=workers).plain(4))


@pytest.mark.parametrize(
    ("trouble", "how"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by signal 9"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "killed by signal 15"),
        (lambda: os._exit(5), "ended with code 5"),
    ],
)
def test_a_worker_that_dies_names_its_file(files, trouble, how):
    stream = streamed(Troubled(files, 13, trouble), workers=2).plain(4)
    with pytest.raises(DataError, match="13.jpg") as caught:
        list(stream)
    assert how in str(caught.value) and "\n" not in str(caught.value)


def test_a_read_that_hangs_names_its_file(files):
    stream = streamed(Troubled(files, 13, lambda: time.sleep(60)), workers=2, timeout=0.5).plain(4)
    began = time.monotonic()
    with pytest.raises(DataError, match="13.jpg: no pixels after 0.5 s"):
        list(stream)
    assert time.monotonic() - began < 10


def test_leaving_early_leaves_no_process_behind(files):
    import multiprocessing

    before = set(multiprocessing.active_children())
    stream = streamed(files, workers=3).epoch(order(), key=KEY, batch_size=6)
    next(stream)
    assert len(set(multiprocessing.active_children()) - before) == 3
    stream.close()
    assert set(multiprocessing.active_children()) <= before


def test_workers_end_with_a_killed_main_process(files):
    read, write = os.pipe()
    main = os.fork()
    if main == 0:  # a main process that is killed in the middle of an epoch, its workers holding the pipe
        try:
            stream = streamed(files, workers=3).epoch(order(), key=KEY, batch_size=2)
            next(stream)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    os.close(write)
    assert os.waitpid(main, 0)[1] == signal.SIGKILL
    began = time.monotonic()
    assert os.read(read, 1) == b""  # the end: no process holds the other side any more
    os.close(read)
    assert time.monotonic() - began < 10


def test_windows_lie_inside_and_keep_area_and_shape():
    rows = uniforms(Key(0), np.arange(400), COLUMNS).tolist()
    shares = []
    for row in rows:
        left, top, width, height = window(300, 200, (0.08, 1.0), row)
        assert 0 <= left <= left + width <= 300 and 0 <= top <= top + height <= 200
        assert 0.73 < width / height < 1.36
        shares.append(width * height / 60_000)
    assert min(shares) < 0.15 and max(shares) > 0.8


@pytest.mark.parametrize(("width", "height", "wanted"), [(400, 20, (27, 20)), (20, 400, (20, 27))])
def test_an_image_too_narrow_gives_its_middle(width, height, wanted):
    row = [0.999] * (2 * TRIES) + [0.5, 0.5] + [0.0] * 5
    left, top, wide, tall = window(width, height, (0.9, 1.0), row)
    assert (wide, tall) == wanted and (left, top) == ((width - wide) // 2, (height - tall) // 2)


def test_images_in_memory_are_refused():
    split = Split(torch.zeros(1, 3, 4, 4, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64), ("a",))
    with pytest.raises(TypeError, match="Resident"):
        Streamed(split, mean=MEAN, std=STD)
