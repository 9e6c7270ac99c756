"""Foundations for all packages: data types, dims, targets, digests, errors, knobs, log. Importing
any of it refuses a Python that cannot run the rest."""

from kernelmill.core import interpreter

__all__ = ["interpreter"]
