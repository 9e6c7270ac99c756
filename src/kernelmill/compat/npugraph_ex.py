"""`npugraph_ex`: TorchAir's graph mode as a backend with a name and flat options.

It is mode reduce-overhead by other names, listed in `_OURS`. Names, defaults and checks of options
are those of its class CompilerConfig.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.traceback import annotate

from kernelmill import inference, scope
from kernelmill.backend.entry import Backend, Decompositions
from kernelmill.backend.replacements import register_replacement
from kernelmill.compat.marks import limit_core_num
from kernelmill.config import CompilerConfig as OwnConfig
from kernelmill.config.accepted import NO_POOL, pool
from kernelmill.config.option import Choice, Group, Instance, Number, Option, Path, Switch
from kernelmill.config.super_kernel_marks import DETERMINISTIC_KEY, HARDWARE_OPTIONS
from kernelmill.config.tree import (
    REDUCE_OVERHEAD,
    hook,
    is_int_list,
    mapping,
)  # fmt: skip
from kernelmill.core.errors import ConfigError, ConfigTypeError
from kernelmill.core.log import warn_once

if TYPE_CHECKING:
    from kernelmill.inference.cached_method import CachedMethod

NAME = "npugraph_ex"
"""Name of the backend, and of the module."""

_ACLGRAPH = "experimental_config.aclgraph."
_OURS: Mapping[str, str] = {
    "force_eager": "debug.run_eagerly",
    "capture_limit": "debug.aclgraph.static_capture_size_limit",
    "static_kernel_compile": f"{_ACLGRAPH}_aclnn_static_shape_kernel",
    "_vllm_aclnn_static_kernel_sym_index": f"{_ACLGRAPH}_aclnn_static_shape_kernel_sym_index",
    "_vllm_aclnn_static_kernel_sym_range": f"{_ACLGRAPH}_aclnn_static_shape_kernel_sym_value_range",
    "super_kernel_optimize": f"{_ACLGRAPH}_super_kernel_optimize",
    "super_kernel_optimize_options": f"{_ACLGRAPH}_super_kernel_optimize_options",
    "super_kernel_debug_options": f"{_ACLGRAPH}_super_kernel_debug_options",
    "remove_noop_ops": "experimental_config.remove_noop_ops",
    "pattern_fusion_pass": "experimental_config.pattern_fusion_pass",
}
"""Options with the same meaning in `kernelmill.CompilerConfig`."""

_PASSES = ("post_grad_custom_pre_pass", "post_grad_custom_post_pass")

_ACCEPTED: Mapping[str, Mapping[str, Option[Any]]] = {
    NO_POOL: {"use_graph_pool": pool(), "reuse_graph_pool_in_same_fx": Switch(True)},
    "a capture holds no addresses: arguments may lie anywhere in each call": {
        "clone_input": Switch(True), "force_recapture": Switch(False),
    },
    "results are a call's own in any case": {"clone_output": Switch(False)},
    "kernels are kept by all that they depend on; delete the folder to have them anew": {
        "disable_static_kernel_compile_cache": Switch(False),
    },
    "parameters are packed once in any case": {"frozen_parameter": Switch(False)},
    "what can be written in place is found out for each kernel": {
        "remove_cat_ops": Switch(True), "inplace_pass": Switch(True),
        "input_inplace_pass": Switch(True),
    },
    "streams cannot wait for each other": {"deadlock_check": Switch(False)},
    "no device graph is captured: a call launches a list of kernels": {
        "capture_error_mode": Choice("global", ("global", "thread_local", "relaxed")),
        "unsafe_skip_npugraph_capture_validation": Switch(False),
    },
    "kernelmill.explain() reports them": {"record_statistics_debug_info": Switch(False)},
}  # fmt: skip
"""Options that do nothing here, by the reason."""


class CompilerConfig(Group):
    """Options of the backend npugraph_ex. Every assignment is checked at once: ConfigError (a
    ValueError) for a name or value that is not allowed. One without a meaning here gives a
    UserWarning when it is set to another value than its default."""

    mode = Choice(NAME, (NAME,), "The one mode that there is.")
    force_eager = Switch(False, "Runs the captured graph with ATen.")
    capture_limit = Number(64, 1, "Most sets of sizes that are captured for a graph.")
    static_kernel_compile = Switch(False, "Compiles a kernel for each operator and shape.")
    remove_noop_ops = Switch(True, "Removes operators that change no bit.")
    pattern_fusion_pass = Switch(True, "Replaces what was registered.")
    post_grad_custom_pre_pass = hook("A rewrite of the graph, before ours.")
    post_grad_custom_post_pass = hook("A rewrite of the graph, after ours.")
    dump_tensor_data = Switch(False, "Writes what operators read and give.")
    data_dump_stage = Choice("optimized", ("original", "optimized"), "Which graph's operators.")
    data_dump_dir = Path("./", "Folder of what is dumped.", must_be="folder")
    _vllm_aclnn_static_kernel_sym_index = Number(0, 0, "Which symbol has the sizes.")
    _vllm_aclnn_static_kernel_sym_range = Instance[Sequence[int] | None](
        None, is_int_list, "list of int", "Sizes to compile static kernels for."
    )
    super_kernel_optimize = Switch(False, "Makes super kernels.")
    super_kernel_optimize_options = mapping("Options of super kernels.")
    super_kernel_debug_options = mapping("The same, on top of them.")

    def ours(self) -> OwnConfig:
        """Return the equivalent config of kernelmill."""
        config = OwnConfig()
        config.mode = REDUCE_OVERHEAD
        config.set(f"{_ACLGRAPH}static_kernel_outputs", "static_kernel_compile_outputs")
        for name, value in self.changed().items():
            if name in _OURS:
                config.set(_OURS[name], _without_hardware(name, value))
        told = {name: value for name, value in self.changed().items() if name not in _PASSES}
        for name in _PASSES:
            if (own := getattr(self, name)) is not None:
                setattr(config, name, partial(_run_pass, own, tuple(told.items())))
        if self.dump_tensor_data:
            dump = config.dump_config
            dump.enable_dump, dump.dump_path = True, self._dump_folder()
            dump.data_dump_stage = self.data_dump_stage
        return config

    def _dump_folder(self) -> str:
        """Return the folder of this process, and make it."""
        rank, size = 0, 1
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        assert self.data_dump_dir is not None
        folder = os.path.join(self.data_dump_dir, f"worldsize{size}_global_rank{rank}")
        os.makedirs(folder, exist_ok=True)
        return folder


for _reason, _options in _ACCEPTED.items():
    CompilerConfig.accept(_reason, _options)


def _run_pass(
    function: Callable[..., Any], changed: tuple[tuple[str, Any], ...], gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any], _: OwnConfig
) -> None:  # fmt: skip
    """Run a user's pass with the options under npugraph_ex's names."""
    with warnings.catch_warnings():  # warned already when they were set
        warnings.simplefilter("ignore", UserWarning)
        config = CompilerConfig().with_options(dict(changed))
    function(gm, example_inputs, config)


def _without_hardware(name: str, value: Any) -> Any:
    """Return an option's value, without options for the hardware of an NPU."""
    if not isinstance(value, dict):
        return value
    kept: dict[Any, Any] = {}
    for key, each in value.items():  # type: ignore[reportUnknownVariableType]  # a user's
        if key in HARDWARE_OPTIONS:
            warn_once(f"{key} of the npugraph_ex option {name}", "it steers the hardware of an NPU")
        else:
            kept[key] = each
    return kept


class NpuGraphBackend(Backend):
    """The backend with options of its own."""

    def __init__(
        self, compiler_config: CompilerConfig, custom_decompositions: Decompositions | None = None
    ) -> None:
        self.given = compiler_config
        super().__init__(compiler_config.ours(), custom_decompositions)

    def __call__(
        self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any
    ) -> Callable[..., Any]:
        """Compile one graph of Dynamo's; `kwargs` may have more `options`, by the same names."""
        if options := kwargs.get("options"):
            config = self.given.with_options(options).ours()
            return super().__call__(gm, example_inputs, options={"compiler_config": config})
        return super().__call__(gm, example_inputs)


def get_npu_backend(
    *,
    compiler_config: CompilerConfig | None = None,
    custom_decompositions: Decompositions | None = None,
) -> NpuGraphBackend:
    """Return a backend with these options. ConfigTypeError for another kind of config."""
    return NpuGraphBackend(_given(compiler_config), custom_decompositions)


def get_compiler(
    compiler_config: CompilerConfig | None = None,
) -> Callable[[torch.fx.GraphModule, Sequence[Any] | None], Callable[..., Any]]:
    """Return the compiler of a graph of ATen operators, for a user's backend around AOTAutograd."""
    return compiler_of(_given(compiler_config).ours())


def compiler_of(
    config: OwnConfig,
) -> Callable[[torch.fx.GraphModule, Sequence[Any] | None], Callable[..., Any]]:
    """Return such a compiler with our options."""
    # Imported here: it loads the compiler.
    from kernelmill.backend.capture import compile_traced
    from kernelmill.compiler.pipeline import Compiler

    compiler = Compiler(config)
    return lambda gm, example_inputs=None: compile_traced(gm, example_inputs, compiler)


def compile_fx(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph of ATen operators, to be called with its arguments."""
    return get_compiler(CompilerConfig().with_options(options))(gm, example_inputs)


def by_name(options: Mapping[str, Any] | None, mode: str | None) -> NpuGraphBackend:
    """Return the backend of `torch.compile(backend="npugraph_ex")`. ConfigError for an unknown
    option, or a wrong value."""
    if mode not in (None, "default"):
        warn_once(f"torch.compile's mode {mode!r}", "npugraph_ex has one mode")
    return NpuGraphBackend(CompilerConfig().with_options(options))


def _given(config: object) -> CompilerConfig:
    if config is None:
        return CompilerConfig()
    if not isinstance(config, CompilerConfig):
        raise ConfigTypeError(f"config: {type(config).__name__} is no npugraph_ex.CompilerConfig")
    return config


def cache_compile(
    func: Callable[..., Any],
    *,
    config: CompilerConfig | None = None,
    backend: NpuGraphBackend | None = None,
    options: Mapping[str, Any] | None = None,
    **others: Any,
) -> CachedMethod:
    """Call `kernelmill.inference.cache_compile` with the options of npugraph_ex."""
    if backend is not None:
        if not isinstance(backend, NpuGraphBackend):  # type: ignore[reportUnnecessaryIsInstance]
            raise ConfigTypeError(f"backend: {backend!r:.60} is none of npugraph_ex")
        backend.given.refuse_another(config)
        config = backend.given
    own = _given(config).with_options(options)
    table = None if backend is None else backend.custom_decompositions
    return inference.cache_compile(func, backend=NpuGraphBackend(own, table), **others)


@contextmanager
def deterministic(level: int) -> Generator[None]:
    """Run the operators inside with the same bits in each call: kernels do so in any case, ATen
    under `torch.use_deterministic_algorithms`. ConfigError for a level that is none of 0, 1 and
    2."""
    if level not in (0, 1, 2):
        raise ConfigError(f"deterministic: {level!r} is no level; the levels are 0, 1, 2")
    mode = 2 if level else 0
    if torch.compiler.is_compiling():
        with annotate({DETERMINISTIC_KEY: mode}):
            yield
        return
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode(mode)
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


LOGGER = {"logger": logging.getLogger("kernelmill")}
UTILS = {**LOGGER, "EVENT_LEVEL": 35}
MEMBERS: Mapping[str, dict[str, Any]] = {
    NAME: {
        "CompilerConfig": CompilerConfig,
        "get_npu_backend": get_npu_backend,
        "get_compiler": get_compiler,
        "compile_fx": compile_fx,
        "register_replacement": register_replacement,
        **LOGGER,
    },
    f"{NAME}.configs": {},
    f"{NAME}.configs.compiler_config": {"CompilerConfig": CompilerConfig},
    f"{NAME}.core": {},
    f"{NAME}.core.utils": UTILS,
    f"{NAME}.ops": {"record": scope.record, "wait": scope.wait},
    f"{NAME}.inference": {
        "cache_compile": cache_compile,
        "readable_cache": inference.readable_cache,
    },
    f"{NAME}.scope": {"limit_core_num": limit_core_num, "deterministic": deterministic},
}
"""Contents of modules besides modules."""
