"""Pillow's image operations on whole uint8 batches `[B, 3, H, W]`, with one amount per image.

Each function gives what Pillow gives for one image (tests compare them pixel by pixel), without a Python
loop, without a host synchronisation and on any device. Where Pillow counts in integers, so does this.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

FIXED = 65536  # Pillow samples the nearest pixel in 16.16 fixed point


def grey(images: Tensor) -> Tensor:
    """Luminance `[B, H, W]` int32, ITU-R 601, as Pillow's mode "L"."""
    red, green, blue = images.to(torch.int32).unbind(1)
    return (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16


def warped(images: Tensor, matrix: Tensor) -> Tensor:
    """The nearest pixel to `(a x + b y + c, d x + e y + f)`, black outside. `matrix` is `[B, 6]`: a to f."""
    height, width = images.shape[2:]
    a, b, c, d, e, f = matrix.unbind(1)
    x = torch.arange(width, dtype=torch.int32, device=images.device)
    y = torch.arange(height, dtype=torch.int32, device=images.device)[:, None]

    def source(along_x: Tensor, along_y: Tensor, start: Tensor) -> Tensor:
        terms = torch.stack((along_x, along_y, start + 0.5 * along_x + 0.5 * along_y))
        p, q, r = (terms * FIXED + 0.5).floor().int()[:, :, None, None]
        return (p * x + q * y + r) >> 16

    column, row = source(a, b, c), source(d, e, f)
    nearest_column, nearest_row = column.clamp(0, width - 1), row.clamp(0, height - 1)
    inside = (column == nearest_column) & (row == nearest_row)
    index = (nearest_row * width + nearest_column).flatten(1).long()
    taken = images.flatten(2).gather(2, index[:, None].expand(-1, images.shape[1], -1))
    return taken.view(images.shape) * inside[:, None]


def rotation(degrees: Tensor, height: int, width: int) -> Tensor:
    """The matrix that turns images counter-clockwise about their centre, `[B, 6]`."""
    angle = -math.pi / 180 * degrees
    cos, sin = angle.cos(), angle.sin()
    x, y = width / 2, height / 2
    return torch.stack((cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y), 1)


def looked_up(images: Tensor, curves: Tensor) -> Tensor:
    """Every value through its curve: `curves` is `[B, 3, 256]` (or `[B, 1, 256]`), uint8."""
    index = images.flatten(2).long()
    return curves.expand(-1, images.shape[1], -1).gather(2, index).view(images.shape)


def blended(plain: Tensor, images: Tensor, amount: Tensor) -> Tensor:
    """`plain + amount (images - plain)`, cut off towards zero and clipped to a byte, as `Image.blend`."""
    amount = amount.view(-1, *(1,) * (images.ndim - 1))
    return (plain + amount * (images - plain)).clamp_(0, 255).to(torch.uint8)


def coloured(images: Tensor, amount: Tensor) -> Tensor:
    """`ImageEnhance.Color`: 0 is grey, 1 is the image."""
    return blended(grey(images)[:, None].float(), images.float(), amount)


def sharpened(images: Tensor, amount: Tensor) -> Tensor:
    """`ImageEnhance.Sharpness`: 1 is the image, 0 smoothed: the mean of 3x3 with five times the middle."""
    whole = images.float()  # sums of bytes are exact, and floats divide faster than integers
    rows = whole[:, :, :-2] + whole[:, :, 1:-1] + whole[:, :, 2:]
    total = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * whole[:, :, 1:-1, 1:-1]
    smooth = whole.clone()
    smooth[:, :, 1:-1, 1:-1] = ((2 * total + 13) / 26).floor()
    return blended(smooth, whole, amount)


def equalized(images: Tensor) -> Tensor:
    """`ImageOps.equalize`: each channel's values spread so that its histogram is flat."""
    values = images.flatten(2).long()
    counts = torch.zeros(*values.shape[:2], 256, dtype=torch.int64, device=images.device)
    counts.scatter_add_(2, values, torch.ones_like(values))
    last = counts.gather(2, values.amax(2, keepdim=True))  # how often the brightest value occurs
    step = (values.shape[2] - last) // 255
    below = counts.cumsum(2) - counts
    curves = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    ramp = torch.arange(256, device=images.device)
    return looked_up(images, torch.where(step > 0, curves, ramp).to(torch.uint8))


def inverted_curve(ramp: Tensor) -> Tensor:
    return 255 - ramp


def solarized_curve(ramp: Tensor, threshold: Tensor) -> Tensor:
    """`ImageOps.solarize`: values from the threshold on are inverted. `[B, 1, 256]`."""
    return torch.where(ramp < threshold[:, None, None], ramp, 255 - ramp)


def posterized_curve(ramp: Tensor, bits: Tensor) -> Tensor:
    """`ImageOps.posterize`: only the highest `bits` bits stay."""
    step = torch.exp2(8 - bits)[:, None, None]
    return (ramp / step).floor() * step


def brightened_curve(ramp: Tensor, amount: Tensor) -> Tensor:
    """`ImageEnhance.Brightness`: 0 is black, 1 is the image."""
    return (amount[:, None, None] * ramp).clamp(0, 255).floor()


def contrasted_curve(images: Tensor, ramp: Tensor, amount: Tensor) -> Tensor:
    """`ImageEnhance.Contrast`: 0 is the mean grey, 1 is the image."""
    mean = (grey(images).flatten(1).float().mean(1) + 0.5).floor()[:, None, None]
    return (mean + amount[:, None, None] * (ramp - mean)).clamp(0, 255).floor()


def autocontrast_curve(images: Tensor, ramp: Tensor) -> Tensor:
    """`ImageOps.autocontrast`: each channel stretched to 0..255. `[B, 3, 256]`."""
    low, high = torch.aminmax(images.flatten(2), dim=2, keepdim=True)
    low, high = low.float(), high.float()
    stretched = ((ramp - low) * 255 / (high - low).clamp(min=1)).clamp(0, 255).floor()
    return torch.where(high > low, stretched, ramp)
