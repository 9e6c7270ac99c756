"""Runs a graph node by node with eager torch operators: the reference meaning of the IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from kernelmill.core.dim import Dim, Expr, evaluate, linear_part, of_atom, symbols
from kernelmill.core.dtype import DType, to_torch
from kernelmill.core.errors import InputError, VerificationError
from kernelmill.core.scalar import NUMBERS, completed, in_order
from kernelmill.graph import ir
from kernelmill.graph.eager import EAGER
from kernelmill.graph.text import print_node, print_type
from kernelmill.torch_internals.operators import overload_named, writing_form

Sizes = Mapping[str, int]


@torch.no_grad()
def run_graph(graph: ir.Graph, inputs: Sequence[Tensor | int]) -> list[Tensor | float | None]:
    """Run `graph` on one CPU tensor or integer for each of its inputs.

    Inputs that the graph updates are written in place, after everything else. A result that is an
    input is that very tensor, and one of an ATen call is whatever that gave (perhaps a view of an
    input); all other results are new. Raises InputError when an argument does
    not fit, VerificationError when a node's result is not of its type, and what eager raises.
    """
    values, sizes = run_values(graph, inputs)
    pairs = zip(graph.inputs, inputs, strict=True)
    tensors = {
        entry.value: values[entry.value] for entry, _ in pairs if isinstance(entry, ir.Input)
    }
    taken = {_storage(tensor) for tensor in tensors.values()}
    results = [_result(result, values, sizes, taken) for result in graph.results]
    # Copies first: what one update reads another may write to.
    fresh = [(tensors[old], values[new].clone()) for old, new in graph.updates]
    for held, contents in fresh:
        held.copy_(contents)
    return results


@torch.no_grad()
def run_values(
    graph: ir.Graph, inputs: Sequence[Tensor | int]
) -> tuple[dict[ir.Value, Tensor], dict[str, int]]:
    """Compute every value of `graph` for these inputs, none of which is written to, and the values
    of its symbols. Raises as `run_graph` does."""
    if len(inputs) != len(graph.inputs):
        raise InputError(f"{graph.name} takes {len(graph.inputs)} inputs, not {len(inputs)}")
    pairs = list(zip(graph.inputs, inputs, strict=True))
    tensors = {
        entry.value: _checked(entry.value, argument)
        for entry, argument in pairs
        if isinstance(entry, ir.Input)
    }
    sizes = _bind(_equations(pairs))
    symbols = in_order(graph.symbols.values())
    values = dict(tensors)
    sizes.update(completed(symbols, sizes))
    for node in graph.nodes:
        operands = [values[operand] for operand in node.operands]
        values.update(_run_node(graph, node, operands, sizes))
        if node.attrs.get("binds"):
            sizes.update(completed(symbols, sizes))
    return values, sizes


def _result(
    result: ir.Result,
    values: Mapping[ir.Value, Tensor],
    sizes: Sizes,
    taken: set[torch.UntypedStorage],
) -> Tensor | float | None:
    """Return the result, copied where a view that the interpreter made shares memory with an input
    or an earlier result."""
    if isinstance(result, ir.NumberResult):
        return NUMBERS[result.kind](evaluate(result.word, sizes))
    if not isinstance(result, ir.Value):
        return result if result is None else evaluate(result, sizes)
    tensor = values[result]
    if result.node is None or result.node.op == "aten":
        return tensor
    if _storage(tensor) in taken:
        return tensor.clone()
    taken.add(_storage(tensor))
    return tensor


def _storage(tensor: Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()  # one object, as long as there is a tensor over it


# ---- inputs ---------------------------------------------------------------------------------


def _checked(value: ir.Value, argument: Tensor | int) -> Tensor:
    kind = value.type
    if not isinstance(argument, Tensor):
        raise InputError(f"input {value} is a tensor, not {type(argument).__name__}")
    if argument.dtype != to_torch(kind.dtype) or argument.ndim != kind.rank:
        have = f"{argument.dtype} of shape {tuple(argument.shape)}"
        raise InputError(f"input {value} is {print_type(kind)}, not {have}")
    return argument


def _equations(
    pairs: Sequence[tuple[ir.Input | ir.DimInput, Tensor | int]],
) -> list[tuple[Dim, int, str]]:
    """Return every dim of the inputs with the number it must be, and its owner."""
    found: list[tuple[Dim, int, str]] = []
    for entry, argument in pairs:
        if isinstance(entry, ir.Input):
            assert isinstance(argument, Tensor)
            sizes = zip(entry.value.shape, argument.shape, strict=True)
            found.extend((dim, size, f"input {entry.value}") for dim, size in sizes)
        elif isinstance(argument, int):
            found.append((of_atom(entry.symbol), argument, f"input {entry.symbol}"))
        else:
            raise InputError(f"input {entry.symbol} is an integer, not a tensor")
    return found


def _bind(equations: Sequence[tuple[Dim, int, str]]) -> dict[str, int]:
    """Return the symbols' values. Raises InputError when some equation does not hold."""
    sizes: dict[str, int] = {}
    before = -1
    while len(sizes) > before:
        before = len(sizes)
        for dim, size, _ in equations:
            _solve(dim, size, sizes)
    for dim, size, whose in equations:
        known = all(name in sizes for name in symbols(dim))
        if not known or evaluate(dim, sizes) != size:
            raise InputError(f"{whose}: a size is {size}, which does not fit {dim}")
    return sizes


def _solve(dim: Dim, size: int, sizes: dict[str, int]) -> None:
    """Add the symbol of `dim` that has no value yet, if it is one and occurs linearly."""
    unknown = [name for name in symbols(dim) if name not in sizes]
    parts = linear_part(dim, unknown[0]) if len(unknown) == 1 else None
    if parts is None:
        return
    factor, rest = (evaluate(part, sizes) for part in parts)
    if factor != 0 and (size - rest) % factor == 0:
        sizes[unknown[0]] = (size - rest) // factor


# ---- nodes ----------------------------------------------------------------------------------


def _run_node(
    graph: ir.Graph, node: ir.Node, operands: Sequence[Tensor], sizes: dict[str, int]
) -> dict[ir.Value, Tensor]:
    if node.op == "aten":
        found = _run_aten(graph, node, operands, sizes)
    elif node.op == "layout":
        found = [operands[0]]
    else:
        attrs = {name: _evaluated(value, sizes) for name, value in node.attrs.items()}
        found = [EAGER[node.op](operands, attrs)]
    if len(found) != len(node.results):
        raise VerificationError(f"`{print_node(node)}` gave {len(found)} results")
    return {
        value: _in_memory(node, tensor, value.type, sizes)
        for value, tensor in zip(node.results, found, strict=True)
    }


def _evaluated(value: ir.Attr, sizes: Sizes) -> Any:
    if isinstance(value, tuple):
        return tuple(_evaluated(item, sizes) for item in value)
    return evaluate(value, sizes) if isinstance(value, Expr) else value


def _in_memory(node: ir.Node, tensor: Tensor, kind: ir.TensorType, sizes: Sizes) -> Tensor:
    """Return the same values with the strides of `kind`."""
    shape = tuple(evaluate(dim, sizes) for dim in kind.shape)
    if tensor.dtype != to_torch(kind.dtype) or tuple(tensor.shape) != shape:
        have = f"{tensor.dtype} of shape {tuple(tensor.shape)}"
        raise VerificationError(f"`{print_node(node)}` gave {have} for {shape}")
    if kind.strides is None:
        return tensor.contiguous()
    strides = tuple(evaluate(dim, sizes) for dim in kind.strides)
    if all(n == 1 or a == b for n, a, b in zip(shape, tensor.stride(), strides, strict=True)):
        # Perhaps a view that ATen made on purpose, and one that could not be written to.
        return tensor
    return torch.empty_strided(shape, strides, dtype=tensor.dtype).copy_(tensor)


# ---- operators that run as themselves -------------------------------------------------------


def _run_aten(
    graph: ir.Graph, node: ir.Node, operands: Sequence[Tensor], sizes: dict[str, int]
) -> list[Tensor]:
    target = overload_named(str(node.attrs["target"]))
    args, named = node.attrs["args"], node.attrs["kwargs"]
    assert isinstance(args, tuple) and isinstance(named, tuple)
    decode = partial(_decoded, graph, operands, sizes)
    decoded = [decode(arg) for arg in args]
    kwargs = {name: decode(value) for name, value in cast(Any, named)}
    result = target(*decoded, **kwargs)
    found = _flattened(result) if node.results else []
    for name, result, dim in _evaluated(node.attrs["binds"], sizes):
        sizes[name] = int(found[result]) if dim == -1 else found[result].shape[dim]
    return found


def _decoded(graph: ir.Graph, operands: Sequence[Tensor], sizes: Sizes, value: ir.Attr) -> Any:
    decode = partial(_decoded, graph, operands, sizes)
    match value:
        case ("tensor", int(number)):
            return operands[number]
        case ("body" | "single" as tag, str(name)):
            return _body(graph.bodies[name], tag == "single")
        case ("operator", str(name)):
            return writing_form(overload_named(name))
        case (str(tag), str(name)) if tag in _NAMED:
            return _NAMED[tag](name)
        case (str(tag), Expr() | int() as word) if tag in NUMBERS:
            return NUMBERS[tag](_evaluated(word, sizes))
        case ("list", *items):
            return list(map(decode, items))
        case ("tuple", *items):
            return tuple(map(decode, items))
        case DType():
            return to_torch(value)
        case _:
            return _evaluated(value, sizes)


def _body(body: ir.Graph | ir.Held, single: bool) -> Any:
    if isinstance(body, ir.Held):
        return body.found
    if single:
        return lambda *args: run_graph(body, args)[0]
    return lambda *args: tuple(run_graph(body, args))


_NAMED: dict[str, Callable[[str], Any]] = {
    "device": torch.device,
    "complex": complex,
    "layout": lambda name: getattr(torch, name),
    "memory_format": lambda name: getattr(torch, name),
}


def _flattened(result: Any) -> list[Tensor]:
    """Return the tensors of an operator's result; numbers as 0-d, undefined ones as bool[0]."""
    if result is None:
        return [torch.empty(0, dtype=torch.bool)]
    if isinstance(result, (tuple, list)):
        return [tensor for item in result for tensor in _flattened(item)]  # type: ignore[reportUnknownVariableType]
    return [result if isinstance(result, Tensor) else torch.tensor(result)]
