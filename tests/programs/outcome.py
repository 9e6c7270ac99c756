"""What a call of a program leaves behind, and how two such outcomes differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tests.programs import values
from tests.programs.traced import Layout
from tests.tolerances import mismatch


@dataclass(frozen=True)
class Outcome:
    """The tensors after a call, by name, copied; how they lie in memory; gradients.

    `memory` has for each name which storage its tensor is over (numbers that mean something within
    one outcome only) and where in it.
    """

    results: Mapping[str, Tensor]
    others: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor | None]
    memory: Mapping[str, tuple[int, int]]
    wants_gradient: Mapping[str, bool]


@dataclass(frozen=True)
class Difference:
    """Where an outcome is not eager's: which kind, of what, and in words. `traced`: it is what
    torch has traced."""

    kind: str
    name: str
    text: str
    traced: bool = False

    def __str__(self) -> str:
        return f"{self.kind} of {self.name}: {self.text}"


def call(
    function: Callable[..., Any],
    arguments: Sequence[Tensor],
    held: Mapping[str, Tensor],
    gradient: bool,
) -> Outcome:
    """Calls the function, and its backward where gradients are wanted."""
    with torch.set_grad_enabled(gradient):
        returned = function(*arguments)
    results = {f"result {n}": t for n, t in enumerate(returned)}
    wrong = {name: type(t).__name__ for name, t in results.items() if not isinstance(t, Tensor)}
    if wrong:
        raise TypeError(f"no tensors: {wrong}")
    leaves = _leaves(arguments, held) if gradient else {}
    found = {name: t.detach().clone() for name, t in results.items()}
    strides = {name: t.stride() for name, t in results.items()}
    named = {f"argument {n}": t for n, t in enumerate(arguments)} | dict(held)
    memory = {name: _place(t) for name, t in {**named, **results}.items() if t.numel()}
    wants = {name: t.requires_grad for name, t in results.items()}
    others = {name: _whole(t).clone() for name, t in named.items()}
    if gradient:
        _backward(list(results.values()))
    gradients = {n: None if t.grad is None else t.grad.clone() for n, t in leaves.items()}
    for leaf in leaves.values():
        leaf.grad = None
    return Outcome(
        {name: _restrided(t, strides[name]) for name, t in found.items()},
        others,
        gradients,
        memory,
        wants,
    )


def _leaves(arguments: Sequence[Tensor], held: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, tensor in [*((f"argument {n}", t) for n, t in enumerate(arguments)), *held.items()]:
        leaf = tensor if tensor._base is None else tensor._base
        if leaf.is_leaf and leaf.requires_grad:
            found[name] = leaf
    return found


def _backward(results: Sequence[Tensor]) -> None:
    wanted = [t for t in results if t.requires_grad]
    if not wanted:
        return
    weights = [values.make(t.dtype, t.shape, "whole", n) for n, t in enumerate(wanted)]
    torch.autograd.backward(wanted, weights)


def _place(tensor: Tensor) -> tuple[int, int]:
    return tensor.untyped_storage()._cdata, int(tensor.storage_offset()) * tensor.element_size()


def _whole(tensor: Tensor) -> Tensor:
    """All of a tensor's memory: what lies beside its elements must not change either."""
    whole = torch.empty(0, dtype=tensor.dtype)
    whole.set_(tensor.detach().untyped_storage())
    return whole


def _restrided(tensor: Tensor, strides: Sequence[int]) -> Tensor:
    """The same numbers, with a note of the strides that they had."""
    tensor.strides_were = tuple(strides)  # type: ignore[attr-defined]
    return tensor


# ---- comparing ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rules:
    """What is compared. `exact` says whether a result may not differ at all; `slack` gives what
    rounding may make of one, as a tensor of differences; `traced` the shapes and strides of
    results that torch has traced, in one way or several."""

    exact: Callable[[str], bool]
    slack: Callable[[str], Tensor | None]
    traced: Callable[[], Sequence[Mapping[str, Layout]]]


def difference(mine: Outcome, theirs: Outcome, rules: Rules) -> Difference | None:
    """The first difference that counts, those that torch has traced last; None when there is
    none."""
    traced: Difference | None = None
    if mine.results.keys() != theirs.results.keys():
        return Difference("number", "results", f"{len(mine.results)} not {len(theirs.results)}")
    for name, expected in theirs.results.items():
        actual: Any = mine.results[name]
        eagers: Any = expected
        ours, eager = actual.strides_were, eagers.strides_were
        if actual.shape != expected.shape and not actual.numel() + expected.numel():
            text = f"shape {tuple(actual.shape)} instead of {tuple(expected.shape)}"
            known = [layouts.get(name, (None,))[0] for layouts in rules.traced()]
            if actual.dtype != expected.dtype or tuple(actual.shape) not in known:
                return Difference("values", name, text)
            traced = Difference("values", name, text, traced=True)
            continue
        wrong = numbers_differ(actual, expected, name, rules)
        if wrong:
            return Difference("values", name, wrong)
        if ours != eager and expected.numel():  # where there are no elements nobody can tell
            text = f"{list(ours)} instead of {list(eager)}, shape {list(expected.shape)}"
            layout = tuple(actual.shape), ours
            if all(layout != known.get(name) for known in rules.traced()):
                return Difference("strides", name, text)
            traced = Difference("strides", name, text, traced=True)
        if mine.wants_gradient[name] != theirs.wants_gradient[name]:
            return Difference("requires_grad", name, f"{mine.wants_gradient[name]}")
    for name, expected in theirs.others.items():
        wrong = numbers_differ(mine.others[name], expected, name, rules)
        if wrong:
            return Difference("mutation", name, wrong)
    for name, expected in theirs.gradients.items():
        wrong = _gradients_differ(mine.gradients[name], expected, name, rules)
        if wrong:
            return Difference("gradient", name, wrong)
    return _aliases_differ(mine, theirs) or traced


def numbers_differ(actual: Tensor, expected: Tensor, name: str, rules: Rules) -> str | None:
    """What is wrong with a tensor's dtype, shape or numbers."""
    wrong = mismatch(actual, expected)
    if _same_bits(actual, expected):
        return None
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return wrong
    if rules.exact(name):
        if _is_moved(actual, expected, name, rules):
            return None
        return f"exact, and {_shown(actual)} instead of {_shown(expected)}"
    if wrong is None:
        return None
    slack = rules.slack(name)
    if slack is None or slack.shape != expected.shape:
        return f"{wrong}: {_shown(actual)} instead of {_shown(expected)}"
    far = (actual.double() - expected.double()).abs()
    allowed = slack + 4 * _unit(expected) * expected.double().abs()
    bad = ~((far <= allowed) | ~torch.isfinite(slack) | _same(actual, expected))
    return f"{_shown(actual[bad])} instead of {_shown(expected[bad])}" if bad.any() else None


def _unit(numbers: Tensor) -> Tensor:
    """The relative difference between neighbours of each number in its dtype; in float32 for those
    of float64 that it has too, since they were rounded to it on the way."""
    unit = torch.full(numbers.shape, torch.finfo(numbers.dtype).eps, dtype=torch.float64)
    if numbers.dtype is not torch.float64:
        return unit
    widened = numbers.float().double() == numbers
    return torch.where(widened, unit.clamp(min=torch.finfo(torch.float32).eps), unit)


def _is_moved(actual: Tensor, expected: Tensor, name: str, rules: Rules) -> bool:
    """Whether integers differ only where noise in what they were found from moved them too."""
    slack = None if expected.is_floating_point() else rules.slack(name)
    if slack is None or slack.shape != expected.shape:
        return False
    return bool(((actual.double() - expected.double()).abs() <= slack).all())


def _same(actual: Tensor, expected: Tensor) -> Tensor:
    return (actual == expected) | (actual.isnan() & expected.isnan())


def _same_bits(actual: Tensor, expected: Tensor) -> bool:
    """Whether all numbers are equal, zeros by their sign too; NaN equals NaN."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if not bool(_same(actual, expected).all()):
        return False
    if not expected.is_floating_point():
        return True
    zero = (expected == 0) & (torch.signbit(actual) != torch.signbit(expected))
    return not bool(zero.any())


def _gradients_differ(
    actual: Tensor | None, expected: Tensor | None, name: str, rules: Rules
) -> str | None:
    if actual is None or expected is None:
        return None if actual is expected else f"{actual} instead of {expected}"
    if mismatch(actual, expected) is None:
        return None
    finite = expected[torch.isfinite(expected)].double().abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    slack = rules.slack(f"gradient {name}")
    far = (actual.double() - expected.double()).abs()
    allowed = torch.full_like(far, 64 * torch.finfo(expected.dtype).eps * scale)
    bad = ~((far <= allowed + (0 if slack is None else slack)) | _same(actual, expected))
    if slack is not None:  # of what overflows in some order nobody can tell
        bad &= torch.isfinite(slack)
    return f"{_shown(actual[bad])} instead of {_shown(expected[bad])}" if bad.any() else None


def _aliases_differ(mine: Outcome, theirs: Outcome) -> Difference | None:
    results = [name for name in theirs.results if name in theirs.memory]
    for at, name in enumerate(results):
        for other in (*(n for n in theirs.memory if n not in results), *results[:at]):
            ours, eager = (_relation(o.memory, name, other) for o in (mine, theirs))
            if ours != eager:
                return Difference("aliasing", name, f"{ours} {other} instead of {eager}")
    return None


def _relation(memory: Mapping[str, tuple[int, int]], name: str, other: str) -> str:
    if name not in memory or other not in memory or memory[name][0] != memory[other][0]:
        return "apart from"
    return f"{memory[name][1] - memory[other][1]} bytes behind"


def _shown(tensor: Tensor) -> str:
    few = tensor.detach().flatten()[:8].tolist()
    return f"{few}{' ...' if tensor.numel() > 8 else ''}"
