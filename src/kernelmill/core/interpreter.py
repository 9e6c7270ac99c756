"""The Pythons that can run this: CPython with its global lock.

Native code reads and changes Python objects while it holds that lock. A free-threaded build has
none, and another layout of objects, even when it is told to run with a lock.
"""

from __future__ import annotations

import sys

from kernelmill.core.errors import InterpreterError


def check_interpreter() -> None:
    """Raise InterpreterError if this Python cannot run kernelmill."""
    if "t" in sys.abiflags:
        raise InterpreterError(
            "kernelmill does not run on free-threaded builds of Python (this is one, a "
            '"t" build): use the build with the global interpreter lock of the same version'
        )


check_interpreter()
