"""Steps that run an ATen operator: looked up once, called with tensors from the running call."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from threading import RLock
from typing import Any, TypeGuard
from weakref import ref

import torch

from kernelmill.core.after_fork import RenewedLock
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dtype import BY_NAME, to_torch
from kernelmill.core.errors import KernelmillError, UnsupportedError
from kernelmill.core.scalar import NUMBERS
from kernelmill.plan.ir import BODIES, DIMS, AtenCall, Literal, dim_of
from kernelmill.runtime.calls.engine import (
    NO_BODIES,
    Bodies,
    Engine,
    cond,
    given_as,
    invoke_subgraph,
)
from kernelmill.runtime.memory.allocation import empty_strided, lie_alike
from kernelmill.runtime.memory.dims import Output, Sizes
from kernelmill.runtime.weights.binding import BoundSet
from kernelmill.torch_internals.operators import (
    name_of_operator,
    overload_named,
    schema_of,
    writing_form,
)


def auto_functionalized_v2(operator: Any, *, _all_bases: Sequence[Any], **given: Any) -> Any:
    """Return the results of `operator` and the copies of all bases, as torch's namesake."""
    written = _written(operator, tuple(given))
    bases = [base if base is None or written is None else base.clone() for base in _all_bases]
    pairs = zip(bases, _all_bases, strict=True)
    if written is None or any(a is not None and a.stride() != b.stride() for a, b in pairs):
        torchs = overload_named("higher_order.auto_functionalized_v2")
        return torchs(operator, _all_bases=_all_bases, **given)
    for name, view, keys in written:
        place = given.pop(f"_{name}_base_index")
        given[name] = None if place is None else view(bases[place], *map(given.pop, keys))
    outcome = operator(**given)
    return (*(outcome if isinstance(outcome, tuple) else (outcome,)), *bases)


_VIEWS: Mapping[tuple[str, ...], Callable[..., torch.Tensor]] = {
    (): lambda base: base,
    ("alias",): lambda base, _: base,
    ("size", "stride", "storage_offset"): torch.as_strided,
    ("slice_dim", "slice_start", "slice_end"): torch.ops.aten.slice.Tensor,
}
"""How a written argument is made of its base, by the keywords that torch's operator has for it."""

Written = tuple[str, Callable[..., torch.Tensor], tuple[str, ...]]


@cache
def _written(operator: Any, given: tuple[str, ...]) -> Sequence[Written] | None:
    """Return the arguments that an operator writes to, each with its view of its base and the
    keywords for this; None for keywords that only torch can interpret."""
    try:
        arguments = schema_of(operator).arguments
    except UnsupportedError:  # an operator of operators
        return None
    rest, found = set(given) - {argument.name for argument in arguments}, list[Written]()
    for name in (a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write):
        parts = next((each for each in _VIEWS if each and f"_{name}_{each[0]}" in rest), ())
        keys = tuple(f"_{name}_{part}" for part in parts)
        if not {f"_{name}_base_index", *keys} <= rest:
            return None
        rest -= {f"_{name}_base_index", *keys}
        found.append((name, _VIEWS[parts], keys))
    return None if rest else found


_TARGET = re.compile(r"(higher_order|[A-Za-z_]\w*\.[A-Za-z_]\w*)\.[A-Za-z_]\w*")


@dataclass
class Running:
    """A call in progress: tensors by buffer number, sizes, values of symbols. It holds its binding,
    so that packed buffers live as long as it runs."""

    tensors: list[Any]
    sizes: Sizes
    symbols: Mapping[str, int]
    binding: BoundSet | None = None


Read = Callable[[Any], object]
"""A reader of an operator's argument for the call in progress."""


_DIRECT: dict[str, Callable[..., object]] = {
    "aten.convolution.default": torch.convolution,
    "higher_order.auto_functionalized_v2": auto_functionalized_v2,
    "higher_order.cond": cond,
    "higher_order.invoke_subgraph": invoke_subgraph,
}
"""Operators whose direct call saves some microseconds of the dispatcher."""


def find_operator(target: str) -> Callable[..., object]:
    """Return the operator overload "namespace.name.overload", or "higher_order.name".
    KernelmillError when torch has none such."""
    if _TARGET.fullmatch(target) is None:
        raise KernelmillError(f"ATen step {target!r} does not name an operator overload")
    found: Any = overload_named(target)
    if name_of_operator(found) != target:
        raise KernelmillError(
            f"this torch ({torch.__version__}) has no operator {target}: compile the model again"
        )
    return found


_mode = RenewedLock(RLock)


def _in_mode(mode: int, operator: Callable[..., object], *args: Any, **kwargs: Any) -> object:
    """Call an operator in this mode of deterministic algorithms, under a lock: it is global."""
    with _mode.lock:
        before = torch.get_deterministic_debug_mode()
        torch.set_deterministic_debug_mode(mode)
        try:
            return operator(*args, **kwargs)
        finally:
            torch.set_deterministic_debug_mode(before)


class AtenStep:
    """An AtenCall prepared for execution. `binds`: its results give symbols their values;
    `operator` is the callable."""

    def __init__(self, engine: Engine, step: AtenCall) -> None:
        self._engine, self._step = engine, step
        self.operator = _DIRECT.get(step.target) or find_operator(step.target)
        if step.mark.deterministic is not None:
            self.operator = partial(_in_mode, step.mark.deterministic, self.operator)
        engine.aten_steps.append(ref(self))
        self._arguments = CallArguments(step, self._dim, engine.bodies)
        self.binds = bool(step.binds)
        self._gives_numbers = step.target.startswith("higher_order.")
        self._only = step.results[0] if len(step.results) == 1 and not self.binds else -1

    def run(self, running: Running) -> None:
        """Call the operator, bind symbols from its results, convert results to the plan's layout.
        KernelmillError when a result's shape or dtype differs from the plan's.

        Results are the tensors among the operator's results, lists flattened; an undefined one
        (None) has no reader.
        """
        args, kwargs = self._arguments.of(running)
        outcome = self.operator(*args, **kwargs)
        if self._only >= 0 and type(outcome) is torch.Tensor:
            expected = running.sizes.outputs.get(self._only)
            if expected is not None and _is_as(outcome, *expected):
                running.tensors[self._only] = outcome
                return
        self._take(outcome, running)

    def _take(self, outcome: object, running: Running) -> None:
        results: list[Any] = list(flattened(outcome))
        if len(results) > 1 and not self._gives_numbers:
            results = [part for part in results if part is None or isinstance(part, torch.Tensor)]
        if self.binds:
            self._bind(results, running)
        for buffer, result in zip(self._step.results, results, strict=False):
            if buffer >= 0 and result is not None:
                running.tensors[buffer] = self._fitted(buffer, result, running.sizes)

    def _bind(self, results: Sequence[object], running: Running) -> None:
        found = dict(running.symbols)
        for symbol, number, axis in self._step.binds:
            result: Any = results[number]
            found[symbol] = int(result) if axis < 0 else result.shape[axis]
        running.symbols = self._engine.dims.completed(found)
        self._engine.dims.check(running.symbols)
        self._engine.dims.fill_late(running.sizes.values, running.symbols)

    def _fitted(self, buffer: int, result: object, sizes: Sizes) -> torch.Tensor:
        shape, strides, dtype = output = self._engine.output(buffer, sizes)
        if not isinstance(result, torch.Tensor):
            raise self._surprise(buffer, output, type(result).__name__)
        if result.shape != shape or result.dtype is not dtype:
            raise self._surprise(buffer, output, f"{result.dtype} {list(result.shape)}")
        if self._engine.plan.buffers[buffer].dtype.is_opaque:
            return result
        if result.is_neg():
            result = result.resolve_neg()
        if result.stride() == strides or lie_alike(shape, result.stride(), strides):
            return result
        copy = empty_strided(shape, strides, dtype)
        copy.copy_(result)
        return copy

    def _surprise(self, buffer: int, output: Output, came: str) -> KernelmillError:
        where = f" ({self._step.origin})" if self._step.origin else ""
        return KernelmillError(
            f"{self._step.target}{where}: expected {output[2]} {list(output[0])} for buffer "
            f"{buffer}, torch gave {came}: compile the model again with this torch"
        )

    def _dim(self, kind: str, text: str) -> Read:
        number = self._engine.dims.number(dim_of(text, self._engine.plan.symbols))
        read = NUMBERS.get(kind)
        if read is None:
            return lambda running: running.sizes.values[number]
        return lambda running: read(running.sizes.values[number])


class CallArguments:
    """Reader of an operator's arguments. `dim` returns the reader of a dim, from its tag and text.
    The running call holds its tensors by buffer as `tensors`. `bodies` are those that the call may
    name."""

    def __init__(
        self, call: AtenCall, dim: Callable[[str, str], Read], bodies: Bodies = NO_BODIES
    ) -> None:
        self._dim, self._bodies = dim, bodies
        self._arguments = _Arguments(call.args, self._reader)
        self._names = tuple(name for name, _ in call.kwargs)
        self._keywords = _Arguments([value for _, value in call.kwargs], self._reader)

    def of(self, running: Any) -> tuple[list[object], dict[str, object]]:
        """Return the positional arguments and the keyword arguments."""
        names = self._names
        named = dict(zip(names, self._keywords.of(running), strict=True)) if names else {}
        return self._arguments.of(running), named

    def _reader(self, literal: Literal) -> Read:
        """Return the reader of an argument that is no constant."""
        assert isinstance(literal, tuple)
        tag, *rest = literal
        if tag == "list":
            return _Arguments(rest, self._reader).of
        if tag == "tuple":
            among = _Arguments(rest, self._reader)
            return lambda running: tuple(among.of(running))
        (name,) = rest
        if tag in BODIES:
            body = given_as(str(tag), str(name), self._bodies)
            return lambda _: body
        if tag == "tensor" and isinstance(name, int):
            return lambda running: running.tensors[name]
        assert tag in DIMS and isinstance(name, str)
        return self._dim(tag, name)


class _Arguments:
    """A list of arguments: constants, and readers of the values that change from call to call."""

    def __init__(self, literals: Sequence[Literal], reader: Callable[[Literal], Read]) -> None:
        self._constants: list[object] = [None] * len(literals)
        self._tensors: list[tuple[int, int]] = []
        self._others: list[tuple[int, Read]] = []
        for place, literal in enumerate(literals):
            if _is_tensor(literal):
                self._tensors.append((place, literal[1]))
            elif _is_constant(literal):
                self._constants[place] = _constant(literal)
            else:
                self._others.append((place, reader(literal)))

    def of(self, running: Any) -> list[object]:
        arguments, tensors = self._constants.copy(), running.tensors
        for place, buffer in self._tensors:
            arguments[place] = tensors[buffer]
        for place, read in self._others:
            arguments[place] = read(running)
        return arguments


def _is_tensor(literal: Literal) -> TypeGuard[tuple[str, int]]:
    return (
        isinstance(literal, tuple)
        and len(literal) == 2
        and literal[0] == "tensor"
        and isinstance(literal[1], int)
    )


def _is_constant(literal: Literal) -> bool:
    if not isinstance(literal, tuple) or not literal:
        return True
    if literal[0] in ("list", "tuple"):
        return all(map(_is_constant, literal[1:]))
    return not _is_tensor(literal) and literal[0] not in DIMS | BODIES


def _constant(literal: Literal) -> object:
    if not isinstance(literal, tuple) or not literal:
        return literal
    tag, *rest = literal
    if tag in ("list", "tuple"):
        return (list if tag == "list" else tuple)(map(_constant, rest))
    (name,) = rest
    if tag == "dtype" and isinstance(name, str):
        return to_torch(BY_NAME[name]) if name in BY_NAME else _torch_name(name, torch.dtype)
    if tag == "operator" and isinstance(name, str):
        return writing_form(find_operator(name))
    if tag == "device" and isinstance(name, str):
        return torch.device(name)
    if tag in ("layout", "memory_format") and isinstance(name, str):
        return _torch_name(name, getattr(torch, tag))
    if tag == "complex" and isinstance(name, str):
        with suppress(ValueError):
            return complex(name)
    raise KernelmillError(f"ATen argument ({tag!r}, {name!r}) is of no kind that plans have")


def _torch_name(name: str, kind: type) -> object:
    found = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(found, kind):
        raise KernelmillError(f"torch has no {kind.__name__} {name!r}")
    return found


def _is_as(
    tensor: torch.Tensor, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype
) -> bool:
    return (
        tensor.shape == shape
        and tensor.stride() == strides
        and tensor.dtype is dtype
        and not tensor.is_neg()
    )


def flattened(outcome: object) -> Iterator[object]:
    """Yield the results of an operator, nested lists flattened."""
    if isinstance(outcome, (tuple, list)):
        for part in outcome:
            yield from flattened(part)
    else:
        yield outcome
