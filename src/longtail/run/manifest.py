"""MANIFEST.json: the size and SHA-256 of each file of a folder, written last. It proves integrity against
accident, not authenticity: whoever can replace a file can replace its manifest."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal, cast

from longtail.errors import ModelFileError
from longtail.run import canonical, fsio
from longtail.run.escape import shown, terminal

NAME = "MANIFEST.json"
FORMAT = 1
Kind = Literal["checkpoint", "run"]
Entry = tuple[int, str]  # bytes, SHA-256


def entry(data: bytes) -> Entry:
    return len(data), hashlib.sha256(data).hexdigest()


def encode(kind: Kind, files: dict[str, Entry], **extra: int) -> bytes:
    listed = {name: {"bytes": size, "sha256": sha256} for name, (size, sha256) in files.items()}
    return canonical.encode({"format": FORMAT, "kind": kind, "files": listed, **extra})


def read(folder: Path, kind: Kind, *extra: str) -> tuple[dict[str, Entry], dict[str, int]]:
    """The entries of a folder's manifest, and the integers named in `extra`.

    Only the exact bytes that `encode` writes are accepted, so no damaged byte of the manifest goes unseen.
    """
    path = folder / NAME
    data = fsio.read_bytes(path, limit=fsio.LARGEST_JSON)
    try:
        found = canonical.decode(data)
        _refuse_newer(found, path)
        files = {name: (int(e["bytes"]), str(e["sha256"])) for name, e in found["files"].items()}
        numbers = {name: int(found[name]) for name in extra}
        exact = encode(kind, files, **numbers) == data
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFileError(f"{shown(path)} is damaged: {terminal(str(error))[:80]}") from error
    if not exact:
        raise ModelFileError(f"{shown(path)} is damaged: it is not what was written for a {kind}")
    return files, numbers


def _refuse_newer(found: Any, path: Path) -> None:
    version = cast("dict[str, Any]", found).get("format")
    if isinstance(version, int) and version > FORMAT:
        raise ModelFileError(
            f"{shown(path)} has format {version}, which needs a newer longtail (this reads up to {FORMAT})"
        )


def checked(folder: Path, name: str, wanted: Entry) -> bytes:
    """The bytes of one file, after comparing them with its entry."""
    path = folder / name
    data = fsio.read_bytes(path, limit=wanted[0])
    _compare(path, entry(data), wanted)
    return data


def check(folder: Path, name: str, wanted: Entry) -> None:
    """Compares one file with its entry, without holding it in memory."""
    _compare(folder / name, fsio.digest(folder / name), wanted)


def _compare(path: Path, found: Entry, wanted: Entry) -> None:
    if found[0] != wanted[0]:
        raise ModelFileError(f"{shown(path)} is damaged: {found[0]:,} bytes in place of {wanted[0]:,}")
    if found[1] != wanted[1]:
        raise ModelFileError(f"{shown(path)} is damaged: its SHA-256 is not the one in {NAME}")
