"""Inductor's options, some of which libraries pass to `torch.compile` for any backend, and its
pattern matcher, which is for any graph of ATen operators."""

from __future__ import annotations

import inspect
from typing import Any

from kernelmill.torch_internals.registry import internal


@internal(
    "inductor.options",
    reason="telling Inductor's options, which are left out, from misspelt ones of ours",
    fallback="options of Inductor's that are passed to torch.compile are errors",
)
def inductor_options() -> frozenset[str]:
    """Return the dotted names of Inductor's options."""
    from torch import _inductor

    names = frozenset(_inductor.list_options())
    return names if "max_autotune" in names else frozenset()


@internal(
    "inductor.pattern_matcher",
    reason="replacing what a user's function describes in graphs (register_replacement)",
    fallback="register_replacement raises UnsupportedError",
)
def pattern_matcher() -> Any:
    """Return Inductor's module of the pattern matcher."""
    from torch._inductor import pattern_matcher as found

    taken = inspect.signature(found.register_replacement).parameters
    wanted = {"pass_dicts", "extra_check", "scalar_workaround", "search_fn_pattern",
              "skip_duplicates", "get_decomp_fn"}  # fmt: skip
    there = callable(found.PatternMatcherPass("probe").apply) and callable(found.fwd_only)
    return found if there and wanted <= taken.keys() else None
