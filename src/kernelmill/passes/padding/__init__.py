"""Proof that a program over padded inputs gives the same results as without padding."""

from kernelmill.passes.padding.analysis import padding_of

__all__ = ["padding_of"]
