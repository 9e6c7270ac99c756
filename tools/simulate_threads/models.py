"""Models at published sizes, to be named on the command line."""

from __future__ import annotations

from typing import Any

from tools.scale_cores import build


def _row(name: str) -> tuple[Any, tuple[Any, ...]]:
    model, x = build(name)
    return model, (x,)


def bert() -> Any:
    """BERT-base on 128 tokens."""
    return _row("BERT-base 1 x 128")


def bert_8() -> Any:
    """BERT-base on 8 times 128 tokens."""
    return _row("BERT-base 8 x 128")


def resnet50() -> Any:
    """ResNet-50 on one image."""
    return _row("ResNet-50")


def decoder() -> Any:
    """A token of a decoder with 109 MB of weights."""
    return _row("decoder token")
