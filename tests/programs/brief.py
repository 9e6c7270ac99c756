"""Programs in few words, for tables of those that were wrong."""

from __future__ import annotations

from typing import Any

import torch

from tests.programs.program import Program, Ref, Seed, Step

BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
I32, I64 = torch.int32, torch.int64

A, B, V, W, N = Ref("a"), Ref("b"), Ref("v"), Ref("w"), Ref("n")

DYNAMO = ("default", "dynamic", "reduce-overhead", "super-kernel")
SAVED = ("cache-trace", "cache-load", "aot")


def made(name: str, *shape: Any, dtype: Any = F32, fill: str = "whole", **options: bool) -> Step:
    """A tensor from outside."""
    arguments = (dtype, shape, fill, Seed(len(name)))
    return Step((name,), "values.make", arguments, tuple(options.items()))


def step(names: str, function: str, *args: Any, **kwargs: Any) -> Step:
    """A step whose results are named in one text."""
    return Step(tuple(names.split()), function, args, tuple(kwargs.items()))


def program(
    inputs: list[Step], steps: list[Step], results: str = "v", gradient: bool = False
) -> Program:
    """A program of arguments only. The size that varies is 3, then 2."""
    names = tuple(name for one in inputs for name in one.names)
    return Program(
        tuple(inputs), names, (), (), tuple(steps), tuple(results.split()), (3, 2), gradient
    )
