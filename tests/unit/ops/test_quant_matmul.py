"""quant_matmul: its formula, eager, traced and compiled; what it refuses."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import kernelmill
from kernelmill.ops import quant_matmul

QUANT_MATMUL = torch.ops.kernelmill.quant_matmul.default


def int8(*shape: int) -> torch.Tensor:
    return torch.randint(-128, 128, shape, dtype=torch.int8)


def case(
    m: int, k: int, n: int, seed: int = 0, **wanted: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    torch.manual_seed(seed)
    scale = torch.randn(n) * 1e-3
    options: dict[str, Any] = {
        "pertoken_scale": torch.rand(m), "bias": torch.randn(n), "offset": torch.randn(n) * 9,
        "int_bias": torch.randint(-999, 999, (n,), dtype=torch.int32),
    }  # fmt: skip
    chosen = {name: options[name] for name, on in wanted.items() if on is True}
    chosen |= {name: value for name, value in wanted.items() if not isinstance(value, bool)}
    if "int_bias" in chosen:
        chosen["bias"] = chosen.pop("int_bias")
    return (int8(m, k), int8(k, n), scale), chosen


FORMS: list[dict[str, Any]] = [
    {},
    {"offset": True, "int_bias": True},
    {"offset": True, "pertoken_scale": True},
    {"output_dtype": torch.bfloat16, "pertoken_scale": True, "bias": True},
    {"output_dtype": torch.float16, "pertoken_scale": True, "int_bias": True},
    {"output_dtype": torch.float32, "bias": True},
]


def reference(
    x1: torch.Tensor, x2: torch.Tensor, scale: torch.Tensor, *, offset: Any = None,
    pertoken_scale: Any = None, bias: Any = None, output_dtype: torch.dtype | None = None,
) -> torch.Tensor:  # fmt: skip
    """The formula of the operator, in its order."""
    result = torch.matmul(x1.to(torch.int32), x2.to(torch.int32))
    exact = bias is not None and bias.dtype == torch.int32
    result = (result + bias if exact else result).float() * scale.float()
    if pertoken_scale is not None:
        result = result * pertoken_scale[..., None]
    if bias is not None and not exact:
        result = result + bias.float()
    if offset is not None:
        result = result + offset
    if output_dtype in (None, torch.int8):
        return result.round().clamp(-128, 127).to(torch.int8)
    return result.to(output_dtype)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(form) or "plain")
@pytest.mark.parametrize("sizes", [(1, 64, 33), (7, 33, 18), (70, 5, 100), (3, 0, 4), (0, 3, 4)])
def test_eager_and_compiled_are_the_reference(
    sizes: tuple[int, int, int], form: dict[str, Any]
) -> None:
    args, options = case(*sizes, **form)
    wanted = reference(*args, **options)
    assert torch.equal(quant_matmul(*args, **options), wanted)

    def model(*args: torch.Tensor) -> torch.Tensor:
        return quant_matmul(*args, **options)

    compiled = torch.compile(model, backend=kernelmill.get_backend(), fullgraph=True)
    assert torch.equal(compiled(*args), wanted)


def test_compiled_it_leaves_nothing_to_aten() -> None:
    args, options = case(9, 40, 50, pertoken_scale=True, output_dtype=torch.bfloat16)
    report = kernelmill.explain(lambda *args: quant_matmul(*args, **options), *args)
    assert "ATen" not in str(report) and "1 kernel (" in str(report)


@pytest.mark.parametrize("bias", [(6,), (4, 1, 6)])
def test_batches_broadcast(bias: tuple[int, ...]) -> None:
    x1, x2, scale = int8(1, 5, 8), int8(4, 8, 6), torch.rand(1)
    added = torch.randint(-99, 99, bias, dtype=torch.int32)
    wanted = reference(x1, x2, scale, bias=added)
    assert wanted.shape == (4, 5, 6)
    assert torch.equal(quant_matmul(x1, x2, scale, bias=added), wanted)
    compiled = torch.compile(quant_matmul, backend=kernelmill.get_backend(), fullgraph=True)
    assert torch.equal(compiled(x1, x2, scale, bias=added), wanted)


def test_int8_results_round_to_even_and_clamp() -> None:
    x1 = torch.tensor([[1], [3], [5], [127], [-127]], dtype=torch.int8)
    x2 = torch.tensor([[1, 127]], dtype=torch.int8)
    found = quant_matmul(x1, x2, torch.tensor([0.5]))
    assert found.tolist() == [[0, 64], [2, 127], [2, 127], [64, 127], [-64, -128]]


def test_a_linear_layer_over_three_dims() -> None:
    x1, x2, scale = int8(2, 3, 16), int8(16, 5), torch.rand(5)
    token = torch.rand(3)
    wanted = reference(x1, x2, scale, pertoken_scale=token, output_dtype=torch.float32)
    found = quant_matmul(x1, x2, scale, pertoken_scale=token, output_dtype=torch.float32)
    assert torch.equal(found, wanted)


def test_it_is_a_whole_custom_operator() -> None:
    args, options = case(4, 6, 5, pertoken_scale=True, output_dtype=torch.bfloat16)
    assert set(torch.library.opcheck(QUANT_MATMUL, args, options).values()) == {"SUCCESS"}


def test_it_is_exported_as_one_operator_and_taken_apart_when_asked() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            return quant_matmul(x, w, scale)

    args, _ = case(4, 6, 5)
    exported = torch.export.export(Model(), args)
    assert torch.equal(exported.module()(*args), reference(*args))
    assert "_int_mm" in exported.run_decompositions().graph_module.code


X, W, S = int8(3, 4), int8(4, 5), torch.rand(5)
BAD: list[tuple[tuple[torch.Tensor, ...], dict[str, Any], str]] = [
    ((X.float(), W, S), {}, "x1 must be int8"),
    ((X, W.int(), S), {}, "x2 must be int8"),
    ((X[0], W, S), {}, "2 to 6 dims"),
    ((X, W.T, S), {}, "does not fit: (3, 4) and (5, 4)"),
    ((X, W, S[:3]), {}, "scale must have 1 or 5 elements"),
    ((X, W, S.double()), {}, "scale must be float32 or bfloat16"),
    ((X, W, S), {"output_dtype": torch.int32}, "output_dtype torch.int32 is none of"),
    ((X, W, S), {"offset": S, "output_dtype": torch.float16}, "offset is for int8"),
    ((X, W, S), {"pertoken_scale": S}, "pertoken_scale must be float32 (3,)"),
    ((X, W, S), {"bias": torch.rand(3)}, "bias must be (5,)"),
    ((X, W, S), {"bias": torch.rand(5).double()}, "bias is torch.float64"),
    ((X, W, S), {"bias": torch.rand(1, 1, 5)}, "bias must be (5,)"),
]


@pytest.mark.parametrize(("args", "options", "message"), BAD, ids=[bad[2] for bad in BAD])
def test_it_says_what_does_not_fit(
    args: tuple[torch.Tensor, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(kernelmill.InputError, match=re.escape(message)):
        quant_matmul(*args, **options)
