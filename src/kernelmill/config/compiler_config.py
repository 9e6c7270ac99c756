"""`CompilerConfig`: the root of the option tree."""

from __future__ import annotations

import warnings
from typing import Any, Literal

from kernelmill.config.option import Choice, Group, Sub
from kernelmill.config.tree import (
    MAX_AUTOTUNE,
    REDUCE_OVERHEAD,
    AoeConfig,
    Debug,
    DumpConfig,
    ExperimentalConfig,
    Export,
    FusionConfig,
    GeConfig,
    InferenceConfig,
    hook,
)
from kernelmill.core.isa import NAMED

OnUntrusted = Literal["error", "memory"]
CheckWeights = Literal["auto", "full", "samples"]


class CompilerConfig(Group):
    """Options of one backend. Every assignment is checked at once.

    Raises (all of them ConfigError): ValueError for a name or value that is not allowed, TypeError
    for a value of the wrong type, FileNotFoundError for a path that must exist.

    >>> config = CompilerConfig()
    >>> config.debug.graph_dump.type = "txt"
    >>> config
    CompilerConfig(debug.graph_dump.type='txt')
    """

    mode = Choice(
        MAX_AUTOTUNE,
        (MAX_AUTOTUNE, REDUCE_OVERHEAD),
        "max-autotune compiles for speed; reduce-overhead runs operators one by one, captured.",
        in_key=True,
    )
    check_weights = Choice[CheckWeights](
        "auto",
        ("auto", "full", "samples"),
        "How writes to packed weights are found: auto asks the system for written pages, or "
        "compares pieces where it refuses; full compares everything; samples compares pieces.",
    )
    target = Choice[str | None](
        None,
        (None, "native", *NAMED),
        "Instruction set to compile for, with common cache sizes; native is all that this machine "
        "has, None is that or what KERNELMILL_TARGET names. To be called here it must be one that "
        "this machine can run; kernelmill.aot.compile takes any.",
        in_key=True,
    )
    on_untrusted = Choice[OnUntrusted | None](
        None,
        (None, "error", "memory"),
        "What comes of folders that others can write to: an error, or memory: they are not used, "
        "and what is compiled stays in the process. None: KERNELMILL_ON_UNTRUSTED, else an error.",
    )
    debug = Sub(Debug)
    dump_config = Sub(DumpConfig)
    export = Sub(Export)
    fusion_config = Sub(FusionConfig)
    aoe_config = Sub(AoeConfig)
    experimental_config = Sub(ExperimentalConfig)
    inference_config = Sub(InferenceConfig)
    ge_config = Sub(GeConfig)
    post_grad_custom_pre_pass = hook("Your rewrite before ours.", pending="custom passes")
    post_grad_custom_post_pass = hook("Your rewrite after ours.", pending="custom passes")

    def as_dict(self) -> dict[str, Any]:
        """Dotted name -> value of every option, in the order of their declaration."""
        return {name: value for name, _, value in self.options()}

    def ingredients(self) -> tuple[tuple[str, str], ...]:
        """(name, text of the value) of the options that change what is compiled, for a key.

        Options at their default are left out, so a new option does not spoil old keys.
        """
        return tuple(
            (f"config.{name}", repr(value))
            for name, option, value in self.options()
            if option.in_key and value != option.default
        )

    def warn_other_mode(self) -> None:
        """One UserWarning for each option that is set but belongs to the other mode.

        A backend calls this when it is made.
        """
        for name, option, value in self.options():
            if option.mode and option.mode != self.mode and value != option.default:
                warnings.warn(
                    f"config.{name} belongs to mode {option.mode!r} and does nothing in mode "
                    f"{self.mode!r}",
                    UserWarning,
                    stacklevel=3,
                )
