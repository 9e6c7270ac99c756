"""Depthwise convolutions: each channel by itself, so vectors of channels need no turning."""

from __future__ import annotations

from kernelmill.core.dim import Dim, minimum
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.sizes import part_count
from kernelmill.lower.templates.convolution.site import Site
from kernelmill.lower.templates.convolution.strip import fill_strip, strip_strides


def convolve_depthwise(site: Site) -> None:
    """All of the task's channels and rows, some pixels of a row at a time."""
    geometry, schedule = site.geometry, site.schedule
    lanes, size = schedule.lanes, geometry.groups
    first = site.panel_block * schedule.width
    vectors = minimum(
        schedule.vectors, part_count(size, lanes) - site.panel_block * schedule.vectors
    )
    fill_strip(site, first, vectors, size)
    full, rest = divmod(geometry.outputs[1], schedule.across)
    with (
        site.builder.loop(0, vectors, prefix="v") as vector,
        site.builder.loop(site.first, site.last, prefix="row") as row,
    ):
        start = vector.index * lanes
        with site.counted(0, full, prefix="tile") as tile:
            _pixels(site, first, start, row.index, tile * schedule.across, schedule.across)
        if rest:
            _pixels(site, first, start, row.index, full * schedule.across, rest)


def _pixels(site: Site, first: Dim, start: Dim, row: Dim, column: Dim, count: int) -> None:
    geometry, builder = site.geometry, site.builder
    _, line, pixel = strip_strides(site)
    at = site.strip + (row - site.first) * geometry.stride[0] * line
    at = at + column * geometry.stride[1] * pixel + start
    sums = [site.zeros()] * count
    if site.schedule.unrolled:
        for i in range(geometry.kernel[0]):
            sums = _add_row(site, i, first + start, at, sums)
    else:
        carry = [(value.type, value) for value in sums]
        with builder.loop(0, geometry.kernel[0], 1, carry, prefix="k") as loop:
            loop.carry(*_add_row(site, loop.index, first + start, at, list(loop.carried)))
        sums = list(loop.results)
    lane = site.lanes(geometry.groups - (first + start), geometry.groups)
    channel = first + start + site.lane.index
    for x, value in enumerate(sums):
        site.spec.store(site.image, channel, (row, column + x), lane, value)


def _add_row(site: Site, i: Dim, channel: Dim, at: Dim, sums: list[Value]) -> list[Value]:
    """Add the products of one row of the window: each vector of pixels is read once."""
    geometry, lanes = site.geometry, site.schedule.lanes
    _, line, pixel = strip_strides(site)
    padded = part_count(geometry.groups, lanes) * lanes
    at = at + i * geometry.dilation[0] * line
    known: dict[int, Value] = {}
    sums = list(sums)
    for j in range(geometry.kernel[1]):
        tap = (i * geometry.kernel[1] + j) * padded
        weight = site.weights(tap + channel)
        for x, sum in enumerate(sums):
            place = x * geometry.stride[1] + j * geometry.dilation[1]
            if place not in known:
                known[place] = site.read(at + place * pixel, lanes)
            sums[x] = _multiply_add(site, weight, known[place], sum)
    return sums


def _multiply_add(site: Site, a: Value, b: Value, c: Value) -> Value:
    if site.schedule.fused:
        return site.builder.op("fma", a, b, c)
    return site.builder.op("add", site.builder.op("mul", a, b), c)
