"""Typing rules of the kernel IR's operators, as a table: which dtypes, how many operands, lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelmill.core.dtype import BOOL, F32, F64, I64, DType
from kernelmill.core.target.dot_units import DOT_UNITS, DotUnit
from kernelmill.kernel.ir import (
    COMPARE,
    MATH,
    MATH_BINARY,
    OUTSIDE,
    REDUCE,
    TILE,
    Instr,
    Operand,
    Value,
    VType,
)


class TypingError(ValueError):
    """An operator's operands, result or attributes do not fit it; the message says how."""


def require(holds: bool, message: str) -> None:
    """Raise TypingError with this message unless `holds`."""
    if not holds:
        raise TypingError(message)


def _kind(dtype: DType) -> str:
    if dtype in (F32, F64):
        return "float"
    return {"int": "integer", "uint": "integer", "bool": "bool", "float": "half"}[dtype.kind]


def _table(rows: dict[str, tuple[int, str]]) -> dict[str, tuple[int, frozenset[str]]]:
    return {
        name: (arity, frozenset(kinds.split()))
        for names, (arity, kinds) in rows.items()
        for name in names.split()
    }


_UNIFORM = _table(
    {
        "add sub mul div rem": (2, "float integer"),
        "min max": (2, "float integer bool"),
        "neg": (1, "float integer"),
        "abs": (1, "float integer bool"),
        "fma": (3, "float integer"),
        "sqrt floor ceil trunc round": (1, "float"),
        "copysign": (2, "float"),
        "and or xor": (2, "integer bool"),
        "not": (1, "integer bool"),
        "shl shr": (2, "integer"),
        " ".join(MATH - MATH_BINARY): (1, "float"),
        " ".join(MATH_BINARY): (2, "float"),
    }
)
"""Operands and result have one dtype, of these kinds. Scalars stand for all lanes."""

_REDUCE = _table(
    {
        "reduce_add reduce_mul": (1, "float integer"),
        "reduce_max reduce_min": (1, "float integer bool"),
        "reduce_and reduce_or": (1, "integer bool"),
    }
)


def check_instr(instr: Instr) -> None:
    """Raise TypingError unless the operator exists and everything about it fits."""
    attrs = _ATTRS.get(instr.op, frozenset())
    if instr.attrs:
        unknown = sorted(set(instr.attrs) - attrs)
        require(not unknown, f"{instr.op} has no attribute {', '.join(unknown)}")
    if instr.op not in TILE:
        for value in (instr.result, *_registers(instr.args)):
            if value.type.rows:
                raise TypingError(f"{instr.op} takes no tiles, and {value} is one")
    if instr.op in _UNIFORM:
        _check_uniform(instr)
    elif instr.op in COMPARE:
        _check_compare(instr)
    elif instr.op in REDUCE:
        _check_reduce(instr)
    else:
        rule = _RULES.get(instr.op)
        if rule is None:
            raise TypingError(f"there is no operator {instr.op!r}")
        rule(instr)


def check_fits(operand: Operand, type: VType) -> None:
    """Raise TypingError unless `operand` can stand where `type` is wanted.

    A register has the same dtype and the same lanes or one; a literal must be exact in kind:
    true and false for bool, integers in range for integers, any number for floats.
    """
    if isinstance(operand, Value):
        have = operand.type
        fits = have.rows == type.rows and have.lanes in (1, type.lanes)
        if have.dtype != type.dtype or not fits or (type.rows and have != type):
            raise TypingError(f"{operand} is {have}, not {type}")
    elif type.rows:
        raise TypingError(f"the literal {operand} where {type} is wanted")
    elif isinstance(operand, bool):
        require(type.dtype == BOOL, f"a bool literal where {type} is wanted")
    elif type.dtype.is_integer:
        signed = type.dtype.kind == "int"
        low = -(1 << (type.dtype.bits - 1)) if signed else 0
        high = (1 << (type.dtype.bits - signed)) - 1
        if not isinstance(operand, int) or not low <= operand <= high:
            raise TypingError(f"the literal {operand} is no {type.dtype}")
    else:
        require(type.dtype.is_float, f"the literal {operand} where {type} is wanted")


def _arity(instr: Instr, count: int) -> None:
    if len(instr.args) != count:
        raise TypingError(f"{instr.op} takes {count} operands, not {len(instr.args)}")


def _check_kind(op: str, dtype: DType, kinds: frozenset[str]) -> None:
    if _kind(dtype) not in kinds:
        raise TypingError(f"{op} does not work on {dtype}")


def _check_uniform(instr: Instr) -> None:
    arity, kinds = _UNIFORM[instr.op]
    _arity(instr, arity)
    _check_kind(instr.op, instr.result.type.dtype, kinds)
    for arg in instr.args:
        check_fits(arg, instr.result.type)


def _registers(args: Sequence[Operand]) -> list[Value]:
    return [arg for arg in args if isinstance(arg, Value)]


def _register(instr: Instr) -> Value:
    """Return the first operand, which must not be a literal."""
    arg = instr.args[0]
    if not isinstance(arg, Value):
        raise TypingError(f"{instr.op} needs a register as its first operand")
    return arg


def _check_result(instr: Instr, type: VType) -> None:
    require(instr.result.type == type, f"the result is {type}, not {instr.result.type}")


def _check_compare(instr: Instr) -> None:
    _arity(instr, 2)
    registers = _registers(instr.args)
    require(bool(registers), f"{instr.op} needs a register")
    dtype, lanes = registers[0].type.dtype, instr.result.type.lanes
    _check_kind(instr.op, dtype, frozenset(("float", "integer", "bool")))
    for arg in instr.args:
        check_fits(arg, VType(dtype, lanes))
    _check_result(instr, VType(BOOL, lanes))


def _check_reduce(instr: Instr) -> None:
    _arity(instr, 1)
    dtype = _register(instr).type.dtype
    _check_kind(instr.op, dtype, _REDUCE[instr.op][1])
    _check_result(instr, VType(dtype))


def _select(instr: Instr) -> None:
    _arity(instr, 3)
    condition, *branches = instr.args
    check_fits(condition, VType(BOOL, instr.result.type.lanes))
    for branch in branches:
        check_fits(branch, instr.result.type)


def _cast(instr: Instr) -> None:
    _arity(instr, 1)
    lanes = _register(instr).type.lanes
    want = instr.result.type.lanes
    require(lanes in (1, want), f"{lanes} lanes cannot become {want}")
    source, target = _register(instr).type.dtype, instr.result.type.dtype
    outside = instr.attrs.get("outside")
    if source.is_float and target.is_integer:
        choices = " or ".join(f'"{each}"' for each in sorted(OUTSIDE))
        require(outside in OUTSIDE, f"what becomes of numbers outside of {target}: {choices}")
    else:
        require(outside is None, f"no {source} is outside of what {target} holds")


def _bitcast(instr: Instr) -> None:
    _arity(instr, 1)
    source, target = _register(instr).type, instr.result.type
    same = source.dtype.bits * source.lanes == target.dtype.bits * target.lanes
    same = same or (source.dtype.bits == target.dtype.bits and source.lanes == 1)
    require(
        same and BOOL not in (source.dtype, target.dtype), f"{source} has not the bits of {target}"
    )


def _unit(instr: Instr) -> DotUnit:
    name = instr.attrs.get("unit")
    unit = DOT_UNITS.get(name) if isinstance(name, str) else None
    if unit is None:
        raise TypingError(f"{instr.op} needs a unit of core/target/dot_units.py, not {name!r}")
    return unit


def _dot(instr: Instr) -> None:
    _arity(instr, 3)
    unit, type = _unit(instr), instr.result.type
    require(unit.group > 1 and not unit.on_tiles, f"{unit.name} takes no words of several numbers")
    require(type.dtype == unit.sum, f"{unit.name} gives {unit.sum}, not {type.dtype}")
    sums = unit.rows * unit.columns if unit.on_blocks else type.lanes
    require(type.lanes == sums, f"{unit.name} gives {sums} sums, not {type.lanes}")
    for arg, lanes in zip(instr.args[:2], unit.words(type.lanes), strict=True):
        check_fits(arg, VType(unit.word, lanes))
    check_fits(instr.args[2], type)


def _tile_zero(instr: Instr) -> None:
    _arity(instr, 0)
    require(instr.result.type.rows > 0, f"the result is a tile, not {instr.result.type}")


def _tile_dot(instr: Instr) -> None:
    _arity(instr, 3)
    unit, type = _unit(instr), instr.result.type
    require(unit.on_tiles, f"{unit.name} takes no tiles")
    a = _register(instr).type
    groups = a.lanes // unit.group
    inside = type.rows <= unit.rows and type.lanes <= unit.columns and groups <= unit.depth
    require(inside, f"{type} with {groups} groups along k is more than {unit.name} takes")
    b = VType(unit.b, type.lanes * unit.group, groups)
    for arg, want in zip(
        instr.args,
        (VType(unit.a, groups * unit.group, type.rows), b, VType(unit.sum, type.lanes, type.rows)),
        strict=True,
    ):
        check_fits(arg, want)
    _check_result(instr, VType(unit.sum, type.lanes, type.rows))


def _splat(instr: Instr) -> None:
    _arity(instr, 1)
    check_fits(instr.args[0], VType(instr.result.type.dtype))


def _iota(instr: Instr) -> None:
    _arity(instr, 0)
    _check_kind("iota", instr.result.type.dtype, frozenset(("float", "integer")))


def _extract(instr: Instr) -> None:
    _arity(instr, 2)
    source, lane = _register(instr).type, instr.args[1]
    check_fits(lane, VType(I64))
    inside = isinstance(lane, Value) or 0 <= lane < source.lanes
    require(inside, f"lane {lane} is not one of {source.lanes}")
    _check_result(instr, VType(source.dtype))


def _lane_mask(instr: Instr) -> None:
    _arity(instr, 1)
    check_fits(instr.args[0], VType(I64))
    _check_result(instr, VType(BOOL, instr.result.type.lanes))


def _concat2(instr: Instr) -> None:
    _arity(instr, 2)
    registers = _registers(instr.args)
    require(len(registers) == 2, "concat2 needs two registers")
    a, b = (register.type for register in registers)
    require(a.dtype == b.dtype, f"concat2 of {a.dtype} and {b.dtype}")
    _check_result(instr, VType(a.dtype, a.lanes + b.lanes))


def _interleave(instr: Instr) -> None:
    _arity(instr, 2)
    kind = _register(instr).type
    half = instr.attrs.get("half")
    require(half in (0, 1) and kind.lanes % 2 == 0, f"{kind} has no half {half}")
    same = all(isinstance(arg, Value) and arg.type == kind for arg in instr.args)
    require(same, f"interleave needs two registers of {kind}")
    _check_result(instr, kind)


def _slice(instr: Instr) -> None:
    _arity(instr, 1)
    source, start, lanes = _register(instr).type, instr.attrs.get("start"), instr.result.type.lanes
    inside = isinstance(start, int) and 0 <= start <= source.lanes - lanes
    require(inside, f"{lanes} lanes from {start} are not inside {source}")
    _check_result(instr, VType(source.dtype, lanes))


def _check(instr: Instr) -> None:
    _arity(instr, 1)
    check_fits(_register(instr), VType(BOOL, instr.result.type.lanes))
    code = instr.attrs.get("code", 1)
    require(isinstance(code, int) and code > 0, f"the code of a check is a positive int: {code}")
    _check_result(instr, VType(BOOL, instr.result.type.lanes))


_ATTRS = {
    "slice": frozenset(("start",)),
    "interleave": frozenset(("half",)),
    "check": frozenset(("code",)),
    "cast": frozenset(("outside",)),
    "dot": frozenset(("unit",)),
    "tile_dot": frozenset(("unit",)),
}
_RULES: dict[str, Callable[[Instr], None]] = {
    "select": _select,
    "cast": _cast,
    "bitcast": _bitcast,
    "dot": _dot,
    "tile_zero": _tile_zero,
    "tile_dot": _tile_dot,
    "splat": _splat,
    "iota": _iota,
    "extract": _extract,
    "lane_mask": _lane_mask,
    "concat2": _concat2,
    "interleave": _interleave,
    "slice": _slice,
    "check": _check,
}
