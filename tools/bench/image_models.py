"""Well-known networks of many different convolutions, with random weights: what their first calls
take is mostly the compiling of kernels, of which each is launched once or twice."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def _normed(
    channels: int, outs: int, size: int, stride: int = 1, groups: int = 1
) -> tuple[nn.Module, nn.Module]:
    conv = nn.Conv2d(channels, outs, size, stride, size // 2, groups=groups, bias=False)
    return conv, nn.BatchNorm2d(outs)


class _SqueezeExcite(nn.Module):
    """Channels weighted by what the means of all channels say."""

    def __init__(self, channels: int, inner: int, act: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, inner, 1), act,
            nn.Conv2d(inner, channels, 1), gate,
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x * self.body(x)


class _Residual(nn.Module):
    """A block, and where it keeps the shape its input added."""

    def __init__(self, body: nn.Module, added: bool) -> None:
        super().__init__()
        self.body, self.added = body, added

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.added else self.body(x)


def _inverted(
    channels: int, inner: int, outs: int, size: int, stride: int, act: type[nn.Module],
    squeezed: nn.Module | None,
) -> nn.Module:  # fmt: skip
    layers: list[nn.Module] = []
    if inner != channels:
        layers += [*_normed(channels, inner, 1), act()]
    layers += [*_normed(inner, inner, size, stride, inner), act()]
    if squeezed is not None:
        layers.append(squeezed)
    layers += _normed(inner, outs, 1)
    return _Residual(nn.Sequential(*layers), stride == 1 and channels == outs)


def mobilenet_v3() -> nn.Module:
    """MobileNetV3-Large (Howard et al. 2019, table 1)."""
    rows = (
        (3, 16, 16, False, nn.ReLU, 1), (3, 64, 24, False, nn.ReLU, 2),
        (3, 72, 24, False, nn.ReLU, 1), (5, 72, 40, True, nn.ReLU, 2),
        (5, 120, 40, True, nn.ReLU, 1), (5, 120, 40, True, nn.ReLU, 1),
        (3, 240, 80, False, nn.Hardswish, 2), (3, 200, 80, False, nn.Hardswish, 1),
        (3, 184, 80, False, nn.Hardswish, 1), (3, 184, 80, False, nn.Hardswish, 1),
        (3, 480, 112, True, nn.Hardswish, 1), (3, 672, 112, True, nn.Hardswish, 1),
        (5, 672, 160, True, nn.Hardswish, 2), (5, 960, 160, True, nn.Hardswish, 1),
        (5, 960, 160, True, nn.Hardswish, 1),
    )  # fmt: skip
    layers: list[nn.Module] = [*_normed(3, 16, 3, 2), nn.Hardswish()]
    channels = 16
    for size, inner, outs, squeezed, act, stride in rows:
        narrow = max(8, (inner // 4 + 4) // 8 * 8)
        se = _SqueezeExcite(inner, narrow, nn.ReLU(), nn.Hardsigmoid()) if squeezed else None
        layers.append(_inverted(channels, inner, outs, size, stride, act, se))
        channels = outs
    layers += [*_normed(160, 960, 1), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    layers += [nn.Linear(960, 1280), nn.Hardswish(), nn.Linear(1280, 1000)]
    return nn.Sequential(*layers)


def efficientnet() -> nn.Module:
    """EfficientNet-B0 (Tan and Le 2019, table 1)."""
    rows = (
        (1, 3, 16, 1, 1), (6, 3, 24, 2, 2), (6, 5, 40, 2, 2), (6, 3, 80, 3, 2),
        (6, 5, 112, 3, 1), (6, 5, 192, 4, 2), (6, 3, 320, 1, 1),
    )  # fmt: skip
    layers: list[nn.Module] = [*_normed(3, 32, 3, 2), nn.SiLU()]
    channels = 32
    for grow, size, outs, count, first in rows:
        for number in range(count):
            inner, stride = channels * grow, first if number == 0 else 1
            se = _SqueezeExcite(inner, max(1, channels // 4), nn.SiLU(), nn.Sigmoid())
            layers.append(_inverted(channels, inner, outs, size, stride, nn.SiLU, se))
            channels = outs
    layers += [*_normed(320, 1280, 1), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(1280, 1000))


class _Dense(nn.Module):
    """A layer of DenseNet: its result behind its input."""

    def __init__(self, channels: int, grow: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, 4 * grow, 1, bias=False),
            nn.BatchNorm2d(4 * grow), nn.ReLU(), nn.Conv2d(4 * grow, grow, 3, 1, 1, bias=False),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.body(x)], 1)


def densenet() -> nn.Module:
    """DenseNet-121 (Huang et al. 2017, table 1)."""
    channels, grow = 64, 32
    layers: list[nn.Module] = [*_normed(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for block, count in enumerate((6, 12, 24, 16)):
        if block:
            layers += [nn.BatchNorm2d(channels), nn.ReLU()]
            layers += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
            channels //= 2
        for _ in range(count):
            layers.append(_Dense(channels, grow))
            channels += grow
    layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(channels, 1000))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mobilenet_v3": mobilenet_v3,
    "efficientnet": efficientnet,
    "densenet": densenet,
}
"""Each takes images of three channels; theirs are 224 pixels high and wide."""


def build(name: str, batch: int = 1, pixels: int = 224) -> tuple[nn.Module, Tensor]:
    """The model in eval mode, without gradients, and an input."""
    torch.manual_seed(7)
    model = MODELS[name]().eval().requires_grad_(False)
    return model, torch.randn(batch, 3, pixels, pixels)
