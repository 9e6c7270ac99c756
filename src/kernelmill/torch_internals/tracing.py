"""Traced (fake) tensors, and the graphs of torch.fx that a trace makes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import fx

from kernelmill.core.after_fork import Overlapping
from kernelmill.core.dataclass import dataclass
from kernelmill.torch_internals.registry import internal


@internal(
    "tracing.fake_tensor",
    reason="telling traced tensors from subclasses with code of their own",
    fallback="they are told by the name of their class",
)
def _fake_tensor() -> type | None:
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    with FakeTensorMode():
        made = torch.empty(1)
    return FakeTensor if type(made) is FakeTensor else None


def is_traced(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is one of torch's fakes."""
    known, kind = _fake_tensor.get(), type(tensor)
    if known is not None:
        return kind is known
    return kind.__name__ == "FakeTensor" and kind.__module__.partition(".")[0] == "torch"


@internal(
    "tracing.fake_mode",
    reason="tracing operators without computing them",
    fallback="static_kernels.from_profiler refuses sessions, and files take no argument whose dims "
    "have another order in memory than when they were compiled",
)
def fake_mode() -> type[AbstractContextManager[Any]] | None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        made = torch.empty(2, 3) + 1
    return FakeTensorMode if tuple(made.shape) == (2, 3) else None


@internal(
    "tracing.opaque_values",
    reason="compiling graphs with objects as arguments, such as the names of vLLM's layers",
    fallback="graphs that take such objects run in torch",
)
def _opaque_values() -> tuple[type, Callable[[type], bool]] | None:
    from torch._library.fake_class_registry import FakeScriptObject
    from torch._library.opaque_object import is_opaque_value_type

    return None if is_opaque_value_type(int) else (FakeScriptObject, is_opaque_value_type)


def opaque_value(traced: object) -> object:
    """Return the object that a traced one stands for, if its class is registered with torch as a
    value type, compared by `==`; None otherwise."""
    known = _opaque_values.get()
    if known is None:
        return None
    fake, is_value = known
    found: Any = getattr(traced, "real_obj", None) if isinstance(traced, fake) else traced
    return found if is_value(type(found)) else None


# ---- sizes --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Wrappers:
    """AOTAutograd's class of tensors for traces without writes, its constructor `make`, and the
    context manager in which sizes become nodes of a graph when something reads them."""

    kind: Any
    make: Callable[..., Any]
    when_read: Callable[[], AbstractContextManager[None]]


@internal(
    "tracing.wrappers",
    reason="tracing sizes that vary without a node for each number that torch computes from them",
    fallback="such a trace takes longer: most of its nodes are of sizes that nothing reads",
)
def _wrappers() -> _Wrappers | None:
    from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
    from torch.fx.experimental.proxy_tensor import maybe_enable_thunkify

    make, plain = FunctionalTensor.__new__, torch.empty(2, 3)
    with FunctionalTensorMode(), maybe_enable_thunkify():
        made = FunctionalTensor.to_functional(plain)
    right = type(made) is FunctionalTensor and tuple(made.shape) == (2, 3)
    own = isinstance(vars(FunctionalTensor).get("__new__"), staticmethod)
    return _Wrappers(FunctionalTensor, make, maybe_enable_thunkify) if right and own else None


def _begin() -> None:
    known = _wrappers.require()

    def make(kind: Any, *args: Any, **kwargs: Any) -> Any:
        with known.when_read():
            return known.make(kind, *args, **kwargs)

    known.kind.__new__ = staticmethod(make)


def _end() -> None:
    known = _wrappers.require()
    known.kind.__new__ = staticmethod(known.make)


_sizes_when_read = Overlapping(_begin, _end)


@contextmanager
def sizes_when_read() -> Generator[None]:
    """Defer the numbers that AOTAutograd's tensor wrappers compute from sizes that vary (of bytes,
    whether contiguous): they are in its graph only where something reads them.

    The sizes themselves, and numbers that the traced code computes from them, are nodes at once, so
    that a deferred one is never a long chain.
    """
    if not _wrappers.works:
        yield
        return
    with _sizes_when_read.use():
        yield


@contextmanager
def without_tracebacks() -> Generator[None]:
    """Keep torch from logging a traceback where an operator refuses its arguments in a trace: the
    user gets eager's error."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def graph_modules(gm: fx.GraphModule) -> list[fx.GraphModule]:
    """Return a graph and those inside of it."""
    return [part for part in gm.modules() if isinstance(part, fx.GraphModule)]


def all_nodes(gm: fx.GraphModule) -> Iterator[fx.Node]:
    """Yield the nodes of a graph and of those inside of it."""
    for part in graph_modules(gm):
        yield from part.graph.nodes
