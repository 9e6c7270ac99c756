"""The inner loops of AArch64's products, as assembly text: `--update-golden` writes them anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmill.core.dtype import BF16, F32, I8, I32, DType
from kernelmill.core.target.machine import PROFILES
from tests.unit.lower.templates.matmul.inner_loops import kernel_of, loops
from tests.unit.lower.templates.matmul.test_tiled import product


@pytest.mark.parametrize(
    ("dtype", "sums", "target", "word"),
    [
        (F32, F32, "aarch64-neon", "fmla"), (I8, I32, "aarch64-v8.2-dotprod", "sdot"),
        (I8, I32, "aarch64-v8.6", "smmla"), (BF16, F32, "aarch64-v8.6", "bfmmla"),
    ],
    ids=["fmla", "sdot", "smmla", "bfmmla"],
)  # fmt: skip
def test_products(
    dtype: DType, sums: DType, target: str, word: str, golden: Callable[[str, str], None]
) -> None:
    machine = PROFILES[target]
    kernel = kernel_of(product(dtype, sums, "b", "b")(128, 768, 768), machine)
    golden(f"codegen/{word}.s", "\n".join([*loops(kernel, word, machine)[0], ""]))
