"""Convolutions of any number of axes: a template for each layout of images and results."""

from __future__ import annotations

from typing import Any

from kernelmill.lower.schedule.template import Template
from kernelmill.lower.templates.convolution.channels_last.layout import ChannelsLast
from kernelmill.lower.templates.convolution.planar.layout import Pixels, Planar
from kernelmill.lower.templates.convolution.tiles import PixelTiles

LAYOUTS: tuple[Template[Any, Any], ...] = (PixelTiles(), ChannelsLast(), Planar(), Pixels())
"""In order of preference; the last one accepts every convolution."""
