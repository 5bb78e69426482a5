from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from types import ModuleType

import pytest

from longtail.errors import MachineError, ModelFileError
from longtail.run.logs import Log


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rows_reach_the_file_when_flushed_and_keep_their_order_of_keys(tmp_path: Path) -> None:
    with Log(tmp_path / "steps.jsonl") as log:
        log.append({"step": 1, "loss": 0.5, "few": float("nan")})
        assert (tmp_path / "steps.jsonl").read_bytes() == b""
        log.flush()
        assert (tmp_path / "steps.jsonl").read_bytes() == b'{"step": 1, "loss": 0.5, "few": null}\n'


def test_the_position_is_that_of_the_bytes_on_disk(tmp_path: Path) -> None:
    with Log(tmp_path / "a") as log:
        for step in range(5):
            log.append({"step": step})
            data = (tmp_path / "a").read_bytes() + b'{"step": %d}\n' % step
            assert log.position() == {"offset": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            assert (tmp_path / "a").read_bytes() == data


def test_a_log_cut_back_and_continued_has_the_bytes_of_one_never_interrupted(tmp_path: Path) -> None:
    with Log.open(tmp_path / "whole", None) as log:
        for step in range(6):
            log.append({"step": step})
    with Log.open(tmp_path / "cut", None) as log:
        for step in range(3):
            log.append({"step": step})
        position = log.position()
        log.append({"step": "never saved" * 50})
    with open(tmp_path / "cut", "ab") as file:
        file.write(b'{"torn')
    with Log.open(tmp_path / "cut", position) as log:
        for step in range(3, 6):
            log.append({"step": step})
        end = log.position()
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes()
    with Log.open(tmp_path / "whole", end) as log:
        assert log.position() == end


def test_without_a_position_a_log_begins_empty(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'{"old": 1}\n' * 9)
    with Log.open(tmp_path / "a", None) as log:
        log.append({"new": 1})
    assert rows(tmp_path / "a") == [{"new": 1}]


def test_a_plain_log_goes_on_after_the_last_whole_line(tmp_path: Path) -> None:
    (tmp_path / "timing.jsonl").write_bytes(b'{"epoch": 1}\n{"epo')
    with Log(tmp_path / "timing.jsonl") as log:
        log.append({"epoch": 2})
        assert log.position()["offset"] == 26
    assert rows(tmp_path / "timing.jsonl") == [{"epoch": 1}, {"epoch": 2}]


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b'{"a": 2}\nmore', "was changed"), (b'{"a"', "is shorter"), (None, "is missing")],
)
def test_a_log_that_is_not_the_one_of_the_checkpoint_is_refused_and_left_alone(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    with Log.open(tmp_path / "a", None) as log:
        log.append({"a": 1})
        position = log.position()
    (tmp_path / "a").unlink()
    if content is not None:
        (tmp_path / "a").write_bytes(content)
    before = len(os.listdir("/proc/self/fd")) if Path("/proc").exists() else 0
    with pytest.raises(ModelFileError, match=reason):
        Log.open(tmp_path / "a", position)
    assert (tmp_path / "a").exists() == (content is not None)
    assert content is None or (tmp_path / "a").read_bytes() == content
    assert (len(os.listdir("/proc/self/fd")) if Path("/proc").exists() else 0) == before


@pytest.mark.parametrize("offset", [-1, "1", None, 1.5, 10**30])
def test_a_senseless_position_is_refused(tmp_path: Path, offset: object) -> None:
    (tmp_path / "a").write_bytes(b"{}\n")
    with pytest.raises(ModelFileError):
        Log.open(tmp_path / "a", {"offset": offset, "sha256": ""})


def test_rows_of_a_failed_write_are_written_again_not_twice(harness: ModuleType, tmp_path: Path) -> None:
    log = Log(tmp_path / "a")
    log.append({"step": 1, "text": "x" * 400})
    full = [True]

    def hook(op: str, path: str) -> None:
        calls.append(op)
        if op == "write" and full and calls.count("write") == 3:
            raise OSError(errno.ENOSPC, "full")

    calls: list[str] = []
    with harness.hooked(hook):
        with pytest.raises(MachineError):
            log.flush()
        full.clear()
        log.append({"step": 2})
        log.close()
    assert [row["step"] for row in rows(tmp_path / "a")] == [1, 2]


def test_a_log_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "a").symlink_to(tmp_path / "victim")
    with pytest.raises(MachineError):
        Log.open(tmp_path / "a", None)
    assert (tmp_path / "victim").read_text() == "precious"
