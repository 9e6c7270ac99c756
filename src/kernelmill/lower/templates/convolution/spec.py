"""A convolution in the terms of one of its layouts."""

from __future__ import annotations

from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.lower.schedule.template import Template


@dataclass(frozen=True)
class Convolution:
    """The spec of a convolution, and the layout that computes it."""

    layout: Template[Any, Any]
    what: Any
