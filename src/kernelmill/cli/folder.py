"""The option `--folder` of commands on compiled kernels."""

from __future__ import annotations

import argparse


def add_folder(command: argparse.ArgumentParser) -> None:
    """Add the option; None when it is not given."""
    command.add_argument(
        "--folder",
        help="default: KERNELMILL_KERNEL_META, else kernelmill/kernel_meta in $XDG_CACHE_HOME or "
        "~/.cache",
    )
