"""A server on the loopback that misbehaves in one way per address; only here may plain http be used."""

from __future__ import annotations

import hashlib
import http.server
import shutil
import ssl
import subprocess
import threading
import time
from pathlib import Path

import pytest

from longtail.data import download
from longtail.errors import DataError, MachineError

BODY = bytes(range(256)) * 400
PINNED = {"size": len(BODY), "sha256": hashlib.sha256(BODY).hexdigest()}


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, format, *args):
        pass

    def do_GET(self):
        self.server.hits.append(self.path)
        kind, _, rest = self.path.strip("/").partition("/")
        if kind == "redirect":
            self.send_response(302)
            self.send_header("Location", rest)
            self.end_headers()
            return
        if kind in ("404", "500"):
            self.send_error(int(kind))
            return
        self.send_response(200)
        if kind in ("good", "truncated", "wrong", "slow", "stall"):
            self.send_header("Content-Length", str(len(BODY)))
        if kind == "length":
            self.send_header("Content-Length", "12")
        self.end_headers()
        try:
            self.send(kind)
        except (ConnectionError, BrokenPipeError, ssl.SSLError):
            pass

    def send(self, kind):
        match kind:
            case "truncated":
                self.wfile.write(BODY[: len(BODY) // 2])
            case "short":  # without a length, only the pinned size can tell
                self.wfile.write(BODY[:-1])
            case "wrong":
                self.wfile.write(BODY[:-1] + b"!")
            case "endless":
                while True:
                    self.wfile.write(bytes(65536))
            case "slow":
                for byte in BODY:
                    self.wfile.write(bytes([byte]))
                    time.sleep(0.01)
            case "stall":
                self.wfile.write(BODY[:10])
                self.wfile.flush()
                self.server.released.wait(5)
            case _:
                self.wfile.write(BODY)


class Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.hits, self.released = [], threading.Event()

    def handle_error(self, request, client_address):
        pass


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    quiet = Quiet()
    thread = threading.Thread(target=quiet.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    quiet.url = f"http://127.0.0.1:{quiet.server_port}"
    yield quiet
    quiet.released.set()
    quiet.shutdown()
    quiet.server_close()


def fetch(server, kind: str, target: Path, **more) -> Path:
    return download.fetch(f"{server.url}/{kind}", target, **PINNED, **({"schemes": ("http",)} | more))


def test_good_bytes_are_committed_and_not_asked_for_again(server, tmp_path):
    target = tmp_path / "cache" / "file"
    assert fetch(server, "good", target).read_bytes() == BODY
    fetch(server, "good", target)
    assert server.hits == ["/good"] and [p.name for p in target.parent.iterdir()] == ["file"]


def test_damaged_file_in_the_cache_is_replaced(server, tmp_path):
    target = tmp_path / "file"
    target.write_bytes(BODY[:-1] + b"?")
    assert fetch(server, "good", target).read_bytes() == BODY


def test_what_a_killed_download_left_is_overwritten(server, tmp_path):
    (tmp_path / "file.part").write_bytes(b"x" * 10 * len(BODY))
    assert fetch(server, "good", tmp_path / "file").read_bytes() == BODY
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("truncated", "broke off after|download failed"),
        ("short", "broke off after"),
        ("wrong", "SHA-256 differs"),
        ("endless", "more than"),
        ("length", "offers 12 bytes"),
        ("404", "Not Found|404"),
        ("500", "500|Internal"),
        ("redirect/file:///etc/passwd", "redirects to 'file:"),
        ("redirect/ftp://127.0.0.1/x", "redirects to 'ftp:"),
        ("redirect/https://127.0.0.1/x", "redirects to 'https:"),
        ("redirect/data:text/plain,x", "redirects to 'data:"),
        ("redirect//redirect//redirect", "download failed"),
    ],
)
def test_fault_gives_one_line_and_leaves_nothing(server, tmp_path, kind, says):
    with pytest.raises(DataError, match=says) as caught:
        fetch(server, kind, tmp_path / "file")
    assert "\n" not in str(caught.value) and caught.value.number == 304
    assert server.hits and list(tmp_path.iterdir()) == []


def test_slow_server_is_given_up_at_the_deadline(server, tmp_path):
    with pytest.raises(DataError, match="too slow"):
        fetch(server, "slow", tmp_path / "file", deadline=0.2)
    assert list(tmp_path.iterdir()) == []


def test_silent_server_is_given_up_after_patience(server, tmp_path):
    start = time.monotonic()
    with pytest.raises(DataError, match="timed out"):
        fetch(server, "stall", tmp_path / "file", patience=0.3)
    assert time.monotonic() - start < 3


def test_plain_http_is_refused_without_a_connection(server, tmp_path):
    with pytest.raises(DataError, match="unknown url type"):
        fetch(server, "good", tmp_path / "file", schemes=("https",))
    assert server.hits == []


def test_failed_download_leaves_the_file_that_was_there(server, tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(DataError):
        fetch(server, "wrong", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


def test_closed_port_is_one_line(tmp_path, server):
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError, match="download failed"):
        fetch(server, "good", tmp_path / "file")


def test_place_that_cannot_be_written_is_a_machine_error(server, tmp_path):
    (tmp_path / "file").write_text("a file, not a folder")
    with pytest.raises(MachineError):
        fetch(server, "good", tmp_path / "file" / "below")
    assert server.hits == []


def test_two_downloads_of_one_file_share_the_work(server, tmp_path):
    threads = [threading.Thread(target=fetch, args=(server, "good", tmp_path / "file")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "file").read_bytes() == BODY and server.hits == ["/good"]
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.fixture
def secure(server, tmp_path_factory):
    """The same server behind TLS with a certificate made for this test, and a context that trusts it."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: no certificate for a server with TLS")
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -days 2 -subj /CN=localhost"
    command += " -addext subjectAltName=IP:127.0.0.1"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inside.load_cert_chain(folder / "cert", folder / "key")
    server.socket = inside.wrap_socket(server.socket, server_side=True)
    server.url = server.url.replace("http:", "https:")
    server.context = ssl.create_default_context(cafile=str(folder / "cert"))
    return server


def test_https_is_used_and_followed_to_https_alone(secure, tmp_path):
    common = {"schemes": ("https",), "context": secure.context}
    assert fetch(secure, f"redirect/{secure.url}/good", tmp_path / "a", **common).read_bytes() == BODY
    down = secure.url.replace("https:", "http:")
    with pytest.raises(DataError, match="redirects to 'http:"):
        fetch(secure, f"redirect/{down}/good", tmp_path / "b", **common)
    assert not (tmp_path / "b").exists()


def test_unknown_certificate_is_refused(secure, tmp_path):
    with pytest.raises(DataError, match="(?i)certificate"):
        fetch(secure, "good", tmp_path / "file", schemes=("https",))
    assert list(tmp_path.iterdir()) == []


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert download.cache_folder() == tmp_path / "longtail"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/somewhere")
    assert download.cache_folder() == Path("/somewhere/.cache/longtail")
