"""Versions that are ingredients of keys."""

VERSION = "0.1.0"
"""Of kernelmill: of the package, and an ingredient of every key."""

ABI_VERSION = "1"
"""Raised when the way a kernel is called changes: part of every kernel's key."""
