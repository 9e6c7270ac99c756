"""Users' functions that rewrite graphs: passes of a config, and replacements registered for the
process. Computing the text of their key imports no compiler."""

from __future__ import annotations

import types
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch

from kernelmill.artifact.fingerprint import cells_of, fingerprint, is_told_apart
from kernelmill.config import CompilerConfig
from kernelmill.core.errors import ConfigTypeError

Function = Callable[..., Any]


class _Replacements:
    """Registered replacements: the users' `functions`, and their `texts` for keys."""

    def __init__(self) -> None:
        self.functions: list[Function] = []
        self.texts: list[str] = []
        self._matcher: Any = None

    def matcher(self) -> Any:
        from kernelmill.torch_internals.compiles import pattern_matcher

        if self._matcher is None:
            self._matcher = pattern_matcher.require().PatternMatcherPass("kernelmill_replacements")
        return self._matcher


REPLACEMENTS = _Replacements()
"""The replacements of this process."""


def register_replacement(
    search_fn: Function, replace_fn: Function, example_inputs: Sequence[Any],
    trace_fn: Function | None = None, extra_check: Callable[[Any], bool] | None = None,
    search_fn_pattern: Any = None, scalar_workaround: Mapping[str, float | int] | None = None,
    skip_duplicates: bool = False,
) -> None:  # fmt: skip
    """Replace the operators of `search_fn` by those of `replace_fn`, in every graph that this
    process compiles from now on, with torch's pattern matcher.

    search_fn, replace_fn   functions of the same arguments with the same results
    example_inputs      arguments to trace them with. Their sizes and values do not matter; the
                        order of their dims in memory may change the traced operators
    trace_fn            torch's `fwd_only` (default), or a function like it
    extra_check         called with each match (torch's Match); False leaves it unchanged
    search_fn_pattern   a pattern of torch's matcher instead of the trace of search_fn
    scalar_workaround   values for arguments of search_fn that are numbers
    skip_duplicates     True: skip a pattern that is already registered; False: raise an error

    Raises ConfigTypeError for a value that is not a function, UnsupportedError if this version of
    torch has another matcher.
    """
    checked = {"search_fn": search_fn, "replace_fn": replace_fn}
    optional = {"trace_fn": trace_fn, "extra_check": extra_check}
    checked |= {name: value for name, value in optional.items() if value is not None}
    for name, function in checked.items():
        if not callable(function):
            raise ConfigTypeError(f"register_replacement: {name} is {function!r}, no function")
    # Imported here: methods that are loaded need neither.
    from kernelmill.frontend.decompositions import decomposition_table
    from kernelmill.torch_internals.compiles import pattern_matcher

    torchs = pattern_matcher.require()
    torchs.register_replacement(
        search_fn=search_fn, replace_fn=replace_fn, example_inputs=list(example_inputs),
        trace_fn=_trace if trace_fn in (None, torchs.fwd_only) else trace_fn,
        pass_dicts=REPLACEMENTS.matcher(), extra_check=extra_check or _is_fine,
        search_fn_pattern=search_fn_pattern, scalar_workaround=dict(scalar_workaround or {}),
        skip_duplicates=skip_duplicates, get_decomp_fn=decomposition_table,
    )  # fmt: skip
    REPLACEMENTS.functions += checked.values()
    parts = [f"{name} {_text(value)}" for name, value in checked.items()]
    values = search_fn_pattern, sorted((scalar_workaround or {}).items())
    REPLACEMENTS.texts.append(f"{parts} {values!r} {list(map(_lies, example_inputs))}")


def _trace(function: Function, args: Sequence[Any], **options: Any) -> Any:
    """Trace as torch does, without Inductor's rewrites, which are not applied to graphs here."""
    from kernelmill.torch_internals.compiles import pattern_matcher

    traced = pattern_matcher.require().fwd_only(
        function, args, run_functional_passes=False, **options
    )
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced


def _is_fine(match: Any) -> bool:
    return True


def functions_of(config: CompilerConfig) -> tuple[Function, ...]:
    """Return all users' functions that rewrite graphs compiled with these options."""
    own = (config.post_grad_custom_pre_pass, config.post_grad_custom_post_pass)
    shared = REPLACEMENTS.functions if config.experimental_config.pattern_fusion_pass else ()
    return (*(each for each in own if each is not None), *shared)


def passes_text(config: CompilerConfig) -> str:
    """Return the text for keys of users' functions: their code, defaults and closures."""
    own = (config.post_grad_custom_pre_pass, config.post_grad_custom_post_pass)
    shared = REPLACEMENTS.texts if config.experimental_config.pattern_fusion_pass else ()
    return "\n".join((*map(_text, own), *shared))


def _text(function: Any) -> str:
    """Return the fingerprint of a function; with a name unique to this process where that does not
    describe all of it, as for objects with state."""
    return fingerprint(function) + ("" if _is_told(function) else f" {_own_name(function)}")


_names: dict[int, tuple[weakref.ref[Any], str]] = {}


def _own_name(value: Any) -> str:
    known, name = _names.get(id(value), (None, ""))
    if known is None or known() is not value:
        name = str(uuid.uuid4())
        with suppress(TypeError):  # not every object has references that are weak
            _names[id(value)] = weakref.ref(value), name
    return name


def _is_told(value: Any, deep: int = 4) -> bool:
    if isinstance(value, partial):
        parts = (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, types.FunctionType):
        defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        parts = (*cells_of(value).values(), *defaults)
    else:
        return is_told_apart(value) and not isinstance(value, types.MethodType)
    return deep > 0 and all(part is value or _is_told(part, deep - 1) for part in parts)


def _lies(value: Any) -> str:
    """Return the properties of an example that a trace may read."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)} {value.stride()}"
    return repr(value)
