"""Graphs as text. The text is hashed: equal graphs print alike whatever built them. Parsing is by
recursive descent over the grammar of ir.py; types are taken as written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kernelmill.config.super_kernel_marks import UNMARKED, read_mark
from kernelmill.core.dim import Dim, Expr, as_sym, render
from kernelmill.core.dtype import BY_NAME, DType, InputRole
from kernelmill.core.scalar import NUMBERS, Descent, in_order, symbol_text
from kernelmill.core.text import Reader, number_text, string_text
from kernelmill.graph import ir

Names = Mapping[str, str]


def print_graph(graph: ir.Graph, names: bool = True, own_symbols: bool = False) -> str:
    """Return the text of `graph`, in the grammar of ir.py.

    Results of nodes and symbols are renumbered in the order in which they are bound. `names` False
    leaves out what is for people only: the graph's name, its inputs' names and the source lines.
    With `own_symbols` symbols keep their names, which a plan of the graph has too.
    """
    return _GraphPrinter(graph, names, own_symbols).text()


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


class _GraphPrinter:
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
            text = _GraphPrinter(body, self._names, self._own_symbols).text().rstrip()
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


def parse_graph(text: str) -> ir.Graph:
    """Parse the graph that `text` describes; printing it gives the canonical text again.

    Raises ValueError with the line and what was expected there. The rules beyond the grammar are
    the verifier's.
    """
    reader = Reader(text)
    graph = _GraphParser(reader).graph()
    reader.expect_end()
    return graph


class _GraphParser(Descent):
    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._values: dict[str, ir.Value] = {}

    def graph(self) -> ir.Graph:
        reader = self._reader
        reader.expect("graph")
        graph = ir.Graph(reader.name())
        reader.expect("(")
        inputs = reader.position
        reader.skip_parentheses()
        graph.symbols = {symbol.name: symbol for symbol in self._group("symbols", self._symbol)}
        graph.equations = list(self._group("where", self._equation))
        body = reader.position
        reader.position = inputs
        graph.inputs = reader.listed(self._input, ")")
        reader.position = body
        reader.expect("{")
        while reader.accept("body"):
            name = reader.string()
            reader.expect("=")
            held = reader.accept("held")
            graph.bodies[name] = ir.Held(reader.string()) if held else _GraphParser(reader).graph()
        while not reader.accept("return"):
            graph.nodes.append(self._node())
        if not reader.at("update", "}"):
            graph.results = [self._result()]
            while reader.accept(","):
                graph.results.append(self._result())
        graph.updates = list(self._group("update", self._update))
        reader.expect("}")
        return graph

    # ---- header and results -----------------------------------------------------------------

    def _input(self) -> ir.Input | ir.DimInput:
        reader = self._reader
        if not reader.at_kind("value"):
            symbol = as_sym(self._dim())
            if symbol is None:
                reader.fail_before("a symbol")
            reader.expect(":")
            reader.expect("dim")
            return ir.DimInput(symbol)
        name = reader.value()
        reader.expect(":")
        value = self._define(name, self._type(), None)
        if not reader.at_kind("name"):
            return ir.Input(value)
        if not reader.at(*InputRole):
            reader.fail(f"one of {', '.join(InputRole)}")
        return ir.Input(value, InputRole(reader.take()))

    def _update(self) -> tuple[ir.Value, ir.Value]:
        return self._use(), self._after("<-", self._use)

    def _result(self) -> ir.Result:
        if self._reader.accept("none"):
            return None
        if self._reader.at(*NUMBERS):
            return ir.NumberResult(self._reader.take(), self._bracketed_dim())
        return self._bracketed_dim() if self._reader.at("<") else self._use()

    # ---- nodes ------------------------------------------------------------------------------

    def _node(self) -> ir.Node:
        reader = self._reader
        names: list[str] = []
        if not reader.at("="):
            names.append(reader.value())
            while reader.accept(","):
                names.append(reader.value())
        reader.expect("=")
        op = reader.name("an operator")
        reader.expect("(")
        operands = reader.listed(self._use, ")")
        attrs = dict(reader.listed(self._attr, "}")) if reader.accept("{") else {}
        reader.expect(":")
        types: list[ir.TensorType] = [self._type()] if names else []
        for _ in names[1:]:
            reader.expect(",")
            types.append(self._type())
        origin = reader.string() if reader.accept("at") else ""
        mark = read_mark(reader.string()) if reader.accept("scope") else UNMARKED
        node = ir.Node(op, operands, attrs, origin, mark)
        defined = (self._define(name, kind, node) for name, kind in zip(names, types, strict=True))
        node.results = tuple(defined)
        return node

    def _define(self, name: str, kind: ir.TensorType, node: ir.Node | None) -> ir.Value:
        if name in self._values:
            self._reader.fail_before(f"a new name, but %{name} is defined above")
        value = self._values[name] = ir.Value(name, kind, node)
        return value

    def _use(self) -> ir.Value:
        name = self._reader.value()
        if name not in self._values:
            self._reader.fail_before(f"a value defined above, not %{name}")
        return self._values[name]

    # ---- types and attributes ---------------------------------------------------------------

    def _type(self) -> ir.TensorType:
        reader, dtype = self._reader, self._dtype()
        reader.expect("[")
        shape = tuple(reader.listed(self._dim, "]"))
        strides = tuple(reader.listed(self._dim, "}")) if reader.accept("{") else None
        return ir.TensorType(dtype, shape, strides)

    def _attr(self) -> tuple[str, ir.Attr]:
        return self._reader.name("an attribute"), self._after("=", self._literal)

    def _literal(self) -> ir.Attr:
        reader = self._reader
        if reader.at_kind("string"):
            return reader.string()
        if reader.accept("("):
            return tuple(reader.listed(self._literal, ")"))
        if reader.at("<"):
            return self._bracketed_dim()
        if reader.at_number():
            return reader.number()
        word = reader.name("a literal")
        if word not in _WORDS:
            reader.fail_before(f"a literal, not {word!r}")
        return _WORDS[word]


_WORDS: dict[str, bool | DType | None] = {"true": True, "false": False, "none": None, **BY_NAME}
