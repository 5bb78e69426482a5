"""The head of targeted supervised contrastive learning: fixed points, given to classes as these settle."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from longtail.heads import rows
from longtail.heads.assignment import assigned
from longtail.heads.projected import Projection

TEMPERATURE = 0.07  # of the sum that the targets minimise


class Targeted(nn.Module):
    """Scores are the cosines between the embedding and the target of each class (Li et al. 2022).

    The targets lie as far from one another as they can and never move. Which class has which follows from
    running means of the classes' embeddings: `follow` moves these, and on every `every`-th call gives the
    targets anew, so that the sum of the cosines between mean and target is largest. All of it is saved.

    Example:
        >>> head = Targeted(64, 10, width=16)
        >>> head(torch.ones(4, 64)).shape, head.embed(torch.ones(4, 64)).shape
        (torch.Size([4, 10]), torch.Size([4, 16]))
    """

    targets: Tensor
    given: Tensor
    centres: Tensor
    seen: Tensor

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        width: int = 128,
        momentum: float = 0.9,
        every: int = 10,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        if num_features < 1 or num_classes < 2 or width < 2 or every < 1:
            raise ValueError(
                f"a head of targets needs a feature, two classes, two dimensions and a step; got "
                f"{num_features}, {num_classes}, {width}, {every}"
            )
        self.num_features, self.num_classes, self.width = num_features, num_classes, width
        self.momentum, self.every = momentum, every
        self.projection = Projection(num_features, width)
        self.register_buffer("targets", torch.zeros(num_classes, width))
        self.register_buffer("given", torch.arange(num_classes))  # the target of each class
        self.register_buffer("centres", torch.zeros(num_classes, width))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the projection anew and turn the targets to another side; nothing has been seen."""
        self.projection.draw(generator)
        self.targets.copy_(spread(self.num_classes, self.width, generator))
        self.given.copy_(torch.arange(self.num_classes))
        self.centres.zero_()
        self.seen.zero_()

    def embed(self, features: Tensor) -> Tensor:
        """The embeddings, `[..., width]` of length one, in at least float32."""
        return self.projection(features)

    def forward(self, features: Tensor) -> Tensor:
        embedding = self.embed(features)
        with torch.autocast(features.device.type, enabled=False):
            mine = self.targets[self.given].to(embedding.dtype)
            return functional.linear(embedding, mine).clamp(-1.0, 1.0)

    @torch.no_grad()
    def sums(self, embeddings: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """What `follow` takes: the sum of each class's embeddings `[C, width]`, and their number `[C, 1]`."""
        members = functional.one_hot(index, self.num_classes).to(embeddings).T
        return members @ embeddings, members.sum(1, keepdim=True)

    @torch.no_grad()
    def follow(self, sums: Tensor, numbers: Tensor) -> None:
        """Moves the means of the classes that were seen; gives the targets anew when it is time."""
        means = rows.unit(rows.wide(sums) / numbers.clamp_min(1))
        moved = rows.unit(self.momentum * self.centres + (1 - self.momentum) * means)
        self.centres.copy_(torch.where(numbers > 0, moved, self.centres))
        self.seen += 1
        if int(self.seen) % self.every == 0:
            cosine = self.centres.double() @ self.targets.double().T
            self.given.copy_(torch.from_numpy(assigned(-cosine.cpu().numpy())))


def spread(classes: int, width: int, generator: torch.Generator | None, *, steps: int = 10_000) -> Tensor:
    """Points of length one `[classes, width]` with the least mean over i of `log sum_j exp(x_i x_j / 0.07)`.

    Up to width + 1 points these are the corners of a regular simplex, turned at random: all products of two
    are -1 / (classes - 1). More are found by descent (Adam at 0.001, as TSC's own code does) from a draw.

    Example:
        >>> points = spread(3, 2, torch.Generator().manual_seed(0))
        >>> [round(value, 5) for value in (points @ points.T)[0].tolist()]
        [1.0, -0.5, -0.5]
    """
    if classes <= width + 1:
        return _simplex(classes, width, generator)
    # In float64: beside i's product with itself, e^(1 / 0.07), those with far points are lost in a float32.
    points = rows.unit(_normal(classes, width, generator)).requires_grad_()
    adam = torch.optim.Adam([points], lr=1e-3)
    with torch.enable_grad():
        for _ in range(steps):
            adam.zero_grad()
            crowding(rows.unit(points)).backward()
            adam.step()
    return rows.unit(points.detach()).float()


def crowding(points: Tensor) -> Tensor:
    """The mean over i of `log sum_j exp(x_i x_j / 0.07)`, j = i included: what the targets minimise."""
    return (points @ points.T / TEMPERATURE).logsumexp(1).mean()


def _simplex(classes: int, width: int, generator: torch.Generator | None) -> Tensor:
    """Unit vectors without their mean, seen from a random side of the space that they span."""
    corners = torch.eye(classes, dtype=torch.float64) - 1 / classes
    # An orthonormal basis of what is orthogonal to (1, ..., 1): Householder's reflection of the first axis.
    axis = torch.full((classes,), classes**-0.5, dtype=torch.float64)
    axis[0] -= 1
    mirror = torch.eye(classes, dtype=torch.float64) - 2 * torch.outer(axis, axis) / axis.square().sum()
    flat = corners @ mirror[:, 1:]
    turned = torch.linalg.qr(_normal(width, classes - 1, generator)).Q
    return rows.unit(flat @ turned.T).float()


def _normal(first: int, second: int, generator: torch.Generator | None) -> Tensor:
    device = "cpu" if generator is None else generator.device
    return torch.randn(first, second, generator=generator, device=device, dtype=torch.float64).cpu()
