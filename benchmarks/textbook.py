"""The loop that people write: fp32, NCHW, a DataLoader with PIL transforms, `.item()` in every step.

The same work as the recipe `cifar.gcl`: ResNet-32 with a cosine head, crop, flip, mixup, the Euclidean GCL
loss, SGD with momentum; then the classifier alone on a frozen backbone. Written plainly on purpose, without a
line of longtail, and without torchvision, whose transforms it stands for.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
STD = torch.tensor([0.2023, 0.1994, 0.2010]).view(3, 1, 1)


class Images(Dataset[tuple[Tensor, int]]):
    def __init__(self, images: np.ndarray, labels: list[int], train: bool):
        self.images, self.labels, self.train = images, labels, train

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = Image.fromarray(self.images[index])
        if self.train:
            image = ImageOps.expand(image, border=4)
            left, top = torch.randint(9, (2,)).tolist()
            image = image.crop((left, top, left + 32, top + 32))
            if torch.rand(1).item() < 0.5:
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        return (pixels.to(torch.float32).div(255) - MEAN) / STD, self.labels[index]


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride, self.added = stride, (outputs - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.stride != 1:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.added, self.added))
        return F.relu(out + x)


class ResNet32(nn.Module):
    def __init__(self, classes: int):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        widths = [(16, 16, 1)] * 5 + [(16, 32, 2)] + [(32, 32, 1)] * 4 + [(32, 64, 2)] + [(64, 64, 1)] * 4
        self.blocks = nn.Sequential(*(Block(*width) for width in widths))
        self.weight = nn.Parameter(torch.empty(classes, 64).uniform_(-0.1, 0.1))

    def features(self, x: Tensor) -> Tensor:
        x = self.blocks(F.relu(self.bn1(self.conv1(x))))
        return F.avg_pool2d(x, x.size()[3]).flatten(1)

    def classify(self, features: Tensor) -> Tensor:
        return F.linear(F.normalize(features), F.normalize(self.weight))

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.features(x))


def gcl(cosine: Tensor, target: Tensor, cloud: Tensor) -> Tensor:
    noise = torch.randn_like(cosine).mul(1 / 3).clamp(-1, 1).abs()
    return F.cross_entropy(30 * (cosine - 0.5 * noise * cloud), target)


def training(
    model: ResNet32, loader: DataLoader[tuple[Tensor, int]], cloud: Tensor, stage: int, device: str = "cpu"
) -> Iterator[float]:
    """One loss per step, for ever. In stage 2 the backbone is in eval mode and learns nothing."""
    model, cloud = model.to(device), cloud.to(device)
    parameters = [model.weight] if stage == 2 else list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1 if stage == 1 else 0.002, momentum=0.9, weight_decay=2e-4)
    while True:
        model.train(stage == 1)
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            weight = np.random.default_rng().beta(1.0, 1.0)
            other = torch.randperm(len(x), device=device)
            mixed = weight * x + (1 - weight) * x[other]
            with torch.set_grad_enabled(stage == 1):
                features = model.features(mixed)
            cosine = model.classify(features)
            loss = weight * gcl(cosine, y, cloud) + (1 - weight) * gcl(cosine, y[other], cloud)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss.item()


def testing(model: ResNet32, loader: DataLoader[tuple[Tensor, int]], device: str = "cpu") -> float:
    model.to(device).eval()
    right = 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
    return right / len(loader.dataset)  # type: ignore[arg-type]
