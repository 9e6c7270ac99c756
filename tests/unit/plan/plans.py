"""A plan that uses every construct of the grammar."""

from kernelmill.core.dim import Sym, of_atom
from kernelmill.core.dtype import BF16, BOOL, F32, I64, InputRole
from kernelmill.core.scalar import Apply
from kernelmill.plan.ir import (
    AtenCall,
    BufferSpec,
    DimResult,
    KernelRef,
    Launch,
    Order,
    Plan,
    SymbolInput,
    TensorInput,
    TensorResult,
)

S0 = Sym("s0", 2)
U0 = Sym("u0", 0, of_atom(S0) * 4)
s0, u0 = of_atom(S0), of_atom(U0)
HALF = Sym("calc0", -(2**63), None, Apply("bits", (Apply("mul", (s0, 0.5)),)))
LATE = Sym("calc1", 0, s0, Apply("either", (Apply("lt", (u0, 3)), s0 - 1, 0)))
half, late = of_atom(HALF), of_atom(LATE)


def everything() -> Plan:
    return Plan(
        name="every thing",
        symbols=(S0, U0, HALF, LATE),
        inputs=(
            SymbolInput("s0"),
            TensorInput('the "x"', F32, (s0, 4), (4, 1)),
            TensorInput("weight", BF16, (8, 4), (4, 1), InputRole.PARAM),
            TensorInput("cache", F32, (4,), (1,), InputRole.BUFFER, True),
        ),
        buffers=(
            BufferSpec("input", F32, (s0, 4), (4, 1), 1),
            BufferSpec("input", BF16, (8, 4), (4, 1), 2),
            BufferSpec("packed", BF16, (4, 8), (8, 1)),
            BufferSpec("arena", F32, (s0 // 2, 4), (4, 1), -1, 64),
            BufferSpec("arena", F32, (4,), (1,), -1, 0),
            BufferSpec("tensor", F32, (s0, 4), (4, 1)),
            BufferSpec("tensor", I64, (u0, 1), (1, 1)),
            BufferSpec("input", F32, (4,), (1,), 3),
            BufferSpec("tensor", BOOL, (), ()),
            BufferSpec("view", F32, (4,), (1,)),
            BufferSpec("view", F32, (2,), (1,)),
        ),
        prepare=(Launch("pack", (1, 2), (), 4, 0, 100),),
        steps=(
            Launch("square", (0, 2, 3, -1), (s0, s0 * 4 + 1), s0 // 2, 256, s0 * 10),
            Launch("other", (3, 4, 5, 7), (), 1, 0, 5, order=Order.BESIDE),
            AtenCall(
                "aten.nonzero.default", (("tensor", 5),), (), (6,), (("u0", 0, 0),), "model.py:3"
            ),
            AtenCall(
                "aten.made_up.default",
                (
                    ("tensor", 6), ("list", ("tensor", 5), None, ("dim", "u0*4")), True, -3, 1.5,
                    float("inf"), "text", ("list",), ("dtype", "f32"), ("float", "calc0"),
                    ("bool", "s0-2"), ("tuple", ("tensor", 5), ("tuple",)), ("body", "body_1"),
                    ("single", "body_2"),
                ),
                (
                    ("device", ("device", "cpu")), ("layout", ("layout", "strided")),
                    ("memory_format", ("memory_format", "contiguous_format")),
                    ("operator", ("operator", "aten.sin.default")), ("z", ("complex", "(-0+1j)")),
                ),
                (-1, 8),
            ),
            AtenCall("aten.no_result.default", (), (), ()),
        ),
        results=(
            TensorResult(5), None, DimResult(s0 * 3), TensorResult(8), TensorResult(0),
            TensorResult(10), DimResult(half, "float"), DimResult(late),
        ),
        kernels=(
            KernelRef("pack", "Pack", "abc", ("permute", "cast"), "model.py:1"),
            KernelRef("square", "Square", ""),
            KernelRef("other", "Other", "", ("mul",)),
        ),
        arena_bytes=s0 * 16 + 64,
        checks=("index out of range",),
        views=(
            AtenCall("aten.select.int", (("tensor", 5), 0, ("dim", "s0-1")), (), (9,)),
            AtenCall("aten.split.Tensor", (("tensor", 9), 2), (), (-1, 10), (), "model.py:5"),
        ),
    )  # fmt: skip
