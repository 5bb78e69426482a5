"""One update of the model, without a host synchronisation: forward, loss, backward, guard, optimiser."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from longtail.data.mixing import Mixture
from longtail.engine.distributed import World
from longtail.engine.teacher import Teacher
from longtail.keys import Key
from longtail.recipe import Recipe, Stage


class Step:
    """What one stage does to one batch. The non-finite guard acts on the device, before the update.

    `trouble` is 0 while every loss and gradient was finite. The first that is not sets it for good, and from
    then on the fused optimiser skips every update, so no broken number reaches a weight although the host
    looks only now and then (reliability D9).
    """

    def __init__(
        self,
        world: World,
        recipe: Recipe,
        stage: Stage,
        net: nn.Module,
        loss: nn.Module,
        optimizer: torch.optim.SGD,
        teacher: Teacher | None = None,
    ):
        self.world, self.stage, self.net, self.loss, self.teacher = world, stage, net, loss, teacher
        self.precision = torch.bfloat16 if recipe.precision == "bf16" else None
        self.noise = torch.Generator(device=world.device)
        self.trouble = torch.zeros((), device=world.device)
        self.optimizer = optimizer
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        optimizer.found_inf = self.trouble  # pyright: ignore[reportAttributeAccessIssue]  read by the fused kernel: an update is skipped unless it is 0
        self.needs: tuple[str, ...] = getattr(loss, "needs", ())

    def prepare(self, lr: float, key: Key) -> None:
        """The rate of this step, and its noise on this process, wherever the run was started or resumed."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr * group["factor"])
            else:
                group["lr"] = lr * group["factor"]
        self.noise.manual_seed(key.fold(self.world.rank).integer())

    def __call__(self, mixture: Mixture, share: float, progress: float) -> Tensor:
        """Updates the model; the detached loss. `share` weighs this process's mean (1 when alone)."""
        self.optimizer.zero_grad(set_to_none=True)
        if len(mixture.images):
            loss = self.forward(mixture, progress) * share
        else:
            loss = self.nothing(mixture.images)
        loss.backward()
        self.update(loss)
        return loss.detach()

    def forward(self, mixture: Mixture, progress: float) -> Tensor:
        with torch.autocast(self.world.device.type, dtype=self.precision, enabled=self.precision is not None):
            output = self.net(*mixture.inputs)
            taught = self.teacher(mixture.images) if self.teacher is not None else None
        given = {"progress": progress, "features": output.features, "teacher": taught}
        given["routes"] = output.routes
        if "norms" in self.needs:
            given["norms"] = output.features.float().norm(dim=-1)
        extra = {name: given[name] for name in self.needs}
        return self.loss(output.scores, mixture.target, generator=self.noise, **extra)

    def nothing(self, images: Tensor) -> Tensor:
        """A process without images in a last, small batch: no gradient, and its part in the sum over all."""
        output = self.net(images.new_zeros(2, *images.shape[1:]))
        nothing = output.scores.sum() + output.features.sum()
        if output.routes is not None:
            nothing = nothing + output.routes.sum()  # of routers these alone have a gradient
        return nothing * 0.0

    def update(self, loss: Tensor) -> None:
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        size = nn.utils.get_total_norm(gradients)
        broken = ~(torch.isfinite(size) & torch.isfinite(loss.detach()))
        torch.maximum(self.trouble, broken.float(), out=self.trouble)
        if self.stage.gradient_clip is not None:
            nn.utils.clip_grads_with_norm_(self.parameters, self.stage.gradient_clip, size)
        self.optimizer.step()
