"""Python on a processor with a tile unit, on a machine without one: `python -m tests.tile_trap -m
kernelmill calibrate`, or any other arguments of Python's."""

from __future__ import annotations

import sys

from tests.tile_trap.trap import Unavailable, execute

if __name__ == "__main__":
    try:
        execute(sys.argv[1:])
    except Unavailable as error:
        sys.exit(f"tile trap: {error}")
