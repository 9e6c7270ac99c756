"""Private parts of torch, CPython, llvmlite and tvm-ffi: the only package that may name them.

Importing it imports none of these; its modules import what they are about.
"""

from kernelmill.torch_internals.registry import Internal, State, failed, forced, internal, state

__all__ = ["Internal", "State", "failed", "forced", "internal", "state"]
