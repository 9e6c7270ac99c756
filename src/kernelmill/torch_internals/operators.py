"""Operators of torch: their class, their schemas, and those with private names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx

from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import KernelmillError, UnsupportedError
from kernelmill.torch_internals.registry import internal

_torch: Any = torch
OpOverload: Any = type(torch.ops.aten.add.Tensor)
"""Class of operator overloads."""


@internal(
    "operators.schema",
    reason="knowing whether an operator writes to its arguments, or gives views of them",
    fallback="asked of torch.fx, which takes some microseconds for each operator",
)
def _schema() -> str | None:
    name = "_schema"
    adds = [getattr(torch.ops.aten.add_, o) for o in ("Tensor", "Scalar")]
    views = torch.ops.aten.view.default
    right = all(getattr(add, name).is_mutable for add in adds)
    (returned,) = getattr(views, name).returns
    return name if right and returned.alias_info is not None else None


def schema_of(overload: Any) -> Any:
    """Return the schema of an operator overload. UnsupportedError where torch shows none."""
    name = _schema.get()
    if name is not None and hasattr(overload, name):
        return getattr(overload, name)
    if not isinstance(overload, OpOverload):
        raise UnsupportedError(f"{overload} has no schema")
    from torch.fx.operator_schemas import get_signature_for_torch_op

    _, schemas = get_signature_for_torch_op(overload, return_schemas=True)
    if not schemas:
        raise UnsupportedError(f"{overload} has no schema")
    return schemas[0]


@cache
def gives_views(target: str) -> bool:
    """Return whether results of "namespace.name.overload" may be views of its first operand, by its
    schema. False for an operator that this torch doesn't have."""
    found = overload_named(target)
    if not isinstance(found, OpOverload):
        return False
    return any(r.alias_info is not None for r in schema_of(found).returns)


def overload_named(name: str) -> Any:
    """Return the overload "namespace.name.overload" below torch.ops; None where this torch lacks
    it. Operators of namespaces of higher-order operators have no overload."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def name_of_operator(found: Any) -> str | None:
    """Return the name of an overload, "namespace.name.overload", or of a higher-order operator,
    "higher_order.name", by which `overload_named` finds it; None for anything else. A
    `writing_form` has the name of the operator that it calls."""
    if isinstance(found, OpOverload):
        return str(_called_by_forms.get(found, found))
    name = f"higher_order.{getattr(found, '__name__', '')}"
    return name if callable(found) and overload_named(name) is found else None


def packets_named(*names: str) -> tuple[Any, ...]:
    """Return those operators "namespace.name" that this torch has."""
    found = (overload_named(name) for name in names)
    return tuple(packet for packet in found if packet is not None)


def gives_arguments(overload: Any) -> bool:
    """Return whether an operator returns its arguments without a tag that says so: torch, which
    knows that of its own operators, cannot run it without writes."""
    if str(overload).split(".")[0] in ("aten", "prims", "prim"):
        return False
    aliases = any(result.alias_info is not None for result in schema_of(overload).returns)
    return aliases and not _KNOWN_TO_GIVE & set(overload.tags)


_KNOWN_TO_GIVE = {getattr(torch.Tag, name, None) for name in ("inplace", "out")}
_called_by_forms: dict[Any, Any] = {}


@cache
def _forms() -> torch.library.Library:
    return torch.library.Library("kernelmill_writing", "FRAGMENT")


def writing_form(operator: Any) -> Any:
    """Return the operator itself, or for one that returns arguments a wrapper with only its other
    results, which torch can run without writes. A call raises KernelmillError where a result is not
    the expected argument."""
    gives = isinstance(operator, OpOverload) and gives_arguments(operator)
    return _without_given(operator) if gives else operator


@cache
def _without_given(overload: Any) -> Any:
    schema = schema_of(overload)
    names = [argument.name for argument in schema.arguments]
    given = [written_argument(schema, result) for result in schema.returns]
    fresh = ["Tensor" for name in given if name is None]
    text = str(schema)
    # Torch warns of an argument "self" where it takes such operators apart.
    arguments = re.sub(r"\bself\b", "written", text[text.index("(") : text.rindex(" -> ")])
    name = f"{str(overload).replace('.', '_')}_{len(_called_by_forms)}"
    _forms().define(f"{name}{arguments} -> ({', '.join(fresh)})")

    def run(*args: Any, **kwargs: Any) -> Any:
        outcome = overload(*args, **kwargs)
        results = outcome if isinstance(outcome, (list, tuple)) else (outcome,)
        known = {**dict(zip(names, args, strict=False)), **kwargs}
        for argument, result in zip(given, results, strict=True):
            if argument is not None and result is not known[argument]:
                raise KernelmillError(f"{overload} gave a tensor that is not its {argument!r}")
        new = [r for r, argument in zip(results, given, strict=True) if argument is None]
        return tuple(new) if len(new) > 1 else next(iter(new), None)

    _forms().impl(name, run, "CompositeExplicitAutograd")
    form = getattr(torch.ops.kernelmill_writing, name).default
    _called_by_forms[form] = overload
    return form


def written_argument(schema: Any, result: Any) -> str | None:
    """Return the name of the written argument that a result of a schema aliases; None for a new
    tensor. UnsupportedError for other results."""
    alias = result.alias_info
    if alias is None and str(result.type) == "Tensor":
        return None
    names = [
        argument.name
        for argument in schema.arguments
        if alias is not None
        and argument.alias_info is not None
        and argument.alias_info.is_write
        and argument.alias_info.before_set == alias.before_set
    ]
    if len(names) != 1 or str(result.type) != "Tensor":
        raise UnsupportedError("gives views of what it was given, or lists")
    return names[0]


def writes(target: str) -> bool:
    """Return whether "namespace.name.overload", an operator of this torch, writes an argument."""
    return bool(schema_of(overload_named(target)).is_mutable)


@internal(
    "operators.composite",
    reason="taking apart those operators of an exported program that torch always takes apart",
    fallback="all operators that torch's default table for export has are taken apart, and "
    "methods that call custom operators are not kept",
)
def _composite_key() -> Any:
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    asked: Any = torch.ops.aten
    reshape, add = asked.reshape.default, asked.add.Tensor
    right = reshape.has_kernel_for_dispatch_key(key) and not add.has_kernel_for_dispatch_key(key)
    return key if right else None


def is_composite(overload: Any) -> bool:
    """Return whether torch has only a composite implementation of an operator, or (see the
    fallback) that is unknown."""
    key = _composite_key.get()
    return key is None or overload.has_kernel_for_dispatch_key(key)


def make_token(graph: fx.Graph) -> fx.Node:
    """Add a node for an empty effect token. UnsupportedError where torch has none such."""
    operator = overload_named("prims._make_token.default")
    if operator is None:
        raise UnsupportedError("it has effects, whose tokens this torch does not make")
    return graph.call_function(operator)


Table = dict[Any, Callable[..., Any]]


@dataclass(frozen=True)
class _Tables:
    core: Callable[[], Table]
    with_composites: Callable[[], Table]
    of: Callable[[Sequence[Any]], Table]


@internal(
    "operators.decompositions",
    reason="taking operators without a lowering apart before they are lowered",
    fallback="such operators run in ATen",
)
def _tables() -> _Tables | None:
    from torch import _decomp

    works = bool(_decomp.get_decompositions([torch.ops.aten.dist]))
    tables = _Tables(
        _decomp._core_aten_decompositions_post_autograd,
        _decomp.core_aten_decompositions,
        _decomp.get_decompositions,
    )
    return tables if works else None


def torch_table(beyond_core: Sequence[Any], composites: bool) -> Table:
    """Return torch's decompositions: of operators outside of the core set, and of those named.

    `composites` adds those that autograd decomposes, which only graphs of torch.export still have:
    finding them takes 80 ms.
    """
    tables = _tables.get()
    if tables is None:
        return {}
    core = tables.with_composites if composites else tables.core
    return {**core(), **tables.of(beyond_core)}


@internal(
    "operators.memory_format",
    reason="laying what is resized, unpooled or shuffled in memory as eager does",
    fallback="resizing is torch's decomposition; max_unpool2d and channel_shuffle run in ATen",
)
def _memory_format() -> Callable[[Tensor], torch.memory_format] | None:
    from torch._prims_common import suggest_memory_format

    right = suggest_memory_format(torch.empty(1, 2, 3, 3)) == torch.contiguous_format
    return suggest_memory_format if right else None


def memory_format_of() -> Callable[[Tensor], torch.memory_format] | None:
    """Return a function that gives the memory format of eager's result; None without one."""
    return _memory_format.get()


def lying_as_operand(decompose: Callable[..., Tensor]) -> Callable[..., Tensor] | None:
    """Wrap a decomposition with a row-major result so that it has the memory format of the operand,
    as eager's; None where torch does not tell formats."""
    memory_format = _memory_format.get()
    if memory_format is None:
        return None

    def run(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return decompose(x, *args, **kwargs).contiguous(memory_format=memory_format(x))

    return run


@dataclass(frozen=True)
class Recurrent:
    """Parts of torch's decompositions of recurrent layers: the table of them by operator, and the
    parts of an LSTM (see torch/_decomp/decompositions.py)."""

    table: Table
    one_layer_lstm: Callable[..., Any]
    gather_params: Callable[..., Any]
    run_layers: Callable[..., Any]


@internal(
    "operators.recurrent",
    reason="taking the few steps of short recurrent layers apart, in training",
    fallback="recurrent layers train in torch",
)
def recurrent() -> Recurrent | None:
    from torch._decomp import decomposition_table, decompositions

    parts: Any = decompositions
    made = Recurrent(
        decomposition_table, parts.one_layer_lstm, parts.gather_params, parts._rnn_helper
    )
    names = ("gru", "rnn_tanh", "rnn_relu")
    known = all(getattr(torch.ops.aten, name).input in decomposition_table for name in names)
    return made if known else None
