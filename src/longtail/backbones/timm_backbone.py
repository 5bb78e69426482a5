"""Any image network of timm as a backbone: `timm:NAME`, through the extra longtail[timm].

timm imports torchvision. Beside a CPU build of torch the ordinary torchvision wheel cannot load its compiled
operators, and its import then stops at `operator torchvision::nms does not exist`. Nothing here runs those
operators, so they are declared first, without an implementation, where they cannot be loaded.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from longtail.backbones.residual import Mix
from longtail.errors import UsageError

_declared: list[torch.library.Library] = []  # a declaration lasts as long as its Library object


class TimmBackbone(nn.Module):
    """Images [B, 3, H, W] -> pooled features [B, num_features] of a timm network without its classifier."""

    def __init__(self, network: Any):
        super().__init__()
        self.network: nn.Module = network
        # Some families (MobileNetV3, EfficientViT) widen the features between the maps and the classifier.
        self.num_features = int(getattr(network, "head_hidden_size", None) or network.num_features)

    def forward(self, images: Tensor, mix: Mix | None = None) -> Tensor:
        if mix is not None:
            raise ValueError("manifold mixup needs one of longtail's residual networks, not a timm backbone")
        return self.network(images)


def make(name: str, *, generator: torch.Generator) -> TimmBackbone:
    """The network called `name` in timm, with timm's own initialisation law drawn from the generator."""
    timm = _import_timm()
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=1)
        hint = f"did you mean timm:{near[0]}?" if near else "timm.list_models() shows the names"
        raise UsageError(f"timm knows no network called {name!r}; {hint}")
    # timm draws from the global stream: lend it a seed from our generator and put the stream back.
    seed = int(torch.randint(2**62, (), generator=generator))
    before = torch.get_rng_state()
    try:
        torch.default_generator.manual_seed(seed)
        network = timm.create_model(name, pretrained=False, num_classes=0)
    finally:
        torch.set_rng_state(before)
    return TimmBackbone(network)


def _import_timm() -> Any:
    try:
        _declare_operators()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torchvision warns about its image readers; none is used
            return importlib.import_module("timm")
    except Exception as error:  # a torchvision that does not fit this torch fails in many ways
        reason = str(error).splitlines()[0] if str(error) else ""
        raise UsageError(
            f"timm:NAME needs the extra: pip install 'longtail[timm]' ({type(error).__name__}: {reason})"
        ) from error


def _declare_operators() -> None:
    """Declares nms and qnms, unless torchvision's own can be loaded or were declared before."""
    found = importlib.util.find_spec("torchvision")
    if found is None or _declared or _loads(found.submodule_search_locations or []):
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, operator):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)


def _loads(folders: list[str]) -> bool:
    """Whether the compiled operators fit this torch. That torchvision loads them again costs nothing."""
    try:
        for folder in folders:
            for binary in Path(folder).glob("_C.*"):
                torch.ops.load_library(str(binary))
                return True
    except OSError:
        return False
    return False
