"""Parts of torch.export without public names."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from types import FrameType, FunctionType, MethodType
from typing import Any

import torch

from kernelmill.core.after_fork import track
from kernelmill.torch_internals.modules import check
from kernelmill.torch_internals.registry import internal


@internal(
    "export.trees",
    reason="telling apart the tensors that come twice among the arguments of an export",
    fallback="aot.compile takes exported programs only",
)
def trees() -> Any:
    """Return torch's module of trees."""
    from torch.utils import _pytree

    mapped = _pytree.tree_map_only(int, lambda n: n + 1, {"a": [1, "b"]})
    right = mapped == {"a": [2, "b"]} and _pytree.tree_leaves(mapped) == [2, "b"]
    return _pytree if right else None


def leaves_of(value: Any) -> list[Any]:
    """Return the leaves of lists, tuples, dicts and torch's other containers; of plain ones only
    where `trees` does not work."""
    found = trees.get()
    if found is not None:
        return found.tree_leaves(value)
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in leaves_of(part)]
    return [value]


@internal(
    "export.oblivious_sizes",
    reason="exporting for sizes 0 and 1 too",
    fallback="files of aot.compile are for sizes from 2 on, where sizes vary",
)
def _oblivious() -> Any:
    from torch.fx.experimental import _config

    settings: Any = _config
    with settings.patch(backed_size_oblivious=True):
        return settings.patch if settings.backed_size_oblivious else None


@contextmanager
def oblivious_sizes() -> Generator[None]:
    """Let traces conclude nothing from sizes 0 and 1."""
    patch = _oblivious.get()
    if patch is None:
        yield
        return
    with patch(backed_size_oblivious=True):
        yield


_TORCH = os.path.dirname(torch.__file__) + os.sep
_CODE_OF_MODELS = (os.path.join(_TORCH, "nn", ""), os.path.join(_TORCH, "functional.py"))
"""Files of torch that read sizes as models do, not for tracing."""
_BETWEEN = {
    torch.__file__,
    os.path.join(_TORCH, "overrides.py"),
    os.path.join(_TORCH, "_export", "non_strict_utils.py"),
    os.path.join(_TORCH, "fx", "experimental", "proxy_tensor.py"),
    leaves_of.__code__.co_filename,
}
"""Files of torch, and this one, between a model and the method that it calls."""


SizeQuestion = tuple[str, Any, Any]
"""A true relation ("==", "!=", "<", "<="), with left and right side as sympy expressions."""

_ANSWERS: dict[str, tuple[str, str]] = {
    "__eq__": ("==", "!="),
    "__ne__": ("!=", "=="),
    "__lt__": ("<", ">="),
    "__le__": ("<=", ">"),
    "__gt__": (">", "<="),
    "__ge__": (">=", "<"),
}
"""By comparison, the relation if it is true, and if it is false."""

_CHOICES: dict[str, str] = {"__sym_max__": ">=", "__sym_min__": "<="}
"""By the choice of one of two, the relation of what is chosen to the other."""


class _ListsOfThread(threading.local):
    """The lists that record this thread's calls, the last one innermost."""

    def __init__(self) -> None:
        self.all: list[list[Any]] = []


class _Questions:
    """A recorder of calls of a class's methods by the code that a thread traces. The methods are
    replaced while there is a list to record to."""

    def __init__(self, owner: type, names: Iterable[str]) -> None:
        self._changing = threading.Lock()
        self._listening = 0
        self._owner = owner
        self._originals: dict[str, Any] = {name: getattr(owner, name) for name in names}
        self._inherited = self._originals.keys() - vars(owner).keys()
        self._lists = _ListsOfThread()
        track(self)

    def after_fork(self) -> None:
        """Reset the lock (core/after_fork.py). Only the thread that forked goes on tracing."""
        self._changing = threading.Lock()
        self._listening = len(self._lists.all)
        if not self._listening:
            self._restore()

    @contextmanager
    def noted(self) -> Generator[list[Any]]:
        """Record calls in the list that is yielded."""
        found: list[Any] = []
        with self._changing:
            self._listening += 1
            for name, function in self._originals.items():
                setattr(self._owner, name, self._noting(name, function))
        self._lists.all.append(found)
        try:
            yield found
        finally:
            self._lists.all.pop()
            with self._changing:
                self._listening -= 1
                if not self._listening:
                    self._restore()

    @property
    def restored(self) -> bool:
        own = vars(self._owner)
        return all(own.get(n, f) is f for n, f in self._originals.items()) and (
            self._inherited.isdisjoint(own)
        )

    def _restore(self) -> None:
        for name, function in self._originals.items():
            if name not in self._inherited:
                setattr(self._owner, name, function)
            elif name in vars(self._owner):
                delattr(self._owner, name)

    def _noting(self, name: str, original: Any) -> Any:
        lists = self._lists

        def ask(asked: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(asked, *args, **kwargs)
            if lists.all and _asked_by_model(sys._getframe(1)):
                lists.all[-1] += self._notes(name, asked, args, result)
            return result

        return ask

    def _notes(self, name: str, asked: Any, args: tuple[Any, ...], result: Any) -> Iterable[Any]:
        raise NotImplementedError


class _SizeQuestions(_Questions):
    """A recorder of comparisons of sizes that torch answers in the same way for all sizes."""

    def __init__(self) -> None:
        super().__init__(torch.SymInt, (*_ANSWERS, *_CHOICES))

    def _notes(self, name: str, asked: Any, args: tuple[Any, ...], result: Any) -> Iterable[Any]:
        left, right, result_is = map(_expression, (asked, *args, result))
        return () if None in (left, right, result_is) else _told(name, left, right, result_is)


class _LayoutQuestions(_Questions):
    """A recorder of the methods that read a tensor's layout in memory, by name."""

    def __init__(self) -> None:
        super().__init__(torch.Tensor, ("stride", "is_contiguous", "dim_order", "storage_offset"))

    def _notes(self, name: str, asked: Any, args: tuple[Any, ...], result: Any) -> Iterable[Any]:
        return (name,)


def _told(name: str, left: Any, right: Any, result: Any) -> Iterator[SizeQuestion]:
    """Yield the relation that follows from a comparison or choice with a result for all sizes."""
    if name in _ANSWERS:
        if result in (True, False):
            yield _in_order(_ANSWERS[name][not result], left, right)
    elif result in (left, right):
        other = right if result == left else left
        yield _in_order(_CHOICES[name], result, other)


def _expression(value: Any) -> Any:
    """Return the sympy expression of a size or a truth value; None if it has none."""
    if isinstance(value, int):
        return value
    return getattr(getattr(value, "node", None), "expr", None)


def _in_order(relation: str, left: Any, right: Any) -> SizeQuestion:
    """Return the relation with the smaller side first."""
    return (relation.replace(">", "<"), right, left) if ">" in relation else (relation, left, right)


def _asked_by_model(frame: FrameType | None) -> bool:
    """Return whether a model makes the call, and not torch's tracing. `if size:` goes through
    torch's own class of sizes, and `max` and `min` are torch's while it exports."""
    while frame is not None and frame.f_code.co_filename in _BETWEEN:
        frame = frame.f_back
    name = frame.f_code.co_filename if frame is not None else ""
    return not name.startswith(_TORCH) or name.startswith(_CODE_OF_MODELS)


@internal(
    "export.size_questions",
    reason="exporting for size 0 where the code does not ask about it",
    fallback="files of aot.compile are for sizes from 1 on, where sizes vary",
)
def _questions() -> _SizeQuestions | None:
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

    env, source = ShapeEnv(), ConstantSource("size")
    symbol = env.create_symbol(5, source, dynamic_dim=DimDynamic.DYNAMIC)
    size: Any = env.create_symintnode(symbol, hint=5, source=source)
    questions = _SizeQuestions()
    with questions.noted() as found:
        answers = [size > 0, 2 * size == 0, bool(size), torch.sym_max(1, size)]
    told = [("<", 0, symbol), ("!=", 2 * symbol, 0), ("!=", symbol, 0), ("<=", 1, symbol)]
    right = found == told and answers[0] and not answers[1]
    return questions if right and questions.restored else None


@contextmanager
def size_questions() -> Generator[list[SizeQuestion] | None]:
    """Yield a list of relations of sizes that code traced in this thread relied on without a guard;
    None where unknown.

    torch has symbols for sizes that are positive numbers to sympy, also where a dim may be 0: it
    answers `size > 0` at once, for all sizes.
    """
    questions = _questions.get()
    if questions is None:
        yield None
        return
    with questions.noted() as found:
        yield found


_LAYOUT_QUESTIONS = _LayoutQuestions()


@contextmanager
def layout_questions() -> Generator[list[str]]:
    """Yield a list of the methods, by name, with which code traced in this thread reads the layout
    of a tensor: the answers hold for the arguments of the trace."""
    with _LAYOUT_QUESTIONS.noted() as found:
        yield found


@internal(
    "export.stack_anchor",
    reason="lines of the user's code for exported functions",
    fallback="messages about exported functions name no line",
)
def _anchor() -> Callable[[Any], Any]:
    from torch.fx import proxy

    register: Any = getattr(proxy, "_register_stack_trace_anchor", None)
    if register is None:  # up to torch 2.12
        check(proxy.TracerBase, "_record_forward_stack_traces_only")
        return _called_forward

    def registered(function: Any) -> Any:
        register(function)
        return function

    return registered


def _called_forward(function: Any) -> Any:
    """Return a copy of a Python function named "forward", the one name whose lines traces keep."""
    if isinstance(function, MethodType):
        return MethodType(_called_forward(function.__func__), function.__self__)
    if not isinstance(function, FunctionType):
        return function
    code = function.__code__.replace(co_name="forward")
    name, defaults = function.__name__, function.__defaults__
    made = FunctionType(code, function.__globals__, name, defaults, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return update_wrapper(made, function)


def keep_lines(function: Any) -> Any:
    """Return a function whose lines traces keep; torch.export keeps those of methods named forward
    alone. The function itself where unknown."""
    kept = _anchor.get()
    return function if kept is None else kept(function)
