"""The kernel IR: one function over flat buffers, with explicit loops and explicit vectors.

Grammar of the text form (text.py writes and reads it):

    kernel  = "kernel" NAME "(" [param {"," param}] ")" ["dims" "(" symbol {"," symbol} ")"]
              "tasks" "(" dim ")" ["scratch" "(" dim ")"] ["type" STRING]
              ["classes" "(" STRING {"," STRING} ")"] block
    param   = NAME ":" DTYPE "[" dim "]" ("in" | "out" | "inout")      (the dim: number of elements)
              ["nontemporal"] ["over" "(" NAME {"," NAME} ")"]         (of an "out" buffer)
    symbol  = NAME ["in" "[" INT "," (dim | "inf") "]"]
    block   = "{" {stmt} "}"
    stmt    = VALUE ":" type "=" OP "(" [operand {"," operand}] ")" [attrs]
            | VALUE ":" type "=" "load" NAME "[" dim "]" ["mask" VALUE] ["stride" dim]
            | VALUE ":" type "=" "gather" NAME "[" dim "+" VALUE "]" ["mask" VALUE]
            | VALUE ":" type "=" "tile_load" NAME "[" dim "]" "stride" dim
            | "store" NAME "[" dim "]" "," VALUE ["mask" VALUE] ["stride" dim]
            | "scatter" NAME "[" dim "+" VALUE "]" "," VALUE ["mask" VALUE]
            | "tile_store" NAME "[" dim "]" "," VALUE "stride" dim
            | "prefetch" NAME "[" dim "]"
            | "let" NAME "=" VALUE ["in" "[" INT "," (dim | "inf") "]"]
            | [VALUE {"," VALUE} "="] "for" NAME "=" dim "to" dim "step" dim
              ["carry" "(" VALUE ":" type "=" operand {"," ...} ")"] ["unroll"] block
            | [VALUE {"," VALUE} "="] "repeat"
              ["carry" "(" VALUE ":" type "=" operand {"," ...} ")"] block "while" VALUE
            | [VALUE {"," VALUE} ":" type {"," type} "="] "if" VALUE block ["else" block]
            | "yield" operand {"," operand}            (last in a loop or branch that has results)
    operand = VALUE | INT | FLOAT | "true" | "false" | "<" dim ">"
    type    = DTYPE ["x" LANES] | "tile" "<" ROWS "x" COLUMNS "x" DTYPE ">"
    VALUE   = "%" NAME

The body runs once for every task: the symbol `task` (0 <= task < tasks) is bound around it. Tasks
write disjoint elements and may run in any order and on any thread. `scratch` is bytes of memory
private to the running thread, addressed as a buffer named "scratch" whose elements have the type
of each access; what it holds when a task begins is anything.

No two buffers share memory, but one that is `over` others, of type "in", may begin where one of
these does: each element is read, if at all, by who writes the same element later (in_place.py).
`nontemporal`: what is written is not read again soon, so that it may go past the caches.

Registers hold f64, f32, f16, bf16, integers and bool (one bit each lane; in memory 0 or 1 a byte).
Arithmetic on f16 and bf16 is not allowed: `cast` to f32 and back, rounding to nearest even.
A tile is a value like others, carried by loops and yielded by branches, but only the operators and
statements called tile_... take one. It has at most 16 rows of 64 bytes, and whole words of 4 bytes
in a row; in memory the rows are `stride` elements apart.
A scalar operand next to a vector stands for all lanes. Masked-off lanes load 0 and store nothing.
A buffer index is in elements of that buffer. `prefetch` changes nothing: the cache line with that
element, which may lie outside of the buffer, is likely to be read soon. `let` names a scalar i64 so
that indices can use it.

Operators of the kernel IR's `Instr`.

arithmetic  add sub mul div neg abs min max fma sqrt floor ceil trunc round copysign rem
            Floats are IEEE, nothing reordered or contracted except `fma(a, b, c) = a*b + c` with
            one rounding. min and max give NaN when either side is NaN, and of equals the
            second (zeros have signs). round is to nearest even.
            Integers wrap; div and rem truncate; shl and shr by the width or more give 0 (or the
            sign); division by zero and INT_MIN / -1 give 0 and never trap.
dot         dot(a, b, sum){unit}: in each lane sum plus the products of the numbers that are packed
            in the words (i32) a and b; `unit` names one of core/target/dot_units.py's that works on
            vectors, which says of what type the numbers are and how the products are added. Units
            that mean the same are interchangeable: a target takes the best instruction it has.
            Of one that works on blocks a has a word (i64) for each row, b one for each column, and
            sum[row * columns + column] gets the products of these two.
tiles       tile_zero(): zeros, or +0.0; tile_dot(a, b, sum){unit}: each sum[i, j] plus the
            products of row i of a and column j of b, as a dot unit that works on tiles
            adds them: a[i, k] with b[k div group, j * group + k mod group]. Any shape goes up
            to the unit's own.
bits        and or xor not shl shr        (bool too for the first four)
compare     eq ne lt le gt ge -> bool     (ordered: false with NaN, except ne: true)
select      select(cond, a, b)
convert     cast    to the result's dtype: to bool is != 0; cast(x){outside} of floats to integers
                    truncates, to u8 and i64 by way of i64, to others by way of i32, of which
                    narrower ones take the low bits. What does not fit there becomes
                    outside="lowest": the lowest integer, NaN too; "nearest": the nearest, NaN 0.
                    Eager does what the processor's conversion does; core/target/isa.py says which.
            bitcast the same bits as another type; its lanes may be fewer and wider, or more and
                    narrower, the first ones lowest
vectors     splat(x); iota() -> 0, 1, 2...; extract(v, lane); lane_mask(n) -> lanes < n (n: i64);
            reduce_add reduce_mul reduce_max reduce_min reduce_and reduce_or -> scalar,
            the upper half folded onto the lower until one lane is left (of an odd number the
            middle one waits a round); concat2(a, b), slice(v){start};
            interleave(a, b){half}: the lower (0) or upper (1) half of a0, b0, a1, b1, ...
math        exp exp2 expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh asinh
            acosh atanh erf erfc erfinv lgamma digamma i0 pow atan2 hypot nextafter sigmoid
            rsqrt, on f32 and f64, within 2 ulp of the correctly rounded value in f32
check       check(cond) -> bool: passes cond on, and when any lane is false sets status[0] to 1
            (`code` attr); used to report an index out of range after the kernel has run
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Union

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Sym, bounds, symbols
from kernelmill.core.dtype import DType


@dataclass(frozen=True)
class VType:
    """A register type: `lanes` elements of `dtype`; 1 is a scalar. With `rows` it is a tile, and
    the lanes are its columns."""

    dtype: DType
    lanes: int = 1
    rows: int = 0

    def __str__(self) -> str:
        if self.rows:
            return f"tile<{self.rows}x{self.lanes}x{self.dtype.name}>"
        return self.dtype.name if self.lanes == 1 else f"{self.dtype.name}x{self.lanes}"


class Value:
    """A register. Identity is the object's; `name` is unique in its kernel."""

    __slots__ = ("name", "type")

    def __init__(self, name: str, type: VType) -> None:
        self.name, self.type = name, type

    def __repr__(self) -> str:
        return f"%{self.name}"


Operand = Union[Value, int, float, bool]


@dataclass
class Instr:
    """`result = op(args)`; the operators are listed below."""

    result: Value
    op: str
    args: tuple[Operand, ...]
    attrs: Mapping[str, int | str] = field(default_factory=dict[str, Union[int, str]])


@dataclass
class IndexValue:
    """`result = index(<dim>)`: the value of a dim expression as a scalar i64."""

    result: Value
    dim: Dim


@dataclass
class Load:
    """Read result.type.lanes elements at `index`, `index + stride`, ...; the stride is not 0."""

    result: Value
    buffer: str
    index: Dim
    mask: Value | None = None
    stride: Dim = 1


@dataclass
class Gather:
    """Read one element for each lane at `base + offsets[lane]`; offsets are i64 or i32."""

    result: Value
    buffer: str
    base: Dim
    offsets: Value
    mask: Value | None = None


@dataclass
class Store:
    """Write the lanes of `value` at `index`, `index + stride`, ..."""

    buffer: str
    index: Dim
    value: Value
    mask: Value | None = None
    stride: Dim = 1


@dataclass
class Scatter:
    """Write each lane at `base + offsets[lane]`; of lanes with one address the last one stays."""

    buffer: str
    base: Dim
    offsets: Value
    value: Value
    mask: Value | None = None


@dataclass
class TileLoad:
    """Read the rows of a tile at `index`, `index + stride`, ..., each of consecutive elements."""

    result: Value
    buffer: str
    index: Dim
    stride: Dim


@dataclass
class TileStore:
    """Write the rows of a tile, as `TileLoad` reads them."""

    buffer: str
    index: Dim
    value: Value
    stride: Dim


@dataclass
class Prefetch:
    """Have the cache line with this element brought near; the place need not be in the buffer."""

    buffer: str
    index: Dim


@dataclass
class Let:
    """Bind `symbol` to a scalar i64 register for index expressions in the rest of this block."""

    symbol: Sym
    value: Value


@dataclass
class For:
    """A counted loop. `carried` registers start as `initial`, take `yields` after each pass, and
    hold the final values in `results` afterwards (the initial ones when there was no pass).

    `unroll` asks the code generator to unroll the whole loop (its bounds are constants then).
    """

    symbol: Sym
    start: Dim
    stop: Dim
    step: Dim
    carried: tuple[Value, ...] = ()
    initial: tuple[Operand, ...] = ()
    results: tuple[Value, ...] = ()
    body: list[Stmt] = field(default_factory=list["Stmt"])
    yields: tuple[Operand, ...] = ()
    unroll: bool = False


@dataclass
class Repeat:
    """A loop that runs once, and again as long as `condition`, a scalar bool of its body, holds.

    Registers are carried as by `For`. That the condition fails at last is the builder's promise.
    """

    carried: tuple[Value, ...]
    initial: tuple[Operand, ...]
    results: tuple[Value, ...]
    condition: Value
    body: list[Stmt] = field(default_factory=list["Stmt"])
    yields: tuple[Operand, ...] = ()


@dataclass
class If:
    """Run one of two blocks by a scalar bool; `results` take the yields of the block that ran."""

    condition: Value
    then: list[Stmt] = field(default_factory=list["Stmt"])
    otherwise: list[Stmt] = field(default_factory=list["Stmt"])
    results: tuple[Value, ...] = ()
    then_yields: tuple[Operand, ...] = ()
    otherwise_yields: tuple[Operand, ...] = ()


Stmt = Union[
    Instr, IndexValue, Load, Gather, Store, Scatter, TileLoad, TileStore, Prefetch, Let, For,
    Repeat, If,
]  # fmt: skip


@dataclass(frozen=True)
class Buffer:
    """A parameter: flat memory of `elements` elements; `access` is "in", "out" or "inout".

    An "out" one may lie `over` one of some "in" buffers, and may be written past the caches.
    """

    name: str
    dtype: DType
    elements: Dim
    access: str
    over: tuple[str, ...] = ()
    nontemporal: bool = False


def loop_symbol(name: str, start: Dim, stop: Dim) -> Sym:
    """Return the symbol of a loop over [start, stop), with its range as far as known."""
    low = bounds(start)[0]
    return Sym(name, -(1 << 63) if low is None else low, stop - 1)


SCRATCH = "scratch"
STATUS = "status"
"""Name of the i64 buffer that the `check` operator marks."""

TASK = "task"


@dataclass
class Kernel:
    """One compiled unit. `type` is the operator's name in kernel_meta ("Square", "MatMul").
    `classes` says in words which sizes it has bodies of their own for, if it has several.

    Native ABI: void name(ptr buffers, ptr dims, i64 task_begin, i64 task_end, ptr scratch), where
    `buffers` points to one address for each of `buffers` in order, `dims` to one i64 for each of
    `dims` in order, and scratch is 64-byte aligned.
    """

    name: str
    type: str
    buffers: list[Buffer]
    dims: list[Sym]
    tasks: Dim
    scratch: Dim
    body: list[Stmt]
    classes: tuple[str, ...] = ()


ARITHMETIC = frozenset(
    "add sub mul div neg abs min max fma sqrt floor ceil trunc round copysign rem".split()
)
BITS = frozenset("and or xor not shl shr".split())
COMPARE = frozenset("eq ne lt le gt ge".split())
OUTSIDE = frozenset("lowest nearest".split())
CONVERT = frozenset("cast bitcast".split())
REDUCE = frozenset("reduce_add reduce_mul reduce_max reduce_min reduce_and reduce_or".split())
VECTOR = frozenset("splat iota extract lane_mask concat2 interleave slice".split()) | REDUCE
MATH = frozenset(
    "exp exp2 expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf erfc erfinv lgamma digamma i0 pow atan2 hypot nextafter sigmoid rsqrt".split()
)
MATH_BINARY = frozenset("pow atan2 hypot nextafter".split())
TILE = frozenset("tile_zero tile_dot".split())
ALL = ARITHMETIC | BITS | COMPARE | CONVERT | VECTOR | MATH | TILE | {"select", "check", "dot"}


def blocks_of(statement: Stmt) -> tuple[Sequence[Stmt], ...]:
    """Return the blocks inside of a statement: a loop's body, both sides of a branch."""
    if isinstance(statement, (For, Repeat)):
        return (statement.body,)
    return (statement.then, statement.otherwise) if isinstance(statement, If) else ()


def statements_of(body: Sequence[Stmt]) -> Iterator[Stmt]:
    """Yield all statements of a block in text order, each before those nested in it."""
    for statement in body:
        yield statement
        for block in blocks_of(statement):
            yield from statements_of(block)


def dims_of(statement: Stmt) -> tuple[Dim, ...]:
    """Return the dims that a statement is written with, without those of nested statements."""
    match statement:
        case Instr():
            return ()
        case Load() | Store() | TileLoad() | TileStore():
            return statement.index, statement.stride
        case IndexValue():
            return (statement.dim,)
        case Gather() | Scatter():
            return (statement.base,)
        case Prefetch():
            return (statement.index,)
        case Let():
            return (statement.symbol.hi or 0,)
        case For():
            return statement.start, statement.stop, statement.step
        case Repeat() | If():
            return ()


def used_symbols(kernel: Kernel) -> set[str]:
    """Return the names of all symbols in the kernel, its own loops' included."""
    found: set[str] = set()
    for dim in (kernel.tasks, kernel.scratch, *(buffer.elements for buffer in kernel.buffers)):
        found.update(symbols(dim))
    for statement in statements_of(kernel.body):
        for dim in dims_of(statement):
            if not isinstance(dim, int):
                found.update(symbols(dim))
    return found
