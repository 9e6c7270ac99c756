"""Dynamo: the state of its traces, and its settings. Probes import torch._dynamo."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from kernelmill.core.dataclass import dataclass
from kernelmill.torch_internals import trace_notes
from kernelmill.torch_internals.modules import check, names_in
from kernelmill.torch_internals.registry import internal

if TYPE_CHECKING:
    import torch
    from torch import fx

RECURRENT_BREAK = "torch._dynamo.config.allow_rnn"
"""Part of Dynamo's reason for a graph break at a recurrent layer: the setting that avoids it."""


# ---- the trace under way --------------------------------------------------------------------


@internal(
    "dynamo.trace",
    reason="what a trace depended on, what it changes, and which frame it is of",
    fallback="methods behind cache_compile are compiled in each process; a size that is no gear "
    "and makes Dynamo trace anew is compiled like any other",
)
def _current_trace() -> Callable[[], Any]:
    from torch._dynamo.output_graph import OutputGraph
    from torch._dynamo.side_effects import SideEffects
    from torch._dynamo.symbolic_convert import InstructionTranslator
    from torch._guards import Guard, TracingContext

    check(InstructionTranslator, "f_locals", "f_code", "f_globals", "output", "stack")
    check(
        OutputGraph, "guards", "side_effects", "tracing_context", "installed_globals",
        "import_sources", "global_scope",
    )  # fmt: skip
    check(SideEffects, "id_to_variable", "store_attr_mutations", "is_modified")
    check(Guard, "create_fn", "create_fn_name", "name", "originating_source")
    check(TracingContext, "traced_code")
    return InstructionTranslator.current_tx


def current_trace() -> Any:
    """Return Dynamo's translator of the frame being traced; None outside of a trace, or where
    unknown."""
    find = _current_trace.get()
    try:
        return None if find is None else find()
    except AttributeError:  # Dynamo is not the caller of the backend
        return None


@internal(
    "dynamo.module_attributes",
    reason="what errors say of names that a module has not, where a trace asks for them",
    fallback="Dynamo's error names neither the attribute nor what is nearest",
)
def _module_attributes() -> tuple[CodeType, Callable[[Any, str], None]] | None:
    """Return the code with which Dynamo looks up module attributes, which has a `tx`, and a
    function that raises an AttributeError with a text in the traced code."""
    from torch._dynamo.exc import raise_observed_exception
    from torch._dynamo.variables import ConstantVariable, PythonModuleVariable

    def fail(tx: Any, text: str) -> None:
        raise_observed_exception(AttributeError, tx, args=[ConstantVariable.create(text)])

    code = PythonModuleVariable.var_getattr.__code__
    takes_texts = "args" in inspect.signature(raise_observed_exception).parameters
    return (code, fail) if takes_texts and "tx" in code.co_varnames else None


def fail_in_trace(text: str) -> None:
    """Raise an AttributeError with this text in the traced code, if a trace asks for the attribute.
    For a module's `__getattr__`, whose own error Dynamo would drop."""
    frame = inspect.currentframe()
    asking = frame and frame.f_back and frame.f_back.f_back
    if asking and "torch._dynamo" in sys.modules and (found := _module_attributes.get()):
        code, fail = found
        if asking.f_code is code:
            fail(asking.f_locals["tx"], text)


@internal(
    "dynamo.tensor_sizes",
    reason="which sizes of tensors a trace has taken for granted that its graph does not read",
    fallback="methods whose trace reads the dtype or a size of such a tensor are compiled in each "
    "process",
)
def _tensor_sizes() -> Callable[[Any], Any]:
    from torch._dynamo.output_graph import OutputGraph

    check(OutputGraph, "input_source_to_sizes_strides")
    return attrgetter("input_source_to_sizes_strides")


def tensor_sizes(output: Any) -> dict[Any, tuple[Sequence[Any], Sequence[Any]]]:
    """Return sizes and strides, numbers and symbols, of the tensors that a trace has read, by their
    sources; {} where unknown."""
    find = _tensor_sizes.get()
    return {
        key: (found["size"], found["stride"])
        for key, found in ({} if find is None else find(output)).items()
    }


_SOURCES = (
    "AttrSource CellContentsSource ClosureSource CodeSource ConstDictKeySource DefaultsSource "
    "DictGetItemSource DictSubclassGetItemSource FloatTensorSource GenericAttrSource GetItemSource "
    "GlobalSource LocalCellSource LocalSource NNModuleSource SkipGuardSource TensorPropertySource "
    "TypeDictSource TypeMROSource TypeSource"
).split()


@internal(
    "dynamo.sources",
    reason="finding what a trace has read again in another process",
    fallback="methods behind cache_compile are compiled in each process",
)
def source_classes() -> ModuleType:
    """Return Dynamo's module of the classes of sources."""
    from torch._dynamo import source

    for name in _SOURCES:
        check(getattr(source, name), "name")
    check(source.LocalSource, "local_name")
    check(source.GlobalSource, "global_name")
    check(source.AttrSource, "member", "base")
    check(source.GetItemSource, "index", "index_is_slice", "unpack_slice", "base")
    check(source.TensorPropertySource, "idx", "prop", "base")
    of_context = getattr(source, "ContextVarGetSource", None)
    if of_context is not None:  # from torch 2.14 on: earlier ones break the graph there
        check(of_context, "base", "has_default", "default_value")
    return source


_STAND_INS = "torch._dynamo.polyfills"


@internal(
    "dynamo.stand_ins",
    reason="telling what Dynamo's own Python for functions of C reads of itself",
    fallback="methods whose trace went through it (functools.reduce; up to torch 2.12 loops over "
    "modules) are compiled in each process",
)
def _stand_ins() -> str | None:
    import importlib

    found = importlib.import_module(f"{_STAND_INS}.functools")
    return _STAND_INS if found.reduce.__module__ == found.__name__ else None


def is_stand_in(module: str) -> bool:
    """Return whether a module is Dynamo's own Python for functions of C. Traces go through it,
    later calls do not: its state is covered by torch's version."""
    name = _stand_ins.get()
    return name is not None and f"{module}.".startswith(f"{name}.")


# ---- guards ---------------------------------------------------------------------------------


def asked_of(guard: Any, about: str) -> tuple[Any, Any] | None:
    """Return the source that a guard checks, and its parameter of the name `about`; None where
    unknown."""
    create, source = guard.create_fn, guard.originating_source
    if isinstance(create, partial):
        return source, create.keywords.get(about, create.args[0] if create.args else None)
    kinds = source_classes.get()
    if about != "attr" or kinds is None:
        return None
    # Up to torch 2.11 the source of such a guard is that of the attribute itself.
    if isinstance(source, kinds.NNModuleSource):
        source = source.base
    return (source.base, source.member) if isinstance(source, kinds.AttrSource) else None


@dataclass(frozen=True)
class MutationKinds:
    """Dynamo's classes for changes. `existing` are those of `mutation_type` of objects from before
    the trace; lists and dicts are of `list_kind` and `dict_kind`, any value of `variable`, an
    unread one of `lazy`. Modes that were entered or left are of `modes_kind`; those around the
    trace are in `modes_around`."""

    existing: tuple[type, ...]
    list_kind: type
    dict_kind: type
    variable: Any
    lazy: type
    modes_kind: type
    modes_around: Any


@internal(
    "dynamo.mutations",
    reason="seeing what traced code changes besides tensors, and what it returns unread",
    fallback="methods behind cache_compile are compiled in each process",
)
def mutation_kinds() -> MutationKinds:
    """Return the classes of Dynamo's record of changes."""
    from torch._dynamo.variables import ConstDictVariable, ListVariable
    from torch._dynamo.variables.base import (
        AttributeMutationExisting,
        ValueMutationExisting,
        VariableTracker,
    )
    from torch._dynamo.variables.lazy import LazyCache, LazyVariableTracker
    from torch._dynamo.variables.torch_function import (
        TorchFunctionModeStackVariable,
        torch_function_mode_stack_state_mgr,
    )

    check(VariableTracker, "mutation_type", "source", "as_python_constant", "visit")
    check(LazyVariableTracker, "is_realized", "_cache")
    check(LazyCache, "value")
    check(ListVariable, "items")
    check(ConstDictVariable, "items", "should_reconstruct_all")
    check(TorchFunctionModeStackVariable, "symbolic_stack")
    check(type(torch_function_mode_stack_state_mgr), "stack")
    existing = AttributeMutationExisting, ValueMutationExisting
    return MutationKinds(
        existing, ListVariable, ConstDictVariable, VariableTracker, LazyVariableTracker,
        TorchFunctionModeStackVariable, torch_function_mode_stack_state_mgr,
    )  # fmt: skip


def returned_unread(trace: Any) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """Return the values, with their sources, that a finished trace returns unread, and the sources
    of such dicts. Where they decide nothing, Dynamo guards neither the values nor the keys: its own
    code reads them in each call."""
    kinds = mutation_kinds.require()
    values: list[tuple[Any, Any]] = []
    dicts: list[Any] = []

    def look(var: Any) -> None:
        if isinstance(var, kinds.lazy) and not var.is_realized():
            values.append((var.source, var._cache.value))
        elif isinstance(var, kinds.dict_kind) and isinstance(var.mutation_type, kinds.existing):
            dicts.append(var.source)

    kinds.variable.visit(look, list(trace.stack), side_effects=trace.output.side_effects)
    return values, dicts


@dataclass(frozen=True)
class Mutation:
    """A change by a trace to an object that existed before: `owner` is its source, None where it
    has none. The new state is the `attributes` that were set, by name, or all `items` of a list or
    dict, by number or key; each with the source it comes from, None for a new value."""

    owner: Any
    attributes: dict[str, Any]
    items: dict[Any, Any] | None = None


def mutations(output: Any) -> list[Mutation]:
    """Return all changes by a finished trace."""
    kinds, effects = mutation_kinds.require(), output.side_effects
    found: list[Mutation] = []
    for var in effects.id_to_variable.values():
        if isinstance(var, kinds.modes_kind):
            changed: Any = var
            if changed.symbolic_stack or kinds.modes_around.stack:
                found.append(Mutation(None, {}))
        elif isinstance(var.mutation_type, kinds.existing) and effects.is_modified(var):
            stored: Any = effects.store_attr_mutations.get(var) or {}
            attributes = {str(name): value.source for name, value in stored.items()}
            found.append(Mutation(var.source, attributes, _items(var, kinds)))
    return found


def _items(var: Any, kinds: MutationKinds) -> dict[Any, Any] | None:
    if type(var) is kinds.list_kind:
        return {number: item.source for number, item in enumerate(var.items)}
    if type(var) is not kinds.dict_kind or var.should_reconstruct_all:
        return None
    return {key.vt.as_python_constant(): item.source for key, item in var.items.items()}


_SOURCE = "_dynamo_source"


@internal(
    "dynamo.placeholder_sources",
    reason="naming the arguments of graphs as the user does",
    fallback="arguments have torch's names; methods behind cache_compile are compiled in each "
    "process",
)
def _placeholder_sources() -> str | None:
    from torch._dynamo.output_graph import OutputGraph

    functions = [f for f in vars(OutputGraph).values() if hasattr(f, "__code__")]
    return _SOURCE if any(_SOURCE in names_in(function) for function in functions) else None


def source_of(placeholder: fx.Node) -> Any:
    """Return Dynamo's source of an argument of its graph; None where it gives none."""
    return getattr(placeholder, _SOURCE, None) if _placeholder_sources.works else None


def source_names(gm: fx.GraphModule) -> list[str]:
    """Return the source of each placeholder of Dynamo's graph, or the placeholder's own name."""
    found: list[str] = []
    for node in gm.graph.find_nodes(op="placeholder"):
        source = source_of(node)
        found.append(str(node.target) if source is None else str(source.name))
    return found


# ---- settings -------------------------------------------------------------------------------


_WHILE_RECORDING = {
    "specialize_float": True,
    "guard_nn_modules": True,
    "recompile_limit": sys.maxsize,
    "accumulated_recompile_limit": sys.maxsize,
}
"""Floats are part of a trace, all state of modules is guarded, and a function may be traced any
number of times: the cache bounds the number of entries."""


@internal(
    "dynamo.config",
    reason="keeping floats out of recorded programs' arguments, and telling dynamic=False",
    fallback="methods behind cache_compile are compiled in each process; gears with dynamic=False "
    "fail with another message",
)
def _config() -> Any:
    from torch._dynamo import config

    settings: Any = config
    with settings.patch(_WHILE_RECORDING):
        right = all(getattr(settings, name) == value for name, value in _WHILE_RECORDING.items())
    known = {type(settings.assume_static_by_default), type(settings.automatic_dynamic_shapes)}
    return settings if right and known == {bool} else None


@contextmanager
def recording() -> Generator[None]:
    """Make traces with the settings that records need."""
    settings = _config.get()
    if settings is None:
        yield
        return
    # Where torch refuses code that it has given up, it leaves `dynamic` as it was for that compile.
    names = "assume_static_by_default", "automatic_dynamic_shapes"
    as_now = {name: getattr(settings, name) for name in names}
    with settings.patch({**_WHILE_RECORDING, **as_now}), trace_notes.noting():
        yield


@internal(
    "dynamo.limit_error",
    reason="running a method that is not kept in eager from torch's limit of traces on",
    fallback="at torch's limit of traces, calls of such a method end with its error",
)
def _limit_error() -> type[Exception]:
    from torch._dynamo.exc import FailOnRecompileLimitHit

    return FailOnRecompileLimitHit


def limit_errors() -> tuple[type[Exception], ...]:
    """Return the error, if known, of a call that exceeds torch's limit of traces."""
    found = _limit_error.get()
    return () if found is None else (found,)


@internal(
    "dynamo.trace_errors",
    reason="running a model that is no whole graph as torch.compile does",
    fallback="kernelmill.compile ends with Dynamo's error for such a model",
)
def _trace_errors() -> type[Exception]:
    from torch._dynamo import exc

    known = (exc.Unsupported, exc.BackendCompilerFailed, exc.UserError, exc.TorchRuntimeError)
    found = exc.TorchDynamoException
    return found if all(found in kind.__mro__ for kind in known) else exc.Unsupported


_NO_FRAMES = "torch.compile with fullgraph=True found no compiled frames"
"""Torch's error about code that it has given up before."""


def is_trace_error(error: Exception) -> bool:
    """Return whether Dynamo has raised an error for code that it cannot trace."""
    found = _trace_errors.get() if "torch._dynamo" in sys.modules else None
    if found is None:
        return False
    return isinstance(error, found) or str(error).startswith(_NO_FRAMES)


_FAKE_CALL = "when making fake tensor call"
"""Part of torch's error about an operator that refuses the arguments of a trace."""


def is_operator_error(error: Exception) -> bool:
    """Return whether Dynamo has raised an error because an operator refused its arguments."""
    return _FAKE_CALL in str(error)


def is_static() -> bool:
    """Return whether Dynamo treats all sizes as static (torch.compile(dynamic=False))."""
    settings = _config.get()
    return settings is not None and (
        settings.assume_static_by_default and not settings.automatic_dynamic_shapes
    )


_FOR_RECORDS = (
    _current_trace, source_classes, mutation_kinds, _placeholder_sources, _config,
    trace_notes.hashes_of_tensors, trace_notes.errors_of_traces, trace_notes.elements_looked_at,
)  # fmt: skip


def missing_for_records() -> str:
    """Return the names of the parts, needed to keep a trace, that do not work; "" for none."""
    return ", ".join(part.name for part in _FOR_RECORDS if not part.works)


@internal(
    "dynamo.determinism_setter",
    reason="the mode that torch.use_deterministic_algorithms sets inside of compiled code",
    fallback="operators behind it in compiled code run in the mode of the caller",
)
def determinism_setter() -> Callable[..., None] | None:
    """Return the function that Dynamo's graphs call for `torch.use_deterministic_algorithms`."""
    import torch
    from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

    setter = torch._C._set_deterministic_algorithms
    handlers = inspect.unwrap(TorchInGraphFunctionVariable._get_handlers)
    return setter if setter.__name__ in names_in(handlers) else None


# ---- errors, marks, counters, locks ---------------------------------------------------------


@internal(
    "dynamo.shown_errors",
    reason="errors about gears reaching the caller as they are",
    fallback="they come inside of Dynamo's BackendCompilerFailed",
)
def _shown_errors() -> type[Exception] | None:
    from torch._dynamo.exc import ShortenTraceback

    class Shown(ShortenTraceback):
        def __init__(self, message: str) -> None:
            super().__init__(message, first_useful_frame=None)

    return Shown if str(Shown("text")) == "text" else None


class _Plain(Exception): ...


def shown_error() -> type[Exception]:
    """Return the base of errors that Dynamo passes on unchanged, made with a message."""
    return _shown_errors.get() or _Plain


@dataclass(frozen=True)
class Marks:
    """Dynamo's functions that mark a dim of a tensor: to be traced as a symbol, if it can be one
    (`maybe`), or also with nothing concluded from its size; or not as a symbol (`static`)."""

    dynamic: Callable[[torch.Tensor, int], None]
    maybe: Callable[[torch.Tensor, int], None]
    unbacked: Callable[[torch.Tensor, int], None]
    static: Callable[[torch.Tensor, int], None]


@internal(
    "dynamo.marks",
    reason="tracing dims with gears, or of sizes that vary, as symbols",
    fallback="gears are not used: torch.compile treats their sizes as any others; "
    "kernelmill.compile has a program for each size",
)
def marks() -> Marks:
    """Return the functions that mark dims."""
    import torch
    from torch._dynamo import mark_dynamic, mark_static, maybe_mark_dynamic
    from torch._dynamo.decorators import mark_unbacked

    functions = (mark_dynamic, maybe_mark_dynamic, mark_unbacked, mark_static)
    for function in functions:
        function(torch.empty(2, 3), 0)
    return Marks(*functions)


@dataclass(frozen=True)
class GraphBreak:
    """A graph break of Dynamo's: reason and line of the user's code, that of the trace's innermost
    frame. `code` is the line's text; `file` and `code` are "" where unknown."""

    reason: str
    file: str
    line: int
    function: str
    code: str


@internal(
    "dynamo.breaks",
    reason="saying what breaks a graph, where, and what to do about it",
    fallback="no graph break is counted or explained",
)
def _breaks() -> list[Any] | None:
    from torch._dynamo.output_graph import GraphCompileReason
    from torch._dynamo.utils import graph_break_reasons

    made = GraphCompileReason("reason", [], graph_break=False)
    return graph_break_reasons if (made.reason, made.user_stack) == ("reason", []) else None


def graph_breaks(since: int = 0) -> list[GraphBreak]:
    """Return the graph breaks of this process, from the one with this number on."""
    found = _breaks.get()
    return [] if found is None else [_graph_break(each) for each in found[since:]]


def _graph_break(reason: Any) -> GraphBreak:
    if not reason.user_stack:
        return GraphBreak(reason.reason, "", 0, "", "")
    frame = reason.user_stack[-1]
    # Behind an earlier break runs a function that Dynamo has made from the user's.
    function = re.sub(r"^torch_dynamo_resume_in_(.*)_at_\d+$", r"\1", frame.name)
    code = (frame.line or "").strip()
    return GraphBreak(reason.reason, frame.filename, frame.lineno or 0, function, code)
