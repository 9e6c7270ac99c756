"""Places buffers in the arena: lifetimes in, byte offsets out.

Buffers with disjoint lifetimes may share memory, and so may a kernel's output and an input after
its last use, if the kernel can overwrite it. Constant sizes are packed by greedy best fit,
largest first (the offset-calculation problem of "Efficient Memory Management for Deep Neural Net
Inference", Pisarchyk and Lee 2020). Slots for symbolic sizes follow, one after the other: a buffer
gets a slot that is free for its lifetime and provably large enough for every value of the symbols.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from operator import itemgetter

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Expr, ceildiv, evaluate, product, provably_nonnegative, symbols
from kernelmill.plan.ir import BufferKind, BufferSpec, Launch, Step

ALIGNMENT = 64
"""Alignment of all memory in bytes: a cache line, and the widest vector register. Threads that
write at the same time write to parts of that size."""

_SAMPLE = 1024
"""The assumed value of a symbol when symbolic sizes are sorted."""


@dataclass(frozen=True)
class ArenaBuffer:
    """`bytes` of memory that step `first` writes first and step `last` uses last (inclusive)."""

    bytes: Dim
    first: int
    last: int

    def meets(self, other: ArenaBuffer) -> bool:
        """Return whether both are alive at one step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Arena:
    """An offset in bytes for each buffer, in the order given, and the size of the whole."""

    offsets: tuple[Dim, ...]
    bytes: Dim


@dataclass
class _Slot:
    """Memory for symbolic sizes: large enough for `bytes`, used by `residents` in turn."""

    bytes: Dim
    residents: list[ArenaBuffer] = field(default_factory=list[ArenaBuffer])


def lifetimes(steps: Sequence[Step], buffers: Sequence[BufferSpec]) -> dict[int, ArenaBuffer]:
    """Map each buffer in the arena, by number, to its size and its first and last launch."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for number, step in enumerate(steps):
        for buffer in step.buffers if isinstance(step, Launch) else ():
            if buffer >= 0 and buffers[buffer].kind == BufferKind.ARENA:
                first.setdefault(buffer, number)
                last[buffer] = number
    sizes = {b: product(buffers[b].shape) * buffers[b].dtype.bytes for b in first}
    return {b: ArenaBuffer(sizes[b], first[b], last[b]) for b in first}


def assign(buffers: Sequence[ArenaBuffer]) -> Arena:
    """Give every buffer a 64-byte aligned offset, so that no two that meet overlap."""
    offsets: dict[int, Dim] = {}
    constant = [i for i, buffer in enumerate(buffers) if isinstance(buffer.bytes, int)]
    end: Dim = _place_constant(buffers, constant, offsets)
    symbolic = [i for i, buffer in enumerate(buffers) if isinstance(buffer.bytes, Expr)]
    slots, slot_of = _fill_slots(buffers, symbolic)
    for number, slot in enumerate(slots):
        offsets.update({i: end for i in symbolic if slot_of[i] == number})
        end = end + _aligned(slot.bytes)
    return Arena(tuple(offsets[i] for i in range(len(buffers))), end)


def assign_with_donations(lives: Mapping[int, ArenaBuffer], donated: Mapping[int, int]) -> Arena:
    """Return offsets as `assign` does, in the order of `lives`, with each buffer in place of the
    one `donated` to it, which has the same size, and used last where the other is written first."""
    founder: dict[int, int] = {}
    together: dict[int, ArenaBuffer] = {}
    for number, buffer in sorted(lives.items(), key=lambda life: life[1].first):
        first = founder[number] = founder[donated[number]] if number in donated else number
        together[first] = replace(together.get(first, buffer), last=buffer.last)
    arena = assign(list(together.values()))
    offsets = dict(zip(together, arena.offsets, strict=True))
    return Arena(tuple(offsets[founder[number]] for number in lives), arena.bytes)


def peak_bytes(buffers: Sequence[ArenaBuffer], values: Mapping[str, int] | None = None) -> int:
    """Return the largest sum of sizes alive at one step: no arena without donations can be smaller.
    KeyError names a symbol without a value."""
    events: dict[int, int] = {}
    for buffer in buffers:
        size = evaluate(_aligned(buffer.bytes), values or {})
        events[buffer.first] = events.get(buffer.first, 0) + size
        events[buffer.last + 1] = events.get(buffer.last + 1, 0) - size
    peak = live = 0
    for step in sorted(events):
        live += events[step]
        peak = max(peak, live)
    return peak


def _aligned(size: Dim) -> Dim:
    return ceildiv(size, ALIGNMENT) * ALIGNMENT


def _place_constant(
    buffers: Sequence[ArenaBuffer], chosen: Sequence[int], offsets: dict[int, Dim]
) -> int:
    """Fill `offsets` for buffers of constant size; return the end of the highest one."""
    placed: list[tuple[int, int, ArenaBuffer]] = []  # (offset, end, buffer), by offset
    highest = 0
    for i in sorted(chosen, key=lambda i: (-evaluate(buffers[i].bytes, {}), buffers[i].first, i)):
        buffer = buffers[i]
        size = evaluate(_aligned(buffer.bytes), {})
        offset = _best_gap([(low, end) for low, end, x in placed if x.meets(buffer)], size)
        insort(placed, (offset, offset + size, buffer), key=itemgetter(0))
        offsets[i] = offset
        highest = max(highest, offset + size)
    return highest


def _best_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """Return the offset of the smallest gap of `size` bytes between `taken` sorted ranges."""
    best, best_waste, end = None, 0, 0
    for low, high in taken:
        waste = low - end - size
        if waste >= 0 and (best is None or waste < best_waste):
            best, best_waste = end, waste
        end = max(end, high)
    return end if best is None else best


def _fill_slots(
    buffers: Sequence[ArenaBuffer], chosen: Sequence[int]
) -> tuple[list[_Slot], dict[int, int]]:
    """Return slots for buffers of symbolic size, and the number of the slot each one is in."""
    slots: list[_Slot] = []
    slot_of: dict[int, int] = {}
    for i in sorted(chosen, key=lambda i: (-_sample(buffers[i].bytes), buffers[i].first, i)):
        buffer = buffers[i]
        # Later slots are smaller, so the last that fits wastes least.
        fits = (n for n in reversed(range(len(slots))) if _can_move_in(slots[n], buffer))
        number = next(fits, len(slots))
        if number == len(slots):
            slots.append(_Slot(buffer.bytes))
        slots[number].residents.append(buffer)
        slot_of[i] = number
    return slots, slot_of


def _can_move_in(slot: _Slot, buffer: ArenaBuffer) -> bool:
    free = not any(resident.meets(buffer) for resident in slot.residents)
    return free and provably_nonnegative(slot.bytes - buffer.bytes)


def _sample(size: Dim) -> int:
    return evaluate(size, dict.fromkeys(symbols(size), _SAMPLE))
