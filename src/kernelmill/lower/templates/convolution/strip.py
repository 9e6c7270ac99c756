"""The strip: the input rows that a task looks at, in scratch, padded with zeros."""

from __future__ import annotations

from kernelmill.core.dim import Dim, maximum, minimum
from kernelmill.lower.elements.sizes import part_count
from kernelmill.lower.templates.convolution.site import Site


def strip_strides(site: Site) -> tuple[int, int, int]:
    """From one channel, row and column of the strip to the next."""
    high, wide = site.schedule.strip_size(site.geometry)
    pixel = site.schedule.pixel
    return (high * wide if site.geometry.planar else 1), wide * pixel, pixel


def fill_strip(site: Site, first: Dim, vectors: Dim, size: int) -> None:
    """Read the task's rows of the channels from `first` on, of `size` in all: so many vectors of
    them, or all planes.

    What is written in whole vectors beyond a run of zeros is overwritten by what follows.
    """
    geometry, schedule = site.geometry, site.schedule
    plane, line, pixel = strip_strides(site)
    _, wide = schedule.strip_size(geometry)
    planes = geometry.channels if geometry.planar else 1
    top = site.first * geometry.stride[0] - geometry.low[0]
    moved = (site.last - site.first - 1) * geometry.stride[0]
    count = moved + (geometry.kernel[0] - 1) * geometry.dilation[0] + 1
    begin = minimum(count, maximum(0, 0 - top))
    end = maximum(begin, minimum(count, geometry.sizes[0] - top))
    left = min(geometry.low[1], wide)
    inside = min(geometry.sizes[1], wide - left)
    with site.counted(0, planes, prefix="c") as number:
        start = site.strip + number * plane
        if geometry.low[0] or _below(site):
            for rows in ((0, begin), (end, count)):
                with site.builder.loop(*rows, prefix="row") as row:
                    _clear(site, start + row.index * line, wide * pixel)
        with site.builder.loop(begin, end, prefix="row") as row:
            place = start + row.index * line
            _clear(site, place, left * pixel)
            at = place + left * pixel
            if geometry.planar:
                _copy_plane(site, number, top + row.index, at, inside)
            else:
                _copy_row(site, (first, vectors, size), (top + row.index, inside), at)
            _clear(site, at + inside * pixel, (wide - left - inside) * pixel)


def _below(site: Site) -> bool:
    """Whether windows reach below the image."""
    geometry = site.geometry
    reach = (geometry.outputs[0] - 1) * geometry.stride[0] - geometry.low[0]
    return reach + (geometry.kernel[0] - 1) * geometry.dilation[0] >= geometry.sizes[0]


def _clear(site: Site, start: Dim, count: int) -> None:
    if count <= 0:
        return
    lanes, zeros = site.schedule.lanes, site.zeros()
    with site.counted(0, part_count(count, lanes), prefix="v") as vector:
        site.write(start + vector * lanes, zeros)


def _copy_plane(site: Site, channel: Dim, row: Dim, at: Dim, count: int) -> None:
    lanes = site.schedule.lanes
    channel = site.group * site.geometry.channels + channel
    with site.counted(0, part_count(count, lanes), prefix="v") as vector:
        start = vector * lanes
        lane = site.lanes(count - start, count)
        place = (row, start + site.lane.index)
        site.write(at + start, site.spec.load(site.image, channel, place, lane), lane.mask)


def _copy_row(site: Site, channels: tuple[Dim, Dim, int], row: tuple[Dim, int], at: Dim) -> None:
    first, vectors, size = channels
    y, columns = row
    lanes, pixel = site.schedule.lanes, site.schedule.pixel
    with (
        site.counted(0, columns, prefix="x") as x,
        site.counted(0, vectors, prefix="v") as vector,
    ):
        start = vector * lanes
        lane = site.lanes(size - (first + start), size)
        channel = site.group * site.geometry.channels + first + start + site.lane.index
        value = site.spec.load(site.image, channel, (y, x), lane)
        site.write(at + x * pixel + start, value, lane.mask)
