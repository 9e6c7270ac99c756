"""Every rule of plans, broken once."""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from kernelmill.core.dim import Sym
from kernelmill.core.dtype import F32, InputRole
from kernelmill.core.errors import VerificationError
from kernelmill.plan.ir import (
    AtenCall,
    BufferSpec,
    KernelRef,
    Launch,
    Order,
    Plan,
    SymbolInput,
    TensorInput,
    TensorResult,
)
from kernelmill.plan.verifier import verify_plan
from tests.unit.plan.plans import HALF, LATE, S0, U0, everything, s0, u0


def with_buffer(number: int, **changes: object) -> Plan:
    plan = everything()
    buffers = list(plan.buffers)
    buffers[number] = replace(buffers[number], **changes)
    return replace(plan, buffers=tuple(buffers))


def with_input(number: int, entry: TensorInput | SymbolInput) -> Plan:
    plan = everything()
    inputs = list(plan.inputs)
    inputs[number] = entry
    return replace(plan, inputs=tuple(inputs))


def other(order: Order) -> Launch:
    """The second launch, in another order."""
    return replace(cast(Launch, everything().steps[1]), order=order)


def with_step(number: int, step: Launch | AtenCall) -> Plan:
    plan = everything()
    steps = list(plan.steps)
    steps[number] = step
    return replace(plan, steps=tuple(steps))


def with_prepare(launch: Launch) -> Plan:
    return replace(everything(), prepare=(*everything().prepare, launch))


def with_views(*views: AtenCall) -> Plan:
    return replace(everything(), views=views)


def aten(*args: object, results: tuple[int, ...] = (), binds: object = ()) -> AtenCall:
    return AtenCall("aten.x.default", args, (), results, binds)  # type: ignore[arg-type]


BROKEN: dict[str, tuple[Callable[[], Plan], str]] = {
    "kernel twice": (
        lambda: replace(everything(), kernels=(KernelRef("a", "A", ""), KernelRef("a", "B", ""))),
        "two kernels",
    ),
    "symbol twice": (
        lambda: replace(everything(), symbols=(Sym("s0"), Sym("s0"))), "two symbols",
    ),
    "computed symbol before what it needs": (
        lambda: replace(everything(), symbols=(HALF, S0, U0, LATE)), "before one that it needs",
    ),
    "kernel name": (
        lambda: replace(everything(), kernels=(KernelRef("a b", "A", ""),)), "'a b' is no name",
    ),
    "symbol given twice": (
        lambda: replace(everything(), inputs=(SymbolInput("s0"), SymbolInput("s0"))),
        "two arguments give",
    ),
    "unknown symbol input": (lambda: with_input(0, SymbolInput("s9")), "symbol s9 is not one"),
    "unknown role": (
        lambda: with_input(2, TensorInput("w", F32, (), (), cast(InputRole, "guest"))),
        "role 'guest'",
    ),
    "rank of an input": (
        lambda: with_input(2, TensorInput("w", F32, (2,), ())), "one stride for each size",
    ),
    "kind": (lambda: with_buffer(2, kind="shelf"), "kind 'shelf'"),
    "rank of a buffer": (lambda: with_buffer(2, strides=()), "one stride for each size"),
    "source": (lambda: with_buffer(0, source=9), "argument 9 is no tensor"),
    "source is a symbol": (lambda: with_buffer(0, source=0), "argument 0 is no tensor"),
    "packed and symbolic": (lambda: with_buffer(2, shape=(s0, 8)), "constant shape"),
    "misplaced in the arena": (lambda: with_buffer(4, offset=8), "offset 8 is not a multiple"),
    "outside of the arena": (
        lambda: replace(with_buffer(3, shape=(4,), strides=(1,)), arena_bytes=64),
        "16 bytes behind the arena's end",
    ),
    "gaps in the arena": (
        lambda: with_buffer(3, shape=(4,), strides=(3,)),
        "it has gaps: 4 elements, the last in place 10",
    ),
    "arena needs a late symbol": (
        lambda: with_buffer(4, shape=(u0,)), "symbol u0 has no value yet",
    ),
    "prepare reads an argument of the user's": (
        lambda: with_prepare(Launch("pack", (0, 2), (), 1, 0, 1)), "no parameter",
    ),
    "prepare uses the arena": (
        lambda: with_prepare(Launch("pack", (4, 2), (), 1, 0, 1)), "neither an argument nor",
    ),
    "prepare makes nothing": (
        lambda: with_prepare(Launch("pack", (1,), (), 1, 0, 1)), "makes no packed buffer",
    ),
    "prepare with symbols": (
        lambda: with_prepare(Launch("pack", (1, 2), (), s0, 0, 1)), "before symbols have values",
    ),
    "kernel unknown": (
        lambda: with_step(0, Launch("nobody", (), (), 1, 0, 1)), "kernel nobody is not one",
    ),
    "no such buffer": (
        lambda: with_step(0, Launch("square", (99,), (), 1, 0, 1)), "no buffer %99",
    ),
    "negative buffer": (
        lambda: with_step(0, Launch("square", (-2,), (), 1, 0, 1)), "no buffer %-2",
    ),
    "status without messages": (
        lambda: replace(everything(), checks=()), "no messages",
    ),
    "late symbol in a launch": (
        lambda: with_step(0, Launch("square", (0,), (u0,), 1, 0, 1)), "u0 has no value yet",
    ),
    "behind one of other tasks": (
        lambda: with_step(1, other(Order.BEHIND)), "not the tasks of the",
    ),
    "too many side by side": (
        lambda: replace(everything(), steps=(other(Order.BESIDE),) * 9), "more than 8",
    ),
    "packed by nobody": (lambda: replace(everything(), prepare=()), "made by no prepare step"),
    "aten in the arena": (lambda: with_step(2, aten(("tensor", 3))), "is in the arena"),
    "aten reads nothing": (lambda: with_step(0, aten(("tensor", 5))), "no contents yet"),
    "aten reads no buffer": (lambda: with_step(2, aten(("list", ("tensor", 70)))), "no buffer %70"),
    "aten with an unknown symbol": (lambda: with_step(2, aten(("dim", "s7"))), "not 's7'"),
    "aten writes an argument": (lambda: with_step(2, aten(results=(0,))), "no tensor of its own"),
    "binds an unknown symbol": (
        lambda: with_step(2, aten(binds=(("u7", 0, 0),))), "symbol u7 is not one",
    ),
    "binds from nothing": (
        lambda: with_step(2, aten(binds=(("u0", 3, 0),))), "no result 3 to bind u0 from",
    ),
    "result in the arena": (
        lambda: replace(everything(), results=(TensorResult(4),)), "neither an argument nor",
    ),
    "result nobody writes": (
        lambda: replace(
            everything(),
            buffers=(*everything().buffers, BufferSpec("tensor", F32, (), ())),
            results=(TensorResult(11),),
        ),
        "no step writes %11",
    ),
    "view of the arena": (lambda: with_views(aten(("tensor", 3), results=(9,))), "is in the arena"),
    "view of two": (
        lambda: with_views(aten(("tensor", 5), ("tensor", 6), results=(9,))), "of one tensor",
    ),
    "view into a tensor": (lambda: with_views(aten(("tensor", 5), results=(8,))), "no view"),
    "view that binds": (
        lambda: with_views(aten(("tensor", 5), results=(9,), binds=(("u0", 0, 0),))), "no symbol",
    ),
    "view before its base": (lambda: with_views(*everything().views[1:]), "no contents"),
    "view nobody makes": (lambda: with_views(), "no step writes %10"),
    "symbol without a value": (
        lambda: replace(everything(), symbols=(Sym("s5"), *everything().symbols)),
        "nothing gives symbol s5",
    ),
}  # fmt: skip


def test_a_sound_plan_passes() -> None:
    verify_plan(everything())


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_found(rule: str) -> None:
    make, message = BROKEN[rule]
    with pytest.raises(VerificationError) as caught:
        verify_plan(make(), "lowering")
    assert message in str(caught.value)
    assert str(caught.value).startswith("after lowering: plan every thing: ")
