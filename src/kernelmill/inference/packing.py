"""`finish_packing`: waits for background work of first calls."""

from __future__ import annotations

from kernelmill.runtime import background


def finish_packing() -> None:
    """Return when the weights of all programs called so far are packed for good, and the background
    compiles are done.

    A first call of a large model does not wait for that: it packs weights as it reads them, and a
    thread packs them for later calls. A server that warms up, or a measurement, can wait for it
    here.
    """
    background.wait()
