"""Graphs from text, by recursive descent over the grammar of ir.py. Types are taken as written."""

from __future__ import annotations

from kernelmill.config.super_kernel_marks import UNMARKED, read_mark
from kernelmill.core.dim import Dim, Sym, as_sym, of_atom, read_dim
from kernelmill.core.dtype import BY_NAME, DType
from kernelmill.core.roles import InputRole
from kernelmill.core.scalar import NUMBERS, read_declared
from kernelmill.core.text import Reader
from kernelmill.graph import ir


def parse_graph(text: str) -> ir.Graph:
    """Parse the graph that `text` describes; printing it gives the canonical text again.

    Raises ValueError with the line and what was expected there. The rules beyond the grammar are
    the verifier's.
    """
    reader = Reader(text)
    graph = _Parser(reader).graph()
    reader.expect_end()
    return graph


class _Parser:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._scope: dict[str, Dim] = {}
        self._values: dict[str, ir.Value] = {}

    def graph(self) -> ir.Graph:
        reader = self._reader
        reader.expect("graph")
        graph = ir.Graph(reader.name())
        reader.expect("(")
        inputs = reader.position
        reader.skip_parentheses()
        if reader.accept("symbols"):
            reader.expect("(")
            graph.symbols = {s.name: s for s in reader.listed(self._symbol, ")")}
        if reader.accept("where"):
            reader.expect("(")
            graph.equations = reader.listed(self._equation, ")")
        body = reader.position
        reader.position = inputs
        graph.inputs = reader.listed(self._input, ")")
        reader.position = body
        reader.expect("{")
        while reader.accept("body"):
            name = reader.string()
            reader.expect("=")
            held = reader.accept("held")
            graph.bodies[name] = ir.Held(reader.string()) if held else _Parser(reader).graph()
        while not reader.accept("return"):
            graph.nodes.append(self._node())
        if not reader.at("update", "}"):
            graph.results = [self._result()]
            while reader.accept(","):
                graph.results.append(self._result())
        if reader.accept("update"):
            reader.expect("(")
            graph.updates = reader.listed(self._update, ")")
        reader.expect("}")
        return graph

    # ---- header and results -----------------------------------------------------------------

    def _symbol(self) -> Sym:
        symbol = read_declared(self._reader, self._scope)
        self._scope[symbol.name] = of_atom(symbol)
        return symbol

    def _equation(self) -> tuple[Dim, Dim]:
        left = self._dim()
        self._reader.expect("=")
        return left, self._dim()

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
        old = self._use()
        self._reader.expect("<-")
        return old, self._use()

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
        reader = self._reader
        dtype = BY_NAME.get(reader.name("a dtype"))
        if dtype is None:
            reader.fail_before(f"a dtype ({', '.join(BY_NAME)})")
        reader.expect("[")
        shape = tuple(reader.listed(self._dim, "]"))
        strides = tuple(reader.listed(self._dim, "}")) if reader.accept("{") else None
        return ir.TensorType(dtype, shape, strides)

    def _dim(self) -> Dim:
        return read_dim(self._reader, self._scope)

    def _bracketed_dim(self) -> Dim:
        self._reader.expect("<")
        dim = self._dim()
        self._reader.expect(">")
        return dim

    def _attr(self) -> tuple[str, ir.Attr]:
        name = self._reader.name("an attribute")
        self._reader.expect("=")
        return name, self._literal()

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
