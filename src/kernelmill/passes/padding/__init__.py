"""Whether a program over padded inputs gives what it gives without padding."""

from kernelmill.passes.padding.analysis import padding_of

__all__ = ["padding_of"]
