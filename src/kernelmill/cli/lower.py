"""`kernelmill lower`: what becomes of a graph, stage by stage, as text."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kernelmill.core.errors import ConfigError

STAGES = ("graph", "kernels", "plan", "llvm", "asm")
_USUAL = ("graph", "kernels", "plan")


def add_lower(commands: Any) -> None:
    """Add `lower` to the command's subparsers."""
    command = commands.add_parser(
        "lower", help="print what passes and lowering make of a graph's text"
    )
    command.add_argument("file", help="a graph as config.debug.graph_dump with type txt writes it")
    command.add_argument(
        "--passes", default="all", metavar="NAMES",
        help="all, none, or names of passes (an unknown one lists them); default: %(default)s",
    )  # fmt: skip
    command.add_argument("--target", default="native", help="native, x86-64-v2, ...")
    command.add_argument(
        "--separate", action="store_true", help="every operator to a kernel of its own"
    )
    command.add_argument(
        "--print", default=",".join(_USUAL), metavar="STAGES",
        help=f"some of {', '.join(STAGES)}; default: %(default)s",
    )  # fmt: skip
    command.set_defaults(command=lower)


def lower(options: argparse.Namespace) -> int:
    """Print the stages. ConfigError for an unknown name; errors of a stage as they are."""
    # Imports torch and LLVM, which the other commands do without.
    from kernelmill.cli import stages

    wanted = options.print.split(",")
    unknown = sorted(set(wanted) - set(STAGES))
    if unknown:
        raise ConfigError(f"--print {unknown[0]}: the stages are {', '.join(STAGES)}")
    machine, passes = stages.machine_named(options.target), stages.passes_named(options.passes)
    text = Path(options.file).read_text()
    for title, printed in stages.texts(text, passes, machine, options.separate, wanted):
        print(f"== {title}\n{printed.rstrip()}\n")
    return 0
