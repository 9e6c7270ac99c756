"""The groups of options below `CompilerConfig`, each with what it does here.

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
INT64_MAX = 2**63 - 1

_NO_CAPTURE = "no device graph is captured here; a compiled program is launched as one call"
_NO_STREAMS = "a CPU has no device streams; torch.set_num_threads sets the parallelism"


def _is_dict(value: object) -> bool:
    return isinstance(value, dict)


def _is_int_list(value: object) -> bool:
    items: list[Any] = list(value) if isinstance(value, (list, tuple)) else [""]
    return all(type(item) is int for item in items)


def _is_text_list(value: object) -> bool:
    items: list[Any] = list(value) if isinstance(value, (list, tuple)) else [0]
    return all(isinstance(item, str) for item in items)


def hook(summary: str, **marks: Any) -> Instance[Callable[..., Any] | None]:
    """An option that holds a function of the user, or None."""
    return Instance[Callable[..., Any] | None](None, callable, "callable", summary, **marks)


def mapping(summary: str, **marks: Any) -> Instance[dict[str, Any] | None]:
    """An option that holds a dict, or None."""
    return Instance[dict[str, Any] | None](None, _is_dict, "dict", summary, **marks)


class GraphDump(Group):
    """config.debug.graph_dump: files `dynamo_{original,optimized}_graph_...` for each capture."""

    type = Choice[str | None](
        None, (None, "txt", "pbtxt", "py"), "Format of the files; None writes none."
    )
    path = Path(None, "Folder of the files; None is the working directory.", must_be="folder")


class DataDump(Group):
    """config.debug.data_dump: the value of every node, when run eagerly."""

    type = Choice[str | None](
        None, (None, "npy"), "One .npy file for each value.", pending="dumping of values"
    )
    path = Path(None, "Folder of the files.", must_be="folder", pending="dumping of values")
    filter = hook("Which nodes to dump: node -> bool.", pending="dumping of values")


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

    disable_reinplace_inplaceable_ops_pass = Switch(
        False, "Keep out-of-place operators.", mode=REDUCE_OVERHEAD, inert=_NO_CAPTURE
    )
    disable_reinplace_input_mutated_ops_pass = Switch(
        False, "Keep copies of mutated inputs.", mode=REDUCE_OVERHEAD, inert=_NO_CAPTURE
    )
    disable_mempool_reuse_in_same_fx = Switch(
        False, "One memory pool for each graph.", mode=REDUCE_OVERHEAD, inert=_NO_CAPTURE
    )
    enable_output_clone = Switch(
        False, "Copy results out of the pool.", mode=REDUCE_OVERHEAD, inert=_NO_CAPTURE
    )
    static_capture_size_limit = Number(
        64,
        1,
        INT64_MAX,
        "Sets of sizes that are captured at most; the oldest is dropped.",
        mode=REDUCE_OVERHEAD,
    )
    clone_input = Switch(
        True, "Copy inputs into the pool.", mode=REDUCE_OVERHEAD, inert=_NO_CAPTURE
    )
    remove_cat_ops = Switch(
        True, "Write parts of a cat in place.", mode=REDUCE_OVERHEAD, pending="switching it off"
    )


class Debug(Group):
    """config.debug: looking into a compile."""

    graph_dump = Sub(GraphDump)
    data_dump = Sub(DataDump)
    fx_summary = Sub(FxSummary)
    aclgraph = Sub(AclGraphDebug)
    run_eagerly = Switch(False, "Run the captured graph with ATen; compile nothing.", in_key=True)
    deadlock_check = Switch(False, "Watch for stuck device streams.", inert=_NO_STREAMS)


class DumpConfig(Group):
    """config.dump_config: inputs and outputs of kernels, written while a program runs."""

    enable_dump = Switch(False, "Write them.", pending="dumping of kernel data")
    dump_path = Path("./", "Folder.", must_be="folder", pending="dumping of kernel data")
    dump_mode = Choice(
        "all", ("input", "output", "all"), "What to write.", pending="dumping of kernel data"
    )
    quant_dumpable = Switch(False, "Before quantisation too.", pending="dumping of kernel data")
    dump_step = Text(
        "",
        r"\d+(-\d+)?(\|\d+(-\d+)?)*",
        "0|1|2-5",
        "Calls to write.",
        pending="dumping of kernel data",
    )
    dump_layer = Text(
        "",
        r"[0-9a-zA-Z_ /\\.]+",
        "Mul_1 Add1",
        "Nodes to write.",
        pending="dumping of kernel data",
    )
    dump_data = Choice(
        "tensor", ("tensor", "stats"), "Values or statistics.", pending="dumping of kernel data"
    )
    dump_config_path = Path(
        None, "The same as a file.", must_be="file", pending="dumping of kernel data"
    )
    data_dump_stage = Choice(
        "optimized",
        ("original", "optimized"),
        "Which graph's nodes.",
        pending="dumping of kernel data",
    )


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

    fusion_switch_file = Path(
        None,
        "JSON file that switches fusions on and off.",
        must_be="file",
        mode=MAX_AUTOTUNE,
        pending="switching single fusions",
        in_key=True,
    )


class AoeConfig(Group):
    """config.aoe_config: tuning by measurement."""

    aoe_mode = Choice[str | None](
        None,
        (None, "2"),
        "'2' measures how to cut each contraction and attention of known sizes, once.",
        mode=MAX_AUTOTUNE,
        in_key=True,
    )
    work_path = Path(
        "./",
        "Folder of the tuner.",
        must_be="folder",
        mode=MAX_AUTOTUNE,
        inert="what was measured is kept in the folder of kernels",
    )
    aoe_config_file = Path(
        None,
        "Options of the tuner.",
        must_be="file",
        mode=MAX_AUTOTUNE,
        inert="they are options of Ascend's tuner",
    )


class AclGraphExperimental(Group):
    """config.experimental_config.aclgraph: static kernels and super kernels."""

    _aclnn_static_shape_kernel = Switch(
        False,
        "Compile kernels for the shapes seen, ahead of time.",
        mode=REDUCE_OVERHEAD,
        in_key=True,
    )
    _aclnn_static_shape_kernel_build_dir = Path(
        None,
        "Folder of what that makes; None is beside the script.",
        must_be="folder",
        mode=REDUCE_OVERHEAD,
    )
    _aclnn_static_shape_kernel_sym_value_range = Instance[list[int] | None](
        None,
        _is_int_list,
        "list of int",
        "Sizes of a dynamic program's symbol to compile for at its first call.",
        mode=REDUCE_OVERHEAD,
        in_key=True,
    )
    _aclnn_static_shape_kernel_sym_index = Number(
        0,
        0,
        INT64_MAX,
        "Which of its symbols that is, counted from 0 in the order of the arguments.",
        mode=REDUCE_OVERHEAD,
        in_key=True,
    )
    _super_kernel_optimize = Switch(
        False,
        "Make super kernels of each capture, where that is estimated to be faster.",
        mode=REDUCE_OVERHEAD,
        in_key=True,
    )
    _super_kernel_optimize_options = RangeDict(
        None, "Options of ranges that are made without marks, as of scope.super_kernel.",
        in_key=True,
    )  # fmt: skip
    _super_kernel_debug_options = RangeDict(
        None, "More of them, to look for faults of synchronisation.", in_key=True
    )


class ExperimentalConfig(Group):
    """config.experimental_config"""

    kernel_meta_dir = Path(
        None,
        "Folder of compiled kernels; None: KERNELMILL_KERNEL_META, else kernelmill/kernel_meta in "
        "$XDG_CACHE_HOME or ~/.cache.",
    )
    keep_inference_input_mutations = Switch(
        True, "Write mutated inputs inside the program, not after it.", in_key=True
    )
    frozen_parameter = Switch(
        False,
        "Treat parameters as constants.",
        inert="parameters are packed once in any case, and again only when they change",
    )
    remove_noop_ops = Switch(True, "Remove operators that change nothing.", in_key=True)
    pattern_fusion_pass = Switch(True, "Rewrite known patterns of operators.", in_key=True)
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
        INT64_MAX,
        "Least operators of a static subgraph.",
        mode=MAX_AUTOTUNE,
        inert="a graph is not split into static and dynamic parts here",
    )
    jit_compile = Choice("auto", ("auto",), "Dynamic shapes are compiled once, for all sizes.")
    npu_fx_pass = Switch(False, "Rewrites of the FX graph.", inert="they are always on here")
    tiling_schedule_optimize = Switch(
        False,
        "Tiling ahead of the call.",
        mode=MAX_AUTOTUNE,
        inert="tiles are always chosen at compile time here",
    )
    super_kernel_optimize = Switch(
        False,
        "Make super kernels of all of a static program, where that is estimated to be faster.",
        in_key=True,
    )
    aot_config_enable_joint_graph = Switch(
        False, "Compile forward and backward as one.", pending="the joint graph", in_key=True
    )
    aot_config_output_loss_index = Number(
        0, 0, INT64_MAX, "Which result is the loss.", pending="the joint graph", in_key=True
    )
    aclgraph = Sub(AclGraphExperimental)


class InferenceConfig(Group):
    """config.inference_config"""

    dynamic_gears_merge_policy = Choice(
        "zip", ("zip", "product"), "How gears of several dims combine.", in_key=True
    )
    gear_miss = Choice(
        "error",
        ("error", "pad", "dynamic"),
        "A size that is no gear: an error, padded to one, or run by a program for all sizes.",
        in_key=True,
    )
    gear_pad_masks = Instance[Sequence[str]](
        (),
        _is_text_list,
        "list of str",
        "Arguments that hide padding where they are zero: the user's word for it is taken.",
        in_key=True,
    )
    allow_small_gears = Switch(False, "Let 0 and 1 be gears.", in_key=True)
    gears_with_graph_breaks = Switch(False, "Gears for each graph of a model that breaks.")


class GeConfig(Group):
    """config.ge_config: options of Ascend's graph engine."""

    enable_single_stream = Switch(False, "One stream.", mode=MAX_AUTOTUNE, inert=_NO_STREAMS)
    oo_level = Choice(
        "O3",
        ("O1", "O3"),
        "O1: no rewrites of the graph.",
        mode=MAX_AUTOTUNE,
        pending="level O1",
        in_key=True,
    )
    oo_constant_folding = Choice[bool | None](
        None,
        (None, True, False),
        "Fold constants.",
        mode=MAX_AUTOTUNE,
        pending="switching it",
        in_key=True,
    )
    oo_dead_code_elimination = Choice[bool | None](
        None,
        (None, True, False),
        "Remove what nobody reads.",
        mode=MAX_AUTOTUNE,
        pending="switching it",
        in_key=True,
    )
    export_compile_stat = Choice(
        "2",
        ("0", "1", "2"),
        "Statistics of a compile.",
        mode=MAX_AUTOTUNE,
        inert="kernelmill.explain() reports them",
    )
    aicore_num = Text(
        None, r"\d+\|\d+", "24|48", "Cores to use.", mode=MAX_AUTOTUNE, inert=_NO_STREAMS
    )
    optimization_switch = Text(
        None,
        r"\w+:(on|off)(;\w+:(on|off))*",
        "pass1:on;pass2:off",
        "Switch single passes.",
        mode=MAX_AUTOTUNE,
        pending="switching single passes",
        in_key=True,
    )
