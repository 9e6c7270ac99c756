"""The groups of options below `CompilerConfig`, each with its effect here.

Names, defaults and allowed values are TorchAir's (its `configs` package), so that a TorchAir script
runs unchanged; `kernel_meta_dir` is our own.
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
    Text,
)  # fmt: skip

MAX_AUTOTUNE = "max-autotune"
REDUCE_OVERHEAD = "reduce-overhead"

_NO_CAPTURE = "no device graph is captured here; a compiled program is launched as one call"
NO_POOL = "captures of one graph share their memory in any case, and graphs have their own"
_NO_STREAMS = "a CPU has no device streams; torch.set_num_threads sets the parallelism"


def is_int_list(value: object) -> bool:
    """Return whether the value is a list or tuple of integers."""
    items: list[Any] = list(value) if isinstance(value, (list, tuple)) else [""]
    return all(type(item) is int for item in items)


def _is_text_list(value: object) -> bool:
    items: list[Any] = list(value) if isinstance(value, (list, tuple)) else [0]
    return all(isinstance(item, str) for item in items)


def hook(summary: str, **marks: Any) -> Instance[Callable[..., Any] | None]:
    """Return an option that holds a function of the user, or None."""
    return Instance[Callable[..., Any] | None](None, callable, "callable", summary, **marks)


def mapping(summary: str, **marks: Any) -> Instance[dict[str, Any] | None]:
    """Return an option that holds a dict, or None."""
    return _of_class(dict, summary, **marks)


def pool(summary: str) -> Instance[tuple[Any, ...] | None]:
    """Return an option that holds the result of `torch.npu.graph_pool_handle`, or None."""
    return _of_class(tuple, summary, inert=NO_POOL)


def _of_class(kind: type, summary: str, **marks: Any) -> Instance[Any]:
    return Instance[Any](
        None, lambda value: isinstance(value, kind), kind.__name__, summary, **marks
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
        "tensor that an operator reads or gives; None writes nothing.",
        advice="To compare with another device or version; `kernelmill bisect` finds a wrong "
        "kernel by itself.",
        in_key=True,
    )
    path = Path(None, "Folder of the files, which is made; None is the working directory.")
    filter = hook("Which operators are written: torch.fx.Node -> bool. None is all.")


class FxSummary(Group):
    """config.debug.fx_summary: a table of operators with dtypes and shapes."""

    type = Choice[str | None](
        None, (None, "csv"), "Format of the table.", pending="the table of operators"
    )
    path = Path(None, "Folder of it.", must_be="folder", pending="the table of operators")
    skip_compile = Switch(
        True, "Write the table and run eagerly.", pending="the table of operators"
    )


class AclGraphDebug(Group):
    """config.debug.aclgraph: switches of device graph capture."""

    MODE = REDUCE_OVERHEAD

    disable_reinplace_inplaceable_ops_pass = Switch(
        False, "Keep out-of-place operators.", inert=_NO_CAPTURE
    )
    disable_reinplace_input_mutated_ops_pass = Switch(
        False, "Keep copies of mutated inputs.", inert=_NO_CAPTURE
    )
    disable_mempool_reuse_in_same_fx = Switch(
        False, "One memory pool for each graph.", inert=_NO_CAPTURE
    )
    enable_output_clone = Switch(False, "Copy results out of the pool.", inert=_NO_CAPTURE)
    static_capture_size_limit = Number(
        64,
        1,
        "Most sets of sizes that are captured for one graph; the oldest is dropped.",
        advice="Raise it where the log says that captures are dropped; each holds memory.",
    )
    clone_input = Switch(True, "Copy inputs into the pool.", inert=_NO_CAPTURE)
    remove_cat_ops = Switch(
        True, "Writes parts of a concatenation where the result is.", pending="switching it off"
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
        advice="When a result looks wrong: if it still does with this, the capture is at fault and "
        "not the compiled code.",
        in_key=True,
    )
    deadlock_check = Switch(False, "Watch for stuck device streams.", inert=_NO_STREAMS)


class ExportExperimental(Group):
    """config.export.experimental"""

    enable_record_nn_module_stack = Switch(False, "Record module names.", pending="export")
    auto_atc_config_generated = Switch(False, "Write ATC's options.", inert="ATC is Ascend's tool")
    enable_lite_export = Switch(False, "Export for Lite.", inert="MindSpore Lite's format")


class Export(Group):
    """config.export: the graph as a file instead of a run."""

    export_mode = Switch(False, "Export, don't run.", pending="export")
    export_path_dir = Path("./", "Folder of the export.", must_be="folder", pending="export")
    export_name = Text(None, r"[^/]+", "model", "Name of the file.", pending="export")
    weight_name = mapping("Names for weights, by id.", pending="export")
    inputs_name = Instance[list[str] | None](
        None, _is_text_list, "list of str", "Names for inputs.", pending="export"
    )
    experimental = Sub(ExportExperimental)


class FusionConfig(Group):
    """config.fusion_config"""

    MODE = MAX_AUTOTUNE

    fusion_switch_file = Path(
        None,
        "JSON file that switches fusions on and off.",
        must_be="file",
        pending="switching single fusions",
        in_key=True,
    )


class AoeConfig(Group):
    """config.aoe_config: tuning by measurement."""

    MODE = MAX_AUTOTUNE

    aoe_mode = Choice[str | None](
        None,
        (None, "2"),
        "'2' measures schedules of each product, convolution and attention of known sizes, and "
        "keeps the fastest in the kernel store.",
        advice="For a model that serves for long; the first compile takes longer (docs: tuning).",
        in_key=True,
    )
    work_path = Path(
        "./",
        "Folder of the tuner.",
        must_be="folder",
        inert="what was measured is kept in the folder of kernels",
    )
    aoe_config_file = Path(
        None, "Options of the tuner.", must_be="file", inert="they are options of Ascend's tuner"
    )


class AclGraphExperimental(Group):
    """config.experimental_config.aclgraph: static kernels and super kernels."""

    _aclnn_static_shape_kernel = Switch(
        False,
        "Compiles a kernel of its own for each operator and shape that a call captures, and "
        "uses it where it is measured faster.",
        advice="Where the same shapes come again and again (docs: static kernels).",
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
        "Name of the folder in it: that of torchair, or the newer one of npugraph_ex, with newer "
        "names inside.",
        mode=REDUCE_OVERHEAD,
    )
    _aclnn_static_shape_kernel_sym_value_range = Instance[list[int] | None](
        None,
        is_int_list,
        "list of int",
        "Sizes of one symbol to compile static kernels for at the first call.",
        advice="In a dynamic program whose sizes are known beforehand.",
        mode=REDUCE_OVERHEAD,
        in_key=True,
    )
    _aclnn_static_shape_kernel_sym_index = Number(
        0,
        0,
        "Which symbol that is, counted from 0 in the order of the arguments.",
        mode=REDUCE_OVERHEAD,
        in_key=True,
    )
    _super_kernel_optimize = Switch(
        False,
        "Makes super kernels of each capture where the cost model says it is faster.",
        advice="For models of many short kernels.",
        mode=REDUCE_OVERHEAD,
        in_key=True,
    )
    _super_kernel_optimize_options = RangeDict(
        None,
        "Options of scope.super_kernel for super kernels that are made without marks.",
        in_key=True,
    )
    _super_kernel_debug_options = RangeDict(
        None,
        "The same, on top of them.",
        advice="'debug-sync-all' finds faults of synchronisation.",
        in_key=True,
    )


class ExperimentalConfig(Group):
    """config.experimental_config"""

    kernel_meta_dir = Path(
        None,
        "Folder of compiled kernels; None is what KERNELMILL_KERNEL_META names, else "
        "kernelmill/kernel_meta in $XDG_CACHE_HOME or ~/.cache. It is made if it does not exist.",
        advice="Where one model of a process keeps its kernels apart from others.",
    )
    keep_inference_input_mutations = Switch(
        True,
        "Writes to arguments inside the program. False writes them after it, as AOTAutograd does.",
        advice="Leave it on; False costs a copy of each argument that is written to.",
        in_key=True,
    )
    frozen_parameter = Switch(
        False,
        "Treat parameters as constants.",
        inert="parameters are packed once in any case, and again only when they change",
    )
    remove_noop_ops = Switch(
        True,
        "Removes operators that change no bit, such as x * 1, x - 0.0 and casts there and back.",
        advice="Leave it on; switch it off to find out whether this pass is at fault.",
        in_key=True,
    )
    pattern_fusion_pass = Switch(
        True,
        "Fuses operators into kernels. False makes a kernel of each operator.",
        advice="Leave it on; switch it off to find out whether fusion is at fault.",
        in_key=True,
    )
    topology_sorting_strategy = Choice(
        "DFS",
        ("BFS", "DFS", "RDFS", "StableRDFS"),
        "Order of independent nodes.",
        mode=MAX_AUTOTUNE,
        pending="another order of nodes",
        in_key=True,
    )
    enable_ref_data = Switch(
        False,
        "Mutated inputs are updated in place.",
        mode=MAX_AUTOTUNE,
        inert="mutated inputs are always updated in place here",
    )
    enable_view_optimize = Switch(
        True, "Views cost nothing.", inert="views are always index arithmetic here"
    )
    cc_parallel_enable = Switch(
        False, "Compute beside communication.", mode=MAX_AUTOTUNE, inert=_NO_STREAMS
    )
    memory_efficiency = Switch(
        False,
        "Refreshable feature memory.",
        mode=MAX_AUTOTUNE,
        inert="the arena of a call is always released after it",
    )
    static_model_ops_lower_limit = Number(
        None,
        -1,
        "Least operators of a static subgraph.",
        mode=MAX_AUTOTUNE,
        inert="a graph is not split into static and dynamic parts here",
    )
    jit_compile = Choice(
        "auto",
        ("auto",),
        "TorchAir's name for it: dynamic shapes are compiled once, for all sizes.",
    )
    npu_fx_pass = Switch(False, "Rewrites of the FX graph.", inert="they are always on here")
    tiling_schedule_optimize = Switch(
        False,
        "Tiling ahead of the call.",
        mode=MAX_AUTOTUNE,
        inert="tiles are always chosen at compile time here",
    )
    super_kernel_optimize = Switch(
        False,
        "Makes super kernels of a whole program of fixed sizes where the cost model says it is "
        "faster, without marks in the code.",
        advice="For models of many short kernels; no measured model gets slower, most gain little.",
        in_key=True,
    )
    gears_eager = Switch(
        True,
        "Compiles all gears at the first call. False compiles that call's gear alone, and the "
        "others in the background; meanwhile a larger gear or a program for all sizes serves them.",
        advice="Leave it on for servers, so that nothing is compiled while they serve; False for "
        "the quickest first call.",
    )
    compile_in_background = Switch(
        False,
        "Compiles graphs of inference in the background; torch runs their calls until that is "
        "done. What a trace takes is waited for all the same, and training compiles at its first "
        "call.",
        advice="For servers that must soon give their first answers, or that meet new sizes while "
        "they serve. Results before and after differ by rounding.",
    )
    aot_config_enable_joint_graph = Switch(
        False, "Compile forward and backward as one.", pending="the joint graph", in_key=True
    )
    aot_config_output_loss_index = Number(
        0, 0, "Which result is the loss.", pending="the joint graph", in_key=True
    )
    aclgraph = Sub(AclGraphExperimental)


class InferenceConfig(Group):
    """config.inference_config"""

    dynamic_gears_merge_policy = Choice(
        "zip",
        ("zip", "product"),
        "How gears of several dims combine: zip takes the lists position by position, "
        "product takes every value with every other.",
        in_key=True,
    )
    gear_miss = Choice(
        "error",
        ("error", "pad", "dynamic"),
        "What a call does whose size is no gear: error raises GearError, pad fills arguments with "
        "zeros up to a gear and cuts the results, dynamic runs a program for all sizes.",
        advice="pad where sizes vary freely below a known most, dynamic where gears are the common "
        "case only.",
        in_key=True,
    )
    gear_pad_masks = Instance[Sequence[str]](
        (),
        _is_text_list,
        "list of str",
        "With gear_miss='pad': names of arguments that hide padding where they are zero. The "
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

    use_custom_pool = pool("Memory that graphs share: of torch.npu.graph_pool_handle().")


class GeConfig(Group):
    """config.ge_config: options of Ascend's graph engine."""

    MODE = MAX_AUTOTUNE

    enable_single_stream = Switch(False, "One stream.", inert=_NO_STREAMS)
    oo_level = Choice(
        "O3",
        ("O1", "O3"),
        "Level of graph rewrites; O1 makes none.",
        pending="level O1",
        in_key=True,
    )
    oo_constant_folding = Choice[bool | None](
        None, (None, True, False), "Fold constants.", pending="switching it", in_key=True
    )
    oo_dead_code_elimination = Choice[bool | None](
        None,
        (None, True, False),
        "Remove operators whose results are not used.",
        pending="switching it",
        in_key=True,
    )
    export_compile_stat = Choice(
        "2", ("0", "1", "2"), "Statistics of a compile.", inert="kernelmill.explain() reports them"
    )
    aicore_num = Text(None, r"\d+\|\d+", "24|48", "Cores to use.", inert=_NO_STREAMS)
    optimization_switch = Text(
        None,
        r"\w+:(on|off)(;\w+:(on|off))*",
        "pass1:on;pass2:off",
        "Switch single passes.",
        pending="switching single passes",
        in_key=True,
    )
