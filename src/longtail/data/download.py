"""One file over HTTPS into the cache: pinned size and SHA-256, no downgrade, one rename or nothing."""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from longtail.data.splits import printable, shown_path
from longtail.errors import DataError, MachineError

CHUNK = 1 << 18


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/longtail, else ~/.cache/longtail. Nothing is created."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(named):
        return Path(named) / "longtail"
    try:
        return Path.home() / ".cache" / "longtail"
    except RuntimeError as error:
        raise DataError("no home folder for the cache; set XDG_CACHE_HOME or name the data folder") from error


def fetch(
    url: str,
    target: Path,
    *,
    size: int,
    sha256: str,
    schemes: tuple[str, ...] = ("https",),
    context: ssl.SSLContext | None = None,
    patience: float = 30.0,
    deadline: float = 3600.0,
) -> Path:
    """`target`, holding exactly the pinned bytes.

    A present file of the right size and hash is kept. Processes that want the same file wait for one another
    on a lock that the kernel drops when its holder dies: a killed download leaves nothing to clean up.

    Args:
        schemes: what the first address and every redirection may use. Tests on the loopback pass ("http",).
        patience: seconds without a byte before giving up; `deadline` bounds the whole transfer.
    """
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(part) as file:
            if not _holds(target, size, sha256):
                try:
                    _receive(
                        url,
                        file,
                        size,
                        sha256,
                        _opener(schemes, context),
                        patience,
                        time.monotonic() + deadline,
                    )
                    os.fsync(file.fileno())
                    os.replace(part, target)
                    _sync_folder(target.parent)
                finally:
                    part.unlink(missing_ok=True)
            else:
                part.unlink(missing_ok=True)
    except (
        urllib.error.URLError,
        http.client.HTTPException,
        TimeoutError,
        ConnectionError,
        ssl.SSLError,
    ) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        reason = printable(str(getattr(error, "reason", error)))[:120]
        raise DataError(
            f"{url}: download failed ({reason}); try again, or fetch it by hand", number=304
        ) from error
    except OSError as error:
        raise MachineError(
            f"{shown_path(target)}: cannot be written ({error.strerror}); free the disk"
        ) from error
    return target


@contextmanager
def _locked(part: Path) -> Generator[IO[bytes]]:
    while True:
        handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(handle, "r+b") as file:
            fcntl.flock(handle, fcntl.LOCK_EX)
            # The one who held it before may have renamed or removed the file that we waited for.
            if part.exists() and part.stat().st_ino == os.fstat(handle).st_ino:
                file.truncate(0)
                yield file
                return


def _holds(path: Path, size: int, sha256: str) -> bool:
    if not path.is_file() or path.stat().st_size != size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


def _receive(
    url: str,
    file: IO[bytes],
    size: int,
    sha256: str,
    opener: urllib.request.OpenerDirector,
    patience: float,
    end: float,
) -> None:
    seen, digest = 0, hashlib.sha256()
    with opener.open(url, timeout=patience) as response:
        announced = response.headers.get("Content-Length", str(size))
        if announced != str(size):
            raise DataError(f"{url}: offers {printable(announced)[:20]} bytes, {size} are pinned", number=304)
        while chunk := response.read1(CHUNK):
            seen += len(chunk)
            digest.update(chunk)
            if seen > size:
                raise DataError(f"{url}: sends more than the {size} bytes that are pinned", number=304)
            if time.monotonic() > end:
                raise DataError(f"{url}: too slow, {seen} of {size} bytes so far; try again", number=304)
            file.write(chunk)
    if seen != size:
        raise DataError(f"{url}: broke off after {seen} of {size} bytes; try again", number=304)
    if digest.hexdigest() != sha256:
        raise DataError(
            f"{url}: the bytes are not the published ones (SHA-256 differs); not kept", number=304
        )
    file.flush()


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirection only to an allowed scheme: never from https down to http, never to a file."""

    def __init__(self, schemes: tuple[str, ...]):
        self.schemes = schemes

    def http_error_302(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
    ) -> IO[bytes] | None:
        # Checked before the standard handler, which answers some schemes with an error of its own.
        new = headers.get("location", "")
        if urlsplit(new).scheme.lower() not in ("", *self.schemes):
            fp.close()
            shown = printable(new[:80])
            raise DataError(f"{req.full_url}: redirects to '{shown}'; refused, fetch it by hand", number=304)
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _opener(schemes: tuple[str, ...], context: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    """An opener that knows the allowed schemes and nothing else: no file:, no ftp:, no data:."""
    opener = urllib.request.OpenerDirector()
    handlers: list[urllib.request.BaseHandler] = [
        urllib.request.ProxyHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
        _Redirects(schemes),
    ]
    if "https" in schemes:
        handlers.append(urllib.request.HTTPSHandler(context=context or ssl.create_default_context()))
    if "http" in schemes:
        handlers.append(urllib.request.HTTPHandler())
    for handler in handlers:
        opener.add_handler(handler)
    return opener


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
