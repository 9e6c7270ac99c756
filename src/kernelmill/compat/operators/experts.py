"""Products of groups and batches, and the choice of experts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from kernelmill.compat.operators.norms import FLOATS, require_floats, rounded
from kernelmill.ops.library import operator, require

_NAME = "npu_grouped_matmul"
_ACTIVATIONS: dict[int, Callable[[Tensor], Tensor]] = {
    1: torch.relu,
    2: lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    4: lambda x: x * torch.sigmoid(1.702 * x),
    5: torch.nn.functional.silu,
}
"""Activations by act_type: relu, gelu_tanh, fast_gelu, silu."""

_BY_ROW, _BY_DEPTH = 0, 2
_ENDS, _COUNTS, _PAIRS = 0, 1, 2


@torch.library.custom_op("kernelmill::grouped_rows", mutates_args=())
def grouped_rows(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Multiply the rows of x up to each end by the next matrix; torch's takes bfloat16 alone."""
    result = x.new_zeros(x.shape[0], weight.shape[2])
    for i, (begin, end) in enumerate(pairwise((0, *ends.tolist()))):
        result[begin:end] = x[begin:end] @ weight[i]
    return result


@grouped_rows.register_fake
def _shape(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[2])


_SCHEMA = (
    "npu_grouped_matmul(Tensor[] x, Tensor[] weight, *, Tensor[]? bias=None, "
    "Tensor[]? scale=None, Tensor[]? offset=None, Tensor[]? antiquant_scale=None, "
    "Tensor[]? antiquant_offset=None, Tensor[]? per_token_scale=None, Tensor? group_list=None, "
    "Tensor[]? activation_input=None, Tensor[]? activation_quant_scale=None, "
    "Tensor[]? activation_quant_offset=None, int? split_item=0, int? group_type=None, "
    "int? group_list_type=0, int? act_type=0, ScalarType? output_dtype=None, "
    "int[]? tuning_config=None) -> Tensor[]"
)


@operator(_SCHEMA)
def grouped_matmul(x: list[Tensor], weight: list[Tensor], **given: Any) -> list[Tensor]:
    """Return x[i] @ weight[i] + bias[i], one result each, or one of all (split_item 2 and 3).

    With a group_list there is one x: its rows are cut (group_type 0; ends, counts, or pairs of a
    weight and a count, by group_list_type), or its columns and the rows of the one weight (2). Rows
    beyond the last group give zeros. int8 times int8 is scaled by scale, per_token_scale and bias
    in float32; an int8 weight for a float x is (weight + antiquant_offset) * antiquant_scale. Then
    act_type: relu (1), gelu_tanh (2), fast_gelu (4), silu (5).
    """
    product = _Product(given)
    groups, split = given.get("group_list"), given.get("split_item") or 0
    if groups is None:
        require(len(x) == len(weight), f"{_NAME}: {len(x)} x for {len(weight)} weights")
        found = [product.of(one, weight[i], i) for i, one in enumerate(x)]
        return [torch.cat(found)] if split in (2, 3) else found
    require(len(x) == 1, f"{_NAME}: a group_list cuts one x, not {len(x)}")
    require(split in (2, 3), f"{_NAME}: split_item {split} would cut the result by a tensor; use 3")
    if given.get("group_type") == _BY_DEPTH:
        require(len(weight) == 1, f"{_NAME}: group_type 2 needs one weight, not {len(weight)}")
        return [product.by_depth(x[0], weight[0], _ends(groups, given))]
    wanted = given.get("group_type") in (None, _BY_ROW)
    require(wanted, f"{_NAME}: group_type {given.get('group_type')} does not go with a group_list")
    count = weight[0].shape[0] if len(weight) == 1 else len(weight)
    if given.get("group_list_type") == _PAIRS:
        places = groups[:, 0].to(torch.int64).clamp(0, count - 1)
        return [product.by_rows(x[0], weight, torch.cumsum(groups[:, 1], 0), places)]
    return [product.by_rows(x[0], weight, _ends(groups, given), None)]


@operator(_SCHEMA.replace("l(", "l.List(", 1).replace("Tensor? group_list", "SymInt[]? group_list"))
def grouped_matmul_list(
    x: list[Tensor], weight: list[Tensor], *, group_list: Sequence[int] | None = None, **given: Any
) -> list[Tensor]:
    """Multiply groups of rows as `grouped_matmul`, with the ends of the groups as numbers."""
    if group_list is None:
        return grouped_matmul(x, weight, **given)
    require(len(x) == 1, f"{_NAME}: a group_list cuts one x, not {len(x)}")
    one = [each.squeeze(0) for each in weight[0].split(1)] if len(weight) == 1 else weight
    fits = len(group_list) == len(one)
    require(fits, f"{_NAME}: {len(group_list)} groups for {len(one)} weights")
    rows = [x[0][a:b] for a, b in pairwise((0, *group_list))]
    found = [_Product(given).of(part, one[i], i) for i, part in enumerate(rows)]
    return [torch.cat(found)] if (given.get("split_item") or 0) in (2, 3) else found


def _ends(groups: Tensor, given: dict[str, Any]) -> Tensor:
    return torch.cumsum(groups, 0) if given.get("group_list_type") == _COUNTS else groups


class _Product:
    """Arguments shared by all products of a call."""

    def __init__(self, given: dict[str, Any]) -> None:
        for label in ("offset", "activation_input", "activation_quant_scale"):
            require(given.get(label) is None, f"{_NAME}: {label} is not supported here")
        act = given.get("act_type") or 0
        require(
            act == 0 or act in _ACTIVATIONS, f"{_NAME}: act_type {act} is none of 0, 1, 2, 4, 5"
        )
        self._given, self._act = given, _ACTIVATIONS.get(act)
        self._dtype: torch.dtype | None = given.get("output_dtype")

    def _list(self, label: str) -> list[Tensor]:
        return self._given.get(label) or []

    def _at(self, label: str, index: int) -> Tensor | None:
        found = self._list(label)
        return found[index] if index < len(found) else None

    def of(self, x: Tensor, weight: Tensor, index: int) -> Tensor:
        fits = x.dim() >= 2 and weight.dim() == 2 and x.shape[-1] == weight.shape[0]
        require(fits, f"{_NAME}: {tuple(x.shape)} @ {tuple(weight.shape)} does not fit")
        bias, token = self._at("bias", index), self._at("per_token_scale", index)
        if x.dtype == torch.int8:
            sums = torch.ops.aten._int_mm(x.flatten(0, -2), weight)
            sums = sums.reshape(*x.shape[:-1], weight.shape[1])
            return self._scaled(sums, self._at("scale", index), token, bias)
        return self._finished(torch.matmul(x, self._wide(x, weight, index)), bias, x.dtype)

    def by_rows(
        self, x: Tensor, weight: list[Tensor], ends: Tensor, places: Tensor | None
    ) -> Tensor:
        own = len(weight) == 1
        count = weight[0].shape[0] if own else len(weight)
        fits = weight[0].dim() == (3 if own else 2) and x.dim() == 2
        require(fits, f"{_NAME}: a group_list needs x (rows, k) and weight (groups, k, n)")
        rows = torch.arange(x.shape[0], device=x.device)
        group = (rows.unsqueeze(1) >= ends).sum(1)
        inside = (group < ends.shape[0]).unsqueeze(1)
        group = group.clamp(max=ends.shape[0] - 1)
        group = group if places is None else places[group]

        def each(label: str) -> Tensor | None:
            """Return a value for each row, from those for each group."""
            found = self._list(label)
            if not found:
                return None
            return (found[0].reshape(count, -1) if own else torch.stack(found))[group]

        token = self._at("per_token_scale", 0)
        if x.dtype == torch.int8:
            # One product of all rows for each weight: sums of bytes have no grouped kernel.
            sums = torch.zeros((), dtype=torch.int32, device=x.device)
            for i in range(count):
                part = torch.ops.aten._int_mm(x, weight[0][i] if own else weight[i])
                sums = torch.where((group == i).unsqueeze(1), part, sums)
            result = self._scaled(sums, each("scale"), token, each("bias"))
        else:
            parts = [self._wide(x, w, i) for i, w in enumerate(weight)]
            matrices = parts[0] if own else torch.stack(parts)
            if places is not None:
                matrices = matrices[places]
            product = grouped_rows(x, matrices, ends.to(torch.int32))
            result = self._finished(product, each("bias"), x.dtype)
        return torch.where(inside, result, 0)

    def by_depth(self, x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
        """Return (groups, rows, n): products of columns of x with rows of the weight."""
        fits = x.dim() == weight.dim() == 2 and x.dtype in FLOATS
        require(fits, f"{_NAME}: group_type 2 needs float x (m, k) and weight (k, n)")
        depth = torch.arange(x.shape[1], device=x.device)
        group = (depth.unsqueeze(1) >= ends).sum(1)
        numbers = torch.arange(ends.shape[0], device=x.device)
        inside = (group == numbers.unsqueeze(1)).unsqueeze(1)
        return self._finished(torch.matmul(torch.where(inside, x, 0), weight), None, x.dtype)

    def _wide(self, x: Tensor, weight: Tensor, index: int) -> Tensor:
        """Return a weight in the type of x."""
        require_floats(_NAME, x=x)
        scale, shift = self._at("antiquant_scale", index), self._at("antiquant_offset", index)
        if scale is None:
            require(weight.dtype == x.dtype, f"{_NAME}: x is {x.dtype}, weight {weight.dtype}")
            return weight
        require(weight.dtype == torch.int8, f"{_NAME}: an antiquant_scale is for int8")
        wide = weight.to(torch.float32)
        for values, apply in ((shift, torch.add), (scale, torch.mul)):
            if values is not None:
                wide = apply(wide, _over_depth(values.to(torch.float32), weight))
        return wide.to(x.dtype)

    def _scaled(
        self, sums: Tensor, scale: Tensor | None, token: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        fits = scale is not None and scale.dtype in FLOATS
        require(fits, f"{_NAME}: int8 needs a scale, float32 or bfloat16")
        if bias is not None and bias.dtype == torch.int32:
            sums, bias = sums + bias, None
        assert scale is not None
        result = sums.to(torch.float32) * scale.to(torch.float32)
        if token is not None:
            result = result * token.to(torch.float32).unsqueeze(-1)
        return self._finished(result, bias, torch.int8)

    def _finished(self, result: Tensor, bias: Tensor | None, default: torch.dtype) -> Tensor:
        wanted = self._dtype or default
        if bias is not None:
            result = result.to(torch.float32) + bias.to(torch.float32)
        if self._act is not None:
            result = self._act(result.to(torch.float32))
        return rounded(result) if wanted == torch.int8 else result.to(wanted)


def _over_depth(values: Tensor, weight: Tensor) -> Tensor:
    """Spread values of (n,) or (groups, n), which may have leading dims, over each (k, n)."""
    if values.dim() == weight.dim() - 1:
        return values.unsqueeze(-2)
    k = weight.shape[-2]
    size = k // values.shape[-2]
    wide = values.unsqueeze(-2).expand(*values.shape[:-1], size, values.shape[-1])
    return wide.reshape(*values.shape[:-2], k, values.shape[-1])


@operator("npu_transpose_batchmatmul")
def transpose_batchmatmul(
    input: Tensor, weight: Tensor, *, bias: Tensor | None = None, scale: Tensor | None = None,
    perm_x1: list[int] | None = None, perm_x2: list[int] | None = None,
    perm_y: list[int] | None = None, batch_split_factor: int | None = 1
) -> Tensor:  # fmt: skip
    """Return (input @ weight) of permuted operands, permuted by perm_y ([1, 0, 2]): (m, b, n). With
    a factor f, (f, m, b * n / f)."""
    name, factor = "npu_transpose_batchmatmul", batch_split_factor or 1
    require_floats(name, input=input, weight=weight)
    require(bias is None and scale is None, f"{name}: bias and scale are not supported here")
    require(input.dim() == weight.dim() == 3, f"{name}: input and weight must have 3 dims")
    orders = perm_x1 or [0, 1, 2], perm_x2 or [0, 1, 2], perm_y or [1, 0, 2]
    known = all(sorted(order) == [0, 1, 2] for order in orders)
    require(known, f"{name}: perm_x1, perm_x2 and perm_y must be orders of 0, 1, 2")
    result = torch.bmm(input.permute(orders[0]), weight.permute(orders[1])).permute(orders[2])
    if factor == 1:
        return result.contiguous()
    width = result.shape[1] * result.shape[2]
    require(width % factor == 0, f"{name}: {width} is not cut by batch_split_factor {factor}")
    parts = result.reshape(result.shape[0], factor, width // factor)
    return parts.transpose(0, 1).contiguous()


@operator("npu_moe_gating_top_k")
def moe_gating_top_k(
    x: Tensor, k: int, *, bias: Tensor | None = None, input_ids: Tensor | None = None,
    tid2eid: Tensor | None = None, k_group: int = 1, group_count: int = 1,
    group_select_mode: int = 0, renorm: int = 0, norm_type: int = 0, out_flag: bool = False,
    routed_scaling_factor: float = 1.0, eps: float = 1e-20
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return (weights, experts in int32, all scores in float32 or empty), of (tokens, experts).

    Scores are the softmax of x, or its sigmoid (norm_type 1, and weights are then divided by their
    sum). The k_group best of the groups stay, by their largest score plus bias, or the sum of the
    two largest (group_select_mode 1); of these the k best, the lower expert first where they are
    equal. tid2eid[input_ids] names the experts instead.
    """
    name = "npu_moe_gating_top_k"
    require_floats(name, x=x, bias=bias)
    require(x.dim() == 2, f"{name}: x must have 2 dims, not {x.dim()}")
    experts = x.shape[1]
    require(renorm == 0, f"{name}: renorm {renorm} is not 0")
    fits = group_count > 0 and experts % group_count == 0 and 1 <= k_group <= group_count
    require(fits, f"{name}: {experts} experts are not in {group_count} groups, {k_group} of them")
    most = experts // group_count * k_group
    require(1 <= k <= most, f"{name}: k {k} is not in [1, {most}]")
    require(norm_type in (0, 1) and group_select_mode in (0, 1), f"{name}: norm_type {norm_type} "
            f"and group_select_mode {group_select_mode} must be 0 or 1")  # fmt: skip
    wide = x.to(torch.float32)
    scores = torch.sigmoid(wide) if norm_type == 1 else torch.softmax(wide, -1)
    if tid2eid is not None and input_ids is not None:
        chosen = tid2eid[input_ids.to(torch.int64)].to(torch.int64)
    else:
        ranked = scores if bias is None else scores + bias.to(torch.float32)
        if group_count > 1:
            ranked = _best_groups(ranked, k_group, group_count, group_select_mode)
        chosen = torch.sort(ranked, dim=-1, descending=True, stable=True)[1][:, :k]
    weights = torch.gather(scores, 1, chosen)
    if norm_type == 1:
        weights = weights / (weights.sum(-1, keepdim=True) + eps)
    weights = weights * routed_scaling_factor
    rest = scores if out_flag else scores.new_empty(0)
    return weights.to(x.dtype), chosen.to(torch.int32), rest


def _best_groups(ranked: Tensor, k_group: int, group_count: int, mode: int) -> Tensor:
    """Return the scores, with -inf in the groups that are left out."""
    grouped = ranked.unflatten(-1, (group_count, ranked.shape[-1] // group_count))
    best = torch.topk(grouped, 2 if mode == 1 else 1, -1)[0].sum(-1)
    order = torch.sort(best, dim=-1, descending=True, stable=True)[1][:, :k_group]
    numbers = torch.arange(group_count, device=ranked.device)
    stays = (order.unsqueeze(-1) == numbers).any(1)
    return torch.where(stays.unsqueeze(-1), grouped, -torch.inf).flatten(-2)
