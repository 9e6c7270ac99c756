"""What torch leaves open of sums and products: the order of terms, and small bfloat16 numbers; and
what eager does with NaN by where an element lies.

Torch says that what is between may overflow where the result does not
(https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html, "Extremal values").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from tests.programs.norms import CENTRED, undecided
from tests.programs.program import Ref, Step, run_step

SUMS = frozenset(("torch.sum", "torch.mean", "torch.nansum"))
PRODUCTS = frozenset(("torch.matmul", "F.linear", "F.conv2d"))

SPREADS = frozenset(("torch.var", "torch.std", "torch.var_mean"))

ADDED = "torch.addmm"

CLIPS = frozenset(("F.hardtanh", "F.relu6"))

ATTENTION = "F.scaled_dot_product_attention"
POOLS = frozenset(f"F.{name}_pool{rank}d" for name in ("avg", "adaptive_avg") for rank in (1, 2, 3))

WAYS = 3
"""Of making another one of a result."""


def otherwise(step: Step, found: Mapping[str, Any], way: int) -> list[Tensor] | None:
    """What the step gives in another way, in float64; None where there is none.

    Ways 0 and 1: every sum overflows that does so in some order, to inf or else to -inf.
    Way 2: denormal bfloat16 numbers count as zeros in products, as they do in the processor's
    instruction. Eager takes it for some sizes and not for others.
    """
    if step.function == ADDED:
        return [_added(step, found, way)]
    if way == 2:
        return _flushed(step, found)
    if step.function == ATTENTION:
        return [_attended(step, found)]
    if step.function in CLIPS:
        return _clipped(step, found)
    if step.function in SPREADS and torch.is_grad_enabled():
        return _spread(step, found)
    if step.function in CENTRED:
        return [undecided(step, found)]
    if step.function in POOLS:
        return [_pooled(step, found, 1 if way == 0 else -1)]
    read = found[step.args[0].name] if step.function in SUMS | PRODUCTS else None
    if read is None or not read.is_floating_point():
        return None
    dtype = torch.float64 if read.dtype == torch.float64 else torch.float32
    infinity = math.inf if way == 0 else -math.inf
    terms = _of_one_sign(step, found, infinity > 0)
    made = torch.where(terms.abs() > torch.finfo(dtype).max, infinity, _run(step, found))
    if step.function in PRODUCTS and torch.is_grad_enabled():
        operands = [found[arg.name] for arg in step.args[:3] if isinstance(arg, Ref)]
        made = _Product.apply(made, step, found, infinity, *operands)
    return [made]


def order_error(step: Step, found: Mapping[str, Any]) -> Tensor | None:
    """How far two orders of the terms of a sum or product may lie apart, by the roundings of all
    partial sums (Higham, Accuracy and Stability, 4.2), where large terms swallow small ones, in
    float64 too perhaps; None where none does."""
    if step.function not in SUMS | PRODUCTS:
        return None
    operands = [found[arg.name] for arg in step.args[:3] if isinstance(arg, Ref)]
    if not operands[0].is_floating_point() or not all(x.numel() for x in operands):
        return None
    wide = torch.float64 if operands[0].dtype == torch.float64 else torch.float32
    least = math.prod(float(_smallest(x)) for x in operands[:2])
    size = _of_one_sign(step, found, True) - _of_one_sign(step, found, False)
    epsilon = torch.finfo(wide).eps
    if not size.numel() or float(size.max()) * epsilon <= least:
        return None
    ones = torch.ones_like
    count = (
        torch.sum(ones(operands[0]), *step.args[1:]).double()
        if step.function in SUMS
        else _product(step, found, ones, ones, ones)
    )
    return (count - 1).clamp(min=1) * epsilon / 2 * size


def _smallest(x: Tensor) -> Tensor:
    """The magnitude of the smallest number that is not 0, or 1."""
    magnitudes = _finite(x).abs()
    return torch.where(magnitudes > 0, magnitudes, torch.inf).min().nan_to_num(posinf=1.0)


def _attended(step: Step, found: Mapping[str, Any]) -> Tensor:
    """Attention as eager has it, but for rows in which the sum of products of a score overflows in
    some order of its terms: where it does, it is an infinity or NaN, and so the whole row is NaN.
    Gradients go through these rows too. That some of eager's ways scale the operands and some the
    sum is such an order as well: `scale` is at most 1 here. A score that is NaN in any case makes a
    row of NaN or, where eager's maximum skips it because it lies behind the last whole vector, one
    of zeros."""
    made = {**found}
    run_step(step, made)
    result: Tensor = made[step.names[0]]
    query, key = (found[arg.name].detach() for arg in step.args[:2] if isinstance(arg, Ref))
    if key.dim() > 2 and key.shape[-3] not in (1, query.shape[-3]):
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
    turned = key.transpose(-1, -2)
    above = _above(query) @ _above(turned) + _below(query) @ _below(turned)
    below = _above(query) @ _below(turned) + _below(query) @ _above(turned)
    open_scores = torch.maximum(above, -below) > torch.finfo(dtype).max
    open_scores |= (_double(query) @ _double(turned)).isnan()
    open_rows = open_scores.any(-1, keepdim=True)
    return result.double() * torch.where(open_rows, math.nan, 1.0)


def _added(step: Step, found: Mapping[str, Any], way: int) -> Tensor:
    """A product added to something, with an infinity where it overflows in some order of its terms;
    so do its gradients. In way 2 the gradient of these elements is unknown: it may go by which of
    inf, -inf and NaN they are, as that of `clamp` does."""
    infinity = -math.inf if way == 1 else math.inf
    options = dict(step.kwargs)
    more, a, b = (found[arg.name] for arg in step.args if isinstance(arg, Ref))
    scaled, added = options["alpha"] * a, options["beta"] * more.double()
    product = Step(("product",), "torch.matmul", (Ref("a"), Ref("b")))
    operands = {"a": scaled, "b": b}
    terms = _of_one_sign(product, operands, infinity > 0)
    terms = terms + (_above if infinity > 0 else _below)(added)
    dtype = torch.float64 if a.dtype == torch.float64 else torch.float32
    overflows = terms.abs() > torch.finfo(dtype).max
    made = torch.where(overflows, infinity, _run(product, operands))
    if torch.is_grad_enabled():
        made = _Product.apply(made, product, operands, infinity, scaled, b)
        if way == 2:
            made = _Unknown.apply(made, overflows)
    return made + added


def _clipped(step: Step, found: Mapping[str, Any]) -> list[Tensor] | None:
    """The gradient at NaN is that of the result in eager, or 0 in its vectors."""
    read: Tensor = found[step.args[0].name]
    if not torch.is_grad_enabled() or not read.is_floating_point():
        return None
    made = {**found, step.args[0].name: _Unknown.apply(read, read.detach().isnan())}
    run_step(step, made)
    return [made[step.names[0]].double()]


def _spread(step: Step, found: Mapping[str, Any]) -> list[Tensor]:
    """Variances as eager has them, but for gradients of rows whose sum overflows in some order: the
    mean, which the gradient takes off the numbers again, is an infinity there."""
    name, dim = step.args[0].name, step.args[1]
    read: Tensor = found[name]
    most = torch.finfo(torch.float64 if read.dtype == torch.float64 else torch.float32).max
    sums = [torch.sum(of_one_sign(read), dim, keepdim=True) for of_one_sign in (_above, _below)]
    open_rows = torch.maximum(sums[0], -sums[1]) > most
    made = {**found, name: _Unknown.apply(read, open_rows)}
    run_step(step, made)
    return [made[one].double() for one in step.names]


class _Unknown(torch.autograd.Function):
    """A tensor whose gradient is NaN in some rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None]:
        return torch.where(ctx.saved_tensors[0], math.nan, grads[0]), None


def _pooled(step: Step, found: Mapping[str, Any], sign: int) -> Tensor:
    """Averages of windows as far off as some order of their n terms makes them: by n - 1 roundings
    of the sum of the terms' magnitudes (Higham, Accuracy and Stability, 4.2), or by overflow."""
    read: Tensor = found[step.args[0].name].detach()
    rank = int(step.function[-2])
    count = math.prod(read.shape[-rank:])
    if "adaptive" not in step.function:
        count = step.args[1] ** rank
    dtype = torch.float64 if read.dtype == torch.float64 else torch.float32
    exact, size = (
        _run(step, {**found, step.args[0].name: x}) for x in (_double(read), _double(read).abs())
    )
    off = exact + sign * (count - 1) * torch.finfo(dtype).eps / 2 * size
    return torch.where(size * count > torch.finfo(dtype).max, sign * math.inf, off)


def _run(step: Step, found: Mapping[str, Any]) -> Tensor:
    made = {**found}
    with torch.no_grad():
        run_step(step, made)
    return made[step.names[0]].double()


def _of_one_sign(step: Step, found: Mapping[str, Any], positive: bool) -> Tensor:
    """The sum of the positive terms, or that of the negative ones."""

    if step.function in SUMS:
        terms = (_above if positive else _below)(found[step.args[0].name])
        return torch.sum(terms, *step.args[1:])
    pairs = ((_above, _above), (_below, _below))
    if not positive:
        pairs = ((_above, _below), (_below, _above))
    bias = _above if positive else _below
    return _product(step, found, *pairs[0], bias) + _product(
        step, found, *pairs[1], torch.zeros_like
    )


def _double(x: Tensor) -> Tensor:
    return x.detach().double()


def _finite(x: Tensor) -> Tensor:
    return _double(x).nan_to_num(0.0, 0.0, 0.0)


def _above(x: Tensor) -> Tensor:
    return _finite(x).clamp(min=0)


def _below(x: Tensor) -> Tensor:
    return _finite(x).clamp(max=0)


Change = Callable[[Tensor], Tensor]


def _product(step: Step, found: Mapping[str, Any], a: Change, b: Change, bias: Change) -> Tensor:
    """The product of changed operands, in float64."""
    changed = {**found}
    args = list(step.args)
    for place, change in enumerate((a, b, bias)):
        if place < len(args) and isinstance(args[place], Ref):
            name = f"operand {place}"
            changed[name] = change(found[args[place].name]).double()
            args[place] = Ref(name)
    return _run(Step(step.names, step.function, tuple(args), step.kwargs), changed)


def _flushed(step: Step, found: Mapping[str, Any]) -> list[Tensor] | None:
    if step.function not in PRODUCTS or found[step.args[0].name].dtype != torch.bfloat16:
        return None

    def without_denormals(x: Tensor) -> Tensor:
        return torch.where(x.detach().abs() < torch.finfo(x.dtype).tiny, 0, x.detach())

    return [_product(step, found, without_denormals, without_denormals, without_denormals)]


class _Product(torch.autograd.Function):
    """A product whose gradients, products too, overflow where they do so in some order."""

    @staticmethod
    def forward(
        ctx: Any, made: Tensor, step: Step, found: Mapping[str, Any], infinity: float,
        *operands: Tensor,
    ) -> Tensor:  # fmt: skip
        ctx.step, ctx.infinity, ctx.operands = step, infinity, operands
        ctx.found = {**found}
        return made.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        wanted = ctx.needs_input_grad[4:]
        return None, None, None, None, *(
            _gradient(ctx, place, grads[0].double()) if wants else None
            for place, wants in enumerate(wanted)
        )  # fmt: skip


def _gradient(ctx: Any, place: int, grad: Tensor) -> Tensor:
    def terms(other: Change, of_grad: Change) -> Tensor:
        return _pulled_back(ctx.step, ctx.found, place, other, of_grad(grad))

    one_sign: list[tuple[Change, Change]] = [(_above, _above), (_below, _below)]
    if ctx.infinity < 0:
        one_sign = [(_above, _below), (_below, _above)]
    if place == 2:  # of the bias: the sum of the gradient itself
        one_sign = [(_double, _above if ctx.infinity > 0 else _below)]
    summed = sum((terms(*signs) for signs in one_sign), torch.zeros(()))
    operand = ctx.operands[place]
    dtype = torch.float64 if operand.dtype == torch.float64 else torch.float32
    overflows = summed.abs() > torch.finfo(dtype).max
    return torch.where(overflows, ctx.infinity, terms(_double, _double)).to(operand.dtype)


def _pulled_back(
    step: Step, found: Mapping[str, Any], place: int, other: Change, grad: Tensor
) -> Tensor:
    """The gradient of the operand at `place`, with the other one changed."""
    args = list(step.args)
    changed = {**found}
    for at, arg in enumerate(args):
        if isinstance(arg, Ref):
            args[at] = Ref(f"operand {at}")
            changed[f"operand {at}"] = (_double if at in (place, 2) else other)(found[arg.name])
    leaf = changed[f"operand {place}"] = changed[f"operand {place}"].clone().requires_grad_()
    with torch.enable_grad():
        run_step(Step(step.names, step.function, tuple(args), step.kwargs), changed)
        made = changed[step.names[0]]
    return torch.autograd.grad(made, leaf, grad)[0]
