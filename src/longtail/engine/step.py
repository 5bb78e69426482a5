"""One update of the model, without a host synchronisation: forward, loss, backward, guard, optimiser."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from longtail import heads
from longtail.data.mixing import Mixture
from longtail.engine.distributed import World
from longtail.engine.shares import class_weights, shared
from longtail.engine.teacher import Teacher
from longtail.heads import Targeted
from longtail.keys import Key
from longtail.losses import Mixed, Target
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
        memory: heads.MetaEmbedding | heads.Remembering | None = None,
    ):
        self.world, self.stage, self.net, self.loss, self.teacher = world, stage, net, loss, teacher
        self.memory = memory
        self.precision = torch.bfloat16 if recipe.precision == "bf16" else None
        self.noise = torch.Generator(device=world.device)
        self.trouble = torch.zeros((), device=world.device)
        self.optimizer = optimizer
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        optimizer.found_inf = self.trouble  # pyright: ignore[reportAttributeAccessIssue]  read by the fused kernel: an update is skipped unless it is 0
        self.needs: tuple[str, ...] = getattr(loss, "needs", ())
        self.weights, self.ignored = class_weights(loss), int(getattr(loss, "ignore_index", -100))
        # A head that follows the classes of what it sees, apart from any gradient.
        self.follower = next((m for m in net.modules() if isinstance(m, Targeted)), None)

    def prepare(self, lr: float, key: Key) -> None:
        """The rate of this step, and its noise on this process, wherever the run was started or resumed."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr * group["factor"])
            else:
                group["lr"] = lr * group["factor"]
        self.noise.manual_seed(key.fold(self.world.rank).integer())

    def __call__(self, mixture: Mixture, share: float, progress: float) -> Tensor:
        """Updates the model; the detached loss. `share` is the part of the images that are here."""
        self.optimizer.zero_grad(set_to_none=True)
        weight = shared(self.world, self.weights, mixture.target, share, self.ignored)
        if len(mixture.images):
            loss = self.forward(mixture, progress) * weight
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
            given |= self.remembered(output.features)
        given |= {"contrasted": output.contrasted, "routes": output.routes}
        if "norms" in self.needs:
            given["norms"] = output.features.float().norm(dim=-1)
        extra = {name: given[name] for name in self.needs}
        loss = self.loss(output.scores, mixture.target, generator=self.noise, **extra)
        self.follow(output.contrasted, mixture.target)
        if "recalled" in given and isinstance(self.memory, heads.Remembering):
            assert isinstance(mixture.target, Tensor)  # the recipe refuses mixing beside such a loss
            # After the loss has read: no image meets itself.
            self.memory.write(output.features, mixture.target, generator=self.noise)
        return loss

    def remembered(self, features: Tensor) -> dict[str, Any]:
        """What the loss needs of the head's memory."""
        if "distances" in self.needs and isinstance(self.memory, heads.MetaEmbedding):
            return {"distances": self.memory.distances(features)}
        if "recalled" in self.needs and isinstance(self.memory, heads.Remembering):
            return {"recalled": self.memory.recalled()}
        return {}

    def nothing(self, images: Tensor) -> Tensor:
        """A process without images in a last, small batch: no gradient, and its part in the sum over all."""
        output = self.net(images.new_zeros(2, *images.shape[1:]))
        self.follow(output.contrasted, None)
        outputs = [tensor.sum() for tensor in output if tensor is not None]
        if "distances" in (asked := self.remembered(output.features)):
            outputs.append(asked["distances"].sum())  # the centroids get their gradient from these alone
        return torch.stack(outputs).sum() * 0.0

    def follow(self, embeddings: Tensor | None, target: Target | None) -> None:
        """Tells the head what the batch of all processes was, so that it is the same on each of them."""
        if self.follower is None or embeddings is None or isinstance(target, Mixed):
            return
        embeddings = embeddings.detach()
        if target is None:  # no images here: the others may have some
            embeddings, target = embeddings[:0], torch.empty(0, dtype=torch.int64, device=embeddings.device)
        seen = self.follower.sums(embeddings, target)
        self.world.total(seen)
        self.follower.follow(*seen)

    def update(self, loss: Tensor) -> None:
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        size = nn.utils.get_total_norm(gradients)
        broken = ~(torch.isfinite(size) & torch.isfinite(loss.detach()))
        torch.maximum(self.trouble, broken.float(), out=self.trouble)
        if self.stage.gradient_clip is not None:
            nn.utils.clip_grads_with_norm_(self.parameters, self.stage.gradient_clip, size)
        self.optimizer.step()
