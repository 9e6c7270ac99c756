"""A report as one page: no file, script or style from elsewhere, and none may be loaded."""

from __future__ import annotations

import html
from functools import cache
from typing import TYPE_CHECKING, Any

from kernelmill.codegen import assembly
from kernelmill.core.version import VERSION
from kernelmill.kernel.printer import print_kernel
from kernelmill.report.facts import Explained
from kernelmill.report.sums import kernel_sums, module_sums
from kernelmill.report.text import (
    bytes_text,
    count_text,
    left_text,
    other_work,
    product_lines,
    time_text,
    verdict,
)

if TYPE_CHECKING:
    import jinja2


def page_of(explanation: Explained, framed: bool = False) -> str:
    """Return the page's text; `framed` for the `srcdoc` of a frame."""
    call = explanation.call
    return (
        _environment()
        .get_template("page.html")
        .render(
            told=explanation,
            framed=framed,
            call=call,
            machine=explanation.machine,
            programs=explanation.programs,
            codes={
                name: (print_kernel(kernel), assembly(kernel, isa))
                for name, (kernel, isa) in explanation.kernels.items()
            },
            products=product_lines,
            kernels=kernel_sums(explanation.programs),
            modules=module_sums(explanation.programs),
            other_work="" if call.other_work is None else other_work(call.other_work),
            verdict="" if call.speedup is None else verdict(call),
            version=VERSION,
        )
    )


def frame_of(explanation: Explained) -> str:
    """Return the page in a frame, for notebooks: its ids, styles and script are its own, however
    many are shown, and affect nothing in the notebook."""
    page, name = (
        html.escape(page_of(explanation, framed=True)),
        html.escape(explanation.name or "model"),
    )
    return (
        f'<iframe title="{name}: kernelmill report" sandbox="allow-scripts" srcdoc="{page}" '
        'style="width: 100%; height: 45rem; border: 0; resize: vertical"></iframe>'
    )


@cache
def _environment() -> jinja2.Environment:
    # Imported here: only a saved page needs it. Names of a user's code are escaped.
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kernelmill.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(time=time_text, size=bytes_text, count_of=count_text)
    environment.filters.update(share=_share, left=left_text)
    return environment


def _share(value: Any) -> str:
    return "-" if value is None else f"{value:.0%}"
