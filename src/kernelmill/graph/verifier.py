"""Checks that a graph keeps the rules of its IR: definitions, types, attributes, symbols."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kernelmill.core.dim import Dim, Expr, symbols
from kernelmill.core.dtype import DType, InputRole
from kernelmill.core.errors import VerificationError
from kernelmill.core.scalar import NUMBERS, roots
from kernelmill.graph.ir import Attr, DimInput, Graph, Input, Node, NumberResult, TensorType, Value
from kernelmill.graph.ops import OPS, infer
from kernelmill.graph.text import print_node, print_type
from kernelmill.graph.typing import TypingError


def verify_graph(graph: Graph, stage: str = "", verified: Graph | None = None) -> None:
    """Raise VerificationError, naming the node, unless `graph` keeps every rule of the IR.

    `stage` is the pass or other step that made the graph, for the message. `verified` is a graph
    that has passed: of nodes that are in it too, what they are by themselves is not checked again,
    unless there are symbols, since what binds these may be gone.
    """
    known = () if verified is None or graph.symbols else verified.nodes
    try:
        _GraphVerifier(graph, frozenset(known)).run()
    except TypingError as error:
        raise VerificationError(f"graph {graph.name}: {error}", stage) from None


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise TypingError(message)


class _GraphVerifier:
    def __init__(self, graph: Graph, verified: frozenset[Node]) -> None:
        self._graph = graph
        self._verified = verified
        self._inputs: set[Value] = set()
        self._known: set[Value] = set()
        self._bound: set[str] = set()

    def run(self) -> None:
        for entry in self._graph.inputs:
            self._input_symbols(entry)
        for entry in self._graph.tensor_inputs():
            self._input(entry)
        for node in self._graph.nodes:
            try:
                self._node(node)
            except TypingError as error:
                raise TypingError(f"in `{_shown(node)}`: {error}") from None
        self._results()

    # ---- inputs and symbols -----------------------------------------------------------------

    def _input_symbols(self, entry: Input | DimInput) -> None:
        if isinstance(entry, DimInput):
            self._bound.add(entry.symbol.name)
        else:
            for dim in (*entry.value.type.shape, *(entry.value.type.strides or ())):
                self._bound.update(symbols(dim))
        unknown = sorted(self._bound - set(self._graph.symbols))
        _require(not unknown, f"the graph does not declare the symbols {', '.join(unknown)}")

    def _input(self, entry: Input) -> None:
        value = entry.value
        _require(value not in self._known, f"input {value} is there twice")
        _require(value.node is None, f"input {value} is the result of a node")
        _require(entry.role in tuple(InputRole), f"input {value} has the role {entry.role!r}")
        self._type(value.type)
        self._known.add(value)
        self._inputs.add(value)

    def _type(self, kind: TensorType) -> None:
        sizes = kind.shape
        if kind.strides is not None:
            if len(kind.strides) != kind.rank:
                raise TypingError(f"{len(kind.strides)} strides for rank {kind.rank}")
            sizes = (*sizes, *kind.strides)
        for dim in sizes:
            if isinstance(dim, int) and dim < 0:
                raise TypingError(f"a size or stride of {print_type(kind)} is negative")
        self._dims(sizes)

    def _dims(self, dims: Iterable[Dim]) -> None:
        for dim in dims:
            if isinstance(dim, int):
                continue
            unknown = roots((dim,)) - self._bound
            if unknown:
                raise TypingError(f"nothing binds the symbol {', '.join(sorted(unknown))} of {dim}")

    # ---- nodes ------------------------------------------------------------------------------

    def _node(self, node: Node) -> None:
        for operand in node.operands:
            if operand not in self._known:
                raise TypingError(f"{operand} is not defined here")
        if node not in self._verified:
            self._alone(node)
        for value in node.results:
            if value in self._known:
                raise TypingError(f"{value} is defined twice")
            self._known.add(value)

    def _alone(self, node: Node) -> None:
        """Check the rules for a node that hold whichever operands are defined."""
        definition = OPS.get(node.op)
        if definition is None:
            raise TypingError(f"there is no operator {node.op!r}")
        known = definition.attrs + definition.optional
        unknown = node.attrs.keys() - known
        if unknown:
            raise TypingError(f"{node.op} has no attribute {', '.join(sorted(unknown))}")
        if node.op == "aten":
            self._aten(node)
        for name, value in node.attrs.items():
            self._attr(name, value)
        if node.op in ("full", "pad"):
            _require(_is_number(node.attrs.get("value")), f"{node.op} needs a number as its value")
        self._check_types(node)
        for value in node.results:
            if value.node is not node:
                raise TypingError(f"{value} does not point to its node")
            self._type(value.type)

    def _check_types(self, node: Node) -> None:
        try:
            inferred = infer(node.op, [operand.type for operand in node.operands], node.attrs)
        except (IndexError, TypeError, AttributeError) as error:
            raise TypingError(f"operands or attributes do not fit: {error}") from None
        count = len(node.results)
        if count != len(inferred):
            raise TypingError(f"{len(inferred)} results, not {count}")
        for value, kind in zip(node.results, inferred, strict=True):
            if not _same(value.type, kind):
                raise TypingError(f"{value} is {print_type(kind)}")

    def _attr(self, name: str, value: Attr) -> None:
        check = _ATTRS.get(name)
        if check is not None and not check(value):
            raise TypingError(f"the attribute {name}={value!r} is none")
        self._literal(name, value)

    def _literal(self, name: str, value: object) -> None:
        if isinstance(value, tuple):
            items: tuple[object, ...] = value
            for item in items:
                if type(item) is not int:
                    self._literal(name, item)
        elif isinstance(value, Expr):
            self._dims((value,))
        elif value is not None and not isinstance(value, (bool, int, float, str, DType)):
            raise TypingError(f"the attribute {name} holds a {type(value).__name__}")

    def _aten(self, node: Node) -> None:
        target = node.attrs.get("target")
        _require(isinstance(target, str), f"the target {target!r} is no operator's name")
        arguments = (node.attrs.get("args"), node.attrs.get("kwargs"))
        for number in _tagged("tensor", arguments):
            inside = isinstance(number, int) and 0 <= number < len(node.operands)
            _require(inside, f'("tensor", {number}) is none of {len(node.operands)} operands')
        for name in _tagged("body", arguments) + _tagged("single", arguments):
            _require(name in self._graph.bodies, f"the graph has no body {name!r}")
        binds = node.attrs.get("binds")
        for bind in binds if isinstance(binds, tuple) else ():
            self._bind(node, bind)

    def _bind(self, node: Node, bind: Attr) -> None:
        match bind:
            case (str(name), int(result), int(dim)) if 0 <= result < len(node.results):
                _require(name in self._graph.symbols, f"the graph does not declare {name}")
                _require(name not in self._bound, f"the symbol {name} is bound twice")
                inside = -1 <= dim < node.results[result].type.rank
                _require(inside, f"{node.results[result]} has no dim {dim} to bind {name}")
                self._bound.add(name)
            case _:
                raise TypingError(f"{bind!r} does not bind a symbol to a size of a result")

    # ---- results ----------------------------------------------------------------------------

    def _results(self) -> None:
        for sides in self._graph.equations:
            self._dims(sides)
        for result in self._graph.results:
            if isinstance(result, Value):
                _require(result in self._known, f"result {result} is not defined")
            elif isinstance(result, NumberResult):
                _require(result.kind in NUMBERS, f"a result is {result.kind!r}")
                self._dims((result.word,))
            elif result is not None:
                self._dims((result,))
        updated: set[Value] = set()
        for old, new in self._graph.updates:
            _require(old in self._inputs, f"update of {old}, which is no input")
            _require(old not in updated, f"{old} is updated twice")
            _require(new in self._known, f"update of {old} with {new}, which is not defined")
            same = (old.dtype, old.shape) == (new.dtype, new.shape)
            kinds = f"{print_type(old.type)} with {print_type(new.type)}"
            _require(same, f"update of {old}: {kinds}")
            updated.add(old)


def _shown(node: Node) -> str:
    try:
        return print_node(node)
    except TypeError:  # an attribute that has no text, which may be what is wrong
        return repr(node)


def _same(a: TensorType, b: TensorType) -> bool:
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    return a.strides == b.strides or a.memory_strides == b.memory_strides


def _tagged(tag: str, value: Attr) -> list[Attr]:
    """Return x of every (tag, x) inside the arguments of a call."""
    if not isinstance(value, tuple):
        return []
    if len(value) == 2 and value[0] == tag:
        return [value[1]]
    return [found for item in value for found in _tagged(tag, item)]


def _is_int(value: Attr) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_dim(value: Attr) -> bool:
    return _is_int(value) or isinstance(value, Expr)


def _is_number(value: Attr) -> bool:
    return isinstance(value, (bool, int, float))


def _all(check: Callable[[Attr], bool]) -> Callable[[Attr], bool]:
    return lambda value: isinstance(value, tuple) and all(map(check, value))


def _is_dtype(value: Attr) -> bool:
    return isinstance(value, DType)


_ATTRS: dict[str, Callable[[Attr], bool]] = {
    "at": _is_int,
    "blocks": _all(_is_int),
    "causal": lambda value: isinstance(value, bool),
    "dilation": _all(_is_int),
    "dim": _is_int,
    "dims": _all(_is_int),
    "dtype": _is_dtype,
    "end": _is_dim,
    "groups": _is_int,
    "inplace": lambda value: isinstance(value, bool),
    "high": _all(_is_dim),
    "low": _all(_is_dim),
    "masked": lambda value: isinstance(value, bool),
    "mode": lambda value: isinstance(value, str),
    "normaliser": lambda value: isinstance(value, bool),
    "offset": _is_dim,
    "padding": _all(_is_int),
    "scale": _is_number,
    "shape": _all(_is_dim),
    "size": _all(_is_dim),
    "start": _is_dim,
    "step": _is_dim,
    "stride": _all(_is_int),
    "strides": _all(_is_dim),
    "unsigned": lambda value: isinstance(value, bool),
    "value": lambda value: _is_number(value) or isinstance(value, Expr),
}
"""The required value of each attribute; those of `aten` are checked separately."""
