"""The public entry points and the options that torch.compile passes on."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import pytest
import torch
from torch._decomp import core_aten_decompositions, get_decompositions

import kernelmill.backend as backend
from kernelmill import aot
from kernelmill.backend.by_name import kernelmill
from kernelmill.backend.entry import configured
from kernelmill.config import CompilerConfig
from kernelmill.core.errors import ConfigError, ConfigTypeError
from kernelmill.inference import cache_compile


def test_importing_the_entry_loads_no_compiler() -> None:
    code = (
        "import sys, kernelmill.backend.entry;"
        "print([m for m in ('torch._dynamo', 'kernelmill.compiler', 'llvmlite') "
        "if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_torchairs_name_is_the_same_function() -> None:
    assert backend.get_npu_backend is backend.get_backend


def test_arguments_are_keywords() -> None:
    with pytest.raises(TypeError):
        backend.get_backend(CompilerConfig())  # type: ignore[misc]


def test_torch_compile_passes_mode_and_options_on() -> None:
    options = {"debug.graph_dump.type": None}
    compiled = torch.compile(lambda x: x * 2 + 1, backend=kernelmill, options=options)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 3.0))
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x * 2 + 1, backend=kernelmill, mode="max-autotune")
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 3.0))


def test_options_go_on_top_of_a_config() -> None:
    config = CompilerConfig()
    config.debug.graph_dump.type = "py"
    options = {"debug.graph_dump.path": ".", "mode": "reduce-overhead"}
    changed = configured(config, "default", options)
    assert changed.mode == "reduce-overhead"
    assert changed.debug.graph_dump.type == "py"
    assert changed.debug.graph_dump.path == "."
    assert (config.mode, config.debug.graph_dump.path) == ("max-autotune", None)


def test_without_options_the_config_is_taken_as_it_is() -> None:
    config = CompilerConfig()
    assert configured(config) is config
    assert configured(config, "default", {}) is config
    assert configured(CompilerConfig(), None, {"compiler_config": config}) is config


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("own", ["max-autotune", "reduce-overhead"])
def test_a_mode_that_libraries_pass_unasked_leaves_ours_as_it_is(mode: str, own: str) -> None:
    config = CompilerConfig()
    config.mode = own
    assert configured(config, mode).mode == own
    assert configured(config, "max-autotune-no-cudagraphs").mode == "max-autotune"


@pytest.mark.parametrize(
    "options",
    [
        {"no_such": 1}, {"debug.no_such": 1}, {"no_group.x": 1}, {"mode": "fastest"}, {"mode.x": 1},
        {"check_weights.x": 1}, {"as_dict.x": 1}, {3: 1},
    ],
)  # fmt: skip
def test_unknown_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        configured(CompilerConfig(), None, options)


def test_an_option_of_the_other_mode_warns() -> None:
    config = CompilerConfig()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a CPU captures no device graph
        config.debug.aclgraph.disable_mempool_reuse_in_same_fx = True
    with pytest.warns(UserWarning, match="belongs to mode 'reduce-overhead'"):
        backend.get_backend(compiler_config=config)


def test_custom_decompositions_replace_operators() -> None:
    torch._dynamo.reset()

    def halved(x: torch.Tensor) -> torch.Tensor:
        return x * 0.5

    mine = backend.get_backend(custom_decompositions={torch.ops.aten.sin.default: halved})
    compiled = torch.compile(lambda x: x.sin() + 1, backend=mine)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 1.5))


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ({"sin": torch.sin}, "'sin' is no overload of an operator"),
        ({torch.ops.aten.add: torch.add}, r"\(aten.add has .*Tensor"),
        ({torch.ops.aten.sin.default: 3}, "aten.sin.default has 3, which cannot be called"),
        ([torch.sin], "list is no dict"),
    ],
)
def test_decompositions_that_nothing_would_look_up_are_refused(table: Any, what: str) -> None:
    for take in (
        lambda: backend.get_backend(custom_decompositions=table),
        lambda: aot.compile(torch.sin, (torch.ones(2),), custom_decompositions=table),
        lambda: cache_compile(torch.nn.Linear(2, 2).forward, custom_decompositions=table),
    ):
        with pytest.raises(ConfigTypeError, match=what):
            take()


def test_torchs_own_tables_of_decompositions_are_taken() -> None:
    tables = (core_aten_decompositions(), get_decompositions([torch.ops.aten.gelu]))
    for table in (*tables, {torch.ops.higher_order.cond: torch.cond}):
        assert backend.get_backend(custom_decompositions=table).custom_decompositions == dict(table)


def test_a_config_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigTypeError, match="config: dict is no CompilerConfig"):
        backend.get_backend(compiler_config={})  # type: ignore[arg-type]
    options: dict[str, Any] = {"compiler_config": 3}
    with pytest.raises(ConfigTypeError, match="config: int is no CompilerConfig"):
        configured(CompilerConfig(), options=options)
