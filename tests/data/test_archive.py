from __future__ import annotations

import gzip
import io
import random
import tarfile
from pathlib import Path

import pytest

from longtail.data import archive
from longtail.errors import DataError

FILES = {"set/one.bin": b"1" * 700, "set/two.bin": bytes(range(256)) * 4, "set/empty.txt": b""}


def entry(name: str, content: bytes = b"", **facts: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in facts.items():
        setattr(info, key, value)
    return info, content


def tar(*entries: tuple[tarfile.TarInfo, bytes], form: int = tarfile.USTAR_FORMAT, **more: object) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form, **more) as made:
        for info, content in entries:
            made.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def sound(**more: object) -> bytes:
    return tar(entry("set", type=tarfile.DIRTYPE), *(entry(*item) for item in FILES.items()), **more)


def read(tmp_path: Path, packed: bytes) -> dict[str, bytes]:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(packed)
    return {name: bytes(content) for name, content in archive.members(path).items()}


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_sound_archive_is_read_whole(tmp_path, form):
    assert read(tmp_path, gzip.compress(sound(form=form))) == FILES


def test_times_in_extended_headers_are_harmless(tmp_path):
    content = tar(entry("set/one.bin", b"1" * 700, mtime=1.5), form=tarfile.PAX_FORMAT)
    assert read(tmp_path, gzip.compress(content)) == {"set/one.bin": b"1" * 700}


def patched(content: bytes, position: int, new: bytes, *, fix: bool = True) -> bytes:
    """Overwrites bytes of the first header; its checksum is made right again, so only the change is wrong."""
    head = bytearray(content[:512])
    head[position : position + len(new)] = new
    if fix:
        head[148:156] = b" " * 8
        head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + content[512:]


ONE = tar(entry("one", b"x" * 600))
REFUSED = {
    "traversal": gzip.compress(tar(entry("../out", b"x"))),
    "traversal inside": gzip.compress(tar(entry("set/../../out", b"x"))),
    "absolute": gzip.compress(tar(entry("/etc/passwd", b"x"))),
    "backslash": gzip.compress(tar(entry("..\\out", b"x"))),
    "symbolic link": gzip.compress(tar(entry("l", type=tarfile.SYMTYPE, linkname="/etc/passwd"))),
    "hard link": gzip.compress(tar(entry("l", type=tarfile.LNKTYPE, linkname="one"))),
    "character device": gzip.compress(tar(entry("d", type=tarfile.CHRTYPE))),
    "block device": gzip.compress(tar(entry("d", type=tarfile.BLKTYPE))),
    "fifo": gzip.compress(tar(entry("f", type=tarfile.FIFOTYPE))),
    "sparse": gzip.compress(tar(entry("s", type=tarfile.GNUTYPE_SPARSE), form=tarfile.GNU_FORMAT)),
    "long name": gzip.compress(tar(entry("n" * 300, b"x"), form=tarfile.GNU_FORMAT)),
    "name in a header": gzip.compress(tar(entry("é" * 3, b"x"), form=tarfile.PAX_FORMAT)),
    "twice": gzip.compress(tar(entry("one", b"a"), entry("one", b"b"))),
    "twice by spelling": gzip.compress(tar(entry("one", b"a"), entry("./one", b"b"))),
    "too many": gzip.compress(tar(*(entry(f"f{i}") for i in range(300)))),
    "folder with contents": gzip.compress(patched(ONE, 156, b"5")),
    "damaged header": gzip.compress(patched(ONE, 0, b"x", fix=False)),
    "damaged checksum": gzip.compress(patched(ONE, 148, b"zzz", fix=False)),
    "unknown magic": gzip.compress(patched(ONE, 257, b"other")),
    "size not octal": gzip.compress(patched(ONE, 124, b"9")),
    "size in base 256": gzip.compress(patched(ONE, 124, b"\x80")),
    "size too large": gzip.compress(patched(ONE, 124, b"77777777777")),
    "padding not empty": gzip.compress(ONE[:1200] + b"hidden" + ONE[1206:]),
    "no end mark": gzip.compress(ONE[: 512 * 3]),
    "one end block": gzip.compress(ONE[: 512 * 4]),
    "data behind the end": gzip.compress(ONE + b"more" * 128),
    "cut in a header": gzip.compress(ONE[:300]),
    "no tar": gzip.compress(b"text " * 200),
    "empty": b"",
    "no gzip": ONE,
    "no trailer": gzip.compress(sound())[:-8],
    "half a trailer": gzip.compress(sound())[:-3],
    "wrong CRC": gzip.compress(sound())[:-8] + b"0000" + gzip.compress(sound())[-4:],
    "wrong length": gzip.compress(sound())[:-4] + b"0000",
    "cut in the middle": gzip.compress(sound())[: len(gzip.compress(sound())) // 2],
    "second stream": gzip.compress(sound()) * 2,
    "junk behind": gzip.compress(sound()) + b"junk",
    "bomb": gzip.compress(bytes((1 << 20) + 512)),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_doubtful_archive_is_refused_in_one_line(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(archive, "MAX_UNPACKED", 1 << 20)
    with pytest.raises(DataError) as caught:
        read(tmp_path, REFUSED[kind])
    assert caught.value.number == 303
    assert "\n" not in str(caught.value) and "a.tar.gz" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]


@pytest.mark.parametrize("kind", ["gzip stream", "tar inside"])
def test_no_flipped_byte_is_accepted_with_another_content(tmp_path, kind):
    """Damage is either refused or without effect (a time stamp, say): never read as something else."""
    stream = random.Random(0)
    refused = 0
    for _ in range(500):
        damaged = bytearray(gzip.compress(sound(), mtime=0) if kind == "gzip stream" else sound())
        damaged[stream.randrange(len(damaged))] ^= 1 << stream.randrange(8)
        packed = bytes(damaged) if kind == "gzip stream" else gzip.compress(damaged)
        try:
            found = read(tmp_path, packed)
        except DataError:
            refused += 1
            continue
        # A flip inside a file's contents, under a gzip CRC made anew, is what the pinned SHA-256 is for.
        assert kind == "tar inside" or found == FILES
        assert [len(content) for content in found.values()] == [len(content) for content in FILES.values()]
    assert refused > (480 if kind == "gzip stream" else 150)


def test_missing_archive_is_one_line(tmp_path):
    with pytest.raises(DataError, match=r"absent.tar.gz: cannot be read"):
        archive.members(tmp_path / "absent.tar.gz")
