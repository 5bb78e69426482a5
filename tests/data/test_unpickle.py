"""Only tests write pickles here: those of CIFAR's python layout, and hostile ones."""

from __future__ import annotations

import os
import pickle
import struct
import time
from pathlib import Path

import numpy as np
import pytest

from longtail.data import unpickle
from longtail.errors import DataError

PIXELS = (np.arange(3 * 3072) % 251).astype(np.uint8).reshape(3, 3072)


def as_python_2_wrote_it(pixels: np.ndarray, labels: list[int]) -> bytes:
    """Protocol 2 with byte strings, opcode by opcode as cPickle and NumPy 1 wrote CIFAR."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    data = pixels.tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x06cnumpy\nndarray\nq\x07K\x00\x85" + text(b"b") + b"\x87R"
    )
    dtype = b"cnumpy\ndtype\nq\x08" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|")
    dtype += b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    shape = (
        b"(K\x01M" + struct.pack("<H", pixels.shape[0]) + b"M" + struct.pack("<H", pixels.shape[1]) + b"\x86"
    )
    array += shape + dtype + b"\x89T" + struct.pack("<i", len(data)) + data + b"tb"
    listed = b"]q\x04(" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}q\x01(" + text(b"data") + array + text(b"labels") + listed + b"u."


@pytest.mark.parametrize("protocol", [3, 4])
def test_cifar_batch_is_read(protocol):
    content = pickle.dumps({"data": PIXELS, "labels": [1, 2, 3], "batch_label": "one"}, protocol=protocol)
    found = unpickle.load(content, "batch")
    assert np.array_equal(found["data"], PIXELS) and found["labels"] == [1, 2, 3]


def test_cifar_batch_of_python_2_is_read():
    found = unpickle.load(as_python_2_wrote_it(PIXELS, [3, 1, 4]), "batch")
    assert np.array_equal(found["data"], PIXELS) and found["labels"] == [3, 1, 4]


class Runs:
    def __init__(self, function, *arguments):
        self.parts = function, arguments

    def __reduce__(self):
        return self.parts


CANARY = "canary"
HOSTILE = {
    "os.system": pickle.dumps(Runs(os.system, f"touch {CANARY}")),
    "open": pickle.dumps(Runs(open, CANARY, "w")),
    "eval": pickle.dumps(Runs(eval, f"open('{CANARY}', 'w')")),
    "exec in a dict": pickle.dumps({"data": Runs(exec, f"open('{CANARY}', 'w')")}),
    "getattr": pickle.dumps(Runs(getattr, "x", "upper")),
    "protocol 0": f"cos\nsystem\n(S'touch {CANARY}'\ntR.".encode(),
    "stack global": b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x93\x8c\x0ctouch canary\x94\x85R.",
    "inst": f"(S'touch {CANARY}'\nios\nsystem\n.".encode(),
    "obj": b"(cos\nsystem\nS'touch canary'\no.",
    "newobj": pickle.dumps(Path("x")),
    "dotted name": b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93.",
    "numpy load": b"cnumpy\nload\n(S'canary'\ntR.",
    "numpy exec": b"cnumpy.testing._private.utils\nrunstring\n(S'1'\n}tR.",
    "builtins": b"cbuiltins\nbreakpoint\n)R.",
    "persistent id": b"Pcanary\n.",
    "extension": b"\x80\x02\x82\x01.",
    "huge memo": b"\x80\x02Nr\xff\xff\xff\x7f.",
    "huge bytearray": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".",
    "huge string": b"\x80\x02T" + struct.pack("<i", 2**31 - 1) + b"x.",
    "huge array": b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(L999999999999L\ntS'b'\ntR.",
    "tuples to hash": b"\x80\x02})q\x00" + b"".join(b"h%c\x86q%c" % (i, i + 1) for i in range(60)) + b"Ns.",
    "objects": pickle.dumps({"data": np.array([[None, 1]], dtype=object)}),
    "floats": pickle.dumps({"data": np.zeros((2, 2))}),
    "three axes": pickle.dumps({"data": np.zeros((2, 2, 2), np.uint8)}, protocol=4),
    "no dict": pickle.dumps([1, 2]),
    "key no text": pickle.dumps({1: 2}),
    "cut": as_python_2_wrote_it(PIXELS, [1, 2, 3])[:-20],
    "empty": b"",
    "text": b"not a pickle at all",
    "two pops": b"00.",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_pickle_is_refused_and_runs_nothing(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    start = time.monotonic()
    with pytest.raises(DataError, match="^batch: pickle refused") as caught:
        unpickle.load(HOSTILE[kind], "batch")
    assert caught.value.number == 305 and "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [] and time.monotonic() - start < 5


def test_the_canary_would_sing(tmp_path, monkeypatch):
    """The control: what the test above refuses does run in an unrestricted reader."""
    monkeypatch.chdir(tmp_path)
    pickle.loads(HOSTILE["os.system"])  # noqa: S301
    assert (tmp_path / CANARY).exists()


def test_array_stays_an_array_and_its_memory_is_its_own():
    found = unpickle.load(pickle.dumps({"data": PIXELS}, protocol=4), "batch")["data"]
    assert type(found) is np.ndarray and found.dtype == np.uint8 and found.shape == PIXELS.shape


@pytest.mark.parametrize("kind", ["inst", "obj", "persistent id", "extension"])
def test_opcodes_that_build_objects_are_refused_before_anything_is_read(kind):
    """The first lock by itself: the second one would refuse most of these too."""
    with pytest.raises(DataError, match="pickle refused: opcode [A-Z0-9]+;"):
        unpickle.load(HOSTILE[kind], "batch")
