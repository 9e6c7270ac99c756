"""Which values of a program are exact, and how far rounding may carry the others.

Where a step gives the same in float64, its rounding cannot differ from eager's. What has been
rounded may differ by what other roundings of the same steps make of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from tests.programs.norms import ALIKE, CENTRED, rounding
from tests.programs.program import Program, Ref, Step, run, run_step
from tests.programs.sums import WAYS, order_error, otherwise

NOISY_RUNS = 4
SLACK = 8.0
"""How many times the difference that roundings made in `NOISY_RUNS` is allowed."""


def tensors_of(value: Any) -> list[Tensor]:
    """The tensor, or those of a tuple or list."""
    if isinstance(value, Tensor):
        return [value]
    return [t for one in value for t in tensors_of(one)] if isinstance(value, (tuple, list)) else []


class Exactness:
    """Memory that holds numbers which were rounded on the way there."""

    def __init__(self) -> None:
        self._rounded: dict[int, Any] = {}

    def is_exact(self, tensor: Tensor) -> bool:
        """Whether nothing in the tensor's memory has been rounded."""
        return not tensor.is_floating_point() or _memory(tensor) not in self._rounded

    def step(self, step: Step, found: dict[str, Any]) -> None:
        """Runs the step in eager and keeps whether what it wrote is exact."""
        read = [t for name in step.reads() for t in tensors_of(found.get(name))]
        tainted = (
            not all(map(self.is_exact, read))
            or _is_either_zero(step, found)
            or order_error(step, found) is not None
        )
        wider = None if step.rounds or tainted else _in_double(step, found)
        run_step(step, found)
        written = _written(step, found)
        if not tainted and (wider is None or not _equal(written, wider)):
            tainted = any(t.is_floating_point() for t in written)
        if tainted:
            self._rounded.update({_memory(t): t.untyped_storage() for t in written})


EITHER_ZERO = frozenset(
    "torch.minimum torch.maximum torch.amin torch.amax torch.min torch.max".split()
)
"""Of zeros of both signs eager takes the first in its loops and another one in its vectors (or
`max` takes the first and `amax` the last): which it is depends on where an element lies. So with
`clamp` between tensors, whose loop takes the number and whose vectors take the bound."""


def _may_take_either(step: Step) -> bool:
    bounds = step.args[1:] if step.function == "torch.clamp" else ()
    return step.function in EITHER_ZERO or any(isinstance(bound, Ref) for bound in bounds)


def _is_either_zero(step: Step, found: Mapping[str, Any]) -> bool:
    if not _may_take_either(step):
        return False
    read = [t for name in step.reads() for t in tensors_of(found[name]) if t.is_floating_point()]
    signs = {sign for t in read for sign in torch.signbit(t.detach()[t.detach() == 0]).tolist()}
    return len(signs) == 2


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _written(step: Step, found: Mapping[str, Any]) -> list[Tensor]:
    return [t for name in _names(step) for t in tensors_of(found[name])]


def _in_double(step: Step, found: Mapping[str, Any], gradient: bool = False) -> list[Tensor] | None:
    """What the step gives in float64, with its gradient in float64 too if that is wanted; None
    where it cannot be run so."""
    wider = {**found, **{name: _double(found[name], gradient) for name in step.reads()}}
    kwargs = tuple((k, v) for k, v in step.kwargs if k != "dtype")
    try:
        with torch.set_grad_enabled(gradient):
            run_step(Step(step.names, step.function, step.args, kwargs), wider)
    except (RuntimeError, TypeError, IndexError, ValueError):
        return None
    return _written(step, wider)


def _double(value: Any, gradient: bool) -> Any:
    if not isinstance(value, Tensor):
        return value
    kept = value if gradient else value.detach()
    return kept.clone() if not value.is_floating_point() else kept.double()


def _equal(written: list[Tensor], wider: list[Tensor]) -> bool:
    return len(written) == len(wider) and all(
        a.shape == b.shape
        and torch.allclose(a.detach().double(), b.double(), rtol=0, atol=0, equal_nan=True)
        for a, b in zip(written, wider, strict=True)
    )


def exact_names(program: Program, size: int, seed: int) -> frozenset[str]:
    """The names in a program whose tensors are exact after a run."""
    found: dict[str, Any] = {"n": size, "seed": seed}
    run(program.inputs, found)
    exactness = Exactness()
    for step in program.steps:
        exactness.step(step, found)
    return frozenset(
        name for name, value in found.items() if all(map(exactness.is_exact, tensors_of(value)))
    )


def noisy(steps: Iterable[Step], found: dict[str, Any], exact: Set[str], seed: int) -> None:
    """Runs the steps, each float that is not exact moved by about its last digit, or by what eager
    itself is off. The first time (`seed` 0) what is rounded and its gradient are computed in
    float64, where no order of a sum overflows; the next times sums and products in ways that torch
    leaves open."""
    generator = torch.Generator().manual_seed(seed)
    for step in steps:
        wider = _precisely(step, found) if seed == 0 and step.rounds else None
        true = _in_double(step, found) if seed > 0 and step.rounds else None
        if seed > 0 and step.names:
            wider = otherwise(step, found, (seed - 1) % WAYS)
        run_step(step, found)
        errors = _errors(step, found, true)
        if wider is not None:
            _replace(step, found, wider)
        if step.function in VIEWS:
            continue
        in_place = step.function.endswith("_") or not step.names
        for name in _names(step):
            value = found[name]
            if _may_take_either(step) and isinstance(value, Tensor):
                value = found[name] = _with_any_zeros(value, generator)
            if name not in exact and isinstance(value, Tensor) and value.is_floating_point():
                found[name] = _moved(value, generator, in_place, errors.get(name), seed)


def _precisely(step: Step, found: Mapping[str, Any]) -> list[Tensor] | None:
    """What the step gives in float64. The mean of `var_mean` is that of `mean`: eager carries it
    along in steps, x[0], then each element's distance from it, and gives NaN for (-inf, 1) and
    -inf for (1, -inf). Torch's own decomposition gives -inf for both. A norm of finite numbers
    whose variance overflows is zero, or NaN, as its parts meet in eager."""
    gradient = torch.is_grad_enabled() and not step.function.endswith("_")
    wider = _in_double(step, found, gradient)
    if wider is not None and step.function == "torch.var_mean":
        read = found[step.args[0].name].double()
        wider[1] = torch.mean(read, *step.args[1:])
    if wider is not None and step.function in CENTRED and _is_finite(found[step.args[0].name]):
        wider[0] = wider[0].nan_to_num(0.0, torch.inf, -torch.inf)
    return wider


def _is_finite(tensor: Tensor) -> bool:
    return bool(tensor.isfinite().all())


def _errors(
    step: Step, found: Mapping[str, Any], true: list[Tensor] | None
) -> Mapping[str, Tensor]:
    """By name: how far eager's elements are from what float64 gives, or may be in theory."""
    errors: dict[str, Tensor] = {}
    for name, exact in zip(_names(step), true or (), strict=False):
        made = found[name].detach()
        if not made.is_floating_point() or made.shape != exact.shape or not made.numel():
            continue
        far = (made.double() - exact).abs().nan_to_num(0.0, 0.0, 0.0)
        axis = ALIKE.get(step.function)
        if axis is not None:
            dims = tuple(range(1, far.dim())) if axis == 0 else (axis,)
            far = far.amax(dims, keepdim=True).expand_as(far)
        bound = rounding(step, found) if step.function in CENTRED else order_error(step, found)
        if bound is not None and bound.shape == far.shape:
            far = torch.maximum(far, bound.nan_to_num(0.0, 0.0, 0.0))
        errors[name] = far
    return errors


def _names(step: Step) -> Sequence[str]:
    return step.names or step.reads()[:1]


def _replace(step: Step, found: dict[str, Any], wider: list[Tensor]) -> None:
    """What a step made, from what it makes in float64."""
    for name, exact in zip(step.names, wider, strict=False):
        made = found[name]
        if not made.is_floating_point() or made.shape != exact.shape:
            continue
        if not step.function.endswith("_"):
            found[name] = _with_numbers(made, exact.to(made.dtype))
        elif not made.requires_grad:
            with suppress(RuntimeError):  # several elements in one place
                made.data.copy_(exact)


def _with_numbers(made: Tensor, others: Tensor) -> Tensor:
    """Other numbers with their own gradient, if they have one, else with that of `made`."""
    own = others.requires_grad or not made.requires_grad
    return others if own else _InPlaceOf.apply(made, others)  # type: ignore[no-any-return]


class _InPlaceOf(torch.autograd.Function):
    """Other numbers with the gradient of those in whose place they are."""

    @staticmethod
    def forward(ctx: Any, made: Tensor, exact: Tensor) -> Tensor:
        return exact

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None]:
        return grads[0], None


VIEWS: set[str] = set()
"""Functions that make no new numbers; the operators' table fills it."""


def _with_any_zeros(value: Tensor, generator: torch.Generator) -> Tensor:
    """The tensor, with zeros of random signs: what is divided by them may be any infinity."""
    if not value.is_floating_point():
        return value
    sign = torch.randint(0, 2, value.shape, generator=generator).to(value.dtype) * 2 - 1
    kept = value.detach()
    return _with_numbers(value, torch.where(kept == 0, torch.copysign(kept, sign), kept))


def _moved(
    value: Tensor, generator: torch.Generator, in_place: bool, errors: Tensor | None, seed: int
) -> Tensor:
    """The tensor with other last digits; `errors` are added in the first run, taken off in the
    second, so that what is near a tie comes to lie on both sides of it."""
    sign = torch.randint(0, 2, value.shape, generator=generator).to(value.dtype) * 2 - 1
    factor = 1 + sign * torch.finfo(value.dtype).eps
    factor[(value.detach() * factor).isinf()] = 1  # the largest number is no rounded infinity
    toward = {1: 1, 2: -1}.get(seed, sign)
    further = 0 if errors is None else (2 * toward * errors).to(value.dtype)
    if not in_place:
        return value * factor + further
    with suppress(RuntimeError):  # several elements in one place
        value.data.mul_(factor).add_(further)
    return value
