"""What tests of cached methods assert only with private parts of torch.

Without one of NAMES a method is not kept: each process traces it, and what its calls give is
compared in e2e/test_without_internals.py. Without one of QUICK_NAMES calls give the same, and are
checked in full.
"""

import pytest

from kernelmill.core import knobs

NAMES = (
    "autograd.descriptions", "autograd.metadata", "autograd.output_kinds", "dynamo.config",
    "dynamo.mutations", "dynamo.placeholder_sources", "dynamo.sources", "dynamo.trace",
    "modules.global_hooks", "native.packed", "sizes.functions", "tensors.handle",
    "trace_notes.caught_errors", "trace_notes.elements", "trace_notes.tensor_hashes",
)  # fmt: skip
"""The functions of sizes are needed for methods with sizes that vary, as most have."""

KEPT = pytest.mark.needs_internal(*NAMES)
"""Of tests that assert that a method is kept: that it is traced once, or loaded."""

COMPILED = pytest.mark.needs_internal(
    *NAMES, "dynamo.marks", "dynamo.trace_errors", "modules.own_hooks"
)
"""Of tests that assert which programs `kernelmill.compile` has."""

QUICK_NAMES = (
    "modules.tables", "native.checks", "objects.fields", "objects.functions", "objects.spaces",
    "tensors.allocate", "tensors.impl_place", "tensors.storage_place",
)  # fmt: skip


def goes_quickly(*more: str) -> bool:
    """Whether calls go the quick way in this run, those for which these parts are needed too."""
    return not {*QUICK_NAMES, *more} & {*knobs.WITHOUT_INTERNALS.get()}
