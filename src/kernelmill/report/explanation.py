"""`kernelmill.explain`: a report on a model, as text, data and a page."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kernelmill.backend.entry import Backend
from kernelmill.backend.graph_breaks import advice, in_short, place_of
from kernelmill.config import CompilerConfig
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import InputError, file_errors
from kernelmill.report.facts import Break, Explained
from kernelmill.report.gather import machine_facts, program_facts
from kernelmill.report.measuring import measured
from kernelmill.report.sums import kernel_sums, module_sums
from kernelmill.report.text import changes_text, frame_of, page_of, text_of, trace_of
from kernelmill.torch_internals.dynamo import graph_breaks

if TYPE_CHECKING:
    import os

    from kernelmill.compiler.linking import Compiled
    from kernelmill.core.target.isa import Isa
    from kernelmill.kernel.ir import Kernel
    from kernelmill.runtime.program import Program


@dataclass(frozen=True)
class Explanation(Explained):
    """A report on compiling and calling a model. `str()` returns it as text, `as_dict()` as data;
    `save` writes it as a page, which notebooks show."""

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-able data. Times of `call` and `programs` are in nanoseconds, others in
        seconds; sizes are in bytes."""
        kernels = [kernel for report in self.reports for kernel in report.kernels]
        refused_graphs = [capture.refused for capture in self.captures if capture.refused]
        return {
            "name": self.name,
            "captures": [asdict(capture) for capture in self.captures],
            "isa": [report.isa for report in self.reports],
            "graph_breaks": self.graph_breaks,
            "breaks": [asdict(one) for one in self.breaks],
            "advice": list(self.advice),
            "graph_nodes_before": sum(report.nodes_before for report in self.reports),
            "graph_nodes_after": sum(report.nodes_after for report in self.reports),
            "kernels": [asdict(kernel) for kernel in kernels],
            "compiled": sum(report.compiled for report in self.reports),
            "reused": sum(report.reused for report in self.reports),
            "fused": sum(report.fused for report in self.reports),
            "fallbacks": [
                *(entry for report in self.reports for entry in report.fallbacks),
                *(("whole graph", refused, "") for refused in refused_graphs),
            ],
            "f32_products": [report.f32_products for report in self.reports],
            "super_kernel_ranges": [asdict(one) for r in self.reports for one in r.ranges],
            "refused": refused_graphs,
            "arena_peak": [report.arena_bytes for report in self.reports],
            "live_peak": [report.live_bytes for report in self.reports],
            "tensor_bytes": [report.tensor_bytes for report in self.reports],
            "stages": [dict(report.seconds) for report in self.reports],
            "capture_seconds": self.capture_seconds,
            "compile_seconds": self.compile_seconds,
            "first_call": self.first_call,
            "later_call": self.later_call,
            "machine": None if self.machine is None else asdict(self.machine),
            "call": {
                **asdict(self.call), "speedup": self.call.speedup, "outcome": self.call.outcome,
            },
            "programs": [
                {**asdict(facts), "steps": [{**asdict(s), "share": s.share} for s in facts.steps]}
                for facts in self.programs
            ],
            "by_kernel": list(map(asdict, kernel_sums(self.programs))),
            "by_module": list(map(asdict, module_sums(self.programs))),
        }  # fmt: skip

    def __str__(self) -> str:
        return text_of(self)

    __repr__ = __str__

    def html(self) -> str:
        """Return the report as one page that loads nothing from elsewhere."""
        return page_of(self)

    def _repr_html_(self) -> str:
        return frame_of(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to this file. FileError when it cannot be written."""
        with file_errors(path):
            Path(path).write_text(self.html(), encoding="utf-8")

    def changes_since(self, before: Explanation | Mapping[str, Any]) -> str:
        """Return a table of what an earlier report, or its `as_dict()`, and this one say of the
        time of a call: the whole, then steps by operators, the largest change first. InputError for
        anything else."""
        return changes_text(
            before.as_dict() if isinstance(before, Explanation) else before, self.as_dict()
        )

    def trace(self) -> dict[str, Any]:
        """Return a call as a JSON document for Perfetto and chrome://tracing, a track a thread."""
        return trace_of(self)


def explain(
    model: Callable[..., Any],
    *args: Any,
    compiler_config: CompilerConfig | None = None,
    dynamic: bool | None = None,
    measure: bool = True,
    **kwargs: Any,
) -> Explanation:
    """Compile a model, call it with `args` and `kwargs`, and return a report.

    compiler_config  options; None: the defaults
    dynamic          as for torch.compile
    measure          True: time calls of the compiled model and of the model itself, in turns, for
                     about a second. Their writes to arguments and buffers are undone, changes of
                     Python objects are not; their errors are reported as `call.error`

    First the compiled model is called twice. Kernels in the kernel folder are reused. If a call
    needs gradients, backward graphs are compiled; gradients are not accumulated. Raises the errors
    of the model or its compile, and InputError for one tuple or list instead of the arguments.

    >>> report = kernelmill.explain(torch.nn.GELU(), torch.ones(4), measure=False)
    >>> report.as_dict()["fallbacks"]
    []
    """
    if not callable(model):
        what = type(model).__name__  # type: ignore[reportUnreachable]
        raise InputError(f"explain takes a model and its arguments, got {what}: explain(model, x)")
    programs: list[Compiled[Program]] = []
    backend = Backend(compiler_config, on_compiled=programs.append)
    before = len(graph_breaks())
    compiled = torch.compile(model, backend=backend, dynamic=dynamic)
    start = time.perf_counter()
    with _as_one_argument(model, args, kwargs):
        compiled(*args, **kwargs)
    middle = time.perf_counter()
    compiled(*args, **kwargs)
    end = time.perf_counter()
    programs = list(programs)  # measuring under another setting may compile more
    breaks = graph_breaks(since=before)
    found = Explanation(
        tuple(backend.captures),
        tuple(program.report for program in programs),
        len(breaks),
        middle - start,
        end - middle,
        advice(breaks),
        tuple(dict.fromkeys(Break(in_short(b), place_of(b), b.code) for b in breaks)),
        machine_facts(programs[0].machine) if programs else None,
        tuple(map(program_facts, programs)),
        name=_name(model),
        kernels=_kernels(programs),
    )
    return measured(found, programs, compiled, model, args, kwargs) if measure else found


def _kernels(programs: list[Compiled[Program]]) -> dict[str, tuple[Kernel, Isa]]:
    """Return the kernels by the names that they have in reports."""
    return {
        entry.name: (each.lowered.kernels[ref.name], each.machine.isa)
        for each in programs
        for ref, entry in zip(each.program.plan.kernels, each.report.kernels, strict=True)
    }


@contextmanager
def _as_one_argument(model: object, args: tuple[Any, ...], kwargs: Any) -> Generator[None]:
    """Raise InputError for an error of a model that is given the tuple of its arguments."""
    try:
        yield
    except Exception as error:
        if kwargs or len(args) != 1 or not isinstance(args[0], (tuple, list)):
            raise
        what = type(args[0]).__name__
        raise InputError(
            f"{_name(model)} does not take this {what} as its one argument "
            f"({type(error).__name__}, above); if it holds the arguments, write "
            "explain(model, *inputs)"
        ) from error


def _name(model: object) -> str:
    return str(getattr(model, "__qualname__", type(model).__name__))
