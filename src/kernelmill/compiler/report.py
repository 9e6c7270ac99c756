"""Reports of compiles, as data: `explain` and the log show them."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, field
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.superkernel.launch_fusion import RangeReport


@dataclass(frozen=True)
class KernelReport:
    """One kernel: `source` is "folder" (reused), "compiled" or "memory"; `launches` in a call.

    `kind` is "dynamic" for one for all sizes; "static (this run)" or "static (package NAME)" for
    one of a single shape. `template` is the lowering's template of the kernel, "" for copies of
    weights, and `schedule` its schedule, in the grammar of lower/schedule/text.py. `classes` are
    the sizes, in words, for which a dynamic kernel has separate bodies. `differs` names, for a
    compiled kernel, the key ingredients in which the `nearest` entry of the store differed.
    `f32_products` is the method of float32 products, as in docs/numerics.md: of how many of
    bfloat16, or by FMA and why; "" for a kernel without any.
    """

    name: str
    type: str
    operators: tuple[str, ...]
    origin: str
    source: str
    launches: int
    differs: tuple[str, ...] = ()
    kind: str = "static (this run)"
    classes: tuple[str, ...] = ()
    template: str = ""
    nearest: str = ""
    f32_products: str = ""
    schedule: str = ""


@dataclass
class GraphReport:
    """One compiled graph. Times are in seconds by stage, sizes in bytes.

    isa        the instruction set of its code
    fallbacks  (ATen operator, reason, user's line), one for each call in the program
    arena_bytes     of all buffers that live within a call; `live_bytes` is the maximum at one step,
               a lower bound of the arena, `tensor_bytes` the sum without any sharing; both None
               where sizes are symbolic
    ranges     the outcome of each super-kernel range
    tuned      kernels whose schedule was chosen by measuring, now or before; `schedules_measured`
               of them just now
    """

    name: str
    isa: str = ""
    nodes_before: int = 0
    nodes_after: int = 0
    kernels: list[KernelReport] = field(default_factory=list[KernelReport])
    fallbacks: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    arena_bytes: str = "0"
    live_bytes: int | None = None
    tensor_bytes: int | None = None
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    ranges: list[RangeReport] = field(default_factory=list[RangeReport])
    tuned: int = 0
    schedules_measured: int = 0

    @property
    def compiled(self) -> int:
        """Number of kernels that this compile compiled."""
        return sum(kernel.source == "compiled" for kernel in self.kernels)

    @property
    def reused(self) -> int:
        """Number of kernels that were in the store."""
        return len(self.kernels) - self.compiled

    @property
    def fused(self) -> int:
        """Number of kernels that compute several operators."""
        return sum(len(kernel.operators) > 1 for kernel in self.kernels)

    @property
    def f32_products(self) -> dict[str, int]:
        """Methods of float32 products, each with its number of launches in a call."""
        found: dict[str, int] = {}
        for kernel in self.kernels:
            if kernel.f32_products:
                found[kernel.f32_products] = found.get(kernel.f32_products, 0) + kernel.launches
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON-able data."""
        counts = {"compiled": self.compiled, "reused": self.reused, "fused": self.fused}
        return {**asdict(self), **counts}

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """Add the time spent inside to this stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
