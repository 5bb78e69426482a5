"""Reading a weight file into a backbone, and saying what it covers. Nothing is downloaded or executed.

`.safetensors` is read as such. `.pth` and `.pt` are read by the one `torch.load` of the package, which
accepts tensors and plain containers and nothing else; there is no fallback to the loader that runs code.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import safetensors.torch
import torch
from torch import Tensor, nn

from longtail.errors import ModelFileError

PREFIXES = ("module.", "backbone.")  # of DataParallel and of a whole model
HEADS = frozenset({"fc", "classifier", "head", "head_dist", "linear", "last_linear", "logits"})
WRAPPERS = ("state_dict", "model", "model_state_dict", "state_dict_ema")
SHOWN = 5

log = logging.getLogger("longtail")


@dataclass(frozen=True)
class Coverage:
    """How a weight file fits a backbone. `ignored` are the tensors of heads and of other parts."""

    matched: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[str, ...]
    ignored: tuple[str, ...]

    @property
    def differences(self) -> tuple[str, ...]:
        """What keeps the file from covering the backbone; empty when it does."""
        missing = tuple(f"missing {name}" for name in self.missing)
        unexpected = tuple(f"unexpected {name}" for name in self.unexpected)
        return missing + self.mismatched + unexpected

    def __str__(self) -> str:
        return (
            f"{len(self.matched)} tensors matched, {len(self.missing)} missing, "
            f"{len(self.mismatched)} of another shape or kind, {len(self.unexpected)} unexpected, "
            f"{len(self.ignored)} ignored"
        )


def load(backbone: nn.Module, path: str | Path, *, dropped: tuple[str, ...] = ()) -> Coverage:
    """Copies the file's tensors into the backbone, all of them or none.

    Names may carry the prefix of DataParallel or of a whole model. Heads are ignored, and so is every name
    that starts with one of `dropped`. A file that leaves a part of the backbone uncovered, or that holds
    layers which the backbone does not have, is a ModelFileError.
    """
    tensors = read(path)
    found = coverage(backbone, tensors, dropped=dropped)
    differences = found.differences
    if differences:
        more = f" and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
        raise ModelFileError(
            f"{path}: does not cover the backbone ({found}): {'; '.join(differences[:SHOWN])}{more}; "
            "give a file of the same architecture, or train from scratch"
        )
    backbone.load_state_dict({name: tensors[name] for name in found.matched}, strict=False)
    log.info("%s: %s", path, found)
    return found


def coverage(
    backbone: nn.Module, tensors: Mapping[str, Tensor], *, dropped: tuple[str, ...] = ()
) -> Coverage:
    """Compares names, shapes and kinds, and looks for numbers that are not finite. Changes nothing."""
    wanted = backbone.state_dict()
    owned = {name for name, _ in backbone.named_children()} - HEADS
    rest = [name for name in tensors if name not in wanted]
    unexpected = [name for name in rest if _first(name) in owned and not name.startswith(dropped)]
    unexpected.sort(key=lambda name: (name.endswith("num_batches_tracked"), name))  # the telling ones first
    checked = {name: _complaint(tensors[name], wanted[name]) for name in wanted if name in tensors}
    return Coverage(
        matched=tuple(name for name, complaint in checked.items() if complaint is None),
        # Files written before PyTorch 0.4.1 lack this counter, which nothing here reads.
        missing=tuple(n for n in wanted if n not in tensors and not n.endswith("num_batches_tracked")),
        unexpected=tuple(unexpected),
        mismatched=tuple(f"{name} {complaint}" for name, complaint in checked.items() if complaint),
        ignored=tuple(name for name in rest if name not in set(unexpected)),
    )


def read(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors, .pth or .pt file by name, the prefixes taken off."""
    path = Path(path)
    if not path.is_file():
        raise ModelFileError(f"{path}: no such weight file; give the path of a .safetensors or .pth file")
    match path.suffix:
        case ".safetensors":
            tensors = _read_safetensors(path)
        case ".pth" | ".pt":
            tensors = _read_pth(path)
        case _:
            raise ModelFileError(f"{path}: weights must be a .safetensors, .pth or .pt file")
    named: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if named.setdefault(_stripped(name), tensor) is not tensor:
            raise ModelFileError(
                f"{path}: holds {_stripped(name)} twice, with and without a prefix; keep one of them"
            )
    return named


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(path)
    except Exception as error:  # the Rust reader's own kinds, and OSError
        raise ModelFileError(
            f"{path}: not a whole .safetensors file ({type(error).__name__}); copy it again"
        ) from error


def _read_pth(path: Path) -> dict[str, Tensor]:
    try:
        content: object = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or hostile file can fail in any way
        # PyTorch's own message recommends the unsafe loader; it is not repeated.
        raise ModelFileError(
            f"{path}: damaged, or it holds more than tensors ({type(error).__name__}); "
            "it is not read unsafely: convert it to .safetensors where you trust it"
        ) from error
    return _tensors_in(content, path)


def _tensors_in(content: object, path: Path) -> dict[str, Tensor]:
    """The state dict in a loaded file, which training scripts like to wrap once."""
    if isinstance(content, dict):
        entries = cast("dict[object, object]", content)
        for wrapper in WRAPPERS:
            if isinstance(entries.get(wrapper), dict):
                return _tensors_in(entries[wrapper], path)
        tensors = {str(name): value for name, value in entries.items() if isinstance(value, Tensor)}
        if tensors:
            return tensors
    raise ModelFileError(f"{path}: holds no named tensors; give the file of a state dict")


def _stripped(name: str) -> str:
    while name.startswith(PREFIXES):
        name = name.split(".", 1)[1]
    return name


def _first(name: str) -> str:
    return name.split(".", 1)[0]


def _complaint(given: Tensor, wanted: Tensor) -> str | None:
    if given.shape != wanted.shape:
        return f"is {list(given.shape)}, not {list(wanted.shape)}"
    if given.is_floating_point() != wanted.is_floating_point():
        return f"is {given.dtype}, not {wanted.dtype}"
    if given.is_floating_point() and not bool(given.isfinite().all()):
        return "is not finite"
    return None
