"""The published forms of CIFAR: file names, sizes and hashes, constants that several projects agree on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Layout:
    """One published form of the data. `files` maps each file to its published hash, training files first."""

    kind: Literal["binary", "python"]
    folder: str
    archive: str
    url: str
    size: int
    sha256: str
    classes: int
    files: dict[str, str]
    test: str
    held_out: str  # ours, not the publisher's: training images that no long-tailed subset uses
    names: str

    @property
    def train(self) -> tuple[str, ...]:
        return tuple(name for name in self.files if name != self.test)


SITE = "https://www.cs.toronto.edu/~kriz/"
BINARY_10 = Layout(
    kind="binary",
    folder="cifar-10-batches-bin",
    archive="cifar-10-binary.tar.gz",
    url=SITE + "cifar-10-binary.tar.gz",
    size=170_052_171,
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    classes=10,
    files={
        "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    },
    test="test_batch.bin",
    held_out="heldout_batch.bin",
    names="batches.meta.txt",
)
BINARY_100 = Layout(
    kind="binary",
    folder="cifar-100-binary",
    archive="cifar-100-binary.tar.gz",
    url=SITE + "cifar-100-binary.tar.gz",
    size=168_513_733,
    sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    classes=100,
    files={
        "train.bin": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
        "test.bin": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
    },
    test="test.bin",
    held_out="heldout.bin",
    names="fine_label_names.txt",
)
# For the python layout the field has always published MD5; it tells a copy from another, it secures nothing.
PYTHON_10 = Layout(
    kind="python",
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    url="",
    size=0,
    sha256="",
    classes=10,
    files={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
    test="test_batch",
    held_out="",
    names="batches.meta",
)
PYTHON_100 = Layout(
    kind="python",
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    url="",
    size=0,
    sha256="",
    classes=100,
    files={"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    test="test",
    held_out="",
    names="meta",
)
LAYOUTS = {10: (BINARY_10, PYTHON_10), 100: (BINARY_100, PYTHON_100)}
