"""A graph as a Python program that builds it again: run it, change it, bisect with it."""

from __future__ import annotations

from kernelmill.core.dim import Dim, Expr
from kernelmill.core.dtype import DType, InputRole
from kernelmill.core.scalar import in_order, symbol_text
from kernelmill.graph.ir import Attr, DimInput, Graph, Input, Node, NumberResult, Result, Value

_HEADER = '''"""Builds the graph {name}; `graph` is the result."""

from kernelmill.core.dim import maximum, minimum, of_atom
from kernelmill.core.dtype import BY_NAME
from kernelmill.core.dtype import InputRole
from kernelmill.core.scalar import read_declared
from kernelmill.core.text import Reader
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import NumberResult

b = GraphBuilder({name!r})
scope = {{}}


def declared(text):
    symbol = read_declared(Reader(text), scope)
    b.symbol(symbol)
    scope[symbol.name] = of_atom(symbol)
    return scope[symbol.name]


'''


def to_python(graph: Graph) -> str:
    """Return the program's text. Running it leaves an equal graph in `graph`."""
    names: dict[Value, str] = {}
    lines: list[str] = []
    for symbol in in_order(graph.symbols.values()):
        lines.append(f"{symbol.name} = declared({symbol_text(symbol)!r})")
    for number, entry in enumerate(graph.inputs):
        lines.append(_input(entry, number, names))
    lines += [f"b.equal({_dim(left)}, {_dim(right)})" for left, right in graph.equations]
    for node in graph.nodes:
        lines += _node(node, names)
    results = ", ".join(_result(result, names) for result in graph.results)
    updates = ", ".join(f"({names[t]}, {names[v]})" for t, v in graph.updates)
    lines += [f"b.graph.results = [{results}]", f"b.graph.updates = [{updates}]", "graph = b.graph"]
    return _HEADER.format(name=graph.name) + "\n".join(lines) + "\n"


def _input(entry: Input | DimInput, number: int, names: dict[Value, str]) -> str:
    if isinstance(entry, DimInput):
        return f"b.dim_input({entry.symbol.name})"
    value = entry.value
    names[value] = f"x{number}"
    strides = "" if value.type.strides is None else f", strides={_tuple(value.type.strides)}"
    role = "" if entry.role == InputRole.USER else f", role=InputRole.{entry.role.name}"
    return (
        f"x{number} = b.input({value.name!r}, {_attr(value.dtype)}, {_tuple(value.shape)}"
        f"{strides}{role})"
    )


def _node(node: Node, names: dict[Value, str]) -> list[str]:
    lines = [f"b.origin = {node.origin!r}"] if node.origin else []
    for result in node.results:
        names[result] = f"v{len(names)}"
    targets = ", ".join(names[result] for result in node.results)
    arguments = [repr(node.op), *(names[operand] for operand in node.operands)]
    arguments += [f"{name}={_attr(value)}" for name, value in node.attrs.items()]
    call = f"b.emit_many({', '.join(arguments)})"
    return [*lines, f"({targets},) = {call}"]


def _result(result: Result, names: dict[Value, str]) -> str:
    if isinstance(result, Value):
        return names[result]
    if isinstance(result, NumberResult):
        return f"NumberResult({result.kind!r}, {_dim(result.word)})"
    return "None" if result is None else _dim(result)


def _tuple(dims: tuple[Dim, ...]) -> str:
    return f"({''.join(_dim(dim) + ', ' for dim in dims)})"


def _dim(dim: Dim) -> str:
    return str(dim).replace("min(", "minimum(").replace("max(", "maximum(")


def _attr(value: Attr) -> str:
    if isinstance(value, DType):
        return f"BY_NAME[{value.name!r}]"
    if isinstance(value, Expr):
        return _dim(value)
    if isinstance(value, tuple):
        return f"({''.join(_attr(item) + ', ' for item in value)})"
    if isinstance(value, float):
        return f"float({str(value)!r})"
    return repr(value)
