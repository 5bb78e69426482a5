"""A strict reader of small .tar.gz archives. It reads into memory and writes nothing, so nothing can escape.

The standard tarfile module takes a damaged header for the end of the archive and never reads the gzip
trailer. Here the whole stream is checked first (length, CRC, nothing behind it), then every header; any doubt
refuses.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from longtail.data.images import read_regular
from longtail.data.splits import printable, shown_path
from longtail.errors import DataError

BLOCK = 512
MAX_PACKED = 512 << 20
MAX_UNPACKED = 400 << 20  # the largest official archive unpacks to 184 MB
MAX_MEMBERS = 256
MAGICS = (b"ustar\x0000", b"ustar  \x00", b"\x00" * 8)
# Extended headers may carry times and owners, which are ignored; what changes name or size is refused.
HARMLESS = ("mtime", "atime", "ctime", "uid", "gid", "uname", "gname", "comment")


def members(path: str | Path) -> dict[str, memoryview]:
    """Every regular file of the archive by its name, or a DataError that says what is wrong with it."""
    where = shown_path(path)
    content = _unpacked(read_regular(path, where, limit=MAX_PACKED), where)
    found: dict[str, memoryview] = {}
    try:
        for name, body in _entries(content):
            if name in found or len(found) >= MAX_MEMBERS:
                raise ValueError(f"'{printable(name[:80])}' stands in it twice, or it holds too many files")
            found[name] = body
    except ValueError as error:
        raise DataError(f"{where}: archive refused: {error}; download it again", number=303) from error
    return found


def _unpacked(packed: bytes, where: str) -> memoryview:
    stream = zlib.decompressobj(wbits=31)  # 31: gzip with its header, CRC and length
    try:
        content = stream.decompress(packed, MAX_UNPACKED)
    except zlib.error as error:
        raise DataError(
            f"{where}: not a sound gzip stream ({error}); download it again", number=303
        ) from error
    if not stream.eof:
        problem = "unpacks to too much" if stream.unconsumed_tail else "is cut short"
        raise DataError(f"{where}: the gzip stream {problem}; download it again", number=303)
    if stream.unused_data.strip(b"\0"):
        raise DataError(f"{where}: data stands behind the gzip stream; download it again", number=303)
    return memoryview(content)


def _entries(content: memoryview) -> Iterator[tuple[str, memoryview]]:
    position = 0
    while True:
        header = bytes(content[position : position + BLOCK])
        if len(header) < BLOCK:
            raise ValueError("it ends without its end mark")
        if not any(header):
            break
        kind, name, size = _checked(header)
        position += BLOCK
        body = content[position : position + size]
        padded = -(-size // BLOCK) * BLOCK
        if len(body) < size or any(content[position + size : position + padded]):
            raise ValueError(f"'{name}' is cut short or badly padded")
        if kind == b"0":
            yield name, body
        elif kind in b"xg":
            _check_extended(bytes(body))
        position += padded
    rest = content[position:]
    if len(rest) < 2 * BLOCK or bytes(rest).strip(b"\0"):
        raise ValueError("it ends without its end mark, or data stands behind it")


def _checked(header: bytes) -> tuple[bytes, str, int]:
    """Type, name and size of a header whose checksum holds. Only files, folders and extended headers pass."""
    total = sum(header) - sum(header[148:156]) + 8 * ord(" ")
    if _octal(header[148:156]) != total:
        raise ValueError("a header is damaged")
    if header[257:265] not in MAGICS:
        raise ValueError("a header is of an unknown format")
    kind = header[156:157].replace(b"\0", b"0")
    if kind not in (b"0", b"5", b"x", b"g"):
        raise ValueError(f"an entry of type {kind!r} (a link, a device or an extension)")
    size = _octal(header[124:136])
    if kind == b"5" and size:
        raise ValueError("a folder with contents")
    return kind, _name(header, kind), size


def _name(header: bytes, kind: bytes) -> str:
    name, *junk = header[:100].split(b"\0", 1)
    prefix = header[345:500].split(b"\0", 1)[0] if header[257:263] == b"ustar\0" else b""
    if any(any(piece) for piece in junk) or not all(32 < c < 127 for c in name + prefix):
        raise ValueError("a name with odd characters")
    text = (prefix + b"/" + name if prefix else name).decode("ascii")
    parts = PurePosixPath(text).parts
    if (
        not parts
        or text.startswith("/")
        or ".." in parts
        or "\\" in text
        or (kind == b"0" and text.endswith("/"))
    ):
        raise ValueError(f"the name '{text}' leaves the archive or is none")
    return str(PurePosixPath(text))


def _octal(field: bytes) -> int:
    digits = field.strip(b" \0")
    if not digits or not all(c in b"01234567" for c in digits):
        raise ValueError("a number that is not octal")
    return int(digits, 8)


def _check_extended(body: bytes) -> None:
    for line in body.split(b"\n"):
        key = line.partition(b" ")[2].partition(b"=")[0].decode("ascii", "replace")
        if line and key not in HARMLESS:
            raise ValueError(f"an extended header that sets '{printable(key[:40])}'")
