"""`kernelmill.compile`: the main entry point."""

from __future__ import annotations

import copy
import difflib
import inspect
import os
from collections.abc import Mapping, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from kernelmill.artifact.fingerprint import name_of
from kernelmill.backend.entry import configured
from kernelmill.config import CompilerConfig, given_config
from kernelmill.config.schemes import Quantize
from kernelmill.core.errors import ConfigError, ConfigTypeError, InputError
from kernelmill.gears.gear_set import declare
from kernelmill.inference.compiled_calls import CompiledCalls, CompiledForward
from kernelmill.inference.compiled_module import CompiledModule
from kernelmill.inference.kept_programs import Options, check_kind, folder_given
from kernelmill.inference.packing import move_weights_to_disk
from kernelmill.inference.torch_calls import NeverKept
from kernelmill.torch_internals.modules import original_module

if TYPE_CHECKING:
    from kernelmill.backend.quantization import Quantization

_MOST_DIMS = 64

Gears = Mapping[str, Mapping[int, Sequence[int]]]


def compile(
    model: Any = None,
    *,
    dynamic: bool | None = None,
    gears: Gears | None = None,
    mode: str | None = None,
    config: CompilerConfig | Mapping[str, Any] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    quantize: Quantize = None,
    max_error: float | None = None,
    examples: Any = None,
    mmap_packed_weights: bool = False,
    weights_on_disk: bool = False,
) -> Any:
    """Return a module or function with the results of `model`, which its calls compile.

    model      a module, a function, a bound method or another callable object. As a decorator:
               a function, or a method in a class, which each object of the class compiles
    dynamic    None: the first call compiles for its sizes, the next with other sizes for all sizes
               of these dims; True: for all sizes at once; False: for the sizes of each call
    gears      `{"input_ids": {0: [1, 4], 1: [32, 64]}}`: the sizes that dims of arguments can
               have. One trace makes a program for each (`set_dim_gears`)
    mode       as for torch.compile
    config     a CompilerConfig, or a dict of its options by their dotted names
    cache_dir  folder of the programs; by default that of `cache_compile`
    quantize   "int8", "int8-weights", "int4-weights" or "int4-weights-128", or a dict from patterns
               of layer names to these or None: int8 or int4 products (`config.quantize`).
               The model's own weights are not changed
    examples   a tuple of arguments, a dict of them by name, or a list of these, on which `report()`
               gives the error of each quantised layer
    max_error  the largest relative error of the model's results on the examples: the layers that
               cause most of it are not quantised
    mmap_packed_weights   keep packed weights in files, which all processes map and share
    weights_on_disk       move the model's own weights to files (`inference.move_weights_to_disk`)

    A compiled module has the parameters and attributes of `model`. Its programs are kept on disk,
    and later processes load them without Dynamo. Calls that cannot be kept, break the graph or need
    gradients go to torch.compile(backend="kernelmill"); `report()` has the reasons.

    Raises InputError for another kind of model, ConfigError for unknown options or arguments.

    >>> kernelmill.compile(torch.nn.GELU())(torch.zeros(2))
    tensor([0., 0.])
    """
    given = {name: value for name, value in locals().items() if name != "model"}
    _check_switches(dynamic, mmap_packed_weights, weights_on_disk)
    if model is None:  # as a decorator with options
        return partial(compile, **given)
    original = uncompile(model)
    gears = gears and _checked(gears, dynamic, original)
    function, settings = _function_of(original), _settings(mode, config, gears)
    quantized = _quantize(function, settings, quantize, max_error, examples)
    if weights_on_disk:
        move_weights_to_disk(getattr(original, "__self__", original), cache_dir)
    options = Options(
        function, settings, dynamic, folder_given(cache_dir), map_packed=mmap_packed_weights,
        gears=gears,
        module=original if isinstance(original, torch.nn.Module) else None, quantized=quantized,
    )  # fmt: skip
    return _compiled(options)


def _check_switches(dynamic: object, mmap_packed_weights: object, weights_on_disk: object) -> None:
    if dynamic is not None:
        check_kind(bool, dynamic=dynamic)
    check_kind(bool, mmap_packed_weights=mmap_packed_weights, weights_on_disk=weights_on_disk)


def _compiled(options: Options) -> Any:
    reason = _why_never_kept(options)
    if options.module is not None:
        calls = NeverKept(options, reason) if reason else CompiledForward(options)
        return CompiledModule(options.module, calls)
    return NeverKept(options, reason) if reason else CompiledCalls(options)


def _settings(
    mode: str | None, config: CompilerConfig | Mapping[str, Any] | None, gears: Gears | None
) -> CompilerConfig:
    whole = isinstance(config, Mapping)
    given: Any = config if whole else {"compiler_config": given_config(config)}
    made = copy.deepcopy(configured(CompilerConfig(), mode, given))
    sizes = [size for dims in (gears or {}).values() for sizes in dims.values() for size in sizes]
    if min(sizes, default=2) < 2:
        made.inference_config.allow_small_gears = True
    return made


def _quantize(
    function: Any, config: CompilerConfig, quantize: Quantize, max_error: float | None,
    examples: Any,
) -> Quantization | None:  # fmt: skip
    """Set `config.quantize`, and return the outcome for the layers of the function's module; None
    where nothing is quantised, or the function is of no module."""
    if quantize is not None:
        config.quantize = quantize
    owner = getattr(function, "__self__", None)
    if config.quantize is not None and isinstance(owner, torch.nn.Module):
        from kernelmill.backend.quantization import quantization  # calls without need no passes

        found = quantization(owner, function, config.quantize, max_error, examples)
        config.quantize = found.quantize
        return found
    if max_error is not None or examples is not None:
        wanted = "quantize" if config.quantize is None else "a module, or a method of one"
        raise ConfigError(f"max_error and examples go with {wanted}")
    return None


def uncompile(model: Any) -> Any:
    """Return the model that `kernelmill.compile` was given, or torch.compile for a module; any
    other object unchanged."""
    if isinstance(model, (CompiledCalls, NeverKept)):
        return model.original
    return original_module(model)


def _function_of(model: Any) -> Any:
    """Return the function that a call runs. InputError for neither module nor function."""
    if isinstance(model, torch.nn.Module):
        return uncompile(model.forward)
    if isinstance(model, type):
        raise InputError(
            f"{model.__name__} is a class: compile an object of it, kernelmill.compile("
            f"{model.__name__}(...)), or put @kernelmill.compile above its forward"
        )
    if not callable(model):
        raise InputError(
            "kernelmill.compile takes a torch.nn.Module or a function, not "
            f"{type(model).__name__}: {model!r:.60}"
        )
    called: Any = type(model).__call__
    if isinstance(model, (FunctionType, MethodType)) or not isinstance(called, FunctionType):
        return model
    return MethodType(called, model)


def _why_never_kept(options: Options) -> str:
    """Return why no program of a model can be kept, for any arguments; "" where unknown."""
    function, module = options.function, options.module
    plain = getattr(function, "__func__", function)
    if not isinstance(plain, FunctionType):
        return f"{type(plain).__name__} is no function of Python"
    if module is not None and type(module).__call__ is not torch.nn.Module.__call__:
        return f"{type(module).__name__} has a __call__ of its own"
    return ""


def _checked(gears: Any, dynamic: bool | None, model: Any) -> Gears:
    """Return the gears, checked against the names of the model's arguments."""
    if dynamic is False:
        raise ConfigError("gears and dynamic=False cannot be combined: gears come from one trace")
    if not isinstance(gears, Mapping):
        raise ConfigTypeError(f"gears: {type(gears).__name__} is no dict of names of arguments")
    given: Mapping[str, Any] = gears
    parameters = inspect.signature(_function_of(model)).parameters
    any_name = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name, dims in given.items():
        if name not in parameters and not any_name:
            near = difflib.get_close_matches(str(name), parameters, n=1, cutoff=0.0)
            nearest = f"; the nearest is {near[0]!r}" if near else ""
            raise ConfigError(
                f"gears: {name!r} is no argument of {_name(model)}, which has "
                f"{', '.join(map(repr, parameters)) or 'none'}{nearest}"
            )
        declare(dims, (0,) * _MOST_DIMS)
    return {
        name: {dim: tuple(sizes) for dim, sizes in dims.items()} for name, dims in given.items()
    }


def _name(model: Any) -> str:
    return type(model).__name__ if isinstance(model, torch.nn.Module) else name_of(model)
