"""A row run in eager and compiled: what is equal, what was traced, what runs in ATen."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import kernelmill
from kernelmill.backend.entry import Backend
from kernelmill.inference import finish_packing
from tools.libraries.row import Row

OURS, EAGER = "kernelmill.compile", "eager"
_SEED = 5


@dataclass(frozen=True)
class Outcome:
    """What became of a row.

    worst      largest difference from eager, as a part of the largest number of that result; inf
               where shapes or whole numbers differ
    traces     while the first `Row.warm` inputs were called, and `later` with all inputs
    graphs     that were compiled; `in_torch` is why others run in torch as a whole
    fallbacks  calls of ATen in these graphs, by operator
    breaks     graph breaks by their reasons
    """

    worst: float
    traces: int
    later: int
    graphs: int
    fallbacks: Mapping[str, int] = field(default_factory=dict[str, int])
    breaks: Mapping[str, int] = field(default_factory=dict[str, int])
    in_torch: tuple[str, ...] = ()
    first_seconds: float = 0.0


class Counted:
    """A backend of kernelmill as a function, and what was compiled through it."""

    def __init__(self) -> None:
        self.reports: list[Any] = []
        backend = Backend(on_compiled=lambda made: self.reports.append(made.report))
        self._captures = backend.captures

        # As a function, it is the same for who copies his options, as transformers does.
        def kernelmill_counted(gm: Any, inputs: Any, **kwargs: Any) -> Any:
            return backend(gm, inputs, **kwargs)

        self.function = kernelmill_counted

    @property
    def in_torch(self) -> tuple[str, ...]:
        """Why graphs run in torch."""
        return tuple(dict.fromkeys(each.refused for each in self._captures if each.refused))

    @property
    def fallbacks(self) -> dict[str, int]:
        """Calls of ATen by operator."""
        return dict(Counter(name for made in self.reports for name, *_ in made.fallbacks))


def by_torch_compile(row: Row) -> Outcome:
    """By the library's own way, with kernelmill as the backend."""
    counted = Counted()
    found = _run(row, lambda model: row.door(model, counted.function), _frames)
    breaks = torch._dynamo.utils.counters["graph_break"]
    return Outcome(
        **found, graphs=len(counted.reports), fallbacks=counted.fallbacks,
        in_torch=counted.in_torch, breaks=dict(breaks),
    )  # fmt: skip


def by_ours(row: Row, folder: str) -> Outcome:
    """By `kernelmill.compile`, which keeps what it makes in this folder."""
    made: list[Any] = []

    def compiled(model: Any) -> Any:
        made.append(kernelmill.compile(model, cache_dir=folder))
        return made[0]

    found = _run(row, compiled, lambda: made[0].report().statistics["traced"] if made else 0)
    report = made[0].report()
    graphs = len(report.programs) + sum(not each.refused for each in report.captures)
    # What a cached program calls of ATen is in the counters alone, without names.
    return Outcome(**found, graphs=graphs, in_torch=tuple(report.torch))


def _frames() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def _run(row: Row, compile: Callable[[Any], Any], count: Callable[[], int]) -> dict[str, Any]:
    with torch.set_grad_enabled(row.grad):
        expected = eager_results(row)
        torch.compiler.reset()
        torch._dynamo.utils.counters.clear()
        model, inputs = built(row), row.inputs()
        compiled = compile(model)
        found: list[Any] = []
        start, first, traces = time.perf_counter(), 0.0, 0
        for number, given in enumerate(inputs):
            found.append(plain(_called(row, compiled, given)))
            first = first or time.perf_counter() - start
            if number + 1 == row.warm:
                traces = count()
        again = [plain(_called(row, compiled, given)) for given in inputs]
    pairs = zip(expected, [*found, *again], strict=True)
    return {
        "worst": max(difference(a, b) for a, b in pairs),
        "traces": traces, "later": count() - traces, "first_seconds": first,
    }  # fmt: skip


def built(row: Row, eager: bool = False) -> Any:
    """The model with its weights."""
    torch.manual_seed(_SEED)
    return (row.reference if eager and row.reference else row.build)()


def eager_results(row: Row) -> list[Any]:
    """The results in eager of all inputs, and of these once more: a call may train the model."""
    model = built(row, eager=True)
    return [plain(_called(row, model, given)) for _ in range(2) for given in row.inputs()]


def _called(row: Row, model: Any, given: Any) -> Any:
    torch.manual_seed(_SEED)
    return row.call(model, given)


def times(row: Row, rounds: int) -> dict[str, float]:
    """Seconds that all inputs take, by contestant: medians of so many rounds, in turns. Each is
    warmed up before."""
    doors: dict[str, Callable[[Any], Any]] = {
        EAGER: lambda model: model,
        "Inductor": lambda model: row.door(model, "inductor"),
        "kernelmill": lambda model: row.door(model, "kernelmill"),
    }
    if row.ours:
        doors[OURS] = kernelmill.compile
    found: dict[str, list[float]] = {name: [] for name in doors}
    with torch.set_grad_enabled(row.grad):
        torch.compiler.reset()
        models = {name: door(built(row, name == EAGER)) for name, door in doors.items()}
        for turn in range(rounds + 2):
            for name, model in models.items():
                inputs = row.inputs()
                start = time.perf_counter()
                for given in inputs:
                    _called(row, model, given)
                if turn >= 2:
                    found[name].append(time.perf_counter() - start)
            finish_packing()
    return {name: statistics.median(each) for name, each in found.items()}


# ---- results ----------------------------------------------------------------------------------


def plain(value: Any) -> list[Any]:
    """The tensors, numbers and texts of a result, in order, apart from what will be written."""
    return list(_leaves(value))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value.detach().clone()
    elif isinstance(value, np.ndarray):
        yield torch.from_numpy(value.copy())
    elif isinstance(value, dict):
        for name in sorted(value, key=str):
            yield from _leaves(value[name])
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, (int, float, str)):
        yield value


def difference(expected: list[Any], found: list[Any]) -> float:
    """The largest difference of the floats, as a part of the largest of their tensor; inf where
    anything else differs."""
    if len(expected) != len(found):
        return float("inf")
    return max(map(_difference, expected, found), default=0.0)


def _difference(a: Any, b: Any) -> float:
    if isinstance(a, float) and isinstance(b, float):
        a, b = torch.tensor(a), torch.tensor(b)
    if not isinstance(a, torch.Tensor):
        return 0.0 if a == b else float("inf")
    if not isinstance(b, torch.Tensor) or a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if not a.is_floating_point():
        return 0.0 if torch.equal(a, b) else float("inf")
    if not a.numel():
        return 0.0
    with contextlib.suppress(RuntimeError):
        a, b = a.double(), b.double()
    finite = a.abs().where(a.isfinite(), 0.0)
    apart = (a - b).abs().where(~((a == b) | (a.isnan() & b.isnan())), 0.0)
    worst = float(apart.max()) / (float(finite.max()) or 1.0)
    return float("inf") if math.isnan(worst) else worst  # where one is NaN or infinite
