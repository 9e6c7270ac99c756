"""`kernelmill cache show` and `kernelmill aot info`: kept programs as text."""

from __future__ import annotations

import argparse
from typing import Any

from kernelmill.artifact.container import KMILL, read_artifact
from kernelmill.artifact.readable import readable
from kernelmill.store.sealed import SealedFile


def add_show(actions: Any) -> None:
    """Add `show` to the actions of `kernelmill cache`."""
    action = actions.add_parser("show", help="show what cache_compile has kept, as text")
    action.add_argument("path", help="an entry's .kmill, the folder of a method, or one above")
    action.set_defaults(command=show_cache)


def add_aot(commands: Any) -> None:
    """Add `aot` with its actions to the command's subparsers."""
    aot = commands.add_parser("aot", help="programs compiled ahead of time")
    actions = aot.add_subparsers(required=True, metavar="ACTION")
    action = actions.add_parser("info", help="check a file, and show what is in it")
    action.add_argument("path", help="a file of kernelmill.aot.compile")
    action.add_argument("--all", action="store_true", help="graph, kernels and plan too")
    action.set_defaults(command=show_file)


def show_cache(options: argparse.Namespace) -> int:
    """Print the entries of a compile cache."""
    from kernelmill.inference import readable_cache

    readable_cache(options.path)
    return 0


def show_file(options: argparse.Namespace) -> int:
    """Print what is in a compiled file."""
    print(readable(read_artifact(SealedFile(options.path, KMILL)), options.all), end="")
    return 0
