"""Inductor's options, of which libraries pass some to `torch.compile` whatever its backend is."""

from __future__ import annotations

from kernelmill.torch_internals.registry import internal


@internal(
    "inductor.options",
    reason="telling Inductor's options, which are left out, from misspelt ones of ours",
    fallback="options of Inductor's that are passed to torch.compile are errors",
)
def inductor_options() -> frozenset[str]:
    """Their dotted names."""
    from torch import _inductor

    names = frozenset(_inductor.list_options())
    return names if "max_autotune" in names else frozenset()
