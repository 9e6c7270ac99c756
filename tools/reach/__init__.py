"""Kernels for processors that this machine does not have: `python -m tools.reach`."""
