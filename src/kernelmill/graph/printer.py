"""Graphs as text. The text is hashed: equal graphs print alike whatever built them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kernelmill.core.dim import Dim, Expr, as_sym, render
from kernelmill.core.dtype import DType
from kernelmill.core.roles import InputRole
from kernelmill.core.scalar import in_order, symbol_text
from kernelmill.core.text import number_text, string_text
from kernelmill.graph import ir

Names = Mapping[str, str]


def print_graph(graph: ir.Graph, names: bool = True, own_symbols: bool = False) -> str:
    """Return the text of `graph`, in the grammar of ir.py.

    Results of nodes and symbols are renumbered in the order in which they are bound. `names` False
    leaves out what is for people only: the graph's name, its inputs' names and the source lines.
    With `own_symbols` symbols keep their names, which a plan of the graph has too.
    """
    return _Printer(graph, names, own_symbols).text()


def print_node(node: ir.Node) -> str:
    """Return the text of one node under the names it was built with, for messages."""
    return _node(node, {}, lambda value: f"%{value.name}")


def print_type(kind: ir.TensorType, names: Names | None = None) -> str:
    """Return the text of one type; `names` are the symbols' new names, their own by default."""
    names = names or {}
    text = f"{kind.dtype}[{', '.join(render(dim, names) for dim in kind.shape)}]"
    if kind.strides is not None:
        text += f"{{{', '.join(render(dim, names) for dim in kind.strides)}}}"
    return text


class _Printer:
    def __init__(self, graph: ir.Graph, names: bool, own_symbols: bool) -> None:
        self._graph = graph
        self._names = names
        self._own_symbols = own_symbols
        renumbered = _symbol_names(graph)
        self._symbols = {name: name for name in renumbered} if own_symbols else renumbered
        self._values: dict[ir.Value, str] = {}
        self._count = 0

    def text(self) -> str:
        graph = self._graph
        inputs = ",".join(f"\n  {self._input(entry)}" for entry in graph.inputs)
        header = f"graph {_identifier(graph.name) if self._names else '_'}("
        header += inputs + "\n)" if inputs else ")"
        if self._symbols:
            header += f" symbols({', '.join(map(self._symbol, self._symbols))})"
        if graph.equations:
            header += f" where({', '.join(map(self._equation, graph.equations))})"
        lines = [header + " {", *map(self._body, graph.bodies)]
        for node in graph.nodes:
            for value in node.results:
                self._number(value)
            lines.append("  " + _node(node, self._symbols, self._use, self._names))
        lines.append("  " + self._return())
        return "\n".join(lines) + "\n}\n"

    def _body(self, name: str) -> str:
        body = self._graph.bodies[name]
        if isinstance(body, ir.Graph):
            text = _Printer(body, self._names, self._own_symbols).text().rstrip()
        else:
            text = f"held {string_text(body.kind)}"
        return f"  body {string_text(name)} = {text}".replace("\n", "\n  ")

    def _symbol(self, name: str) -> str:
        return symbol_text(self._graph.symbols[name], self._symbols)

    def _equation(self, equation: tuple[Dim, Dim]) -> str:
        return " = ".join(render(side, self._symbols) for side in equation)

    def _input(self, entry: ir.Input | ir.DimInput) -> str:
        if isinstance(entry, ir.DimInput):
            return f"{self._symbols.get(entry.symbol.name, entry.symbol.name)}: dim"
        value = entry.value
        if self._names:
            self._values[value] = self._free_name(_identifier(value.name))
        else:
            self._number(value)
        role = "" if entry.role == InputRole.USER else f" {entry.role}"
        return f"{self._use(value)}: {print_type(value.type, self._symbols)}{role}"

    def _free_name(self, name: str) -> str:
        taken = set(self._values.values())
        candidate, number = name, 1
        while candidate in taken:
            number += 1
            candidate = f"{name}.{number}"
        return candidate

    def _number(self, value: ir.Value) -> None:
        self._values[value] = str(self._count)
        self._count += 1

    def _use(self, value: ir.Value) -> str:
        return f"%{self._values[value]}" if value in self._values else f"%undefined.{value.name}"

    def _return(self) -> str:
        text = " ".join(("return", ", ".join(map(self._result, self._graph.results)))).rstrip()
        if self._graph.updates:
            pairs = (f"{self._use(old)} <- {self._use(new)}" for old, new in self._graph.updates)
            text += f" update({', '.join(pairs)})"
        return text

    def _result(self, result: ir.Result) -> str:
        if result is None:
            return "none"
        if isinstance(result, ir.Value):
            return self._use(result)
        kind, dim = (
            ("", result)
            if not isinstance(result, ir.NumberResult)
            else (f"{result.kind} ", result.word)
        )
        return f"{kind}<{render(dim, self._symbols)}>"


def _symbol_names(graph: ir.Graph) -> dict[str, str]:
    """Return new names in binding order: by an input, by a node, then all others declared."""
    bound: list[str] = []
    for entry in graph.inputs:
        if isinstance(entry, ir.DimInput):
            bound.append(entry.symbol.name)
            continue
        kind = entry.value.type
        plain = (as_sym(dim) for dim in (*kind.shape, *(kind.strides or ())))
        bound.extend(symbol.name for symbol in plain if symbol is not None)
    for node in graph.nodes:
        if node.op == "aten":
            bound.extend(_bound_name(bind) for bind in _tuple(node.attrs.get("binds")))
    known = [name for name in dict.fromkeys(bound) if name in graph.symbols]
    given = [name for name in known if graph.symbols[name].value is None]
    ordered = dict.fromkeys((*given, *(s.name for s in in_order(graph.symbols.values()))))
    return {name: f"s{number}" for number, name in enumerate(ordered)}


def _tuple(attr: ir.Attr) -> tuple[ir.Attr, ...]:
    return attr if isinstance(attr, tuple) else ()


def _bound_name(bind: ir.Attr) -> str:
    return str(bind[0]) if isinstance(bind, tuple) and bind else ""


def _identifier(name: str) -> str:
    """Return `name` as a NAME of the grammar: never a number, as names of results are."""
    name = re.sub(r"[^A-Za-z0-9_.]", "_", name)
    return name if re.match(r"[A-Za-z_]", name) else f"_{name}"


def _node(
    node: ir.Node, symbols: Names, use: Callable[[ir.Value], str], origin: bool = True
) -> str:
    text = f"{', '.join(map(use, node.results))} = {node.op}({', '.join(map(use, node.operands))})"
    if node.attrs:
        attrs = (f"{key}={_attr(key, node.attrs[key], symbols)}" for key in sorted(node.attrs))
        text += f" {{{', '.join(attrs)}}}"
    text += f" : {', '.join(print_type(value.type, symbols) for value in node.results)}"
    if node.origin and origin:
        text += f" at {string_text(node.origin)}"
    mark = str(node.mark)
    return text + (f" scope {string_text(mark)}" if mark else "")


def _attr(key: str, value: ir.Attr, symbols: Names) -> str:
    if key == "binds":
        # A bind names its symbol by a string.
        binds = ((_bound_name(bind), *_tuple(bind)[1:]) for bind in _tuple(value))
        value = tuple((symbols.get(name, name), *rest) for name, *rest in binds)
    return _literal(value, symbols)


def _literal(value: ir.Attr, symbols: Names) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return f"({', '.join(_literal(item, symbols) for item in value)})"
    if isinstance(value, Expr):
        return f"<{render(value, symbols)}>"
    if isinstance(value, DType):
        return value.name
    return string_text(value) if isinstance(value, str) else number_text(value)
