"""Constant operands in the layout that kernels read."""
