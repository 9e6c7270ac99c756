"""Suggestion of gears for recorded calls: those with the least work spent on padding."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import GearError
from kernelmill.core.text import counted
from kernelmill.gears.cover import best_grid, best_rows, grid_work, work_of
from kernelmill.gears.gear_set import MOST_GEARS, GearDim
from kernelmill.gears.shape_log import Shapes


@dataclass(frozen=True)
class Suggestion:
    """Gears for `calls` calls, by the policy "zip" or "product".

    `sizes` lists for each axis the argument of `set_dim_gears`; `gears` is the number of
    combinations. `padding` is the share of the work that would be spent on padding, between 0 and
    1, and `padding_to_largest` that share with one gear, the largest. The work of a call is the
    product of its sizes, of which equal ones count once. `left_out` calls had other arguments.
    """

    axes: tuple[GearDim, ...]
    sizes: tuple[tuple[int, ...], ...]
    policy: str
    gears: int
    calls: int
    padding: float
    padding_to_largest: float
    left_out: int = 0

    def summary(self) -> str:
        """Return the cost of the gears, in one sentence or two."""
        text = (
            f"{counted(self.gears, 'gear')} for {counted(self.calls, 'call')}: "
            f"{self.padding:.1%} of the work is padding "
            f"({self.padding_to_largest:.1%} if all were padded to the largest)."
        )
        other = f" It leaves out {counted(self.left_out, 'call')} with other arguments."
        return text + other if self.left_out else text

    def code(self) -> str:
        """Return Python that sets the gears: options for `config`, and a call for each tensor."""
        lines = ['config.inference_config.gear_miss = "pad"']
        lines.append(f'config.inference_config.dynamic_gears_merge_policy = "{self.policy}"')
        if any(size < 2 for sizes in self.sizes for size in sizes):
            lines.append("config.inference_config.allow_small_gears = True")
        tensors: dict[str, list[str]] = {}
        for axis, sizes in zip(self.axes, self.sizes, strict=True):
            tensors.setdefault(axis.argument, []).append(f"{axis.dim}: {list(sizes)}")
        for name, dims in tensors.items():
            lines.append(f"kernelmill.inference.set_dim_gears({name}, {{{', '.join(dims)}}})")
        return "\n".join(lines) + "\n"


def suggest(
    calls: Mapping[Shapes, int], most: int = 8, policy: str = "zip", smallest: int = 2
) -> Suggestion:
    """Suggest at most `most` gears, none below `smallest`, with little padding: the least possible
    if one size varies.

    `calls` are recorded shapes, each with its number of occurrences. Dims that always have the same
    size as each other count as one. GearError: nothing varies, or `most` does not fit the policy.
    """
    if not 2 <= most <= MOST_GEARS:
        raise GearError(f"at most {most} gears were asked for: give 2 to {MOST_GEARS}")
    seen, left_out = _alike(calls)
    tied = _tied(seen)
    points: Counter[tuple[int, ...]] = Counter()
    true = 0
    for shapes, count in seen.items():
        size = _sizes(shapes, tied)
        true += count * math.prod(size)
        points[tuple(max(n, smallest) for n in size)] += count
    if len(points) == 1:
        raise GearError(f"every call fits the sizes {next(iter(points))}: gears need at least two")
    count, work, columns = _chosen(points, [len(axes) for axes in tied], most, policy)
    # A list of gears has two values at least.
    listed = {
        axis: tuple(column) if len(column) > 1 else tuple(column) * 2
        for axes, column in zip(tied, columns, strict=True)
        for axis in axes
    }
    axes = tuple(axis for axis in _axes(next(iter(seen))) if axis in listed)
    total = sum(points.values())
    largest = total * math.prod(map(max, *points))
    return Suggestion(
        axes, tuple(listed[axis] for axis in axes), policy, count, total,
        1 - true / max(work, 1), 1 - true / max(largest, 1), left_out,
    )  # fmt: skip


def _chosen(
    points: Counter[tuple[int, ...]], ties: Sequence[int], most: int, policy: str
) -> tuple[int, float, Sequence[Sequence[int]]]:
    """Return the number of gears, their work, and the sizes of each dim."""
    if policy == "zip":
        rows = best_rows(points, most)
        return len(rows), work_of(points, rows), list(zip(*rows, strict=True))
    known = [len({point[d] for point in points}) for d in range(len(ties))]
    needed = math.prod(min(2, n) ** t for n, t in zip(known, ties, strict=True))
    if needed > most:
        raise GearError(
            f"the policy 'product' makes {needed} gears of 2 sizes for each dim of each tensor, "
            f"and at most {most} were asked for: use the policy 'zip'"
        )
    grid = best_grid(points, most, ties, least=2)
    count = math.prod(len(sizes) ** t for sizes, t in zip(grid, ties, strict=True))
    return count, grid_work(points, grid), grid


# ---- varying sizes --------------------------------------------------------------------------


def _alike(calls: Mapping[Shapes, int]) -> tuple[dict[Shapes, int], int]:
    """Return the most frequent calls with the same tensors of the same ranks, and the number of
    others. GearError if there are none."""
    if not calls:
        raise GearError("no calls were recorded: there is nothing to suggest gears for")
    kinds: Counter[tuple[tuple[str, int], ...]] = Counter()
    for shapes, count in calls.items():
        kinds[_kind(shapes)] += count
    ((kind, frequent),) = kinds.most_common(1)
    alike = {shapes: count for shapes, count in calls.items() if _kind(shapes) == kind}
    return alike, sum(calls.values()) - frequent


def _kind(shapes: Shapes) -> tuple[tuple[str, int], ...]:
    return tuple((name, len(shape)) for name, shape in shapes)


def _axes(shapes: Shapes) -> list[GearDim]:
    return [GearDim(name, dim) for name, shape in shapes for dim in range(len(shape))]


def _tied(seen: Mapping[Shapes, int]) -> list[list[GearDim]]:
    """Return the axes whose sizes vary, grouped by equal sizes. GearError if none varies."""
    sizes = zip(*([size for _, shape in shapes for size in shape] for shapes in seen), strict=True)
    groups: dict[tuple[int, ...], list[GearDim]] = {}
    for axis, column in zip(_axes(next(iter(seen))), sizes, strict=True):
        if len(set(column)) > 1:
            groups.setdefault(column, []).append(axis)
    if not groups:
        raise GearError("all calls have the same shapes: gears are for sizes that vary")
    return list(groups.values())


def _sizes(shapes: Shapes, tied: Sequence[Sequence[GearDim]]) -> tuple[int, ...]:
    named = dict(shapes)
    return tuple(named[axes[0].argument][axes[0].dim] for axes in tied)
