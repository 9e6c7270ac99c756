"""The name of the backend, and versions that are ingredients of keys."""

BACKEND_NAME = "kernelmill"
"""The name of this package among the backends of torch.compile."""

VERSION = "0.1.0"
"""Version of the package, and an ingredient of every key."""

ABI_VERSION = "1"
"""Version of the kernels' calling convention: part of every kernel's key."""


def minor_of(version: str) -> str:
    """Return the major and minor number of a package's version: "2.13" of "2.13.0+cpu"."""
    return ".".join(version.split(".")[:2])
