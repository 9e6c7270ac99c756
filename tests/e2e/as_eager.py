"""Whether a compiled function does what eager does: values, dtypes, strides, memory that is shared,
what is written and how often, gradients, random numbers, and errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from tests.tolerances import mismatch

Make = Callable[[], Sequence[Any]]


def differences(
    function: Callable[..., Any], make: Make, *, dynamic: bool, backend: Any = "kernelmill"
) -> list[str]:
    """What differs between two calls each of the function in eager and compiled. `make` gives new
    arguments, the same each time."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)
    found: list[str] = []
    for _ in range(2):
        ours, theirs = _outcome(compiled, make()), _outcome(function, make())
        found += _compared(ours, theirs)
    return found


def _outcome(function: Callable[..., Any], args: Sequence[Any]) -> dict[str, Any]:
    torch.manual_seed(0)
    tensors = [arg for arg in pytree.tree_leaves(args) if isinstance(arg, Tensor)]
    before = [tensor._version for tensor in tensors]
    try:
        results = pytree.tree_leaves(function(*args))
    except Exception as error:
        return {"error": (type(error), str(error)), "arguments": tensors}
    returned = [result for result in results if isinstance(result, Tensor)]
    return {
        "results": results,
        "arguments": tensors,
        "strides": [_strides(tensor) for tensor in [*returned, *tensors]],
        "offsets in a shared memory": _shared([*tensors, *returned]),
        "is an argument": [[r is t for t in tensors] for r in returned],
        "needs a gradient": [tensor.requires_grad for tensor in returned],
        "gradients": _gradients(returned, tensors),
        "written": [t._version > b for t, b in zip(tensors, before, strict=True)],
        "random state": torch.get_rng_state().tolist(),
    }


def _gradients(returned: Sequence[Tensor], arguments: Sequence[Tensor]) -> list[Any]:
    """Of the sum of all results, for each argument that asks for one."""
    sums = [tensor.sum() for tensor in returned if tensor.requires_grad]
    asking = [tensor for tensor in arguments if tensor.requires_grad and tensor.is_leaf]
    if not sums or not asking:
        return []
    return list(torch.autograd.grad(sums, asking, allow_unused=True))


def _strides(tensor: Tensor) -> tuple[int, ...]:
    """Of a tensor without elements none: torch's kernels give it others than its traces."""
    return tensor.stride() if tensor.layout == torch.strided and tensor.numel() else ()


def _shared(tensors: Sequence[Tensor]) -> list[list[int]]:
    """For each tensor the first that has its memory, and how far behind it lies."""
    places: list[list[int]] = []
    known = [(t.untyped_storage().data_ptr(), t.data_ptr()) for t in tensors]
    for storage, begin in known:
        first = next(n for n, (other, _) in enumerate(known) if other == storage)
        places.append([first, begin - known[first][1]] if begin else [-1, 0])  # 0: it is empty
    return places


def _compared(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    if ours.get("error") != theirs.get("error"):
        return [f"error {ours.get('error')} instead of {theirs.get('error')}"]
    found: list[str] = []
    for name, expected in theirs.items():
        if name not in ("results", "arguments", "gradients"):
            if ours[name] != expected:
                found.append(f"{name}: {ours[name]} instead of {expected}")
            continue
        pairs = zip(ours[name], expected, strict=True)
        found += [f"{name}: {said}" for a, b in pairs if (said := _differ(a, b)) is not None]
    return found


def _differ(ours: Any, theirs: Any) -> str | None:
    if isinstance(theirs, Tensor) and isinstance(ours, Tensor):
        return mismatch(ours.detach(), theirs.detach())
    same = type(ours) is type(theirs) and (ours == theirs or ours != ours)
    return None if same else f"{ours!r} instead of {theirs!r}"
