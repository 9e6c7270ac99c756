"""A convolution in the terms of one of its layouts."""

from __future__ import annotations

from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.lower.schedule.template import Template


@dataclass(frozen=True)
class Convolution:
    """What is to be computed, and the layout that knows how."""

    layout: Template[Any, Any]
    what: Any
