"""B as a window over an image: panels gathered from a strip, or the strip itself for few sums."""

from __future__ import annotations

from kernelmill.core.dim import Dim, floordiv, maximum, minimum
from kernelmill.lower.emit.depth import Depth
from kernelmill.lower.templates.matmul.site import Site
from kernelmill.lower.templates.matmul.spec import Window
from kernelmill.lower.templates.matmul.strip import Strip


def window_of(site: Site) -> Window:
    """The window of B, which the schedule says there is."""
    window = site.spec.b.window
    assert window is not None
    return window


def fill_strip(site: Site, depth: Depth, begin: Dim, end: Dim) -> Strip:
    """Emit the strip for the windows at positions [begin, end)."""
    window, layout = window_of(site), site.scratch
    width = window.outputs[1]
    first, last = floordiv(begin, width), floordiv(end - 1, width)
    assert layout.strip_shape is not None
    strip = Strip(site, window, layout.strip_shape, layout.strip, depth, first, last)
    strip.fill()
    return strip


def copy_windows(site: Site, strip: Strip, tile: Dim) -> None:
    """A panel of B from the strip: the tile's positions, one run of them for each output row.

    Runs are copied in whole vectors, each overwriting what the one before it wrote too much; the
    panel's rows are long enough for the last.
    """
    spec, schedule, depth = site.spec, site.schedule, strip.depth
    width, dilation = strip.window.outputs[1], strip.window.dilation
    begin = tile * schedule.width
    end = minimum(spec.n, begin + schedule.width)
    first, last = floordiv(begin, width), floordiv(end - 1, width)
    origin = site.scratch.b - depth.start * depth.inner * schedule.panel_stride
    _, high, wide = spec.k
    with site.builder.loop(first, last + 1, prefix="row") as row:
        skipped = maximum(0, begin - row.index * width)
        target = origin + row.index * width + skipped - begin
        with (
            site.builder.loop(depth.start, depth.stop, prefix="c") as c,
            site.builder.loop(0, high, prefix="i") as i,
            site.builder.loop(0, wide, prefix="j", unroll=isinstance(wide, int)) as j,
        ):
            k = (c.index, i.index, j.index)
            down, across = i.index * dilation[0], j.index * dilation[1]
            source = strip.place(c.index, row.index, down, across) + skipped
            panel_row = target + depth.number(k) * schedule.panel_stride
            for v in range(schedule.run_vectors):
                value = strip.vector(source + v * schedule.lanes)
                site.write(panel_row + v * schedule.lanes, value)
