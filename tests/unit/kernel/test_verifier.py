"""What the kernel verifier refuses, and how it says so."""

from __future__ import annotations

import pytest

from kernelmill.core.dtype import BY_NAME, F32
from kernelmill.core.errors import VerificationError
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Buffer, Store, Value, VType
from kernelmill.kernel.text import parse_kernel
from kernelmill.kernel.verifier import verify_kernel

PRELUDE = """
kernel k(x: f32[s0] in, i: i32[64] in, y: f32[s0] out, z: bf16[8] inout) dims(s0) tasks(s0) {
  %x: f32x8 = load x[task]
  %i: i32x8 = load i[task]
  %n: i64 = index(<s0-task>)
  %m: boolx8 = lane_mask(%n)
  %h: bf16x4 = load z[0]
  %s: f32 = extract(%x, 0)
  %a: tile<4x8xbf16> = tile_load z[0] stride 8
  %b: tile<4x32xbf16> = tile_load z[0] stride 32
  %t: tile<4x16xf32> = tile_zero()
"""


def verify(body: str) -> None:
    verify_kernel(parse_kernel(PRELUDE + body + "\n}"))


@pytest.mark.parametrize(
    "body",
    [
        "%0: f32x8 = add(%x, %s)",
        "%0: f32x8 = fma(%x, 2, -0.5)",
        "%0: i32x8 = shl(%i, 3)",
        "%0: boolx8 = and(%m, true)",
        "%0: boolx8 = lt(1.0, %x)",
        "%0: bf16x4 = select(false, %h, 1.0)",
        "%0: i16x4 = bitcast(%h)",
        "%0: f64x8 = cast(%s)",
        '%0: i8x4 = cast(%h) {outside="nearest"}',
        '%0: tile<4x16xf32> = tile_dot(%a, %b, %t) {unit="tile_bf16"}',
        "%0 = for j = 0 to 2 step 1 carry (%1: tile<4x16xf32> = %t) { yield %1 }",
        "tile_store y[0], %t stride s0",
        "%0: bool = reduce_max(%m)",
        "%0: f32x3 = slice(%x) {start=5}",
        "%0: f32 = extract(%x, %n)",
        "%0: f32x8 = load x[task] mask %m stride -1",
        "%0: f32x8 = gather x[0 + %i] mask %m",
        "scatter y[task + %i], %s mask %m",
        "prefetch y[s0*1000]",
        "%0 = for j = 0 to s0 step 2 carry (%1: f32x8 = 0.0) { yield %s }",
        "%0 = repeat carry (%1: f32 = 0.0) { %2: bool = lt(%1, %s) yield %s } while %2",
        "for j = 0 to 4 step 1 { let p = %n in [0, 3] store y[p+j], %s }",
        "%c: bool = lt(%n, 3) %0: f32 = if %c { yield 1.0 } else { yield %s }",
    ],
)
def test_right_statements_pass(body: str) -> None:
    verify(body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("%0: f32x8 = plus(%x, %x)", "no operator 'plus'"),
        ("repeat { %0: boolx8 = lt(%x, %s) } while %0", "%0 is no scalar bool"),
        ("repeat { for j = 0 to 4 step 1 { %0: bool = lt(%s, 1.0) } } while %0", "not in scope"),
        ("%0 = repeat carry (%1: f32 = 0.0) { %2: bool = lt(%1, %s) } while %2", "in number"),
        ("%0 = repeat carry (%1: f32 = 0.0) { %2: bool = lt(%1, %s) yield %x } while %2", "f32x8"),
        ("%0: f32x8 = add(%x)", "add takes 2 operands, not 1"),
        ("%0: f64x8 = add(%x, %x)", "%x is f32x8, not f64x8"),
        ("%0: f32x4 = add(%x, %x)", "%x is f32x8, not f32x4"),
        ("%0: bf16x4 = add(%h, %h)", "add does not work on bf16"),
        ("%0: boolx8 = add(%m, %m)", "add does not work on bool"),
        ("%0: i32x8 = sqrt(%i)", "sqrt does not work on i32"),
        ("%0: f32x8 = xor(%x, %x)", "xor does not work on f32"),
        ("%0: f32x8 = exp(%x) {fast=1}", "exp has no attribute fast"),
        ("%0: i32x8 = add(%i, 0.5)", "the literal 0.5 is no i32"),
        ("%0: i32x8 = add(%i, 2147483648)", "the literal 2147483648 is no i32"),
        ("%0: f32x8 = add(%x, true)", "a bool literal where f32x8 is wanted"),
        ("%0: boolx8 = and(%m, 1)", "the literal 1 where boolx8 is wanted"),
        ("%0: f32x8 = lt(%x, %x)", "the result is boolx8, not f32x8"),
        ("%0: boolx8 = lt(%x, %i)", "%i is i32x8, not f32x8"),
        ("%0: bool = lt(1.0, 2.0)", "lt needs a register"),
        ("%0: f32x8 = select(%x, %x, %x)", "%x is f32x8, not boolx8"),
        ("%0: f32x8 = select(%m, %x, %i)", "%i is i32x8, not f32x8"),
        ("%0: f64x8 = bitcast(%x)", "f32x8 has not the bits of f64x8"),
        ("%0: i8x16 = bitcast(%x)", "f32x8 has not the bits of i8x16"),
        ("%0: boolx32 = bitcast(%x)", "f32x8 has not the bits of boolx32"),
        ('%0: f32x8 = dot(%x, %x, %x) {unit="vnni"}', "vnni gives i32, not f32"),
        ('%0: i32x8 = dot(%i, %i, %x) {unit="bf16_pairs"}', "bf16_pairs gives f32, not i32"),
        ('%0: f32x8 = dot(%x, %i, %x) {unit="bf16_pairs"}', "%x is f32x8, not i32x8"),
        ('%0: i32x8 = dot(%i, %x, %i) {unit="vnni"}', "%x is f32x8, not i32x8"),
        ('%0: i32x8 = dot(%i, %i, %i) {unit="smmla"}', "smmla gives 4 sums, not 8"),
        ('%0: i32x4 = dot(%i, %i, %i) {unit="smmla"}', "%i is i32x8, not i64x2"),
        ("%0: i32x8 = dot(%i, %i, %i)", "dot needs a unit of core/target/dot_units.py, not None"),
        ('%0: i32x8 = dot(%i, %i, %i) {unit="abacus"}', "not 'abacus'"),
        ('%0: f32x8 = dot(%i, %i, %x) {unit="multiply_add"}', "takes no words of several numbers"),
        ('%0: i32x8 = dot(%i, %i, %i) {unit="tile_u8i8"}', "takes no words of several numbers"),
        ("%0: i32x8 = cast(%x)", 'what becomes of numbers outside of i32: "lowest" or "nearest"'),
        ('%0: u8x4 = cast(%h) {outside="zero"}', "what becomes of numbers outside of u8"),
        ('%0: f32x8 = cast(%i) {outside="lowest"}', "no i32 is outside of what f32 holds"),
        ('%0: boolx8 = cast(%x) {outside="lowest"}', "no f32 is outside of what bool holds"),
        ("%0: f64x4 = cast(%x)", "8 lanes cannot become 4"),
        ("%0: f32 = cast(1.0)", "cast needs a register"),
        ("%0: f32x8 = splat(%x)", "%x is f32x8, not f32"),
        ("%0: boolx8 = iota()", "iota does not work on bool"),
        ("%0: f32 = extract(%x, 8)", "lane 8 is not one of 8"),
        ("%0: f32x2 = reduce_add(%x)", "the result is f32, not f32x2"),
        ("%0: bool = reduce_add(%m)", "reduce_add does not work on bool"),
        ("%0: f32x12 = concat2(%x, %h)", "concat2 of f32 and bf16"),
        ("%0: f32x8 = concat2(%x, %x)", "the result is f32x16"),
        ("%0: f32x4 = slice(%x) {start=5}", "4 lanes from 5 are not inside f32x8"),
        ("%0: f32x4 = slice(%x)", "4 lanes from None"),
        ("%0: boolx8 = check(%m)", "check needs a buffer 'status'"),
        ("%0: tile<4x16xf32> = add(%t, %t)", "add takes no tiles"),
        ("%0: f32x8 = fma(%x, %x, %t)", "fma takes no tiles, and %t is one"),
        ("store y[0], %t", "%t is a tile: it takes tile_load and tile_store"),
        ("%0: tile<4x8xbf16> = load z[0]", "%0 is a tile"),
        ("tile_store y[0], %x stride 16", "%x is no tile"),
        ("tile_store z[0], %t stride 16", "buffer z holds bf16, not f32"),
        ("tile_store y[0], %t stride 0", "the stride is 0"),
        ("%0: tile<17x16xf32> = tile_zero()", "16 rows of up to 16 words"),
        ("%0: tile<4x17xf32> = tile_zero()", "16 rows of up to 16 words"),
        ("%0: tile<4x3xi8> = tile_zero()", "16 rows of up to 16 words"),
        ("%0: f32x8 = tile_zero()", "the result is a tile, not f32x8"),
        ('%0: tile<4x16xf32> = tile_dot(%a, %b, %t) {unit="vnni"}', "vnni takes no tiles"),
        (
            '%0: tile<4x16xf32> = tile_dot(%b, %b, %t) {unit="tile_bf16"}',
            "%b is tile<4x32xbf16>, no",
        ),
        (
            '%0: tile<4x16xf32> = tile_dot(%a, %a, %t) {unit="tile_bf16"}',
            "%a is tile<4x8xbf16>, not",
        ),
        (
            '%0: tile<4x8xf32> = tile_dot(%a, %b, %t) {unit="tile_bf16"}',
            "%b is tile<4x32xbf16>, no",
        ),
        ('%0: tile<4x16xf32> = tile_dot(%a, %b, 0.0) {unit="tile_bf16"}', "the literal 0.0"),
        ("%0 = for j = 0 to 2 step 1 carry (%1: tile<4x16xf32> = %x) { yield %1 }", "%x is f32x8"),
        ("%0: f32 = load q[0]", "there is no buffer 'q'"),
        ("%0: f64 = load x[0]", "buffer x holds f32, not f64"),
        ("%0: f32 = load y[0]", "buffer y is declared 'out' and is read"),
        ("store x[0], %s", "buffer x is declared 'in' and is written"),
        ("store y[0], %h", "buffer y holds f32, not bf16"),
        ("store y[0], %x stride 0", "the stride is 0"),
        ("store y[0], %x mask %i", "%i is i32x8, not boolx8"),
        ("%0: f32x4 = load x[0] mask %m", "%m is boolx8, not boolx4"),
        ("%0: f32 = load scratch[0]", "no scratch memory"),
        ("prefetch w[0]", "no buffer 'w'"),
        ("%0: f32x8 = gather x[0 + %x]", "offsets are i64 or i32, not f32x8"),
        ("%0: f32x4 = gather x[0 + %i]", "8 offsets for 4 lanes"),
        ("scatter z[0 + %i], %h", "8 offsets for bf16x4"),
        ("let p = %s", "%s is f32, not i64"),
        ("let s0 = %n", "symbol s0 is bound twice"),
        ("let task = %n", "symbol task is bound twice"),
        ("for j = 0 to 4 step 0 { }", "the step is 0"),
        ("for j = 0 to s0 step 1 unroll { }", "an unrolled loop has constant bounds"),
        ("for j = 0 to 4 step 1 { for j = 0 to 4 step 1 { } }", "symbol j is bound twice"),
        ("for j = 0 to 4 step 1 { yield 1 }", "differ in number"),
        ("%0 = for j = 0 to 4 step 1 carry (%1: f32 = 0.0) { }", "differ in number"),
        ("%0 = for j = 0 to 4 step 1 carry (%1: f32 = %x) { yield %1 }", "%x is f32x8, not f32"),
        ("%0 = for j = 0 to 4 step 1 carry (%1: f32 = 0.0) { yield %i }", "%i is i32x8, not f32"),
        ("for j = 0 to 4 step 1 { %1: f32 = neg(%s) } store y[0], %1", "%1 is not in scope here"),
        ("if %m { }", "%m is no scalar bool"),
        ("%c: bool = lt(%n, 3) %0: f32 = if %c { yield 1.0 }", "yields 0 values for 1"),
        ("%c: bool = lt(%n, 3) %0: i32 = if %c { yield 1 } else { yield 1.0 }", "1.0 is no i32"),
        ("%c: bool = lt(%n, 3) if %c { %1: f32 = neg(%s) } store y[0], %1", "not in scope here"),
    ],
)
def test_wrong_statements_are_refused(body: str, message: str) -> None:
    with pytest.raises(VerificationError, match=message.replace("(", r"\(")):
        verify(body)


def test_symbols_of_a_loop_end_with_it() -> None:
    kernel = parse_kernel(PRELUDE + "for j = 0 to 4 step 1 { store y[j], %s }\n}")
    loop = kernel.body[-1]
    kernel.body.append(loop.body[0])  # type: ignore[union-attr]
    with pytest.raises(VerificationError, match=r"`store y\[j\], %s`: symbol j of j is not in"):
        verify_kernel(kernel)


def test_registers_are_defined_before_their_use_and_once() -> None:
    b = KernelBuilder("k", "K")
    b.buffer("y", F32, 4, "out")
    stray = Value("stray", VType(F32))
    b.store("y", 0, stray)
    with pytest.raises(VerificationError, match="%stray is not defined"):
        verify_kernel(b.kernel)
    b.kernel.body.clear()
    b.op("splat", 1.0, dtype=F32, lanes=1)
    b.kernel.body.append(b.kernel.body[0])
    with pytest.raises(VerificationError, match="%0 is defined twice"):
        verify_kernel(b.kernel)


@pytest.mark.parametrize(
    ("buffer", "message"),
    [
        (Buffer("x", F32, 4, "in"), "two buffers are called 'x'"),
        (Buffer("scratch", F32, 4, "in"), "'scratch' is no name for a buffer"),
        (Buffer("status", F32, 1, "out"), "buffer status must be i64, not f32"),
        (Buffer("y", F32, 4, "read"), "access 'read'"),
        (Buffer("y", F32, 4, "inout", nontemporal=True), "buffer y: marks are for outputs"),
        (Buffer("y", F32, 4, "in", over=("x",)), "buffer y: marks are for outputs"),
        (Buffer("y", BY_NAME["c64"], 4, "in"), "no kernel works on c64"),
    ],
)
def test_buffers(buffer: Buffer, message: str) -> None:
    b = KernelBuilder("k", "K")
    b.buffer("x", F32, 4, "in")
    verify_kernel(b.kernel)
    b.kernel.buffers.append(buffer)
    with pytest.raises(VerificationError, match=message):
        verify_kernel(b.kernel)


def test_the_message_names_stage_kernel_and_statement() -> None:
    kernel = parse_kernel(
        "kernel k(y: f32[4] out) tasks(1) { %0: f32 = splat(1.0) store y[0], %0 }"
    )
    store = kernel.body[1]
    assert isinstance(store, Store)
    store.buffer = "x"
    with pytest.raises(VerificationError) as caught:
        verify_kernel(kernel, "lowering")
    assert str(caught.value) == (
        "after lowering: kernel k: in `store x[0], %0`: there is no buffer 'x'"
    )


def test_header() -> None:
    b = KernelBuilder("not a name", "K")
    with pytest.raises(VerificationError, match="'not a name' is no identifier"):
        verify_kernel(b.kernel)
    kernel = parse_kernel("kernel k(x: f32[s0] in) dims(s0) tasks(s0) {}")
    kernel.dims.clear()
    with pytest.raises(VerificationError, match="symbol s0 of s0 is not in scope"):
        verify_kernel(kernel)
