"""What `report()` of a compiled model tells: its programs, and why torch.compile is in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kernelmill.backend.quantization import Quantization
from kernelmill.backend.report import Capture
from kernelmill.core.dataclass import dataclass


@dataclass(frozen=True)
class ProgramReport:
    """A program of this process. `sizes` are "static", "dynamic" or "gears", `origin` is "loaded"
    from disk or "traced"; `arguments` are those that it was made for, as text."""

    name: str
    sizes: str
    origin: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class CompileReport:
    """What a compiled model has done so far.

    programs    those that native checks choose among, the one of the last call first
    torch       why calls went through torch.compile, with how many
    captures    the graphs that torch.compile gave to this backend
    statistics  entries loaded, traces, and calls without a program of ours
    counters    of the programs, added up
    quantized   what becomes of layers, None where none is to be quantised
    """

    programs: Sequence[ProgramReport]
    torch: Mapping[str, int]
    captures: Sequence[Capture]
    statistics: Mapping[str, int]
    counters: Mapping[str, int]
    quantized: Quantization | None = None

    def as_dict(self) -> dict[str, Any]:
        """All of it as data that JSON can hold."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{each.sizes} program of {each.name}, {each.origin}: {', '.join(each.arguments)}"
            for each in self.programs
        ]
        lines += [f"torch.compile, {calls} calls: {why}" for why, calls in self.torch.items()]
        lines += [
            f"{each.name} runs in torch: {each.refused}" for each in self.captures if each.refused
        ]
        lines += [] if self.quantized is None else [str(self.quantized)]
        return "\n".join(lines) or "nothing was called yet"
