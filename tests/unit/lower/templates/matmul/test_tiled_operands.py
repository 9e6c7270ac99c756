"""Operands of products on tiles: weights that are computed, those of experts, operands in planes,
and bytes of either sign."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from kernelmill.core.dim import Dim
from kernelmill.core.dtype import BF16, F32, I32, DType, to_torch
from kernelmill.core.target.dot_units import TILE_BF16, TILE_BYTES, DotUnit
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.ir import Value
from kernelmill.kernel.verifier import verify_kernel
from kernelmill.lower.elements.axes import Dims, part_count
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.templates.matmul.schedule import plan_contraction
from kernelmill.lower.templates.matmul.spec import Contraction, Operand, Planes
from kernelmill.lower.templates.matmul.tiled import Tiled
from kernelmill.lower.weights.dot_operand import DotOperand
from tests.unit.codegen.native import Native
from tests.unit.lower.for_tiles import AMX, agrees, texts
from tests.unit.lower.templates.matmul.test_grouped import COUNTS, arguments, products
from tests.unit.lower.weights.test_dequantise import KINDS, Kind, linear, packed

# ---- weights --------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [20, 33])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_smaller_numbers_are_computed_into_tiles(kind: Kind, m: int) -> None:
    graph, given = linear(kind, m, 50, 64, BF16)
    made = agrees(graph, *given)
    # Nibbles of one of the kinds come in words.
    assert len(made.plan.steps) == 1 and {"i8", "u8", "i32"} & set(packed(made))


def test_the_interpreter_computes_a_weight_of_nibbles_too() -> None:
    graph, given = linear(KINDS[-1], 18, 50, 64, BF16)
    agrees(graph, *given, interpret=True)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_experts(counts: tuple[int, ...], turned: bool) -> None:
    """Their weights are packed in tiles one after the other; rows of nothing are zeros."""
    made = agrees(
        products(BF16, turned=turned, followed=True),
        *arguments(counts, BF16, turned=turned, followed=True),
        interpret=turned,
    )
    assert made.plan.prepare and "GroupedMatMul" in texts(made)


# ---- planes and signs -----------------------------------------------------------------------


class Planar:
    """C = sum over pairs of A's and B's planes of their product, rows of both along k."""

    def __init__(
        self, unit: DotUnit, sizes: tuple[int, int, int], pairs: tuple[tuple[int, int], ...]
    ):
        self.unit, self.pairs = unit, pairs
        self.m, self.n, self.k = sizes
        planes = 1 + max(max(pair) for pair in pairs)
        self.a = [self._numbers(unit.a, self.m, seed) for seed in range(planes)]
        self.b = [self._numbers(unit.b, self.n, seed + 9) for seed in range(planes)]
        self.builder = KernelBuilder("planes", "MatMul")

    def _numbers(self, dtype: DType, outer: int, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        low, high = (-4, 5) if dtype == BF16 else (0, 256) if dtype.kind == "uint" else (-128, 128)
        numbers = torch.randint(low, high, (outer, self.k), generator=generator)
        return numbers.to(to_torch(dtype))

    def _operand(self, name: str, dtype: DType) -> Operand:
        def load(_: Dims, outer: Dim, k: Dims, lane: Lane | None) -> Value:
            assert lane is not None
            index = outer * self.k + k[-1] - lane.index
            return self.builder.load(name, index, dtype, lane.count, lane.mask)

        return Operand(DotOperand(dtype, self.k, load).loader, "k")

    def _store(self, b: KernelBuilder, _: Dims, m: Dim, n: Dim, lane: Lane, sums: Value) -> None:
        b.store("c", m * self.n + n - lane.index, sums, lane.mask)

    def results(self) -> tuple[np.ndarray, np.ndarray]:
        """By the interpreter, and by machine code."""
        memory: dict[str, np.ndarray] = {}
        for letter, planes, dtype in (("a", self.a, self.unit.a), ("b", self.b, self.unit.b)):
            for number, plane in enumerate(planes):
                self.builder.buffer(f"{letter}{number}", dtype, plane.numel(), "in")
                bits = plane.view(torch.uint16) if dtype == BF16 else plane
                memory[f"{letter}{number}"] = bits.flatten().numpy()
        self.builder.buffer("c", self.unit.sum, self.m * self.n, "out")
        a, b = (
            tuple(self._operand(f"{letter}{n}", dtype) for n in range(len(self.a)))
            for letter, dtype in (("a", self.unit.a), ("b", self.unit.b))
        )
        spec = Contraction(
            (), self.m, self.n, (part_count(self.k, self.unit.group),), a[0], b[0],
            self.unit.sum, self._store, self.unit, split=Planes(a, b, self.pairs),
        )  # fmt: skip
        schedule = plan_contraction(spec, AMX)
        assert isinstance(schedule, Tiled)
        schedule.emit_kernel(self.builder, spec)
        kernel = self.builder.kernel
        verify_kernel(kernel)
        assert isinstance(kernel.tasks, int) and isinstance(kernel.scratch, int)
        found: list[np.ndarray] = []
        tasks, scratch = kernel.tasks, kernel.scratch
        runs: list[Callable[[Mapping[str, np.ndarray]], None]] = [
            partial(run_kernel, kernel),
            partial(Native(kernel), tasks=(0, tasks), scratch=scratch),
        ]
        for run in runs:
            result = np.zeros(self.m * self.n, np.float32 if self.unit.sum == F32 else np.int32)
            run({**memory, "c": result})
            found.append(result.reshape(self.m, self.n))
        return found[0], found[1]

    def expected(self) -> np.ndarray:
        """In whole numbers."""
        sums = sum(self.a[i].long() @ self.b[j].long().T for i, j in self.pairs)
        assert isinstance(sums, Tensor)
        return sums.numpy()


@pytest.mark.parametrize("sizes", [(1, 1, 1), (20, 40, 70), (33, 17, 64), (16, 70, 130)])
@pytest.mark.parametrize("unit", TILE_BYTES, ids=lambda unit: unit.name)
def test_bytes_of_all_signs(unit: DotUnit, sizes: tuple[int, int, int]) -> None:
    case = Planar(unit, sizes, ((0, 0),))
    for result in case.results():
        np.testing.assert_array_equal(result, case.expected())
    assert unit.sum == I32


SIX = ((0, 2), (2, 0), (1, 1), (0, 1), (1, 0), (0, 0))
"""Products of three pieces each, the small ones first."""


@pytest.mark.parametrize("sizes", [(1, 1, 1), (20, 40, 70), (33, 17, 64), (70, 33, 900)])
@pytest.mark.parametrize("pairs", [((1, 0), (0, 1), (0, 0)), SIX], ids=len)
def test_products_of_planes_are_added(
    sizes: tuple[int, int, int], pairs: tuple[tuple[int, int], ...]
) -> None:
    case = Planar(TILE_BF16, sizes, pairs)
    for result in case.results():
        np.testing.assert_array_equal(result, case.expected())
