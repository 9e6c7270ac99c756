"""Dim expressions as machine code against `dim.evaluate`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill import codegen
from kernelmill.core.dim import (
    Dim,
    Sym,
    evaluate,
    floordiv,
    maximum,
    minimum,
    mod,
    of_atom,
    substitute,
)
from kernelmill.core.dtype import I64
from kernelmill.core.target.isa import host_isa
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.text import parse_kernel, print_kernel
from tests.emulation import emulator
from tests.machine_code import link
from tests.unit.codegen.native import Native

SYMBOLS = (Sym("a", 1, 50), Sym("b", -20, 20), Sym("c", 0, None))


def compiled(dims: Sequence[Dim], values: Sequence[int]) -> list[int]:
    image = codegen.dims_function("sizes", SYMBOLS, dims, host_isa())
    emulated = emulator()
    if emulated is not None:
        return emulated.dims(image, "sizes", values, len(dims))
    tracker, address = link(image, "sizes")
    pointer = ctypes.POINTER(ctypes.c_int64)
    function = ctypes.CFUNCTYPE(None, pointer, pointer)(address)
    out = (ctypes.c_int64 * len(dims))()
    function((ctypes.c_int64 * len(values))(*values), out)
    del tracker
    return list(out)


def leaves() -> st.SearchStrategy[Dim]:
    return st.integers(-9, 9) | st.sampled_from([of_atom(symbol) for symbol in SYMBOLS])


def grow(inner: st.SearchStrategy[Dim]) -> st.SearchStrategy[Dim]:
    divisors = st.sampled_from([1, 2, 3, 8, 13, of_atom(SYMBOLS[0])])
    return st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a - b, inner, inner),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(floordiv, inner, divisors),
        st.builds(mod, inner, divisors),
        st.builds(minimum, inner, inner),
        st.builds(maximum, inner, inner),
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.recursive(leaves(), grow, max_leaves=8), min_size=8, max_size=8),
    st.integers(1, 50),
    st.integers(-20, 20),
    st.integers(0, 1000),
)
def test_dims_function_equals_evaluate(dims: list[Dim], a: int, b: int, c: int) -> None:
    values = {"a": a, "b": b, "c": c}
    exact = [evaluate(dim, values) for dim in dims]
    wrapped = [(value + 2**63) % 2**64 - 2**63 for value in exact]
    assert compiled(dims, [a, b, c]) == wrapped


@settings(max_examples=40, deadline=None)
@given(st.recursive(leaves(), grow, max_leaves=8), st.integers(1, 50), st.integers(0, 300))
def test_indices_inside_loops_equal_evaluate(dim: Dim, a: int, c: int) -> None:
    builder = KernelBuilder("kernel", "Map")
    builder.kernel.dims += [SYMBOLS[0], SYMBOLS[2]]
    builder.buffer("y", I64, 27, "out")
    with (
        builder.loop(0, 3) as outer,
        builder.loop(-1, 2) as middle,
        builder.loop(0, 3) as inner,
    ):
        replaced = substitute(dim, {"b": middle.index})
        place = outer.index * 9 + (middle.index + 1) * 3 + inner.index
        value = replaced * 5 + replaced * inner.index + outer.index
        builder.store("y", place, builder.index(value))
    y = np.zeros((3, 3, 3), np.int64)
    Native(builder.kernel)({"y": y}, [a, c])
    for (i, j, k), got in np.ndenumerate(y):
        exact = evaluate(dim, {"a": a, "b": j - 1, "c": c})
        assert got == (exact * 5 + exact * k + i + 2**63) % 2**64 - 2**63


@settings(max_examples=80, deadline=None)
@given(st.recursive(leaves(), grow, max_leaves=8))
def test_code_does_not_depend_on_what_symbols_are_called(dim: Dim) -> None:
    # Printing calls them s0, s1, s2 and i0, which is another order than that of these names.
    later = {"a": Sym("z", 1, 50), "b": Sym("m", -20, 20), "c": Sym("c", 0, None)}
    dim = substitute(dim, {name: of_atom(symbol) for name, symbol in later.items()})
    builder = KernelBuilder("kernel", "Map")
    builder.kernel.dims += later.values()
    builder.buffer("y", I64, 4, "out")
    with builder.loop(0, 4, prefix="a") as loop:
        builder.store("y", loop.index, builder.index(dim * loop.index + loop.index % 3 + dim))
    read = parse_kernel(print_kernel(builder.kernel))
    assert codegen.llvm_ir(read, host_isa()) == codegen.llvm_ir(builder.kernel, host_isa())
