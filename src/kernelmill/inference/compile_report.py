"""The report of a compiled model: its programs, and why torch.compile is in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kernelmill.backend.report import Capture
from kernelmill.core.dataclass import dataclass

if TYPE_CHECKING:
    from kernelmill.backend.quantization import Quantization


@dataclass(frozen=True)
class ProgramReport:
    """A program of this process. `sizes` is "static", "dynamic" or "gears", `origin` is "loaded"
    (from disk) or "traced"; `arguments` describes the traced arguments, or the gears."""

    name: str
    sizes: str
    origin: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class CompileReport:
    """State of a compiled model.

    programs    programs of this process, the one of the last call first
    torch       reasons why calls went to torch.compile, with their numbers
    captures    the graphs that torch.compile passed to this backend
    statistics  numbers of loaded entries, traces, and calls without a kept program
    counters    sums of the programs' counters
    quantized   the result for each layer; None without quantisation
    """

    programs: Sequence[ProgramReport]
    torch: Mapping[str, int]
    captures: Sequence[Capture]
    statistics: Mapping[str, int]
    counters: Mapping[str, int]
    quantized: Quantization | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the report as data that JSON can hold."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{each.sizes} program of {each.name}, {each.origin}: {', '.join(each.arguments)}"
            for each in self.programs
        ]
        return "\n".join([*lines, *self._notes()]) or "nothing was called yet"

    def _repr_html_(self) -> str:
        """Return the report for a notebook: a table of the programs, then the other lines."""
        from html import escape  # starting is quicker without

        if not self.programs:
            return f"<pre>{escape(str(self))}</pre>"
        rows = [("program", "sizes", "origin", "arguments")]
        rows += [(e.name, e.sizes, e.origin, ", ".join(e.arguments)) for e in self.programs]
        cells = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
        notes = escape("\n".join(self._notes()))
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table><pre>{notes}</pre>"

    def _notes(self) -> list[str]:
        notes = [f"torch.compile, {calls} calls: {why}" for why, calls in self.torch.items()]
        notes += [
            f"{each.name} runs in torch: {each.refused}" for each in self.captures if each.refused
        ]
        return notes + ([] if self.quantized is None else [str(self.quantized)])
