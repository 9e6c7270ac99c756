"""What every room may use: data types, dims, targets, digests, errors, knobs, log."""

from kernelmill.core import interpreter  # noqa: F401  # says no before anything else is imported
