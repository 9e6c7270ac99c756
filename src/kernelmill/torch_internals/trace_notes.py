"""Facts about a trace that Dynamo does not report: tensors that it looked up by identity, names
that it did not find, and the elements that it searched.

For this, methods of Dynamo's are wrapped once in a process; outside of `noting` they record
nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import field, replace
from functools import wraps
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.torch_internals.modules import check
from kernelmill.torch_internals.registry import internal

_hashed: ContextVar[list[bool] | None] = ContextVar("hashed", default=None)
"""While a trace is recorded: an element for each time that it read the hash of a tensor."""


@internal(
    "trace_notes.tensor_hashes",
    reason="whether a trace looked for tensors in sets or dicts, which compares them by identity",
    fallback="methods behind cache_compile are compiled in each process",
)
def hashes_of_tensors() -> bool:
    """Have each noted."""
    from torch._dynamo.variables.tensor import TensorVariable

    space = vars(TensorVariable)
    methods = {name: space[name] for name in ("hash_impl", "get_python_hash") if name in space}
    for name, method in methods.items():
        if not hasattr(method, "__wrapped__"):  # which an earlier probe has done
            setattr(TensorVariable, name, _noted(method))
    return bool(methods)


def _noted(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def noted(*args: Any, **kwargs: Any) -> Any:
        if (hashed := _hashed.get()) is not None:
            hashed.append(True)
        return method(*args, **kwargs)

    return noted


def has_hashed_tensors() -> bool:
    """Return whether the recorded trace has read the hash of a tensor."""
    return bool(_hashed.get())


@internal(
    "trace_notes.elements",
    reason="what `in` looks for in a list or tuple: Dynamo does not guard that, and finds no "
    "integer that may vary",
    fallback="methods behind cache_compile are compiled in each process",
)
def elements_looked_at() -> bool:
    """Wrap `in` of Dynamo's, so that a recorded trace guards the elements that it compares."""
    from torch._dynamo.variables import lists

    module: Any = lists
    contains = module.iter_contains
    if hasattr(contains, "__wrapped__"):  # by an earlier probe
        return True

    @wraps(contains)
    def looking(items: Any, search: Any, tx: Any, *rest: Any, **named: Any) -> Any:
        if _hashed.get() is not None:
            items = [_settled(item, tx) for item in items]
        return contains(items, search, tx, *rest, **named)

    module.iter_contains = looking
    return True


def _settled(item: Any, tx: Any) -> Any:
    """Guard a value of Dynamo's and return it; an integer that may vary as a constant."""
    from torch._dynamo.variables import ConstantVariable
    from torch._dynamo.variables.tensor import SymNodeVariable

    found = getattr(item, "realize", lambda: item)()
    if isinstance(found, SymNodeVariable):
        return ConstantVariable.create(found.evaluate_expr(tx.output))
    return found


@dataclass(frozen=True)
class CaughtError:
    """An error of a failed lookup that traced code has caught: the source of the object searched,
    or its class where the code has made it, and the key or name. All None where unknown. `file` is
    that of the code."""

    kind: type[Exception]
    source: Any = None
    made: type | None = None
    name: Any = None
    file: str = ""


@dataclass
class _Errors:
    """Errors of one trace: the last that a function of C would have raised, and those caught."""

    last: CaughtError | None = None
    caught: list[CaughtError] = field(default_factory=list[CaughtError])


_errors: ContextVar[_Errors | None] = ContextVar("errors", default=None)


@internal(
    "trace_notes.caught_errors",
    reason="what a trace looked for in vain, where its code catches the error: Dynamo guards that "
    "not",
    fallback="methods behind cache_compile are compiled in each process",
)
def errors_of_traces() -> bool:
    """Wrap Dynamo's methods so that every error that traced code catches is recorded."""
    from torch._dynamo import exc, symbolic_convert
    from torch._dynamo.variables import builder

    raiser = exc.raise_observed_exception.__code__
    base: Any = symbolic_convert.InstructionTranslatorBase
    values: Any = builder.SourcelessBuilder
    make, handle = values.create, base.exception_handler
    if hasattr(handle, "__wrapped__"):  # by an earlier probe
        return True
    check(base, "f_code", "current_instruction")
    if not {"create", values.__name__} <= {*raiser.co_names, *raiser.co_varnames}:
        return False

    @wraps(make)
    def making(translator: Any, value: Any) -> Any:
        errors = _errors.get()
        if errors is not None and isinstance(value, type):
            frame = sys._getframe(1)
            if frame.f_code is raiser and frame.f_back is not None:
                errors.last = _looked_up(value, frame.f_back.f_locals)
        return make(translator, value)

    @wraps(handle)
    def handling(translator: Any, raised: Any) -> Any:
        errors = _errors.get()
        if errors is not None and translator.current_instruction.opname == "RAISE_VARARGS":
            errors.last = None  # an error of the code's own
        found = handle(translator, raised)  # raises where this frame does not catch it
        if errors is not None and errors.last is not None:
            errors.caught.append(replace(errors.last, file=translator.f_code.co_filename))
            errors.last = None
        return found

    values.create, base.exception_handler = staticmethod(making), handling
    return True


def _looked_up(kind: type[Exception], found: Mapping[str, Any]) -> CaughtError | None:
    """Return the error that a method of Dynamo's with these variables raises; None for one that
    depends on nothing unguarded."""
    if not issubclass(kind, (KeyError, AttributeError)):
        return None
    looked: Any = found.get("self")
    source, made = getattr(looked, "source", None), None
    if source is None:
        with suppress(Exception):  # where it is no value of Dynamo's, or not of one class
            made = looked.python_type()
    given = (found[name] for name in ("name", "arg", "key") if name in found)
    for value in given:
        if isinstance(value, str):
            return CaughtError(kind, source, made, value)
        constant: Any = getattr(getattr(value, "vt", value), "as_python_constant", None)
        with suppress(Exception):  # any error of a value that is no constant
            return CaughtError(kind, source, made, constant())
    return CaughtError(kind, made=made)


def caught_errors() -> list[CaughtError]:
    """Return the failed lookups, caught by the code, of the trace being recorded."""
    errors = _errors.get()
    return [] if errors is None else errors.caught


@contextmanager
def noting() -> Generator[None]:
    """Record the look-ups of one trace in the `with` block."""
    hashes_of_tensors.get()
    errors_of_traces.get()
    elements_looked_at.get()
    hashed, errors = _hashed.set([]), _errors.set(_Errors())
    try:
        yield
    finally:
        _hashed.reset(hashed)
        _errors.reset(errors)
