"""Small networks of convolutions in the styles of well-known ones, with random weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def normed(channels: int, outs: int, size: int = 1, stride: int = 1, groups: int = 1) -> nn.Module:
    """A convolution and its batch norm, with statistics as training would leave them."""
    norm = nn.BatchNorm2d(outs)
    assert norm.running_mean is not None and norm.running_var is not None
    norm.running_mean.normal_(0.0, 0.1)
    norm.running_var.uniform_(0.5, 1.5)
    conv = nn.Conv2d(channels, outs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, norm)


class InvertedBottleneck(nn.Module):
    """MobileNetV2's block."""

    def __init__(self, channels: int, outs: int, stride: int, grow: int = 4) -> None:
        super().__init__()
        inner = channels * grow
        self.body = nn.Sequential(
            normed(channels, inner), nn.ReLU6(),
            normed(inner, inner, 3, stride, groups=inner), nn.ReLU6(), normed(inner, outs),
        )  # fmt: skip
        self.residual = stride == 1 and channels == outs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.residual else self.body(x)


class SqueezeExcite(nn.Module):
    """Channels weighted by what a pixel of means says."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 8, 1), nn.Conv2d(8, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.up(F.silu(self.down(mean))))


def mobilenet(scale: int = 1) -> nn.Module:
    """Depthwise convolutions, ReLU6, squeeze and excite, a linear head."""
    a, b = 16 * scale, 24 * scale
    return nn.Sequential(
        normed(3, a, 3, 2), nn.ReLU6(),
        InvertedBottleneck(a, b, 2), InvertedBottleneck(b, b, 1), SqueezeExcite(b),
        InvertedBottleneck(b, 40, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(40, 10),
    )  # fmt: skip


class UNet(nn.Module):
    """Pooling down, upsampling or transposed convolutions up, and concatenations across."""

    def __init__(self, width: int = 16, learned: bool = False) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU())
        self.two = nn.Sequential(nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU())
        self.low = nn.Sequential(nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU())
        self.grow: nn.Module = nn.Upsample(scale_factor=2, mode="nearest")
        if learned:
            self.grow = nn.ConvTranspose2d(2 * width, 2 * width, 2, 2)
        self.up = nn.Sequential(nn.Conv2d(4 * width, width, 3, padding=1), nn.ReLU())
        self.top = nn.Sequential(nn.Conv2d(2 * width, width, 3, padding=1), nn.ReLU())
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.one(x)
        two = self.two(F.max_pool2d(one, 2))
        low = self.low(F.max_pool2d(two, 2))
        up = self.up(torch.cat([self.grow(low), two], 1))
        large = F.interpolate(up, scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(self.top(torch.cat([large, one], 1)))


class ConvNeXtBlock(nn.Module):
    """A depthwise 7x7, then layer norm and linear layers over channels last."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.rand(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.mix(x).permute(0, 2, 3, 1))
        y = self.gamma * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext(width: int = 32) -> nn.Module:
    """A stem of patches, two blocks, and a strided convolution between them."""
    return nn.Sequential(
        nn.Conv2d(3, width, 4, 4), ConvNeXtBlock(width),
        nn.Conv2d(width, 2 * width, 2, 2), ConvNeXtBlock(2 * width),
    )  # fmt: skip


def resnext() -> nn.Module:
    """Groups of 4 channels and of 16, instance and group norms."""
    return nn.Sequential(
        normed(3, 32, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        normed(32, 32, 3, groups=8), nn.ReLU(), normed(32, 48, 3, groups=2), nn.GroupNorm(4, 48),
        nn.SiLU(), nn.Conv2d(48, 64, (1, 7), padding=(0, 3)), nn.InstanceNorm2d(64), nn.ReLU(),
        nn.Conv2d(64, 24, 3, dilation=2), nn.AvgPool2d(2), nn.PixelShuffle(2), nn.Conv2d(6, 16, 1),
    )  # fmt: skip


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mobilenet": mobilenet,
    "unet": UNet,
    "unet, learned": lambda: UNet(learned=True),
    "convnext": convnext,
    "resnext": resnext,
}
"""Each takes images of three channels, 32 pixels or a multiple of it high and wide."""


def build(name: str) -> tuple[nn.Module, Tensor]:
    """The model in eval mode, and an input."""
    torch.manual_seed(7)
    return MODELS[name]().eval(), torch.randn(2, 3, 32, 64)
