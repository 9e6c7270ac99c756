"""Private parts without any of which no method is kept: each process traces it then, and what its
calls give is compared in e2e/test_without_internals.py."""

import pytest

NAMES = (
    "autograd.descriptions", "autograd.metadata", "autograd.output_kinds", "dynamo.config",
    "dynamo.mutations", "dynamo.placeholder_sources", "dynamo.sources", "dynamo.trace",
    "native.packed", "tensors.handle",
)  # fmt: skip

KEPT = pytest.mark.needs_internal(*NAMES)
"""Of tests that assert that a method is kept: that it is traced once, or loaded."""
