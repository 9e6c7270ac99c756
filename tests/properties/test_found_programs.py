"""Programs that were wrong once, as small as they were minimised, in the modes that were wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.programs.brief import (
    DYNAMO,
    F32,
    F64,
    I32,
    I64,
    SAVED,
    A,
    B,
    N,
    Ref,
    V,
    W,
    made,
    program,
    step,
)
from tests.programs.check import by_name, check
from tests.programs.found_folds import FOUND_FOLDS
from tests.programs.program import Program, Seed, SizeOf, Slice, Step, module_text

FOUND: dict[str, tuple[tuple[str, ...], Program]] = {
    "strides of a slice of what is computed": (
        (*DYNAMO, *SAVED),
        program(
            [made("a", N, 8)],
            [step("w", "torch.neg", A), step("v", "torch.narrow", W, 1, 1, 5)],
        ),
    ),
    "strides of a copy of one row": (
        (*DYNAMO, *SAVED),
        program(
            [made("a", 9), step("b", "torch.as_strided", A, (1, 7), (2, 1))],
            [step("v", "Tensor.to", B, F64)],
        ),
    ),
    "a dense copy of a view whose elements lie in one place": (
        (*DYNAMO, *SAVED),
        program(
            [made("a", 1)],
            [step("w", "torch.as_strided", A, (2,), (0,)), step("v", "torch.clone", W)],
        ),
    ),
    "views of a copy of a view of an argument": (
        (*DYNAMO, *SAVED),
        program(
            [made("a", 2)],
            [
                step("b", "torch.as_strided", A, (2, 2), (0, 1)),
                step("w", "torch.clone", B, memory_format=torch.contiguous_format),
                step("v u", "torch.split", W, 1),
            ],
            "v u",
        ),
    ),
    "strides of an expanded result": (
        (*DYNAMO, *SAVED),
        program(
            [made("a", N, 1)],
            [step("w", "torch.neg", A), step("v", "Tensor.expand", W, (SizeOf("a", 0), 4))],
        ),
    ),
    "a variance of numbers near the largest": (
        (*DYNAMO, *SAVED),
        program(
            [made("a", 3, 5, fill="huge")],
            [
                step("w v", "torch.var_mean", A, -1, correction=0),
                step("x", "torch.std", A, 0, correction=1),
            ],
            "v w x",
        ),
    ),
    "a norm of groups of one": (
        (*DYNAMO, *SAVED),
        program(
            [made("a", N, 1, fill="huge")],
            [
                step("v", "torch.norm", A, 3.0, -1),
                step("w", "torch.norm", A, 2.0, 1),
                step("x", "F.normalize", A, 2.0, -1),
            ],
            "v w x",
        ),
    ),
    "results that are equal, and one that is equal to an argument": (
        (*DYNAMO, "gears", "cache-load", "aot"),
        program(
            [made("a", N, 2)],
            [
                step("v", "torch.mul", A, 1),
                step("w", "torch.add", A, 1),
                step("x", "torch.add", A, 1),
            ],
            "v w x",
        ),
    ),
    "an empty result, and a product of no elements": (
        ("default", "aot"),
        program(
            [made("a", 2, 0)],
            [
                step("x", "torch.remainder", A, 7),
                step("w", "torch.prod", Ref("x"), -1),
                step("v", "torch.unsqueeze", Ref("x"), -2),
            ],
            "v w",
        ),
    ),
    "a write into elements that share memory": (
        ("default", "dynamic", "cache-load", "aot"),
        program(
            [made("a", 8)],
            [
                step("v", "torch.as_strided", A, (2, 2), (1, 1)),
                step("w", "torch.select", V, 0, 0),
                step("x", "Tensor.add_", W, 5),
            ],
            "a",
        ),
    ),
    "the sign of a zero that is scattered": (
        DYNAMO,
        program(
            [made("a", 3, 1), made("b", 1, 1, dtype=I64, fill="below 3")],
            [step("w", "torch.full_like", A, 0.0), step("v", "Tensor.scatter_", A, 0, B, -0.0)],
            "w v",
        ),
    ),
    "batch statistics of numbers near the largest": (
        (*DYNAMO, "aot"),
        program(
            [Step(("a",), "values.make", (F32, (4, 1, 8), "huge", Seed(0)))],
            [step("v", "F.instance_norm", A)],
        ),
    ),
    "the sign of a zero around a tensor": (
        (*DYNAMO, "aot"),
        program(
            [made("a", N, 2)],
            [step("w", "torch.neg", A), step("v", "F.pad", W, (1, 1), value=-0.0)],
        ),
    ),
    "a zero at a bound of zero": (
        (*DYNAMO, *SAVED),
        program(
            [made("a", N, 33, fill="special")],
            [
                step("v", "torch.clamp", A, -0.0, 1),
                step("w", "torch.clamp_max", A, -0.0),
                step("x", "torch.relu", A),
                step("y", "torch.reciprocal", Ref("x")),
            ],
            "v w x y",
        ),
    ),
    "the smaller of two zeros": (
        (*DYNAMO, "aot"),
        program(
            [
                *(
                    made(f"{x}{t}", N, 33, dtype=dtype, fill="special")
                    for t, dtype in (("f", F32), ("h", torch.bfloat16))
                    for x in ("a", "bb")
                ),
            ],
            [
                step("v", "torch.fmin", Ref("af"), Ref("bbf")),
                step("w", "torch.fmax", Ref("af"), Ref("bbf")),
                step("x", "torch.fmin", Ref("ah"), Ref("bbh")),
                step("y", "torch.fmax", Ref("ah"), Ref("bbh")),
            ],
            "v w x y",
        ),
    ),
    "strides of an argument that is written to and returned": (
        (*DYNAMO, "aot"),
        replace(
            program(
                [made("a", 8), step("b", "torch.as_strided", A, (3,), (3,))],
                [step("v", "Tensor.add_", B, B)],
            ),
            arguments=("b",),
        ),
    ),
    "strides of an argument's only row turned": (
        ("default", "cache-load", "aot"),
        replace(
            program(
                [made("a", 1), step("b", "Tensor.unfold", A, 0, 1, 2)],
                [step("v", "torch.transpose", B, 1, -2), step("w", "torch.neg", B)],
                "v w",
            ),
            arguments=("b",),
        ),
    ),
    "strides of a part of an argument that is written to": (
        ("default", "cache-trace", "cache-load"),
        replace(
            program(
                [made("a", 5, 1, 1), step("b", "torch.transpose", A, 0, -1)],
                [
                    step("v vb vc vd ve", "torch.unbind", B, 2),
                    step("w", "torch.permute", B, (1, 0, 2)),
                    step("x", "Tensor.add_", W, 1),
                ],
                "v x",
            ),
            arguments=("b",),
        ),
    ),
    "an argument written to by index, returned with its dims in another order": (
        (*DYNAMO, *SAVED),
        program(
            [made("a", 3, 4, 2), made("bb", 1, 4, 2, dtype=I64, fill="below 2")],
            [
                step("w", "Tensor.scatter_", A, 0, Ref("bb"), 3),
                step("v", "torch.movedim", W, -1, -2),
            ],
        ),
    ),
    "strides of slices where the size varies": (
        ("dynamic", "gears", "cache-load"),
        program(
            [made("a", N, 4, 6)],
            [step("w", "torch.exp", A), step("v", "torch.select", W, 1, -1)],
        ),
    ),
    "a copy of an argument that is returned as views of it": (
        (*DYNAMO, *SAVED),
        program(
            [made("a", 34)],
            [step("b", "Tensor.repeat", A, (1,)), step("v w", "torch.split", B, (29, 5), -1)],
            "v w",
        ),
    ),
    "a copy of what ATen views an argument's memory as": (
        (*DYNAMO, *SAVED),
        program(
            [made("a")],
            [step("b", "torch.as_strided", A, (), (), 0), step("v", "torch.amax", B)],
        ),
    ),
    "two copies of an argument, one returned as a view of it": (
        (*DYNAMO, *SAVED),
        program(
            [made("a", 1, 7, dtype=I64)],
            [
                step("b", "torch.roll", A, -1, -2),
                step("v", "torch.nan_to_num", B),
                step("w", "torch.as_strided", B, (3,), (2,), 0),
            ],
            "v w",
        ),
    ),
    "a copy of an argument that ATen reads in place": (
        (*DYNAMO, *SAVED),
        program(
            [made("a", 6, 4), step("b", "operator.getitem", A, (Ellipsis, Slice(None, None, 2)))],
            [
                step("w", "Tensor.repeat", B, (1, 1)),
                step("v", "Tensor.view", W, F64),
            ],
        ),
    ),
    "a part of an argument that is written to, where sizes vary": (
        ("dynamic", "cache-trace", "cache-load"),
        program(
            [made("a", 1, 2, 2)],
            [
                step("b", "torch.reshape", A, (-1, SizeOf("a", 2))),
                step("w", "operator.getitem", Ref("b"), (-1,)),
                step("v", "Tensor.mul_", W, -0.0),
            ],
        ),
    ),
    "an expanded argument that is filled and returned": (
        ("aot",),
        replace(
            program(
                [made("a", 2), step("b", "Tensor.expand", A, (1, 3, -1))],
                [step("v", "Tensor.zero_", B)],
            ),
            arguments=("b",),
        ),
    ),
    "strides of what ATen takes out of a turned row": (
        ("gears", "dynamic", "default"),
        replace(
            program(
                [made("a", N, 1)],
                [
                    step("b", "torch.flip", A, (1,)),
                    step("w", "operator.getitem", Ref("b"), (None, Ellipsis, 0)),
                    step("x", "torch.transpose", W, 0, 1),
                    step("v", "torch.select", Ref("x"), 0, 0),
                ],
            ),
            sizes=(65, 1),
        ),
    ),
    "products beside which a sum is finite": (
        (*DYNAMO, *SAVED),
        program(
            [made("a", 3, 33, fill="huge"), made("bb", 3, 33)],
            [
                step("v", "torch.addcmul", A, A, Ref("bb")),
                step("w", "torch.add", A, A, alpha=-2),
                step("x", "torch.sub", A, A, alpha=2.0),
                step("y", "torch.rsub", A, A, alpha=2),
            ],
            "v w x y",
        ),
    ),
    "the first of the zeros in a window": (
        (*DYNAMO, *SAVED),
        program(
            [made("a", 4, 64, fill="special"), made("bb", 2, 3, 9, 9, fill="special")],
            [
                step("v", "F.max_pool1d", A, 2, 2),
                step("w", "F.max_pool1d", A, 5, 1),
                step("x", "F.max_pool2d", Ref("bb"), 3, 2, 1),
            ],
            "v w x",
        ),
    ),
    "the first of the zeros in the only window": (
        (*DYNAMO, *SAVED),
        program(
            [made("a", 1, 40, fill="masked")],
            [
                step("w", "torch.nan_to_num", A, neginf=-0.0),
                step("v", "F.max_pool1d", W, 40),
            ],
        ),
    ),
    "an argument whose elements interleave, written to and returned": (
        (*DYNAMO, "aot"),
        replace(
            program(
                [made("a", 2, 65), step("b", "torch.as_strided", A, (5, 3), (2, 7), 84)],
                [step("v", "Tensor.mul_", B, 2), step("w", "torch.clone", V)],
                "v w",
            ),
            arguments=("b",),
        ),
    ),
    "an argument with gaps that is written back as it is": (
        DYNAMO,
        replace(
            program(
                [made("a", 1, 8, 4), step("b", "Tensor.unfold", A, 2, 1, 2)],
                [
                    step("w", "torch.narrow", B, 0, 1, 0),
                    step("x", "Tensor.logical_not_", W),
                    step("y", "torch.select", B, 0, -1),
                    step("v", "torch.add", Ref("y"), 1.0, out=Ref("y")),
                ],
            ),
            arguments=("b",),
        ),
    ),
    "places in the memory of what the module holds": (
        SAVED,
        replace(
            program(
                [made("a", 8, 5), made("bb", 3)],
                [
                    step("v", "torch.as_strided", A, (2, 3), (7, 1), 18),
                    step("x", "torch.as_strided", Ref("bb"), (2,), (2,), 0),
                    step("w", "Tensor.mul_", Ref("x"), 2),
                ],
                "v w",
            ),
            arguments=(),
            buffers=("bb",),
            parameters=("a",),
        ),
    ),
    "an infinity between two infinities": (
        ("aot",),
        program(
            [Step(("a",), "torch.tensor", (((((float("inf"),),),), (((-1.0,),),)),))],
            [step("v", "F.interpolate", A, size=(1, 8), mode="bilinear", align_corners=False)],
        ),
    ),
    "norms of numbers near the largest": (
        (*DYNAMO, "aot"),
        program(
            [Step(("a",), "values.make", (F32, (1, 2, 5), "huge", Seed(100)))],
            [step("v", "F.group_norm", A, 1), step("w", "F.layer_norm", A, (2, 5))],
            "v w",
        ),
    ),
    "views of an argument whose strides are others than those of the first": (
        (*DYNAMO, "cache-trace", "aot"),
        replace(
            program(
                [made("a", 2, N), step("b", "torch.select", A, 1, -2)],
                [
                    step("v", "Tensor.unfold", B, 0, 1, 1),
                    step("w", "operator.getitem", B, (Slice(1, None),)),
                    step("x", "torch.unsqueeze", W, 0),
                    step("y", "torch.neg", B),
                ],
                "v w x y",
            ),
            arguments=("b",),
        ),
    ),
    "an argument's bits in another dtype": (
        (*DYNAMO, *SAVED),
        program([made("a", 3)], [step("v", "Tensor.view", A, I32)]),
    ),
    "an argument that is written to and returned, with views of it": (
        (*DYNAMO, *SAVED),
        program(
            [made("a", 3, 3)],
            [
                step("b", "torch.transpose", A, 0, 1),
                step("v", "Tensor.add_", B, 1),
                step("w", "operator.getitem", V, (1,)),
                step("x y z", "torch.unbind", B, 0),
                step("u", "torch.clone", A),
            ],
            "v w x z a u",
        ),
    ),
    "views of a copy of what an argument is updated with": (
        (*DYNAMO, *SAVED),
        program(
            [made("a", 1), made("bb", dtype=I64, fill="below 1")],
            [
                step("b", "Tensor.scatter_", A, -1, Ref("bb"), 0),
                step("x", "Tensor.repeat", B, (1,)),
                step("v", "torch.reshape", Ref("x"), (-1, 1)),
                step("w", "torch.unsqueeze", Ref("x"), 0),
            ],
            "v w",
        ),
    ),
    "strides of an argument that vary": (
        ("cache-load",),
        replace(
            program(
                [made("a", 2, N), step("b", "torch.select", A, 1, -2)],
                [step("v", "Tensor.unfold", B, 0, 1, 1)],
            ),
            arguments=("b",),
        ),
    ),
}


REFUSED: dict[str, tuple[str, Program]] = {
    "a part of an argument whose elements lie in one place, written to": (
        "aot",
        replace(
            program(
                [made("a", 1, 2), step("b", "Tensor.expand", A, (2, -1, -1))],
                [
                    step("w", "torch.diagonal", B, -1, 0, 1),
                    step("x", "Tensor.mul_", W, W),
                    step("v", "torch.neg", B),
                ],
                "v",
            ),
            arguments=("b",),
        ),
    ),
    "an argument whose strides do not follow from its sizes": (
        "gears-padded",
        program(
            [made("a", N, 2), step("b", "torch.select", A, 1, 0)],
            [step("v", "torch.neg", B)],
        ),
    ),
    "the size of what an argument is a view of": (
        "gears-padded",
        program(
            [made("a", N, 0, 0), step("b", "operator.getitem", A, (Slice(None, None, 2),))],
            [step("v", "torch.round", A)],
            "b",
        ),
    ),
    "the size of what an argument is a view of, in a result's strides": (
        "gears-padded",
        replace(
            program(
                [made("a", N, 0, 0), step("b", "torch.diagonal", A, 2, -1, 1)],
                [step("v", "torch.squeeze", B, -1)],
            ),
            arguments=("b",),
        ),
    ),
    "a dim that squeeze takes out in one gear": (
        "gears",
        replace(
            program([made("a", N)], [step("w", "torch.squeeze", A), step("v", "torch.neg", W)]),
            sizes=(5, 1),
        ),
    ),
    "a number of windows that the trace takes for 1": (
        "gears",
        replace(
            program(
                [made("a", 0, N)],
                [
                    step("w vb", "torch.var_mean", A, -2, correction=0),
                    step("v", "Tensor.unfold", Ref("vb"), 0, 2, 3),
                ],
            ),
            sizes=(4, 7),
        ),
    ),
    "arguments that share memory, with sizes that vary, and are written to": (
        "gears",
        program(
            [made("a", N, 2, 2), step("b", "torch.squeeze", A, -1)],
            [
                step("w", "torch.select", A, -1, -1),
                step("v", "Tensor.fill_", W, 0.5),
                step("x", "torch.neg", B),
            ],
            "x",
        ),
    ),
}

FOUND |= FOUND_FOLDS

CASES = [(name, mode) for name, (modes, _) in FOUND.items() for mode in modes]


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_a_program_that_was_wrong_is_right(name: str, mode: str) -> None:
    _, found = FOUND[name]
    verdict = check(found, by_name(mode))
    assert verdict.status == "right", f"{verdict.detail}\n{module_text(found)}"
    assert not verdict.fallback


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_mode_cannot_take_is_an_error_of_ours(name: str) -> None:
    mode, found = REFUSED[name]
    assert check(found, by_name(mode)).status == "refused"
