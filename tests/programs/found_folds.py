"""Programs that were wrong once in how they fold many numbers into one, or in what follows."""

from __future__ import annotations

from tests.programs.brief import BF16, DYNAMO, F16, I64, SAVED, A, B, N, Ref, W, made, program, step
from tests.programs.program import Program

FOUND_FOLDS: dict[str, tuple[tuple[str, ...], Program]] = {
    "sums in a half type that are larger than twice its whole numbers": (
        (*DYNAMO, *SAVED),
        program(
            [made("a", N, dtype=BF16)],
            [
                step("b", "torch.zeros", 600, dtype=I64),
                step("w", "torch.ones", 600, dtype=BF16),
                step("v", "torch.scatter_add", A, 0, B, W),
                step("u", "torch.scatter", A, 0, B, W, reduce="add"),
            ],
            "v u",
        ),
    ),
    "a product in a half type that overflows on the way": (
        (*DYNAMO, *SAVED),
        program(
            [made("a", N, dtype=F16)],
            [
                step("b", "torch.zeros", 4, dtype=I64),
                step("w", "torch.arange", 300, -1, -100, dtype=F16),
                step("u", "torch.abs", A),
                step("v", "torch.scatter_reduce", Ref("u"), 0, B, W, "prod", include_self=True),
            ],
        ),
    ),
    "norms over groups of what is computed in a half type": (
        (*DYNAMO, *SAVED),
        program(
            [made("a", N, 17, 2, 2)],
            [
                step("b", "Tensor.to", A, BF16),
                step("w", "torch.add", B, 1.1),
                step("v", "F.group_norm", W, 1, None, None),
            ],
        ),
    ),
    "the gradient of a smooth loss at a difference that is no number": (
        DYNAMO,
        program(
            [
                made("a", N, 8, fill="special", wants_gradient=True),
                made("b", N, 8, fill="normal", wants_gradient=True),
            ],
            [step("v", "F.smooth_l1_loss", A, B, reduction="none")],
            gradient=True,
        ),
    ),
}
