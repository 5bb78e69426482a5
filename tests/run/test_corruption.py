"""Reliability R10: a damaged checkpoint is refused before use, and the newest sound one takes its place."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from longtail.errors import ModelFileError
from longtail.run import canonical, checkpoint, manifest, tensors

TIMES = 25  # of each kind; the seed of each is its number
Damage = Callable[[Path, Path, random.Random], None]


def some_file(step: Path, dice: random.Random) -> Path:
    return dice.choice(sorted(step.iterdir()))


def reseal(step: Path) -> None:
    """A manifest that fits the damaged files: only their content can give them away."""
    files = {
        path.name: manifest.entry(path.read_bytes()) for path in step.iterdir() if path.name != manifest.NAME
    }
    (step / manifest.NAME).write_bytes(manifest.encode("checkpoint", files, step=2))


def flip_a_bit(step: Path, older: Path, dice: random.Random) -> None:
    path = some_file(step, dice)
    data = bytearray(path.read_bytes())
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    path.write_bytes(data)


def zero_a_piece(step: Path, older: Path, dice: random.Random) -> None:
    path = some_file(step, dice)
    data = bytearray(path.read_bytes())
    begin = dice.randrange(0, len(data), 16)
    while not any(data[begin : begin + 64]):
        begin = dice.randrange(0, len(data), 16)
    data[begin : begin + 64] = bytes(len(data[begin : begin + 64]))
    path.write_bytes(data)


def truncate(step: Path, older: Path, dice: random.Random) -> None:
    path = some_file(step, dice)
    path.write_bytes(path.read_bytes()[: dice.randrange(path.stat().st_size)])


def append(step: Path, older: Path, dice: random.Random) -> None:
    path = some_file(step, dice)
    path.write_bytes(path.read_bytes() + dice.randbytes(dice.randrange(1, 50)))


def take_an_older_file(step: Path, older: Path, dice: random.Random) -> None:
    name = dice.choice(["model.safetensors", "optimizer.safetensors", "facts.json", manifest.NAME])
    shutil.copy(older / name, step / name)


def remove(step: Path, older: Path, dice: random.Random) -> None:
    some_file(step, dice).unlink()


def add(step: Path, older: Path, dice: random.Random) -> None:
    if dice.random() < 0.5:
        (step / "average.safetensors").write_bytes((step / "model.safetensors").read_bytes())
    else:
        (step / "more").mkdir()


def swap_two_files(step: Path, older: Path, dice: random.Random) -> None:
    first, second = dice.sample(sorted(step.iterdir()), 2)
    first_data, second_data = first.read_bytes(), second.read_bytes()
    first.write_bytes(second_data)
    second.write_bytes(first_data)


def repeat_a_key(step: Path, older: Path, dice: random.Random) -> None:
    if dice.random() < 0.5:
        path, key = step / manifest.NAME, '"format": 1,'
        path.write_text(path.read_text().replace(key, key + key, 1))
    else:
        (step / "facts.json").write_text('{"step": 2, "step": 1}\n')
        reseal(step)


def poison(step: Path, older: Path, dice: random.Random) -> None:
    """NaN or infinity in one weight, in any floating type, with a manifest that fits."""
    value = dice.choice([float("nan"), float("inf"), float("-inf")])
    dtype = dice.choice([torch.float32, torch.float16, torch.bfloat16, torch.float64])
    held = torch.zeros(30, dtype=dtype)
    held[dice.randrange(30)] = value
    (step / "optimizer.safetensors").write_bytes(tensors.encode({"w": held}, "x", finite=False))
    reseal(step)


def rename_as_newer(step: Path, older: Path, dice: random.Random) -> None:
    shutil.rmtree(step)
    shutil.copytree(older, step)


def claim_a_newer_format(step: Path, older: Path, dice: random.Random) -> None:
    path = step / manifest.NAME
    found = canonical.decode(path.read_bytes())
    path.write_bytes(canonical.encode(found | {"format": 2 + dice.randrange(9)}))


def lie_about_the_header(step: Path, older: Path, dice: random.Random) -> None:
    """Well hashed, but no safetensors file: header lengths and offsets that do not fit."""
    data = bytearray((step / "model.safetensors").read_bytes())
    if dice.random() < 0.5:
        data[:8] = dice.choice([0, 1, 2**24 + 1, 2**40, 2**63, 2**64 - 1]).to_bytes(8, "little")
    else:
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        header["w"]["data_offsets"] = [0, dice.choice([-1, 0, 1, 2**40, 2**63])]
        text = json.dumps(header).encode()
        data = bytearray(len(text).to_bytes(8, "little") + text + data[8 + size :])
    (step / "model.safetensors").write_bytes(data)
    reseal(step)


DAMAGES: list[Damage] = [
    flip_a_bit,
    zero_a_piece,
    truncate,
    append,
    take_an_older_file,
    remove,
    add,
    swap_two_files,
    repeat_a_key,
    poison,
    rename_as_newer,
    claim_a_newer_format,
    lie_about_the_header,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_is_found_before_use_and_the_older_checkpoint_takes_over(
    harness: ModuleType, scratch: Path, damage: Damage
) -> None:
    for step in (1, 2):
        checkpoint.save(scratch / "sound", step, harness.state(step), {"step": step, "names": ["cat", "dog"]})
    found = Counter[str]()
    for number in range(TIMES):
        folder = scratch / "damaged"
        shutil.copytree(scratch / "sound", folder)
        before = harness.snapshot(folder)
        newest, older = folder / "step-00000002", folder / "step-00000001"
        damage(newest, older, random.Random(number))
        assert harness.snapshot(folder) != before or (newest / "more").exists()  # something was damaged
        with pytest.raises(ModelFileError) as caught:
            checkpoint.load(newest)
        assert "\n" not in str(caught.value) and 10 <= len(str(caught.value)) <= 300
        warnings: list[str] = []
        assert checkpoint.latest(folder, warn=warnings.append) == older
        assert len(warnings) == 1 and "step-00000002" in warnings[0]
        assert harness.is_of(checkpoint.load(older)[0], 1)
        found["detected"] += 1
        shutil.rmtree(folder)
    assert found["detected"] == TIMES


def test_every_single_bit_of_a_manifest_matters(harness: ModuleType, scratch: Path) -> None:
    step = checkpoint.save(scratch, 1, {"model": {"w": torch.ones(2)}}, {})
    path = step / manifest.NAME
    data = path.read_bytes()
    for bit in range(0, 8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(damaged)
        with pytest.raises(ModelFileError):
            checkpoint.load(step)
    path.write_bytes(data)
    checkpoint.load(step)


def test_a_newer_format_says_so(harness: ModuleType, scratch: Path) -> None:
    step = checkpoint.save(scratch, 2, harness.state(2), {})
    claim_a_newer_format(step, step, random.Random(0))
    with pytest.raises(ModelFileError, match="needs a newer longtail"):
        checkpoint.load(step)


def test_random_bytes_are_never_a_surprise(scratch: Path) -> None:
    """Whatever the JSON reader and the tensor reader are given, they answer with one line."""
    numbers = np.random.Generator(np.random.Philox(key=7))
    pieces = [
        b"{",
        b"}",
        b"[",
        b"]",
        b'"a"',
        b":",
        b",",
        b"1e999",
        b"NaN",
        b"-0",
        b"\xff",
        b"\\ud800",
        b"null",
    ]
    sizes = Counter[str]()
    for _ in range(4000):
        data = b"".join(pieces[i] for i in numbers.integers(0, len(pieces), numbers.integers(0, 12)))
        try:
            canonical.decode(data)
            sizes["read"] += 1
        except ValueError as error:
            assert "\n" not in str(error)
            sizes["refused"] += 1
        with pytest.raises(ModelFileError):
            tensors.decode(data, "x")
    assert sizes["read"] and sizes["refused"]
