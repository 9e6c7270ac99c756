"""`kernelmill gears suggest`: gears for calls that were recorded."""

from __future__ import annotations

import argparse

from kernelmill.gears.shape_log import read_shapes


def add_gears(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of `kernelmill`."""
    gears = commands.add_parser("gears", help="the sizes that models are compiled for")
    actions = gears.add_subparsers(required=True, metavar="ACTION")
    action = actions.add_parser(
        "suggest", help="propose gears with little padding for recorded calls"
    )
    action.add_argument("log", help="a file of kernelmill.inference.record_shapes")
    action.add_argument("--max", type=int, default=8, help="how many gears; default: 8")
    action.add_argument(
        "--policy",
        choices=("zip", "product"),
        default="zip",
        help="how gears combine",
    )
    action.add_argument("--small", action="store_true", help="gears 0 and 1 are allowed")
    action.set_defaults(command=suggest_gears)


def suggest_gears(options: argparse.Namespace) -> int:
    """Print what the gears cost and the code that sets them."""
    # Imports numpy, which the other commands do without.
    from kernelmill.gears.suggest import suggest

    with open(options.log, encoding="utf-8") as log:
        calls = read_shapes(log)
    found = suggest(calls, options.max, options.policy, 0 if options.small else 2)
    print(f"# {found.summary()}")
    print(found.code(), end="")
    return 0
