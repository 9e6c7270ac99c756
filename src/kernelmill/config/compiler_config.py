"""`CompilerConfig`: the root of the option tree."""

from __future__ import annotations

import warnings
from typing import Any, Literal

from kernelmill.config.accepted import ACCEPTED
from kernelmill.config.dump_config import DumpConfig
from kernelmill.config.option import Choice, Group, Sub, Switch
from kernelmill.config.schemes import Schemes
from kernelmill.config.tree import (
    MAX_AUTOTUNE,
    REDUCE_OVERHEAD,
    AclGraphConfig,
    AoeConfig,
    Debug,
    ExperimentalConfig,
    Export,
    FusionConfig,
    GeConfig,
    InferenceConfig,
    hook,
)
from kernelmill.core.errors import ConfigTypeError
from kernelmill.core.target.isa import NAMED

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
        "max-autotune fuses operators into kernels; reduce-overhead runs operators one by one on "
        "kernels for all sizes, and replays the launches of each set of sizes natively.",
        advice="reduce-overhead where new shapes keep coming and a compile for each is too dear.",
        in_key=True,
    )
    check_weights = Choice[CheckWeights](
        "auto",
        ("auto", "full", "samples"),
        "How writes to packed weights are found. auto asks Linux which pages were written, and "
        "compares a sample of each weight where Linux refuses; full reads all packed weights at "
        "each call; samples compares samples only.",
        advice="full where weights are written through param.data or param.numpy() and the "
        "report counts weights_sampled.",
    )
    target = Choice[str | None](
        None,
        (None, "native", *NAMED),
        "Instruction set to compile for, with common cache sizes. native means all instructions of "
        "this machine; None means KERNELMILL_TARGET, else native. A program that runs here "
        "needs one that this machine can run; kernelmill.aot.compile takes any.",
        advice="For kernels, files and packages that older machines run too.",
        in_key=True,
    )
    on_untrusted = Choice[OnUntrusted | None](
        None,
        (None, "error", "memory"),
        "What to do with folders that other users can write to. error refuses them; memory ignores "
        "them, and compiled kernels stay in the process. None means "
        "KERNELMILL_ON_UNTRUSTED, else error.",
        advice="memory in containers that cannot repair the folders of their image.",
    )
    float32_pieces = Switch(
        True,
        "On processors that multiply tiles of bfloat16, computes float32 matmuls as sums of such "
        "products, to the precision set by torch.set_float32_matmul_precision.",
        advice="False to compare with sums by FMA.",
        in_key=True,
    )
    quantize = Schemes(
        None,
        "Computes products of layers with 8-bit weights and inputs, 8-bit weights, or 4-bit "
        "weights. A scheme for all layers, or a dict from patterns of layer names to schemes: the "
        "first pattern that matches applies. None does not quantise.",
        advice="'int8' for encoders, 'int8-weights' or 'int4-weights' for decoders that make few "
        "tokens at a time (docs: quantisation).",
        in_key=True,
    )
    debug = Sub(Debug)
    dump_config = Sub(DumpConfig)
    export = Sub(Export)
    fusion_config = Sub(FusionConfig)
    aoe_config = Sub(AoeConfig)
    experimental_config = Sub(ExperimentalConfig)
    inference_config = Sub(InferenceConfig)
    ge_config = Sub(GeConfig)
    aclgraph_config = Sub(AclGraphConfig)
    post_grad_custom_pre_pass = hook(
        "A function (gm, example_inputs, config) that rewrites each graph of ATen operators in "
        "place, before registered replacements.",
        advice="For your own rewrites of the graph (docs: custom passes).",
    )
    post_grad_custom_post_pass = hook("The same, after registered replacements.")

    def as_dict(self) -> dict[str, Any]:
        """Return dotted name -> value of every option, in the order of their declaration."""
        return {name: value for name, _, value in self.options()}

    def ingredients(self) -> tuple[tuple[str, str], ...]:
        """Return (name, text of the value) of the options that change compiled code, for a key.

        Options at their default are left out, so a new option does not invalidate old keys.
        """
        return tuple(
            (f"config.{name}", repr(value))
            for name, option, value in self.options()
            if option.in_key and value != option.default
        )

    def warn_other_mode(self) -> None:
        """Give a UserWarning for each option that is set but belongs to the other mode. A backend
        calls this when it is made."""
        for name, option, value in self.options():
            if option.mode and option.mode != self.mode and value != option.default:
                warnings.warn(
                    f"config.{name} belongs to mode {option.mode!r} and does nothing in mode "
                    f"{self.mode!r}",
                    UserWarning,
                    stacklevel=3,
                )


for _group, _reason, _options in ACCEPTED:
    _group.accept(_reason, _options)


def given_config(config: object) -> CompilerConfig:
    """Return the config that was passed, a new one for None. ConfigTypeError for anything else."""
    if config is None:
        return CompilerConfig()
    if not isinstance(config, CompilerConfig):
        raise ConfigTypeError(f"config: {type(config).__name__} is no CompilerConfig")
    return config
