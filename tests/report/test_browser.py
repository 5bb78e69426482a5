"""The page in a real browser: no console message, no request, the rows in the document."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image, ImageChops

from longtail.report import page

MakeRun = Callable[..., Path]

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine: the page is not opened"
)


@dataclass
class Listener:
    """A server that keeps the request lines that reach it and answers nothing useful."""

    port: int
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def listener() -> Iterator[Listener]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        found, ended = Listener(server.getsockname()[1]), threading.Event()

        def listen() -> None:
            while not ended.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.settimeout(2)
                    try:
                        head = connection.recv(4096).decode("latin-1").split("\r\n")[0]
                        connection.sendall(
                            b"HTTP/1.1 404 no\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                        )
                    except OSError:
                        continue
                    found.requests.append(head)

        thread = threading.Thread(target=listen)
        thread.start()
        yield found
        ended.set()
        thread.join()


def opened(path: Path, folder: Path, listener: Listener, *flags: str) -> tuple[str, list[str]]:
    """The document after loading, and the console's lines. Every host name leads to the listener."""
    assert CHROMIUM is not None
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-default-apps",
        "--disable-extensions",
        "--hide-scrollbars",
        f"--host-resolver-rules=MAP * 127.0.0.1:{listener.port}",
        f"--user-data-dir={folder}",
        "--enable-logging=stderr",
        *flags,
        path.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    log = done.stderr.decode("utf-8", "replace").splitlines()
    return done.stdout.decode("utf-8", "replace"), [line for line in log if "CONSOLE" in line]


def asked(listener: Listener) -> list[str]:
    """Plain requests of the page; what the browser wants for itself goes elsewhere or is encrypted."""
    return [line for line in listener.requests if line.startswith("GET /page-")]


def test_the_page_opens_without_a_word_and_without_a_request(
    make_run: MakeRun, tmp_path: Path, listener: Listener
) -> None:
    address = f"http://127.0.0.1:{listener.port}/page-x"
    names = [f'"><img src="{address}">', f"<script src='{address}'></script>", "</style>", "plain"]
    page.write([make_run("a", names=names), make_run("b", loss={"kind": "focal"})], tmp_path / "report.html")
    document, console = opened(tmp_path / "report.html", tmp_path / "profile", listener, "--dump-dom")
    assert console == []
    assert asked(listener) == []
    assert '<th scope="row">GCL-A</th>' in document and '<th scope="row">digits.gcl</th>' in document
    assert document.count("<picture") == 6  # groups, classes, curves, two confusions, calibration
    assert "<script" not in document


def test_hostile_names_add_no_element_to_the_document(
    make_run: MakeRun, tmp_path: Path, listener: Listener
) -> None:
    hostile = ['"><img src=x onerror=alert(1)>', "</style><script>alert(1)</script>", "<!--", "{{7*7}}"]
    found: list[list[tuple[str, list[str]]]] = []
    for folder, names in (("a", hostile), ("b", ["w", "x", "y", "z"])):
        page.write([make_run(folder, names=names)], tmp_path / f"{folder}.html")
        document, console = opened(
            tmp_path / f"{folder}.html", tmp_path / f"profile-{folder}", listener, "--dump-dom"
        )
        assert console == []
        found.append(elements(document))
    assert len(found[1]) > 150 and found[0] == found[1]


def elements(document: str) -> list[tuple[str, list[str]]]:
    """Every element of a document with the names of its attributes."""
    seen: list[tuple[str, list[str]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.append((tag, [name for name, _ in attrs]))

    Reader().feed(document)
    return seen


def test_the_test_would_notice(tmp_path: Path, listener: Listener) -> None:
    """The control: a page that breaks each promise is caught breaking it."""
    (tmp_path / "bad.html").write_text(
        "<!doctype html><meta http-equiv=Content-Security-Policy content=\"default-src 'none'; img-src *\">"
        f"<p style='color:red'>x</p><img src='http://127.0.0.1:{listener.port}/page-y'>"
    )
    _, console = opened(tmp_path / "bad.html", tmp_path / "profile", listener, "--dump-dom")
    assert any("Content Security Policy" in line for line in console)
    assert asked(listener)


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_the_page_fits_the_screen_and_follows_the_scheme(
    make_run: MakeRun, tmp_path: Path, listener: Listener, width: int, dark: bool
) -> None:
    names = [f"a_long_name_without_a_space_{i}_" * 3 for i in range(12)]
    counts = [400 // (i + 1) for i in range(12)]
    runs = [make_run(f"a{seed}", counts=counts, names=names, seed=seed) for seed in (0, 1)]
    other = {"name": "another_long_name_without_a_space" * 2}
    runs.append(make_run("b" * 80, counts=counts, names=names, loss={"kind": "focal"}, recipe=other))
    page.write(runs, tmp_path / "report.html")
    shot = tmp_path / "shot.png"
    flags = (f"--window-size={width},12000", f"--screenshot={shot}")  # the whole page, down to its end
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    opened(tmp_path / "report.html", tmp_path / "profile", listener, *flags, scheme)
    image = Image.open(shot).convert("L")
    ground = image.getpixel((2, 2))
    assert isinstance(ground, int) and (ground < 60 if dark else ground > 240)
    right = image.crop((width - 8, 0, width, image.height))
    assert right.getextrema()[0] == right.getextrema()[1]  # nothing sticks out over the margin
    last = ImageChops.difference(image, Image.new("L", image.size, ground)).getbbox()
    assert last is not None and 4000 < last[3] < 11_900
    assert len(image.getcolors() or []) > 40  # and it is not blank
