"""Options of TorchAir that are accepted but have no effect, with their checks, by the reason.

A row is a group of options, a reason, and the names with their defaults and allowed values.
"""

from __future__ import annotations

from typing import Any

from kernelmill.config import tree
from kernelmill.config.dump_config import DumpConfig
from kernelmill.config.option import Choice, Group, Instance, Number, Option, Path, Switch, Text

NO_POOL = "captures of one graph always share their memory, and graphs never do"
_NO_CAPTURE = "no device graph is captured; a compiled program is launched as one call"
_NO_STREAMS = "a CPU has no device streams; torch.set_num_threads sets the parallelism"
_EXPORT = "there is no export to Ascend's files; kernelmill.aot.compile writes a file"
_EXPLAINED = "kernelmill.explain() reports them"
_NOT_SWITCHED = "single rewrites and fusions cannot be switched off"
_ALWAYS = (
    "always on: inputs are updated in place, views are index arithmetic, tiles are chosen at "
    "compile time, and the arena of a call is released after it"
)


def pool() -> Instance[tuple[Any, ...] | None]:
    """Return an option that holds the result of `torch.npu.graph_pool_handle`, or None."""
    return Instance(None, lambda value: isinstance(value, tuple), "tuple")


ACCEPTED: tuple[tuple[type[Group], str, dict[str, Option[Any]]], ...] = (
    (tree.FxSummary, _EXPLAINED, {
        "type": Choice(None, (None, "csv")),
        "path": Path(None, must_be="folder"),
        "skip_compile": Switch(True),
    }),
    (tree.AclGraphDebug, _NO_CAPTURE, {
        "disable_reinplace_inplaceable_ops_pass": Switch(False),
        "disable_reinplace_input_mutated_ops_pass": Switch(False),
        "disable_mempool_reuse_in_same_fx": Switch(False),
        "enable_output_clone": Switch(False),
        "clone_input": Switch(True),
    }),
    (tree.AclGraphDebug, "parts of a concatenation are always written in place", {
        "remove_cat_ops": Switch(True),
    }),
    (tree.AclGraphConfig, NO_POOL, {"use_custom_pool": pool()}),
    (tree.Debug, _NO_STREAMS, {"deadlock_check": Switch(False)}),
    (DumpConfig, "the graph runs as captured, so quantised tensors are always written", {
        "quant_dumpable": Switch(False),
    }),
    (tree.Export, _EXPORT, {
        "export_mode": Switch(False),
        "export_path_dir": Path("./", must_be="folder"),
        "export_name": Text(None, r"[^/]+", "model"),
        "weight_name": tree.mapping(),
        "inputs_name": Instance(None, tree.is_text_list, "list of str"),
    }),
    (tree.ExportExperimental, _EXPORT, {
        "enable_record_nn_module_stack": Switch(False),
        "auto_atc_config_generated": Switch(False),
        "enable_lite_export": Switch(False),
    }),
    (tree.FusionConfig, _NOT_SWITCHED, {"fusion_switch_file": Path(None, must_be="file")}),
    (tree.AoeConfig, "measured choices are kept in the folder of kernels", {
        "work_path": Path("./", must_be="folder"),
    }),
    (tree.AoeConfig, "it is for Ascend's tuner", {
        "aoe_config_file": Path(None, must_be="file"),
    }),
    (tree.ExperimentalConfig, "parameters are packed once, and again only when they change", {
        "frozen_parameter": Switch(False),
    }),
    (tree.ExperimentalConfig, "the order of nodes cannot be chosen", {
        "topology_sorting_strategy": Choice("DFS", ("BFS", "DFS", "RDFS", "StableRDFS")),
    }),
    (tree.ExperimentalConfig, _ALWAYS, {
        "enable_ref_data": Switch(False),
        "enable_view_optimize": Switch(True),
        "memory_efficiency": Switch(False),
        "npu_fx_pass": Switch(False),
        "tiling_schedule_optimize": Switch(False),
    }),
    (tree.ExperimentalConfig, _NO_STREAMS, {"cc_parallel_enable": Switch(False)}),
    (tree.ExperimentalConfig, "a graph is not split into static and dynamic parts", {
        "static_model_ops_lower_limit": Number(None, -1),
    }),
    (tree.ExperimentalConfig, "forward and backward are compiled separately", {
        "aot_config_enable_joint_graph": Switch(False),
        "aot_config_output_loss_index": Number(0, 0),
    }),
    (tree.GeConfig, _NO_STREAMS, {
        "enable_single_stream": Switch(False),
        "aicore_num": Text(None, r"\d+\|\d+", "24|48"),
    }),
    (tree.GeConfig, _NOT_SWITCHED, {
        "oo_level": Choice("O3", ("O1", "O3")),
        "oo_constant_folding": Choice(None, (None, True, False)),
        "oo_dead_code_elimination": Choice(None, (None, True, False)),
        "optimization_switch": Text(None, r"\w+:(on|off)(;\w+:(on|off))*", "pass1:on;pass2:off"),
    }),
    (tree.GeConfig, _EXPLAINED, {"export_compile_stat": Choice("2", ("0", "1", "2"))}),
)  # fmt: skip
