"""The versions of torch whose guards and wrappers we know.

Ways around Dynamo's guards (gears that check sizes themselves, programs that are kept on disk) and
around AOTAutograd's wrapper rely on their behaviour in a certain version. With any other torch they
are not taken: calls go through the wrapper, sizes are traced again, methods are not kept.
"""

from __future__ import annotations

import torch

from kernelmill.core.version import minor_of

TESTED = frozenset({"2.12", "2.13", "2.14", "2.15"})
"""Versions with which all tests of cached methods and files have passed: `make compat`."""


def is_tested() -> bool:
    """Return whether this version of torch has been tested."""
    return minor_of(torch.__version__) in TESTED
