"""The one table of tolerances: how far compiled code may be from eager, by dtype.

Integers and bools are exact. A result outside the table is still right when it is no further from
the float64 answer than eager is: `assert_close` takes that answer as `exact`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

TABLE: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-11, 1e-11),
    torch.float32: (2e-5, 1e-5),
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (1.6e-2, 1.6e-2),
    torch.complex128: (1e-11, 1e-11),
    torch.complex64: (2e-5, 1e-5),
    torch.complex32: (2e-3, 2e-3),
}
"""dtype: (relative, absolute). Models and operators alike."""

EXACT_SLACK = 2.0
"""How many times eager's own error a result may have, measured against the float64 answer."""


def tolerance(dtype: torch.dtype) -> tuple[float, float]:
    """(relative, absolute); (0, 0) for integers and bool."""
    return TABLE.get(dtype, (0.0, 0.0))


def mismatch(actual: Tensor, expected: Tensor, exact: Tensor | None = None) -> str | None:
    """What is wrong with `actual` compared with eager's `expected`; None when nothing is.

    Looks at dtype, shape and values; NaN equals NaN. `exact` is the float64 answer.
    """
    if actual.dtype != expected.dtype:
        return f"dtype {actual.dtype} instead of {expected.dtype}"
    if actual.shape != expected.shape:
        return f"shape {tuple(actual.shape)} instead of {tuple(expected.shape)}"
    rtol, atol = tolerance(expected.dtype)
    try:
        torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        if exact is not None and _as_good_as_eager(actual, expected, exact, rtol, atol):
            return None
        return " ".join(str(error).split())
    return None


def _as_good_as_eager(
    actual: Tensor, expected: Tensor, exact: Tensor, rtol: float, atol: float
) -> bool:
    if not expected.dtype.is_floating_point or exact.shape != expected.shape:
        return False
    finite = torch.isfinite(exact) & torch.isfinite(expected)
    if not torch.equal(torch.isfinite(actual) & torch.isfinite(exact), finite):
        return False
    eager_error = (expected.double() - exact).abs()[finite]
    error = (actual.double() - exact).abs()[finite]
    allowed = EXACT_SLACK * eager_error.max() + atol + rtol * exact.abs()[finite]
    return bool((error <= allowed).all())


def tensors(tree: Any) -> list[Tensor]:
    """The tensors in a nested result, in order."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def assert_close(actual: Any, expected: Any, exact: Any = None) -> None:
    """Fails when any tensor of the nested `actual` differs from that of `expected`."""
    ours, eager = tensors(actual), tensors(expected)
    answers = tensors(exact) if exact is not None else [None] * len(eager)
    assert len(ours) == len(eager), f"{len(ours)} tensors instead of {len(eager)}"
    for number, (mine, theirs, answer) in enumerate(zip(ours, eager, answers, strict=True)):
        wrong = mismatch(mine.detach(), theirs.detach(), answer)
        assert wrong is None, f"result {number}: {wrong}"


def assert_near(actual: Tensor, expected: Tensor) -> None:
    """Fails when any element differs by more than the relative tolerance of the largest one.

    For sums over many layers: what elements of a row have lost goes with the numbers that were
    added up, and not with what is left where these cancel.
    """
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    largest = float(expected.abs().max())
    rtol, _ = tolerance(expected.dtype)
    torch.testing.assert_close(actual, expected, rtol=0, atol=rtol * largest)
