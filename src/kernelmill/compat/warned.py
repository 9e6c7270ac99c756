"""Warnings, once each, about parts of TorchAir that have no effect here."""

from __future__ import annotations

import warnings

_named: set[str] = set()


def warn_once(name: str, reason: str) -> None:
    """Warn with a UserWarning the first time for each name."""
    if name not in _named:
        _named.add(name)
        warnings.warn(f"{name} has no effect here: {reason}", UserWarning, stacklevel=3)
