from __future__ import annotations

import json
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longtail.errors import MachineError, ModelFileError, UsageError
from longtail.run import canonical, fsio

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_json_comes_back_equal_and_has_one_form(value: object) -> None:
    data = canonical.encode(value)
    assert canonical.decode(data) == value == json.loads(data)
    assert canonical.encode(canonical.decode(data)) == data
    assert data.endswith(b"\n") and data.isascii()


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_with_one_line(data: bytes) -> None:
    try:
        canonical.decode(data)
    except ValueError as error:
        assert "\n" not in str(error)


def test_the_order_of_keys_does_not_matter_and_lists_of_numbers_stay_on_a_line() -> None:
    first, second = {"b": [1, 2], "a": {"y": 1.5, "x": None}}, {"a": {"x": None, "y": 1.5}, "b": (1, 2)}
    assert canonical.encode(first) == canonical.encode(second)
    assert canonical.encode(first) == b'{\n  "a": {\n    "x": null,\n    "y": 1.5\n  },\n  "b": [1, 2]\n}\n'
    assert canonical.compact(first) == b'{"a":{"x":null,"y":1.5},"b":[1,2]}'


def test_everything_that_a_run_measures_becomes_json() -> None:
    value = {
        "nan": float("nan"),
        "inf": np.float32("inf"),
        "hits": torch.tensor([1, 2]),
        "array": np.array([[0.5]]),
        "scalar": np.int64(3),
        "flag": np.bool_(True),
        "zero": torch.tensor(0.25),
        "path": Path("a/b"),
        "set": {2, 1},
        7: "key",
    }
    assert fsio.jsonable(value) == {
        "nan": None,
        "inf": None,
        "hits": [1, 2],
        "array": [[0.5]],
        "scalar": 3,
        "flag": True,
        "zero": 0.25,
        "path": "a/b",
        "set": [1, 2],
        "7": "key",
    }
    for bad in (object(), {"a": object()}, {(1, 2): 3}, b"bytes"):
        with pytest.raises(TypeError):
            fsio.jsonable(bad)


@pytest.mark.parametrize("kind", [UsageError, ModelFileError])
def test_a_doubtful_json_file_is_refused_in_the_callers_terms(tmp_path: Path, kind: type[Exception]) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": {"b": 1, "b": 2}}')
    with pytest.raises(kind, match=r"a\.json: the key 'b' appears twice"):
        fsio.read_json(path, error=kind)
    path.write_text(" " * 100)
    with pytest.raises(kind, match="100 bytes; at most 99"):
        fsio.read_json(path, limit=99, error=kind)
    with pytest.raises(kind, match="No such file"):
        fsio.read_json(tmp_path / "absent.json", error=kind)
    with pytest.raises(kind, match="regular file"):
        fsio.read_json(tmp_path, error=kind)


def test_an_existing_file_is_replaced_whole_and_nothing_else_stays(tmp_path: Path) -> None:
    fsio.write_json(tmp_path / "a.json", {"a": 1})
    fsio.write_json(tmp_path / "a.json", {"a": 2})
    assert fsio.read_json(tmp_path / "a.json") == {"a": 2}
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_new_file_never_replaces_an_old_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(MachineError, match="exists"):
        os.close(fsio.open_excl(tmp_path / "a"))
    assert (tmp_path / "a").read_text() == "old"


def test_a_fault_without_advice_is_still_one_line(harness: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"cannot write .*no such file or directory"):
        fsio.rename(tmp_path / "absent", tmp_path / "b")


def test_removing_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "a").write_text("precious")
    (tmp_path / "waste").mkdir()
    (tmp_path / "waste" / "link").symlink_to(tmp_path / "victim")
    fsio.remove(tmp_path / "waste")
    fsio.remove(tmp_path / "waste")
    assert os.listdir(tmp_path) == ["victim"]
    assert (tmp_path / "victim" / "a").read_text() == "precious"


def test_only_our_leftovers_are_cleaned(tmp_path: Path) -> None:
    for name in (".tmp-a", ".trash-b", ".gitignore", "step-00000001", "tmp"):
        (tmp_path / name).mkdir()
    fsio.clean(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".gitignore", "step-00000001", "tmp"]
