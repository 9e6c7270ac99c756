"""What of a convolution's schedule may be settled from outside, and which values are worth trying.

The cost model decides what a candidate leaves open, so every candidate gives a schedule that is
right.
"""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass

MOST = 12
"""Candidates offered for one convolution."""


@dataclass(frozen=True)
class ConvolutionCandidate:
    """Fields of `Schedule`; None: the cost model decides. `down` and `across` of a dense
    convolution, and `rows` and `panels`, are only looked at together."""

    vectors: int | None = None
    down: int | None = None
    across: int | None = None
    block: int | None = None
    rows: int | None = None
    panels: int | None = None

    def __str__(self) -> str:
        fields = ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        return " ".join(f"{name}={value}" for name, value in fields if value is not None)


OPEN = ConvolutionCandidate()
"""Settles nothing."""
