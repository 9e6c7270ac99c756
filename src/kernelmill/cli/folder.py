"""The option `--folder` of commands on compiled kernels."""

from __future__ import annotations

from typing import Annotated

import typer

Folder = Annotated[
    str | None,
    typer.Option(
        "--folder",
        metavar="DIR",
        help="Of compiled kernels. Default: KERNELMILL_KERNEL_META, else kernelmill/kernel_meta in "
        "$XDG_CACHE_HOME or ~/.cache.",
        show_default=False,
    ),
]
"""None when it is not given."""
