"""The groups of options below `CompilerConfig`, with their effects.

Names, defaults and allowed values are TorchAir's (its `configs` package), so that a TorchAir script
runs unchanged; kernelmill adds some.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernelmill.config.option import (
    Choice,
    Group,
    Instance,
    Number,
    Path,
    RangeDict,
    Sub,
    Switch,
)  # fmt: skip

MAX_AUTOTUNE = "max-autotune"
REDUCE_OVERHEAD = "reduce-overhead"


def is_int_list(value: object) -> bool:
    """Return whether the value is a list or tuple of integers."""
    items: list[Any] = list(value) if isinstance(value, (list, tuple)) else [""]
    return all(type(item) is int for item in items)


def is_text_list(value: object) -> bool:
    """Return whether the value is a list or tuple of texts."""
    items: list[Any] = list(value) if isinstance(value, (list, tuple)) else [0]
    return all(isinstance(item, str) for item in items)


def hook(summary: str, **marks: Any) -> Instance[Callable[..., Any] | None]:
    """Return an option that holds a function of the user, or None."""
    return Instance[Callable[..., Any] | None](None, callable, "callable", summary, **marks)


def mapping(summary: str = "", **marks: Any) -> Instance[dict[str, Any] | None]:
    """Return an option that holds a dict, or None."""
    return Instance[dict[str, Any] | None](
        None, lambda value: isinstance(value, dict), "dict", summary, **marks
    )


class GraphDump(Group):
    """config.debug.graph_dump: files `dynamo_{original,optimized}_graph_...` for each capture."""

    type = Choice[str | None](
        None,
        (None, "txt", "pbtxt", "py"),
        "Writes each captured graph before and after the passes: txt is the graph IR, pbtxt opens "
        "in graph viewers, py is Python. None writes nothing.",
        advice="To see what torch captured, or to make a small file of a failing graph.",
    )
    path = Path(None, "Folder of the files, which is made; None is the working directory.")


class DataDump(Group):
    """config.debug.data_dump: operands and results of operators, as the graph runs in torch."""

    type = Choice[str | None](
        None,
        (None, "npy"),
        "Runs the captured graph with ATen, operator by operator, and writes a .npy file for each "
        "operand and result; None writes nothing.",
        advice="To compare with another device or version; `kernelmill bisect` finds a wrong "
        "kernel automatically.",
        in_key=True,
    )
    path = Path(None, "Folder of the files, which is made; None is the working directory.")
    filter = hook("Selects operators: torch.fx.Node -> bool. None means all.")


class FxSummary(Group):
    """config.debug.fx_summary: a table of operators with dtypes and shapes."""


class AclGraphDebug(Group):
    """config.debug.aclgraph: switches of device graph capture."""

    MODE = REDUCE_OVERHEAD

    static_capture_size_limit = Number(
        64,
        1,
        "Limit of captured sets of sizes of one graph; the oldest is dropped.",
        advice="Raise it if the log says that captures are dropped; each holds memory.",
    )


class Debug(Group):
    """config.debug: options for inspecting a compile."""

    graph_dump = Sub(GraphDump)
    data_dump = Sub(DataDump)
    fx_summary = Sub(FxSummary)
    aclgraph = Sub(AclGraphDebug)
    run_eagerly = Switch(
        False,
        "Runs the captured graph with ATen and compiles nothing.",
        advice="When a result looks wrong: if it stays wrong with this, the capture is at fault, "
        "not the compiled code.",
        in_key=True,
    )


class ExportExperimental(Group):
    """config.export.experimental"""


class Export(Group):
    """config.export: the graph as a file instead of a run."""

    experimental = Sub(ExportExperimental)


class FusionConfig(Group):
    """config.fusion_config"""

    MODE = MAX_AUTOTUNE


class AoeConfig(Group):
    """config.aoe_config: tuning by measurement."""

    MODE = MAX_AUTOTUNE

    aoe_mode = Choice[str | None](
        None,
        (None, "2"),
        "'2' measures schedules of each matmul, convolution and attention of known sizes, and "
        "keeps the fastest in the kernel store.",
        advice="For a model that runs for long; the first compile takes longer (docs: tuning).",
        in_key=True,
    )


class AclGraphExperimental(Group):
    """config.experimental_config.aclgraph: static kernels and super kernels."""

    _aclnn_static_shape_kernel = Switch(
        False,
        "Compiles a static kernel for each operator and shape that a call captures, and "
        "uses it where it measures faster.",
        advice="Where the same shapes recur (docs: static kernels).",
        mode=REDUCE_OVERHEAD,
        in_key=True,
    )
    _aclnn_static_shape_kernel_build_dir = Path(
        None,
        "Folder for the package and its reports; None is the folder of the running script.",
        must_be="folder",
        mode=REDUCE_OVERHEAD,
    )
    static_kernel_outputs = Choice(
        "aclnn_static_shape_kernel_outputs",
        ("aclnn_static_shape_kernel_outputs", "static_kernel_compile_outputs"),
        "Name of the folder in it: that of torchair, or that of npugraph_ex, with newer names "
        "inside.",
        mode=REDUCE_OVERHEAD,
    )
    _aclnn_static_shape_kernel_sym_value_range = Instance[list[int] | None](
        None,
        is_int_list,
        "list of int",
        "Sizes of one symbol to compile static kernels for at the first call.",
        advice="In a dynamic program whose sizes are known in advance.",
        mode=REDUCE_OVERHEAD,
        in_key=True,
    )
    _aclnn_static_shape_kernel_sym_index = Number(
        0,
        0,
        "Number of that symbol, counted from 0 in the order of the arguments.",
        mode=REDUCE_OVERHEAD,
        in_key=True,
    )
    _super_kernel_optimize = Switch(
        False,
        "Makes super kernels of each capture where the cost model expects a gain.",
        advice="For models of many short kernels.",
        mode=REDUCE_OVERHEAD,
        in_key=True,
    )
    _super_kernel_optimize_options = RangeDict(
        None,
        "Options of scope.super_kernel for super kernels without marks.",
        in_key=True,
    )
    _super_kernel_debug_options = RangeDict(
        None,
        "The same; they take precedence.",
        advice="'debug-sync-all' finds faults of synchronisation.",
        in_key=True,
    )


class ExperimentalConfig(Group):
    """config.experimental_config"""

    kernel_meta_dir = Path(
        None,
        "Folder of compiled kernels, created if missing; None means KERNELMILL_KERNEL_META, else "
        "kernelmill/kernel_meta in $XDG_CACHE_HOME or ~/.cache.",
        advice="To keep the kernels of one model apart from others.",
    )
    keep_inference_input_mutations = Switch(
        True,
        "Writes to arguments inside the program. False writes them after it, as AOTAutograd does.",
        advice="Leave it on; False costs a copy of each written argument.",
        in_key=True,
    )
    remove_noop_ops = Switch(
        True,
        "Removes operators that change no bit, such as x * 1, x - 0.0 and casts there and back.",
        advice="Leave it on; switch it off to see whether this pass is at fault.",
        in_key=True,
    )
    pattern_fusion_pass = Switch(
        True,
        "Fuses operators into kernels. False makes a kernel of each operator.",
        advice="Leave it on; switch it off to see whether fusion is at fault.",
        in_key=True,
    )
    jit_compile = Choice(
        "auto",
        ("auto",),
        "TorchAir's option: dynamic shapes are compiled once, for all sizes.",
    )
    super_kernel_optimize = Switch(
        False,
        "Makes super kernels of a whole static program, without marks in the code, where the cost "
        "model expects a gain.",
        advice="For models of many short kernels; no measured model gets slower, most gain little.",
        in_key=True,
    )
    gears_eager = Switch(
        True,
        "Compiles all gears at the first call. False compiles only that call's gear, and the "
        "others in the background; meanwhile a larger gear or a program for all sizes runs them.",
        advice="Leave it on for servers, so that nothing is compiled while they run; False for "
        "the quickest first call.",
    )
    compile_in_background = Switch(
        False,
        "Compiles graphs of inference in the background; torch runs their calls until then. "
        "Calls still wait for traces, and training compiles at its first "
        "call.",
        advice="For servers that must answer soon after their start, or that meet new sizes. "
        "Results before and after differ by rounding.",
    )
    aclgraph = Sub(AclGraphExperimental)


class InferenceConfig(Group):
    """config.inference_config"""

    dynamic_gears_merge_policy = Choice(
        "zip",
        ("zip", "product"),
        "How gears of several dims combine: zip combines the lists position by position, "
        "product makes all combinations.",
        in_key=True,
    )
    gear_miss = Choice(
        "error",
        ("error", "pad", "dynamic"),
        "What a call does whose size is no gear: error raises GearError, pad pads arguments with "
        "zeros to a gear and crops results, dynamic runs a program for all sizes.",
        advice="pad where sizes vary freely up to a known maximum, dynamic where gears only cover "
        "the common sizes.",
        in_key=True,
    )
    gear_pad_masks = Instance[Sequence[str]](
        (),
        is_text_list,
        "list of str",
        "With gear_miss='pad': names of arguments whose zeros hide padding. The "
        "compiler relies on it and does not check it.",
        advice="When a PaddingError names a softmax or sum that such a mask makes safe.",
        in_key=True,
    )
    allow_small_gears = Switch(
        False,
        "Allows 0 and 1 as gears, which TorchAir refuses.",
        advice="For batches of 1.",
        in_key=True,
    )
    gears_with_graph_breaks = Switch(
        False,
        "Allows gears in a model that torch splits into several graphs.",
        advice="Where fullgraph=True is not possible.",
    )


class AclGraphConfig(Group):
    """config.aclgraph_config"""

    MODE = REDUCE_OVERHEAD


class GeConfig(Group):
    """config.ge_config: options of Ascend's graph engine."""

    MODE = MAX_AUTOTUNE
