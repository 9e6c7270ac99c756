"""Attention: for training, for prompts, for single tokens, over paged keys and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kernelmill.compat.operators.norms import require_floats, rounded
from kernelmill.core.errors import InputError
from kernelmill.ops.library import operator, require

INFINITE = 2147483647
"""Value of pre_tokens and next_tokens without a bound."""

_DEFAULT, _ALL, _LEFT_UP, _RIGHT_DOWN, _BAND, _PREFIX, _SHORT_PREFIX = range(7)
_READ = (_DEFAULT, _ALL, _PREFIX)
"""Modes whose mask is read; those of the others are compressed, and imply it."""

Length = int | Tensor
"""A number of tokens; a tensor of no dims where it is not known before a call."""


@dataclass
class AttentionMask:
    """Mask arguments of an operator. `mask` is true where a key is hidden. `prefix` has a number of
    first keys for each sequence that each query sees, for modes 5 and 6."""

    name: str
    mask: Tensor | None = None
    mode: int = _DEFAULT
    before: int = INFINITE
    after: int = INFINITE
    prefix: Sequence[int] | None = None

    def __post_init__(self) -> None:
        most = _BAND if self.prefix is None else _SHORT_PREFIX
        fits = _DEFAULT <= self.mode <= most
        require(fits, f"{self.name}: sparse_mode {self.mode} is none of 0 to {most}")

    def keep(
        self, rows: int, columns: int, like: Tensor,
        lengths: Sequence[tuple[Length, Length]] | None,
    ) -> Tensor | None:  # fmt: skip
        """Return the keys that a query sees, a mask for (batch, heads, rows, columns) by broadcast;
        None where each sees all. `lengths` are those of queries and keys of each sequence."""
        i = torch.arange(rows, device=like.device).unsqueeze(1)
        j = torch.arange(columns, device=like.device).unsqueeze(0)
        each = [self._band(i, j, rows, columns)]
        if lengths is not None:
            each = [self._within(i, j, sizes) for sizes in lengths]
        elif each[0] is not None and self.mode == _SHORT_PREFIX:
            each = [each[0] | (j < count) for count in self.prefix or ()]
        found = None
        if each[0] is not None:
            found = torch.stack([one for one in each if one is not None]).unsqueeze(1)
        if self.mask is not None and self.mode in _READ:
            own = self._own(rows, columns)
            found = own if found is None else found & own
        return found

    def _own(self, rows: int, columns: int) -> Tensor:
        mask = self.mask
        assert mask is not None
        known = mask.dtype in (torch.bool, torch.int8, torch.uint8) and 2 <= mask.dim() <= 4
        known = known and mask.shape[-2] >= min(rows, mask.shape[-2])
        found = f"{mask.dtype} {tuple(mask.shape)}"
        require(known, f"{self.name}: atten_mask must be bool, int8 or uint8 with 2 to 4 dims, "
                f"not {found}")  # fmt: skip
        if mask.dim() == 2 and rows == 1 and mask.shape[0] != 1:  # (batch, columns)
            mask = mask[:, None, None]
        elif mask.dim() == 3:
            mask = mask.unsqueeze(1)
        fits = mask.shape[-1] >= columns and mask.shape[-2] >= rows
        require(fits, f"{self.name}: atten_mask {found} is less than ({rows}, {columns})")
        return mask[..., :rows, :columns] == 0

    def _within(self, i: Tensor, j: Tensor, sizes: tuple[Length, Length]) -> Tensor:
        inside = (i < sizes[0]) & (j < sizes[1])
        band = self._band(i, j, *sizes)
        return inside if band is None else inside & band

    def _band(self, i: Tensor, j: Tensor, rows: Length, columns: Length) -> Tensor | None:
        """Return the band that the mode leaves; its corner is the lower right one from mode 3."""
        if self.mask is None or self.mode in (_ALL, _PREFIX):
            return None
        corner = columns - rows if self.mode >= _RIGHT_DOWN else 0
        before, after = INFINITE, 0
        if self.mode in (_DEFAULT, _BAND):
            before, after = self.before, self.after
        found = None
        if after < INFINITE:
            found = j <= i + (corner + after)
        if before < INFINITE:
            lower = j >= i + (corner - before)
            found = lower if found is None else found & lower
        return found


_TO_BNSD = {
    "BSH": (0, 2, 1, 3), "SBH": (1, 2, 0, 3), "BSND": (0, 2, 1, 3), "BNSD": (0, 1, 2, 3),
    "TND": (1, 0, 2), "NTD": (0, 1, 2)
}  # fmt: skip
"""The dims (batch, head, token, width), or (head, token, width), of each layout."""

Lengths = Sequence[Length] | Tensor | None
_FROM_BNSD = {**_TO_BNSD, "SBH": (2, 0, 1, 3), "NBSD": (1, 0, 2, 3)}


def _heads_first(name: str, x: Tensor, layout: str, heads: int) -> Tensor:
    """Return as (batch, heads, tokens, width), or (heads, tokens, width) for packed sequences."""
    if layout.endswith("H"):
        fits = x.dim() == 3 and x.shape[-1] % heads == 0
        require(fits, f"{name}: {layout} with {heads} heads does not fit {tuple(x.shape)}")
        x = x.unflatten(-1, (heads, x.shape[-1] // heads))
    order = _TO_BNSD[layout]
    require(x.dim() == len(order), f"{name}: {layout} does not fit {tuple(x.shape)}")
    x = x.permute(order)
    found = x.shape[-3]
    require(found == heads, f"{name}: there are {found} heads in {layout}, not {heads}")
    return x


def _laid_out(x: Tensor, layout: str) -> Tensor:
    x = x.permute(_FROM_BNSD[layout])
    return x.flatten(-2) if layout.endswith("H") else x


def _scores(q: Tensor, k: Tensor, scale: float, bias: Tensor | None, keep: Tensor | None) -> Tensor:
    scores = torch.matmul(q.to(torch.float32), k.to(torch.float32).transpose(-1, -2)) * scale
    if bias is not None:
        scores = scores + bias.to(torch.float32)
    return scores if keep is None else torch.where(keep, scores, -torch.inf)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None, keep: Tensor | None,
    dropout: float = 0.0
) -> Tensor:  # fmt: skip
    """Attend (batch, heads, tokens, width). A query without visible keys gives zeros."""
    mask = keep
    if bias is not None:
        bias = bias.to(torch.float32)
        mask = bias if keep is None else torch.where(keep, bias, -torch.inf)
        mask = mask.to(q.dtype)
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, scale=scale
    )


def _repeated(x: Tensor, heads: int) -> Tensor:
    """Repeat keys or values for each head of the queries."""
    batch, own, tokens, width = x.shape
    if own == heads:
        return x
    x = x.unsqueeze(2).expand(batch, own, heads // own, tokens, width)
    return x.reshape(batch, heads, tokens, width)


def _refuse(name: str, **given: object) -> None:
    """Raise InputError for an argument that has no composite."""
    for label, value in given.items():
        require(value is None, f"{name}: {label} is not supported here; leave it out")


def _cuts(ends: Sequence[Any]) -> list[tuple[int, int]]:
    """Return the bounds of packed sequences, without the zeros at the end."""
    cuts, begin = list[tuple[int, int]](), 0
    for end in ends:
        cuts.append((begin, max(begin, end)))
        begin = max(begin, end)
    return cuts


@operator("npu_fusion_attention")
def fusion_attention(
    query: Tensor, key: Tensor, value: Tensor, head_num: int, input_layout: str,
    pse: Tensor | None = None, padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None, scale: float = 1.0, keep_prob: float = 1.0,
    pre_tockens: int = INFINITE, next_tockens: int = INFINITE, inner_precise: int = 0,
    prefix: Sequence[int] | None = None, actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None, sparse_mode: int = 0,
    gen_mask_parallel: bool = True, sync: bool = False, softmax_layout: str = "",
    sink: Tensor | None = None, dropout_mask: Tensor | None = None, seed: int = 0, offset: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int, int]:  # fmt: skip
    """Return (dropout(softmax(mask(scale * (pse + q @ k.T)))) @ v, maximum and sum of the softmax
    as (batch, heads, tokens, 8), an empty tensor, seed, offset, number of scores).

    Layouts BSH, SBH, BSND, BNSD; TND with cumulative lengths, where the softmax is (T, heads, 8).
    Without a mask each query sees all keys. Dropout is torch's. `sink` has one more score a head.
    """
    name = "npu_fusion_attention"
    _refuse(name, padding_mask=padding_mask, dropout_mask=dropout_mask)
    fits = sparse_mode not in (5, 6) or prefix is not None
    require(fits, f"{name}: sparse_mode {sparse_mode} needs a prefix")
    fits = softmax_layout in ("", "TND")
    require(fits, f"{name}: softmax_layout {softmax_layout!r} is neither '' nor 'TND'")
    require_floats(name, query=query, key=key, value=value)
    layouts = ("BSH", "SBH", "BSND", "BNSD", "TND")
    require(input_layout in layouts, f"{name}: input_layout {input_layout!r} is none of {layouts}")
    require(0 < keep_prob <= 1, f"{name}: keep_prob {keep_prob} is not in (0, 1]")
    seen = AttentionMask(name, atten_mask, sparse_mode, pre_tockens, next_tockens, prefix)
    q = _heads_first(name, query, input_layout, head_num)
    own = _key_heads(q, key, input_layout)
    k, v = (_heads_first(name, x, input_layout, own) for x in (key, value))
    parts = [(q, k, v)]
    if input_layout == "TND":
        parts = _parts(name, q, k, v, actual_seq_qlen, actual_seq_kvlen, paged=False)
    count, results = 0, list[tuple[Tensor, Tensor, Tensor]]()
    bias = None if pse is None else pse * scale
    level = None if sink is None else sink.to(torch.float32)[:, None, None]
    for place, (q, k, v) in enumerate(parts):
        if q.shape[-2] == 0:
            continue
        mask = (
            replace(seen, prefix=prefix[place : place + 1]) if prefix and len(parts) > 1 else seen
        )
        keep = mask.keep(q.shape[-2], k.shape[-2], q, None)
        k, v = _repeated(k, head_num), _repeated(v, head_num)
        out = _attend(q, k, v, scale, bias, keep, 1 - keep_prob)
        scores = _scores(q, k, scale, bias, keep)
        top, visible, total = _softmax_of(scores, level)
        if level is not None:
            out = (out.to(torch.float32) * (visible / total)).to(out.dtype)
        count += scores.numel()
        results.append((out, top.expand(*top.shape[:-1], 8), total.expand(*top.shape[:-1], 8)))
    empty = query.new_empty(0)
    if input_layout == "TND":
        out, top, total = (
            torch.cat(kind, 2)[0].permute(1, 0, 2) for kind in zip(*results, strict=True)
        )
        return out, top.contiguous(), total.contiguous(), empty, seed, offset, count
    out, top, total = results[0]
    out = _laid_out(out, input_layout).contiguous()
    return out, top.contiguous(), total.contiguous(), empty, seed, offset, count


def _softmax_of(scores: Tensor, level: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the greatest score, the sum of exponentials, and that with one of `level` too."""
    top = scores.amax(-1, keepdim=True)
    top = top if level is None else torch.maximum(top, level)
    visible = torch.exp(scores - top).sum(-1, keepdim=True)
    return top, visible, visible if level is None else visible + torch.exp(level - top)


def _key_heads(q: Tensor, key: Tensor, layout: str) -> int:
    """Return the heads of the keys, from their layout or their width."""
    if layout.endswith("H"):
        return key.shape[-1] // q.shape[-1]
    return key.shape[_TO_BNSD[layout][-3]]


def infer(
    name: str, query: Tensor, key: Tensor, value: Tensor, *, layout: str = "BSH", heads: int = 1,
    key_heads: int = 0, scale: float = 1.0, bias: Tensor | None = None,
    mask: Tensor | None = None, mode: int = 0, before: int = INFINITE, after: int = INFINITE,
    query_lengths: Lengths = None, key_lengths: Lengths = None,
    blocks: Tensor | None = None, block_size: int = 0, sink: Tensor | None = None,
    query_rope: Tensor | None = None, key_rope: Tensor | None = None, wants_sums: bool = False,
    key_prefix: Tensor | None = None, value_prefix: Tensor | None = None,
    prefix_lengths: Lengths = None, out_scale: Tensor | None = None,
    out_offset: Tensor | None = None, **integers: Any
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return (softmax(scale * q @ k.T + bias) @ v, log of the sum of exponentials, or one zero).

    Layouts BSH, BSND, BNSD, TND and NTD, and X_Y with a result in another one (BSND, NBSD, NTD,
    TND). Keys and values may have fewer heads, be in blocks of a table, be int8 with `integers`: a
    scale, offset and mode (0 and 1) of each, or both in one tensor. The ropes are appended to the
    width. Queries beyond their lengths give zeros, keys beyond theirs are not read. A
    prefix of keys and values is before those of each sequence. `sink` is a score of each head,
    whose value is zero.
    """
    seen = AttentionMask(name, mask, mode, before, after)
    source, _, target = layout.partition("_")
    fits = source in _TO_BNSD and source != "SBH" and (target or source) in _FROM_BNSD
    require(fits, f"{name}: input_layout {layout!r} is not known")
    if seen.mode:
        require(seen.mask is not None, f"{name}: sparse_mode {seen.mode} needs an atten_mask")
    key_heads = key_heads or heads
    require(heads % key_heads == 0, f"{name}: {heads} heads are no multiple of {key_heads}")
    require_floats(name, query=query)
    ropes = (query_rope is None) == (key_rope is None)
    require(ropes, f"{name}: query_rope and key_rope go together")
    require((key_prefix is None) == (value_prefix is None), f"{name}: shared prefixes go together")
    q = _with_rope(name, query, query_rope, source, heads)
    pages = _Pages(name, blocks, block_size) if blocks is not None else None

    def laid(x: Tensor) -> Tensor:
        return pages.gather(x, key_heads) if pages else _heads_first(name, x, source, key_heads)

    both = [laid(key), laid(value)]
    if key_prefix is not None and value_prefix is not None:
        starts = [_heads_first(name, x, source, key_heads) for x in (key_prefix, value_prefix)]
        both, key_lengths = _behind(name, starts, both, prefix_lengths, key_lengths)
    k, v = (
        _dequantised(name, x, *_scales(integers, place), q.dtype) for place, x in enumerate(both)
    )
    if key_rope is not None:
        k = torch.cat((k, laid(key_rope)), -1)
    if q.dim() == 3:
        parts = _parts(name, q, k, v, query_lengths, key_lengths, pages is not None)
        done = [_one(q, k, v, scale, bias, seen, None, sink, wants_sums) for q, k, v in parts]
        out, sums = torch.cat([o for o, _ in done], 2)[0], torch.cat([s for _, s in done], 2)[0]
        sums = sums.permute(1, 0, 2)
    else:
        require(pages is None or key_lengths is not None, f"{name}: a block_table needs lengths")
        lengths = _lengths(name, q, k, query_lengths, key_lengths)
        out, sums = _one(q, k, v, scale, bias, seen, lengths, sink, wants_sums)
    if out_scale is not None:
        out = _requantised(out, out_scale, out_offset)
    out = _laid_out(out, target or source).contiguous()
    return out, sums.contiguous() if wants_sums else query.new_zeros(1, dtype=torch.float32)


def _behind(
    name: str, starts: Sequence[Tensor], both: Sequence[Tensor], count: Lengths, lengths: Lengths
) -> tuple[list[Tensor], Lengths]:  # fmt: skip
    """Return keys and values behind the first tokens of `starts`, count[0] of them, and their
    lengths."""
    fits = all(
        x.dim() == 4 and start.shape[:2] == (1, x.shape[1]) and start.shape[3] == x.shape[3]
        for start, x in zip(starts, both, strict=True)
    )
    require(fits, f"{name}: a shared prefix is one sequence, with the heads and width of the keys, "
            "for keys of sequences of one size")  # fmt: skip
    whole, tokens = starts[0].shape[2], both[0].shape[2]
    first = whole if count is None else count[0]
    if count is not None or lengths is not None:
        lengths = [first + own for own in ([tokens] if lengths is None else lengths)]
    found = [
        torch.cat((start.expand(x.shape[0], -1, -1, -1), x), 2)
        for start, x in zip(starts, both, strict=True)
    ]
    place = torch.arange(whole + tokens, device=both[0].device)
    place = torch.where(place < first, place, place + (whole - first)).clamp(max=whole + tokens - 1)
    return [x.index_select(2, place) for x in found] if count is not None else found, lengths


def _one(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None, seen: AttentionMask,
    lengths: Sequence[tuple[Length, Length]] | None, sink: Tensor | None, wants_sums: bool
) -> tuple[Tensor, Tensor]:  # fmt: skip
    rows, columns, heads = q.shape[-2], k.shape[-2], q.shape[1]
    keep = seen.keep(rows, columns, q, lengths)
    if lengths is not None:  # elements beyond a sequence may be anything, NaN too
        used = torch.stack([torch.arange(columns, device=q.device) < own for _, own in lengths])
        used = used[:, None, :, None]
        k, v = torch.where(used, k, 0), torch.where(used, v, 0)
    if bias is not None:
        bias = bias[..., :rows, :columns]
    k, v = _repeated(k, heads), _repeated(v, heads)
    out = _attend(q, k, v, scale, bias, keep)
    if not wants_sums and sink is None:
        return out, out
    sums = torch.logsumexp(_scores(q, k, scale, bias, keep), -1, keepdim=True)
    if sink is not None:
        sink = sink.to(torch.float32)[:, None, None]
        out = (out.to(torch.float32) * torch.sigmoid(sums - sink)).to(out.dtype)
        sums = torch.logaddexp(sums, sink)
    return out, sums


def _with_rope(name: str, x: Tensor, rope: Tensor | None, layout: str, heads: int) -> Tensor:
    parts = [_heads_first(name, each, layout, heads) for each in (x, rope) if each is not None]
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


def _lengths(
    name: str, q: Tensor, k: Tensor, query: Lengths, key: Lengths
) -> list[tuple[Length, Length]] | None:
    """Return the lengths of queries and keys for each sequence; None where all are whole."""
    if query is None and key is None:
        return None
    batch, spread = q.shape[0], list[list[Length]]()
    for given, whole in ((query, q.shape[-2]), (key, k.shape[-2])):
        each: list[Length] = [whole] if given is None else list(given)
        fits = len(each) == 1 or len(each) >= batch
        require(fits, f"{name}: {len(each)} lengths for a batch of {batch}")
        spread.append(each * batch if len(each) == 1 else each[:batch])
    return list(zip(*spread, strict=True))


def _parts(
    name: str, q: Tensor, k: Tensor, v: Tensor, query: Lengths, key: Lengths, paged: bool
) -> list[tuple[Tensor, Tensor, Tensor]]:  # fmt: skip
    """Return the packed sequences. Lengths of paged keys are not cumulative, the others are."""
    if query is None or key is None or isinstance(query, Tensor) or isinstance(key, Tensor):
        raise InputError(f"{name}: sequences in a row need numbers as lengths of queries and keys")
    if paged:
        cuts = zip(_cuts(query), key, range(len(key)), strict=True)
        return [(q[None, :, a:b], k[i, None, :, :n], v[i, None, :, :n]) for (a, b), n, i in cuts]
    cuts = zip(_cuts(query), _cuts(key), strict=True)
    return [(q[None, :, a:b], k[None, :, c:d], v[None, :, c:d]) for (a, b), (c, d) in cuts]


class _Pages:
    """Keys and values in blocks that a table names."""

    def __init__(self, name: str, table: Tensor, block_size: int) -> None:
        fits = table.dim() == 2 and table.dtype == torch.int32
        require(fits, f"{name}: block_table must be int32 (batch, blocks), not {table.dtype}")
        require(block_size > 0, f"{name}: a block_table needs a block_size")
        self.name, self.table, self.size = name, table, block_size

    def gather(self, x: Tensor, heads: int) -> Tensor:
        """Return (batch, heads, tokens, width) of (blocks, size, heads * width), or of (blocks,
        heads, size, width). Block numbers out of range read any block."""
        if x.dim() == 3:
            x = x.unflatten(-1, (heads, x.shape[-1] // heads)).transpose(1, 2)
        fits = x.dim() == 4 and x.shape[1] == heads and x.shape[2] == self.size
        found = f"{tuple(x.shape)} is not in {heads} heads and blocks of {self.size}"
        require(fits, f"{self.name}: {found}")
        found = x[self.table.to(torch.int64).clamp(0, x.shape[0] - 1)]
        return found.transpose(1, 2).flatten(2, 3)


def _dequantised(
    name: str, x: Tensor, scale: Tensor | None, offset: Tensor | None, mode: int, dtype: torch.dtype
) -> Tensor:
    """Return (x + offset) * scale of int8, by tensor or channel (mode 0), or by token (mode 1)."""
    if scale is None:
        require(x.dtype == dtype, f"{name}: keys and values are {x.dtype}, queries {dtype}")
        return x
    fits = x.dtype == torch.int8 and mode in (0, 1) and x.dim() == 4
    require(fits, f"{name}: {x.dtype} with antiquant mode {mode} is not supported here")
    heads, tokens, width = x.shape[1:]
    wide = x.to(torch.float32)

    def spread(values: Tensor) -> Tensor:
        values = values.to(torch.float32)
        if mode == 1:
            return values.reshape(-1, 1, values.shape[-1], 1)[:, :, :tokens]
        return values if values.numel() == 1 else values.reshape(1, heads, 1, width)

    if offset is not None:
        wide = wide + spread(offset)
    return (wide * spread(scale)).to(dtype)


def _scales(given: Mapping[str, Any], place: int) -> tuple[Tensor | None, Tensor | None, int]:
    """Return scale, offset and mode of the keys or values (place 0 and 1)."""
    own = ("key", "value")[place]
    if given.get("both_scale") is not None and given.get("key_scale") is None:
        scale, offset = given["both_scale"], given.get("both_offset")
        return scale[place], None if offset is None else offset[place], given.get("both_mode", 0)
    return given.get(f"{own}_scale"), given.get(f"{own}_offset"), given.get(f"{own}_mode", 0)


def _requantised(out: Tensor, scale: Tensor, offset: Tensor | None) -> Tensor:
    def spread(values: Tensor) -> Tensor:
        values = values.to(torch.float32)
        return values if values.numel() == 1 else values.reshape(out.shape[-3], 1, out.shape[-1])

    wide = out.to(torch.float32) * spread(scale)
    return rounded(wide if offset is None else wide + spread(offset))


_INFER = f"""
Tensor? pse_shift=None: bias; Tensor? atten_mask=None: mask;
SymInt[]? actual_seq_lengths=None: query_lengths; SymInt[]? actual_seq_lengths_kv=None: key_lengths;
Tensor? dequant_scale1=None: -; Tensor? quant_scale1=None: -; Tensor? dequant_scale2=None: -;
Tensor? quant_scale2=None: out_scale; Tensor? quant_offset2=None: out_offset;
Tensor? antiquant_scale=None: both_scale; Tensor? antiquant_offset=None: both_offset;
Tensor? key_antiquant_scale=None: key_scale; Tensor? key_antiquant_offset=None: key_offset;
Tensor? value_antiquant_scale=None: value_scale; Tensor? value_antiquant_offset=None: value_offset;
Tensor? block_table=None: blocks; Tensor? query_padding_size=None: -;
Tensor? kv_padding_size=None: -; Tensor? key_shared_prefix=None: key_prefix;
Tensor? value_shared_prefix=None: value_prefix;
SymInt[]? actual_shared_prefix_len=None: prefix_lengths;
Tensor? query_rope=None: query_rope; Tensor? key_rope=None: key_rope;
Tensor? key_rope_antiquant_scale=None: -; int num_heads=1: heads; float scale=1.0: scale;
int pre_tokens={INFINITE}: before; int next_tokens={INFINITE}: after;
str input_layout="BSH": layout; int num_key_value_heads=0: key_heads; int sparse_mode=0: mode;
int inner_precise=0; int block_size=0: block_size; int antiquant_mode=0: both_mode;
int key_antiquant_mode=0: key_mode; int value_antiquant_mode=0: value_mode;
bool softmax_lse_flag=False: wants_sums
"""
_INFER_V2 = f"""
Tensor? query_rope=None: query_rope; Tensor? key_rope=None: key_rope;
Tensor? pse_shift=None: bias; Tensor? atten_mask=None: mask;
SymInt[]? actual_seq_qlen=None: query_lengths; SymInt[]? actual_seq_kvlen=None: key_lengths;
Tensor? block_table=None: blocks; Tensor? dequant_scale_query=None: -;
Tensor? dequant_scale_key=None: key_scale; Tensor? dequant_offset_key=None: key_offset;
Tensor? dequant_scale_value=None: value_scale; Tensor? dequant_offset_value=None: value_offset;
Tensor? dequant_scale_key_rope=None: -; Tensor? quant_scale_out=None: out_scale;
Tensor? quant_offset_out=None: out_offset; Tensor? quant_scale_p=None: -;
Tensor? learnable_sink=None: sink; int num_query_heads=1: heads;
int num_key_value_heads=0: key_heads; float softmax_scale=1.0: scale;
int pre_tokens={INFINITE}: before; int next_tokens={INFINITE}: after;
str input_layout="BSH": layout; int sparse_mode=0: mode; int block_size=0: block_size;
int query_quant_mode=0; int key_quant_mode=0: key_mode; int value_quant_mode=0: value_mode;
int inner_precise=0; bool return_softmax_lse=False: wants_sums; int? query_dtype=None: -;
int? key_dtype=None: -; int? value_dtype=None: -; int? query_rope_dtype=None: -;
int? key_rope_dtype=None: -; int? key_shared_prefix_dtype=None: -;
int? value_shared_prefix_dtype=None: -; int? dequant_scale_query_dtype=None: -;
int? dequant_scale_key_dtype=None: -; int? dequant_scale_value_dtype=None: -;
int? dequant_scale_key_rope_dtype=None: -; int? out_dtype=None: -
"""
_INCREMENTAL = """
Tensor? padding_mask=None: -; Tensor? atten_mask=None: mask; Tensor? pse_shift=None: bias;
SymInt[]? actual_seq_lengths=None: key_lengths; Tensor? antiquant_scale=None: both_scale;
Tensor? antiquant_offset=None: both_offset; Tensor? block_table=None: blocks;
Tensor? dequant_scale1=None: -; Tensor? quant_scale1=None: -; Tensor? dequant_scale2=None: -;
Tensor? quant_scale2=None: out_scale; Tensor? quant_offset2=None: out_offset;
Tensor? kv_padding_size=None: -; int num_heads=1: heads; float scale_value=1.0: scale;
str input_layout="BSH": layout; int num_key_value_heads=0: key_heads;
int block_size=0: block_size; int inner_precise=1
"""
"""Arguments after the first three, with their names in `infer`: "-" has no composite, and one
without a name changes no result."""


class _Inference:
    """An operator of torch_npu that is `infer` by other names."""

    def __init__(self, name: str, table: str, results: str) -> None:
        rows = [row.strip().partition(": ")[::2] for row in table.split(";")]
        arguments = ", ".join(declared for declared, _ in rows)
        self._name, self._results = name.partition(".")[0], results
        self._ours = {declared.split()[1].partition("=")[0]: ours for declared, ours in rows}
        self.schema = f"{name}(Tensor query, Tensor key, Tensor value, *, {arguments}) -> {results}"

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, **given: Any) -> Any:
        found = {name: each for name, each in given.items() if each is not None}
        _refuse(self._name, **{name: v for name, v in found.items() if self._ours[name] == "-"})
        ours = {self._ours[name]: each for name, each in found.items() if self._ours[name]}
        single = self._results == "Tensor"
        if single:
            _require_one_query(self._name, query, ours.get("layout", "BSH"))
        both = infer(self._name, query, key, value, **ours)
        return both[0] if single else both


def _require_one_query(name: str, query: Tensor, layout: str) -> None:
    layouts = ("BSH", "BNSD", "BSND")
    require(layout in layouts, f"{name}: input_layout {layout!r} is none of {layouts}")
    tokens = query.shape[2 if layout == "BNSD" else 1]
    require(tokens == 1, f"{name}: there must be one query of a sequence, not {tokens}")


_BOTH = "(Tensor, Tensor)"
for _name, _table, _results in (
    ("npu_fused_infer_attention_score", _INFER, _BOTH),
    ("npu_fused_infer_attention_score_v2", _INFER_V2, _BOTH),
    ("npu_fused_infer_attention_score.Tensor", _INFER.replace("SymInt[]?", "Tensor?"), _BOTH),
    ("npu_fused_infer_attention_score_v2.Tensor", _INFER_V2.replace("SymInt[]?", "Tensor?"), _BOTH),
    ("npu_incre_flash_attention", _INCREMENTAL, "Tensor"),
):
    _given = _Inference(_name, _table, _results)
    operator(_given.schema)(_given)


def _of_lengths(name: str) -> Callable[..., Any]:
    """Return an operator as torchair.ops has it: lengths may be in tensors, too."""
    packet = getattr(torch.ops.kernelmill, name)

    def call(*args: Any, **given: Any) -> Any:
        lengths = (value for label, value in given.items() if label.startswith("actual_"))
        held = any(isinstance(value, Tensor) for value in lengths)
        return (packet.Tensor if held else packet.default)(*args, **given)

    return call


OF_LENGTHS = {
    name: _of_lengths(name)
    for name in ("npu_fused_infer_attention_score", "npu_fused_infer_attention_score_v2")
}
"""The operators of torchair.ops."""
