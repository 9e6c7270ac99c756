"""Options of npugraph_ex: names, defaults and checks, and what they are in ours."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from functorch.compile import aot_module_simplified

import kernelmill
from kernelmill.compat import npu, npugraph_ex
from kernelmill.compat.marks import limit_core_num
from kernelmill.compat.npugraph_ex import CompilerConfig, cache_compile, deterministic
from kernelmill.core import log
from kernelmill.core.errors import ConfigError, InputError

DEFAULTS: dict[str, Any] = {
    "mode": "npugraph_ex", "force_eager": False, "use_graph_pool": None,
    "reuse_graph_pool_in_same_fx": True, "capture_limit": 64, "clone_input": True,
    "clone_output": False, "static_kernel_compile": False,
    "disable_static_kernel_compile_cache": False, "frozen_parameter": False,
    "remove_noop_ops": True, "remove_cat_ops": True, "inplace_pass": True,
    "input_inplace_pass": True, "pattern_fusion_pass": True, "post_grad_custom_pre_pass": None,
    "post_grad_custom_post_pass": None, "dump_tensor_data": False,
    "data_dump_stage": "optimized", "data_dump_dir": "./",
    "_vllm_aclnn_static_kernel_sym_index": 0, "_vllm_aclnn_static_kernel_sym_range": None,
    "super_kernel_optimize": False, "super_kernel_optimize_options": None,
    "super_kernel_debug_options": None, "deadlock_check": False, "capture_error_mode": "global",
    "force_recapture": False, "record_statistics_debug_info": False,
    "unsafe_skip_npugraph_capture_validation": False,
}  # fmt: skip
"""The mode, and 29 options."""

ACLGRAPH = "experimental_config.aclgraph."


def test_names_and_defaults_are_torchairs() -> None:
    assert {name: value for name, _, value in CompilerConfig().options()} == DEFAULTS


@pytest.mark.parametrize(
    ("name", "value", "ours", "found"),
    [
        ("force_eager", True, "debug.run_eagerly", True),
        ("capture_limit", 3, "debug.aclgraph.static_capture_size_limit", 3),
        ("static_kernel_compile", True, f"{ACLGRAPH}_aclnn_static_shape_kernel", True),
        ("_vllm_aclnn_static_kernel_sym_index", 2,
         f"{ACLGRAPH}_aclnn_static_shape_kernel_sym_index", 2),
        ("_vllm_aclnn_static_kernel_sym_range", [1, 2],
         f"{ACLGRAPH}_aclnn_static_shape_kernel_sym_value_range", [1, 2]),
        ("super_kernel_optimize", True, f"{ACLGRAPH}_super_kernel_optimize", True),
        ("super_kernel_optimize_options", {"stream-fusion": 0},
         f"{ACLGRAPH}_super_kernel_optimize_options", {"stream-fusion": 0}),
        ("super_kernel_debug_options", {"debug-sync-all": 1, "early-start": 1},
         f"{ACLGRAPH}_super_kernel_debug_options", {"debug-sync-all": 1}),
        ("remove_noop_ops", False, "experimental_config.remove_noop_ops", False),
        ("pattern_fusion_pass", False, "experimental_config.pattern_fusion_pass", False),
    ],
)  # fmt: skip
def test_what_means_the_same_is_set(name: str, value: Any, ours: str, found: Any) -> None:
    config = CompilerConfig()
    setattr(config, name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        made = config.ours()
    assert made.as_dict() == {**npugraph(), ours: found}


def npugraph() -> dict[str, Any]:
    config = kernelmill.CompilerConfig()
    config.mode = "reduce-overhead"
    aclgraph = config.experimental_config.aclgraph
    aclgraph.static_kernel_outputs = "static_kernel_compile_outputs"
    return config.as_dict()


def test_the_defaults_are_mode_reduce_overhead() -> None:
    assert CompilerConfig().ours().as_dict() == npugraph()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("use_graph_pool", (0, 1)), ("reuse_graph_pool_in_same_fx", False), ("clone_input", False),
        ("clone_output", True), ("disable_static_kernel_compile_cache", True),
        ("frozen_parameter", True), ("remove_cat_ops", False), ("inplace_pass", False),
        ("input_inplace_pass", False), ("deadlock_check", True),
        ("capture_error_mode", "relaxed"), ("force_recapture", True),
        ("record_statistics_debug_info", True), ("unsafe_skip_npugraph_capture_validation", True),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_one_warning_with_the_reason(name: str, value: Any) -> None:
    config = CompilerConfig()
    with pytest.warns(UserWarning, match=f"config.{name} has no effect here") as said:
        setattr(config, name, value)
    assert len(said) == 1 and str(said[0].message).partition(": ")[2]
    assert config.ours().as_dict() == npugraph()


def test_nothing_is_ignored_in_silence(tmp_path: Path) -> None:
    """Each option is mapped, or warns, or is one of the dump's, or the mode."""
    known = {*npugraph_ex._OURS, *npugraph_ex._PASSES, "mode"}  # type: ignore[reportPrivateUsage]
    marked = {name for name, option, _ in CompilerConfig().options() if option.no_effect}
    assert {*DEFAULTS} - known - marked == {"dump_tensor_data", "data_dump_stage", "data_dump_dir"}


def test_data_is_dumped_where_torchair_has_it(tmp_path: Path) -> None:
    config = CompilerConfig()
    config.dump_tensor_data, config.data_dump_dir = True, str(tmp_path)
    for stage in ("optimized", "original"):
        config.data_dump_stage = stage
        dump = config.ours().dump_config
        assert dump.enable_dump and dump.data_dump_stage == stage
        assert dump.dump_path == str(tmp_path / "worldsize1_global_rank0")
    assert (tmp_path / "worldsize1_global_rank0").is_dir()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("capture_limit", 0, r"0 is not in \[1, "),
        ("capture_limit", True, "True is no int"),
        ("capture_error_mode", "globl", "did you mean 'global'"),
        ("mode", "max-autotune", "is not one of 'npugraph_ex'"),
        ("use_graph_pool", 3, "3 is no tuple"),
        ("data_dump_dir", "/no/such/folder", "no folder '/no/such/folder'; make it first"),
        ("_vllm_aclnn_static_kernel_sym_range", ["a"], "is no list of int"),
        ("super_kernel_optimize_options", "stream-fusion=1", "is no dict"),
        ("post_grad_custom_pre_pass", 3, "3 is no callable"),
        ("data_dump_stages", "original", "there are: data_dump_stage"),
    ],
)
def test_wrong_options_are_refused_when_they_are_set(name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        setattr(CompilerConfig(), name, value)


def test_options_are_a_dict() -> None:
    options: Any = 3
    with pytest.raises(ConfigError, match="options: 3 is no dict"):
        npugraph_ex.by_name(options, None)


def test_options_of_super_kernels_are_checked() -> None:
    config = CompilerConfig()
    config.super_kernel_optimize_options = {"stream-fusoin": 1}
    with pytest.raises(ConfigError, match="no option 'stream-fusoin'"):
        config.ours()


def to_sigmoid(gm: torch.fx.GraphModule, example_inputs: Any, config: Any) -> None:
    assert type(config) is CompilerConfig and config.clone_output
    for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.tanh.default):
        with gm.graph.inserting_after(node):
            made = gm.graph.call_function(torch.ops.aten.sigmoid.default, node.args)
        node.replace_all_uses_with(made)


@pytest.mark.filterwarnings("ignore:config.clone_output has no effect")
@pytest.mark.parametrize("name", ["post_grad_custom_pre_pass", "post_grad_custom_post_pass"])
def test_a_pass_gets_these_options(name: str) -> None:
    torch.compiler.reset()
    backend = npugraph_ex.by_name({name: to_sigmoid, "clone_output": True}, None)
    x = torch.randn(5)
    torch.testing.assert_close(torch.compile(torch.tanh, backend=backend)(x), x.sigmoid())


@pytest.mark.filterwarnings("ignore:config.clone_output has no effect")
@pytest.mark.filterwarnings("ignore:Your compiler for AOTAutograd is returning")
def test_a_backend_of_ones_own_compiles_its_graphs() -> None:
    """As the page of compile_fx has it, in training."""
    options = {"post_grad_custom_pre_pass": to_sigmoid, "clone_output": True}

    def compiler(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        return npugraph_ex.compile_fx(gm, example_inputs, options)

    def backend(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        return aot_module_simplified(gm, example_inputs, fw_compiler=compiler)

    torch.compiler.reset()
    model: Any = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    run: Any = torch.compile(model, backend=backend, fullgraph=True, dynamic=False)
    x = torch.randn(3, 4, requires_grad=True)
    expected = model[0](x).sigmoid()
    torch.testing.assert_close(run(x), expected)
    with torch.no_grad():
        torch.testing.assert_close(run(x), expected)
        model[0].weight.zero_()
        torch.testing.assert_close(run(x), model[0](x).sigmoid())
    with pytest.raises(ConfigError, match="no option 'clone_outputs'"):
        npugraph_ex.compile_fx(torch.fx.symbolic_trace(torch.nn.Tanh()), None, {"clone_outputs": 1})


def test_a_backend_of_another_kind_is_refused() -> None:
    class Model(torch.nn.Linear):
        def run(self, x: torch.Tensor) -> torch.Tensor:
            return self(x)

    own: Any = kernelmill.CompilerConfig()
    with pytest.raises(ConfigError, match="CompilerConfig is no npugraph_ex"):
        npugraph_ex.get_npu_backend(compiler_config=own)
    other: Any = kernelmill.get_backend()
    with pytest.raises(ConfigError, match="is none of npugraph_ex"):
        cache_compile(Model(2, 2).run, backend=other)


def test_torch_compiles_own_mode_is_told() -> None:
    log._named.clear()  # type: ignore[reportPrivateUsage]
    with pytest.warns(UserWarning, match="mode 'max-autotune' has no effect here"):
        npugraph_ex.by_name({}, "max-autotune")


@pytest.mark.parametrize(("cube", "vector"), [(0, 1), (1, -1), ("1", 1), (1, 1.0), (True, 1)])
def test_numbers_of_cores_are_checked(cube: Any, vector: Any) -> None:
    with pytest.raises(ConfigError, match="limit_core_num: op_"), limit_core_num(cube, vector):
        pass


def test_numbers_of_cores_are_checked_in_compiled_code_too() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        with limit_core_num(0, 2):
            return x + 1

    torch._dynamo.reset()
    compiled: Any = torch.compile(model, backend=npugraph_ex.get_npu_backend(), dynamic=False)
    with pytest.raises(Exception, match="op_aicore_num is 0"):
        compiled(torch.ones(2))


def test_a_level_of_determinism_is_checked() -> None:
    with pytest.raises(ConfigError, match="3 is no level"), deterministic(3):
        pass
    with pytest.raises(InputError, match="4 is no level"):
        npu.set_deterministic_level(4)


def test_a_level_of_the_process() -> None:
    log._named.clear()  # type: ignore[reportPrivateUsage]
    try:
        npu.set_deterministic_level(1)
        assert torch.get_deterministic_debug_mode() == 2
        with pytest.warns(UserWarning, match="equal rows in other places"):
            npu.set_deterministic_level(2)
    finally:
        npu.set_deterministic_level(0)
    assert torch.get_deterministic_debug_mode() == 0
