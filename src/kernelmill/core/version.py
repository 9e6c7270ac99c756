"""The name of the backend, and versions that are ingredients of keys."""

BACKEND_NAME = "kernelmill"
"""What this package is called among the backends of torch.compile."""

VERSION = "0.1.0"
"""Of kernelmill: of the package, and an ingredient of every key."""

ABI_VERSION = "1"
"""Raised when the way a kernel is called changes: part of every kernel's key."""


def minor_of(version: str) -> str:
    """Return the major and minor number of a package's version: "2.13" of "2.13.0+cpu"."""
    return ".".join(version.split(".")[:2])
