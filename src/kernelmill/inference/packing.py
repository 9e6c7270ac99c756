"""`finish_packing`: waits for what first calls have left to be done."""

from __future__ import annotations

from kernelmill.runtime import background


def finish_packing() -> None:
    """Return when the weights of all programs that were called so far are packed for good, and what
    the background compiles is compiled.

    A first call of a large model does not wait for that: it packs weights as it comes to them, and
    a thread packs them for the calls that follow. A server that warms up, or a measurement, can
    wait for it here.
    """
    background.wait()
