"""The graph IR: pure tensor values, one static single assignment each, dims int or symbolic.

Grammar of the text form (text.py writes and reads it):

    graph    = "graph" NAME "(" [input {"," input}] ")" ["symbols" "(" symbol {"," symbol} ")"]
               ["where" "(" equation {"," equation} ")"] "{" {body} {node} return "}"
    body     = "body" STRING "=" (graph | "held" STRING)
    equation = dim "=" dim
    input    = VALUE ":" type [role]        role = "param" | "buffer"      (no role: a user's input)
             | NAME ":" "dim"               (an integer argument that binds a symbol)
    symbol   = NAME ["in" "[" INT "," (dim | "inf") "]"] ["=" scalar]      (core/scalar.py)
    node     = [VALUE {"," VALUE}] "=" OP "(" [VALUE {"," VALUE}] ")" ["{" attr {"," attr} "}"]
               ":" [type {"," type}] ["at" STRING] ["scope" STRING]
    attr     = NAME "=" literal
    literal  = INT | FLOAT | STRING | "true" | "false" | "none" | DTYPE | "<" dim ">"
             | "(" [literal {"," literal}] ")"
    return   = "return" [result {"," result}] ["update" "(" VALUE "<-" VALUE {"," ...} ")"]
    result   = VALUE | ["float" | "bool"] "<" dim ">" | "none"
    type     = DTYPE "[" [dim {"," dim}] "]" ["{" dim {"," dim} "}"]
    VALUE    = "%" NAME

"at" is the user's source line, "scope" the super-kernel mark (config/super_kernel_marks.py). A
type's `{...}` are strides in elements, printed when the value lives in memory with a layout that is
not row-major. A "body" is what a higher-order operator calls, which its arguments name as ("body",
STRING), or ("single", STRING) where calls give the only result and no tuple. Each fact
about an operator is in the table of ops.py, and only there: passes, fusion and code generation ask
it, and keep no lists of names. Typing rules are in typing.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum, IntEnum, StrEnum
from typing import Any, Union

from kernelmill.config.super_kernel_marks import UNMARKED, Mark
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Expr, Sym, product
from kernelmill.core.dtype import DType, InputRole
from kernelmill.core.scalar import computed_late

Attr = Union[None, bool, int, float, str, DType, Expr, tuple["Attr", ...]]
"""Allowed values of attributes; others cannot be printed, hashed or saved."""


def row_major(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the strides in elements of a dense row-major tensor of this shape."""
    strides: list[Dim] = []
    step: Dim = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size if size != 0 else step
    return tuple(reversed(strides))


@dataclass(frozen=True)
class TensorType:
    """Element type, shape, and strides in elements (None: row-major)."""

    dtype: DType
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...] | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> Dim:
        """Number of elements."""
        return product(self.shape)

    @property
    def memory_strides(self) -> tuple[Dim, ...]:
        """Strides in elements, row-major where none are given."""
        return row_major(self.shape) if self.strides is None else self.strides


class Value:
    """The result of a node, or an input. Identity is the object's; `name` is for people."""

    __slots__ = ("name", "node", "type")

    def __init__(self, name: str, type: TensorType, node: Node | None = None) -> None:
        self.name, self.type, self.node = name, type, node

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    def made_by(self, *ops: str) -> Node | None:
        """Return the node that computes the value, if it is one of these operators."""
        return self.node if self.node is not None and self.node.op in ops else None

    def behind(self, *ops: str) -> Value:
        """Return what the value is made from by these operators, which have one operand each."""
        value = self
        while (node := value.made_by(*ops)) is not None:
            (value,) = node.operands
        return value

    @property
    def number(self) -> Attr:
        """The number that a constant has in each element; None for other values."""
        return None if (node := self.made_by("full")) is None else node.attrs["value"]

    def __repr__(self) -> str:
        return f"%{self.name}"


class Node:
    """One operator applied. `origin` is the user's source line; `mark` its super-kernel range."""

    __slots__ = ("attrs", "mark", "op", "operands", "origin", "results")

    def __init__(
        self,
        op: str,
        operands: Sequence[Value],
        attrs: Mapping[str, Attr],
        origin: str = "",
        mark: Mark = UNMARKED,
    ) -> None:
        self.op = op
        self.operands = tuple(operands)
        self.attrs = dict(attrs)
        self.results: tuple[Value, ...] = ()
        self.origin = origin
        self.mark = mark

    @property
    def result(self) -> Value:
        """The only result. Raises ValueError when there are none or several."""
        (value,) = self.results
        return value

    def __repr__(self) -> str:
        return f"{', '.join(map(repr, self.results))} = {self.op}{self.operands}"


@dataclass(frozen=True)
class Input:
    """A tensor argument; parameters and buffers may be pre-packed."""

    value: Value
    role: InputRole = InputRole.USER


@dataclass(frozen=True)
class DimInput:
    """An integer argument: the caller passes the value of this symbol."""

    symbol: Sym


@dataclass(frozen=True)
class NumberResult:
    """A number that is no integer: its kind ("float", "bool") and the word that stands for it."""

    kind: str
    word: Dim


@dataclass(frozen=True, eq=False)
class Held:
    """An object of this process that is passed unchanged, such as a graph that only torch can run.
    A text has its `kind` alone, so that a graph with one can be read and not run elsewhere."""

    kind: str
    found: object = None


Result = Union[Value, int, Expr, NumberResult, None]
"""A program returns tensors, numbers, or None in place of a gradient nobody needs."""


@dataclass
class Graph:
    """A whole program. `nodes` are in an order in which operands come before their users.

    `updates` are written after all else: the value on the right replaces the contents of the input
    on the left (a KV cache, a running mean). Nodes never see an updated input. `equations` are
    dims that the graph takes for equal: a call where they differ is refused. `bodies` are what
    higher-order operators are given, by the names that their arguments have.
    """

    name: str
    inputs: list[Input | DimInput] = field(default_factory=list[Union[Input, DimInput]])
    nodes: list[Node] = field(default_factory=list[Node])
    results: list[Result] = field(default_factory=list[Result])
    updates: list[tuple[Value, Value]] = field(default_factory=list[tuple[Value, Value]])
    symbols: dict[str, Sym] = field(default_factory=dict[str, Sym])
    equations: list[tuple[Dim, Dim]] = field(default_factory=list[tuple[Dim, Dim]])
    bodies: dict[str, Graph | Held] = field(default_factory=dict[str, Union["Graph", Held]])

    def users(self) -> dict[Value, list[Node]]:
        """Map each value that is read to the nodes that read it, in program order."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for operand in dict.fromkeys(node.operands):
                found.setdefault(operand, []).append(node)
        return found

    def tensor_inputs(self) -> Iterable[Input]:
        return (entry for entry in self.inputs if isinstance(entry, Input))

    def body_graphs(self) -> dict[str, Graph]:
        """Return the bodies that are graphs, by name."""
        return {name: body for name, body in self.bodies.items() if isinstance(body, Graph)}

    def late_symbols(self) -> frozenset[str]:
        """Return symbols that ATen operators bind, and those computed from these, which have no
        value when a call begins."""
        found: set[str] = set()
        for node in self.nodes:
            binds = node.attrs.get("binds")
            for bind in binds if isinstance(binds, tuple) else ():
                assert isinstance(bind, tuple)
                found.add(str(bind[0]))
        return frozenset(found | computed_late(self.symbols.values(), found))


Attrs = Mapping[str, Any]
CELL_GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}
"""Gates of each kind of recurrent cell."""

TypingRule = Callable[[Sequence[TensorType], Attrs], tuple[TensorType, ...]]


class OpKind(StrEnum):
    """The method by which an operator is computed."""

    POINTWISE = "pointwise"
    SOURCE = "source"  # from the index alone
    VIEW = "view"  # elements of operands at other places
    LAYOUT = "layout"  # the operand, with strides of its own in memory
    REDUCE = "reduce"
    SCAN = "scan"
    WHOLE = "whole"  # wants its operands whole: a template of its own computes it
    CONTRACT = "contract"
    ATTENTION = "attention"
    SCORES = "scores"  # of an attention, which alone computes them: they are never stored
    GATHER = "gather"
    SCATTER = "scatter"
    ATEN = "aten"


class Cost(IntEnum):
    """Vector operations of an element, roughly."""

    FREE = 0
    SIMPLE = 1
    LOOKUP = 3
    DIVISION = 4
    FUNCTION = 12


class Image(Enum):
    """The range of results for finite operands."""

    ANY = "any"
    FINITE = "finite"
    NONNEGATIVE = "finite and not below zero"


class ZeroSign(Enum):
    """The operands whose zeros, with the other sign, change more than the sign of the result."""

    NONE = "none"
    DIVISOR = "the last"
    ALL = "all"


class Combine(StrEnum):
    """Modes of scatter and index_put: ways to combine an element with the value written to it."""

    SET = "set"
    ADD = "add"
    MUL = "mul"
    MAX = "max"
    MIN = "min"

    def __repr__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True)
class OpDef:
    """An operator. A node has all of `attrs` and may have those of `optional`, which are false
    when absent; `arity` None is any number of operands.

    title           what kernels are named after
    cost            of an element; that of reductions and contractions is their templates' matter
    kernel_op       of a pointwise operator: the operation of the kernel IR that it is, None where
                    it takes several (lower/elements/pointwise.py); of a reduction or scan: the one
                    that joins two elements
    kernel_op_bool  the same on bool, where that is another one
    exact           the result is representable where the operands are: there is nothing to round
    commutative     a op b is b op a
    image           what finite operands give
    zero_sign       whose sign of a zero decides about more than a sign
    unpacks         weights that are kept in fewer bits are made of such operators: a few
                    instructions for a vector
    elementwise     an element can be computed by itself, wherever it is read
    transparent     its elements are an operand's at other places: reading through it costs nothing
    rearranges      a view of all elements of its operand, each once
    keeps_axes      a view in which the operand's axes stay where they are
    fills           a view with elements that are its `value` attribute
    """

    name: str
    kind: OpKind
    arity: int | None
    attrs: tuple[str, ...]
    rule: TypingRule
    optional: tuple[str, ...] = ()
    title: str = ""
    cost: Cost = Cost.FREE
    kernel_op: str | None = None
    kernel_op_bool: str | None = None
    exact: bool = False
    commutative: bool = False
    image: Image = Image.ANY
    zero_sign: ZeroSign = ZeroSign.NONE
    unpacks: bool = False
    elementwise: bool = False
    transparent: bool = False
    rearranges: bool = False
    keeps_axes: bool = False
    fills: bool = False
