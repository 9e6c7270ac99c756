"""Definitions of operators: each fact about an operator is here, and only here.

`ops.py` is the table. Passes, fusion and code generation ask it; none of them keeps lists of
operators' names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, IntEnum, StrEnum
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.graph.ir import TensorType

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
