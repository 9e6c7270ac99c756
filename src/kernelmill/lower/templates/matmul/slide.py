"""Windows with few sums each, as in a depthwise convolution: summed where they lie in a strip."""

from __future__ import annotations

from itertools import product

from kernelmill.core.dim import Dim, ceildiv, minimum
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.sizes import Dims, size_hint
from kernelmill.lower.emit.depth import Depth, for_each_k
from kernelmill.lower.emit.microkernel import Fetch, Tile
from kernelmill.lower.templates.matmul.operands import rows_of_a
from kernelmill.lower.templates.matmul.site import Site
from kernelmill.lower.templates.matmul.spec import Window
from kernelmill.lower.templates.matmul.strip import Strip
from kernelmill.lower.templates.matmul.windows import fill_strip, window_of

_HELD = 16
"""Most elements of A that stay in registers for the whole task."""


def slide(site: Site) -> None:
    """All of the task's output rows, some rows of one vector of positions at a time."""
    schedule, builder, depth = site.schedule, site.builder, Depth.whole(site.spec.k)
    window = window_of(site)
    height, width = window.outputs
    begin = site.column_block * schedule.slide_rows
    end = minimum(height, begin + schedule.slide_rows)
    strip = fill_strip(site, depth, begin * width, end * width)
    weights = _weights(site, depth)
    with (
        builder.loop(begin, end, schedule.slide_together, prefix="row") as row,
        builder.loop(0, ceildiv(width, schedule.lanes), prefix="v") as vector,
    ):
        column = vector.index * schedule.lanes
        sums = _sums(site, strip, weights, row.index, column)
        lane = site.lanes(width - column, width)
        for (r, m), value in sums.items():
            n = (row.index + r) * width + column + site.lane.index
            site.spec.store(builder, site.batch, m, n, lane, value)


def _weights(site: Site, depth: Depth) -> Fetch:
    """Elements of A as vectors; few enough are read once, here."""
    element = rows_of_a(site, depth, 0)

    def fetch(i: int, k: Dims) -> Value:
        return site.builder.op("splat", element(i, k), lanes=site.schedule.lanes)

    sizes = [size_hint(size) for size in depth.axes]
    if sizes[0] != 1 or sizes[1] * sizes[2] * site.schedule.rows > _HELD:
        return fetch
    every = product(range(site.schedule.rows), *map(range, sizes))
    held: dict[tuple[int, Dims], Value] = {
        (i, k): fetch(i, k) for i, *at in every for k in [tuple(at)]
    }
    return lambda i, k: held[i, (0, *k[1:])]


Sums = dict[tuple[int, int], Value]
"""By output row, counted from the first of those summed together, and row of C."""


def _sums(site: Site, strip: Strip, weights: Fetch, row: Dim, column: Dim) -> Sums:
    """The sums of one vector of positions of some output rows."""
    schedule, depth = site.schedule, strip.depth
    places = list(product(range(schedule.slide_together), range(schedule.rows)))

    def add(k: Dims, values: list[Value]) -> list[Value]:
        sums = dict(zip(places, values, strict=True))
        _add_channel(site, strip, weights, k[0], (row, column), sums)
        return list(sums.values())

    zeros = [site.zeros()] * len(places)
    channels = Depth((depth.axes[0],), depth.start, depth.stop)
    values = (
        add((0,), zeros) if depth.axes[0] == 1 else for_each_k(site.builder, channels, zeros, add)
    )
    return dict(zip(places, values, strict=True))


def _add_channel(
    site: Site, strip: Strip, weights: Fetch, channel: Dim, at: tuple[Dim, Dim], sums: Sums
) -> None:
    """Add one channel's products: each vector of pixels is loaded once for all that want it."""
    schedule, window = site.schedule, strip.window
    tile = Tile(schedule.rows, 1, schedule.lanes, site.dtype, schedule.fused)
    row, column = at
    for down, taps in _by_line(site, window).items():
        for j in range(size_hint(site.spec.k[2])):
            place = strip.place(channel, row, down, j * window.dilation[1])
            pixels = strip.vector(place + column)
            for r, i in taps:
                for m in range(schedule.rows):
                    weight = weights(m, (channel, i, j))
                    sum = sums[r, m]
                    sums[r, m] = tile.multiply_add(site.builder, weight, pixels, sum)


def _by_line(site: Site, window: Window) -> dict[int, list[tuple[int, int]]]:
    """For each line of pixels the (output row, tap row) pairs that look at it."""
    lines: dict[int, list[tuple[int, int]]] = {}
    for r in range(site.schedule.slide_together):
        for i in range(size_hint(site.spec.k[1])):
            down = r * window.stride[0] + i * window.dilation[0]
            lines.setdefault(down, []).append((r, i))
    return dict(sorted(lines.items()))
