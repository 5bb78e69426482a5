from __future__ import annotations

import io
import os
import struct
import time
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from longtail.data import images
from longtail.data.images import FileImages, decode, resident
from longtail.data.splits import Split, printable
from longtail.errors import DataError


def encoded(image: Image.Image, form: str = "PNG", **more: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **more)
    return buffer.getvalue()


def colours(width: int = 6, height: int = 4) -> Image.Image:
    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    pixels[:, : width // 2, 0], pixels[:, width // 2 :, 2] = 200, 100
    return Image.fromarray(pixels)


@pytest.mark.parametrize("form", ["PNG", "BMP", "WEBP", "JPEG"])
def test_allowed_formats_are_decoded_to_rgb(form):
    found = decode(encoded(colours(), form, **({"lossless": True} if form == "WEBP" else {})), "x")
    assert found.mode == "RGB" and found.size == (6, 4)
    assert np.abs(np.asarray(found).astype(int) - np.asarray(colours())).max() <= (
        0 if form != "JPEG" else 60
    )


@pytest.mark.parametrize("form", ["GIF", "TIFF", "PPM", "ICO", "PCX", "TGA", "PDF", "EPS"])
def test_other_formats_are_refused_whatever_the_name_says(form):
    with pytest.raises(DataError, match=r"^a.png: not a JPEG, PNG, WebP or BMP image"):
        decode(encoded(colours(), form), "a.png")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(orientation):
    facts = Image.Exif()
    facts[0x0112] = orientation
    found = decode(encoded(colours(40, 20), "JPEG", quality=95, exif=facts), "x")
    assert found.size == ((40, 20) if orientation < 5 else (20, 40))
    red = np.asarray(found)[..., 0] > 100
    middle = {
        1: (10, 5),
        2: (10, 35),
        3: (10, 35),
        4: (10, 5),
        5: (5, 10),
        6: (5, 10),
        7: (35, 10),
        8: (35, 10),
    }
    assert red[middle[orientation]] and red.mean() == pytest.approx(0.5, abs=0.1)


def test_damaged_exif_leaves_the_picture_as_it_is():
    found = decode(encoded(colours(), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff"), "x")
    assert found.size == (6, 4)


@pytest.mark.parametrize("mode", ["L", "LA", "P", "1", "RGBA", "CMYK", "I;16"])
def test_every_mode_becomes_rgb(mode):
    if mode == "I;16":
        made = Image.fromarray(np.full((4, 6), 0x8040, dtype=np.uint16))
    else:
        grey = Image.new("RGB", (6, 4), (128, 128, 128))
        made = grey.quantize(4) if mode == "P" else grey.convert(mode)
    found = np.asarray(decode(encoded(made, "JPEG" if mode == "CMYK" else "PNG"), "x"))
    assert found.shape == (4, 6, 3)
    if mode != "1":
        assert np.abs(found.astype(int) - 128).max() <= 2


def test_palette_with_transparency_keeps_its_colours():
    made = colours().convert("P")
    found = decode(encoded(made, "PNG", transparency=bytes([0] * 10)), "x")
    assert found.mode == "RGB" and np.asarray(found)[0, 0, 0] > 150


def test_first_frame_of_an_animation_is_taken():
    frames = [Image.new("RGB", (4, 4), (value, 0, 0)) for value in (10, 200)]
    content = encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    assert np.asarray(decode(content, "x"))[0, 0, 0] == 10


def test_truncation_at_any_point_is_an_error_with_the_name():
    stream = np.random.default_rng(0)
    noise = Image.fromarray(stream.integers(0, 256, (64, 64, 3), dtype=np.uint8))
    for form in ("PNG", "JPEG", "BMP", "WEBP"):
        content = encoded(noise, form)
        for share in (0.0, 0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9):
            with pytest.raises(DataError, match=r"^dog/1.jpg: ") as caught:
                decode(content[: int(len(content) * share)], "dog/1.jpg")
            assert "\n" not in str(caught.value) and "0x" not in str(caught.value)


def test_wrong_checksum_of_a_png_is_an_error():
    content = bytearray(encoded(colours()))
    content[len(content) // 2] ^= 0xFF
    with pytest.raises(DataError):
        decode(bytes(content), "x")


def png_header(width: int, height: int) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n"
    for kind, body in ((b"IHDR", head), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")):
        content += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return content


@pytest.mark.parametrize(
    ("width", "height"), [(50_000, 50_000), (1, 50_000), (9_000, 9_000), (12_000, 8_000)]
)
def test_too_large_a_picture_is_refused_from_its_header(width, height):
    start = time.monotonic()
    for look in (decode, images.check_header):
        with pytest.raises(DataError, match=r"pixels|exceeds"):
            look(png_header(width, height), "bomb.png")
    assert time.monotonic() - start < 1


def test_width_of_zero_is_refused():
    with pytest.raises(DataError):
        decode(png_header(0, 5), "x")


def test_header_check_passes_what_only_decoding_refuses():
    content = encoded(colours(64, 64), "BMP")[:-100]
    images.check_header(content, "x")
    with pytest.raises(DataError):
        decode(content, "x")


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.png").write_bytes(encoded(colours()))
    (tmp_path / "outside.png").write_bytes(encoded(colours()))
    return root


def test_files_are_read_when_asked_and_selected_by_index(folder):
    (folder / "b.png").write_bytes(encoded(colours(3, 3)))
    found = FileImages(str(folder), ["a.png", "b.png"])
    picked = found.select(torch.tensor([1, 0, 1]))
    assert [picked.read(i).size for i in range(3)] == [(3, 3), (6, 4), (3, 3)]
    assert picked.where(0).endswith("root/b.png") and picked.stat(1) == (
        "a.png",
        (folder / "a.png").stat().st_size,
    )


def test_list_line_is_part_of_the_name(folder):
    found = FileImages(str(folder), ["a.png", "no.png"], listed_in="l.txt:", lines=np.array([4, 9]))
    with pytest.raises(DataError, match=r"^l.txt:9: no.png: cannot be found"):
        found.select([1]).read(0)


def link_out(folder):
    os.symlink("../outside.png", folder / "x.png")


def link_loop(folder):
    os.symlink("x.png", folder / "x.png")


def fifo(folder):
    os.mkfifo(folder / "x.png")


def directory(folder):
    (folder / "x.png").mkdir()


def device(folder):
    os.symlink("/dev/zero", folder / "x.png")


def gone(folder):
    pass


@pytest.mark.parametrize("make", [link_out, link_loop, fifo, directory, device, gone])
def test_what_is_no_file_inside_the_root_is_refused_without_waiting(folder, make):
    make(folder)
    start = time.monotonic()
    with pytest.raises(DataError, match=r"root/x.png: ") as caught:
        FileImages(str(folder), ["x.png"]).read(0)
    assert caught.value.number in (301, 307) and time.monotonic() - start < 1


def test_link_that_stays_inside_is_followed(folder):
    os.symlink("a.png", folder / "x.png")
    assert FileImages(str(folder), ["x.png"]).read(0).size == (6, 4)


@pytest.mark.parametrize(
    "path",
    ["../a.png", "a/../../b", "/etc/passwd", "~/a", "file:///a", "https://x/a", "", "a\0b", "a\\..\\b"],
)
def test_path_that_could_leave_the_root_is_refused(path):
    with pytest.raises(DataError, match=r"^l.txt:3: the path .* is not a plain path") as caught:
        images.check_path(path, "l.txt:3")
    assert caught.value.number == 307


def test_resident_resizes_the_short_side_and_crops_the_middle(folder):
    split = Split(FileImages(str(folder), ["a.png"]), torch.tensor([0]), ("a",))
    found = resident(split, 4)
    assert isinstance(found.images, torch.Tensor) and found.images.shape == (1, 3, 4, 4)
    assert found.images[0, 0, 0].tolist()[0] == 200 and found.images[0, 2, 0].tolist()[3] == 100


def test_resident_keeps_images_that_fit_and_resizes_the_others():
    split = Split(torch.full((2, 3, 8, 8), 7, dtype=torch.uint8), torch.tensor([0, 0]), ("a",))
    assert resident(split, 8) is split
    larger = resident(split, 16).images
    assert isinstance(larger, torch.Tensor) and larger.shape == (2, 3, 16, 16) and bool((larger == 7).all())


def test_names_are_printed_on_one_line():
    assert printable("a\nb\x1b[0m\u202e\udcff") == "a\\nb\\x1b[0m\\u202e\\udcff"
    assert printable("Grün 猫") == "Grün 猫"
