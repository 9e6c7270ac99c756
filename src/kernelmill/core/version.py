"""The version of kernelmill: of the package, and an ingredient of every key."""

VERSION = "0.1.0"
