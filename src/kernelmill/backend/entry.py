"""Public entry points. Importing this loads neither torch._dynamo nor the compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernelmill.backend.report import Capture
from kernelmill.config import CompilerConfig, given_config
from kernelmill.config.tree import MAX_AUTOTUNE
from kernelmill.core.errors import ConfigTypeError
from kernelmill.core.log import get_logger
from kernelmill.core.version import BACKEND_NAME

if TYPE_CHECKING:
    import torch

    from kernelmill.compiler.linking import OnCompiled

Decompositions = Mapping[Any, Callable[..., Any]]
_log = get_logger("backend")


class Backend:
    """A backend for `torch.compile(model, backend=...)` with its own configuration.

    `captures` lists the graphs compiled by it so far, oldest first. A copy is the same backend.
    """

    def __init__(
        self, compiler_config: CompilerConfig | None = None,
        custom_decompositions: Decompositions | None = None,
        on_compiled: OnCompiled | None = None, lower_only: bool = False,
    ) -> None:  # fmt: skip
        """Make a backend. For `on_compiled`, with which reports compare new kernels, and
        `lower_only` see `Compiler`."""
        self.config = given_config(compiler_config)
        self.custom_decompositions = given_decompositions(custom_decompositions)
        self.captures: list[Capture] = []
        self._on_compiled, self._lower_only = on_compiled, lower_only
        # Dynamo knows it by this name, and then releases parameters after a compile: else
        # torch.utils.swap_tensors would refuse them.
        self.__name__ = BACKEND_NAME
        self.config.warn_other_mode()

    def __deepcopy__(self, memo: object) -> Backend:
        # Callers that copy their options, and trace again when they differ, as generate of
        # transformers at each call, find the same backend.
        return self

    def __call__(
        self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any
    ) -> Callable[..., Any]:
        """Compile one graph of Dynamo's. `kwargs` are torch.compile's `mode` and `options`."""
        from kernelmill.backend.capture import compile_capture
        from kernelmill.compiler.pipeline import Compiler
        from kernelmill.torch_internals.autograd import is_to_be_kept

        compiler = Compiler(
            configured(self.config, **kwargs),
            self._on_compiled,
            compare=self._on_compiled is not None,
            lower_only=self._lower_only,
        )
        given = gm, example_inputs, compiler, self.custom_decompositions
        if is_to_be_kept():
            from kernelmill.backend.kept_graph import compile_kept

            return compile_kept(*given, self.captures)
        return compile_capture(*given, self.captures.append)


def get_backend(
    *,
    compiler_config: CompilerConfig | None = None,
    custom_decompositions: Decompositions | None = None,
) -> Backend:
    """Return a backend for `torch.compile(model, backend=...)`.

    compiler_config        its options; None: the defaults
    custom_decompositions  a dict from operator overloads to functions that are traced instead

    Imports torch._dynamo and the compiler. Raises ConfigTypeError for arguments of another type.
    """
    from kernelmill.backend.graph_breaks import watch_compiles

    import_module("kernelmill.backend.capture")
    watch_compiles()
    return Backend(compiler_config, custom_decompositions)


get_npu_backend = get_backend
"""The name that TorchAir scripts use."""


def given_decompositions(table: object) -> dict[Any, Callable[..., Any]]:
    """Return the given decompositions as a dict, {} for None. ConfigTypeError for keys that are no
    overloads of operators, which would never be looked up, and for values that are not callable."""
    if table is None:
        return {}
    if not isinstance(table, Mapping):
        raise ConfigTypeError(f"custom_decompositions: {type(table).__name__} is no dict")
    for operator, function in table.items():
        _check_decomposition(operator, function)
    return dict(table)


def _check_decomposition(operator: Any, function: object) -> None:
    if not hasattr(operator, "py_impl"):  # as overloads and torch.ops.higher_order's have
        overloads: Any = getattr(operator, "overloads", list[str])  # torch.ops.aten.sin has them
        which = f" ({operator} has {', '.join(overloads())})" if overloads() else ""
        raise ConfigTypeError(
            f"custom_decompositions: {operator!r} is no overload of an operator, as "
            f"torch.ops.aten.sin.default is{which}"
        )
    if not callable(function):
        raise ConfigTypeError(
            f"custom_decompositions: {operator} has {function!r}, which cannot be called"
        )


def configured(
    config: CompilerConfig, mode: str | None = None, options: Mapping[str, Any] | None = None
) -> CompilerConfig:
    """Return the config with torch.compile's `mode` and `options` on top.

    Options are dotted names of the tree ("debug.graph_dump.type"), or a whole "compiler_config".
    Libraries pass modes and options of Inductor's to any backend: those that request what every
    compile here does are accepted, the others are ignored, with one warning. ConfigError for
    unknown ones, ConfigTypeError for another kind of config.
    """
    given = dict(options or {})
    config = given_config(given.pop("compiler_config", config))
    if mode not in _CONFIGURED:
        given["mode"] = MAX_AUTOTUNE if mode == "max-autotune-no-cudagraphs" else mode
    if others := [name for name in given if not _is_ours(name)]:
        _leave_out({name: given.pop(name) for name in others})
    return config.with_options(given) if given else config


_CONFIGURED = (None, "default", "reduce-overhead")
"""Modes of torch.compile that leave the config's own mode. Its reduce-overhead fuses operators and
makes calls cheap, as all programs here do; transformers passes it unasked."""
_DONE_ANYWAY = {
    "fallback_random": True,  # random numbers are eager's
    "freezing": True,  # weights are packed, and packed again when they change
    "keep_output_stride": True,
    "max_autotune": True,  # as `mode="max-autotune"`, which is the default
    "max_autotune_gemm": True,
    "max_autotune_pointwise": True,
}
"""Inductor's options that request what every compile here does."""
_NOT_DONE = object()


def _is_ours(name: object) -> bool:
    """Return whether an option is in our tree, or unknown to Inductor too."""
    if not isinstance(name, str) or name.partition(".")[0] in CompilerConfig.names():
        return True
    from kernelmill.torch_internals.compiles import inductor_options

    return name.replace("-", "_") not in (inductor_options.get() or ())


def _leave_out(options: Mapping[str, Any]) -> None:
    done = {name: _DONE_ANYWAY.get(name.replace("-", "_"), _NOT_DONE) for name in options}
    left = [name for name, value in options.items() if done[name] is not value]
    if left:
        _warn_of_left_out(tuple(sorted(left)))


@cache
def _warn_of_left_out(names: Iterable[str]) -> None:
    """Warn once for each set of options: libraries pass the same to each torch.compile."""
    _log.warning(
        "Inductor's options %s mean nothing to the backend kernelmill and are left out",
        ", ".join(names),
    )
