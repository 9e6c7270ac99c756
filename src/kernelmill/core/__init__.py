"""Foundations of all packages: data types, dims, targets, digests, errors, knobs, log. An import
raises an error in a Python that cannot run kernelmill."""

from kernelmill.core import interpreter

__all__ = ["interpreter"]
