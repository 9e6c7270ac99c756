"""The option `--folder` of commands on compiled kernels."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelmill.store import default_folders

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


def written_to(folder: str | None) -> str:
    """Return the named folder, or the default one that is written to: read-only ones before it are
    somebody else's."""
    return folder or default_folders()[-1]
