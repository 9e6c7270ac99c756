"""Calls of a function compiled by `kernelmill.compile`: each takes the fastest valid path.

| a call | path |
|---|---|
| it passes the checks of the last call's program | that program, natively |
| another program of this process accepts it | that one; it is tried first next time |
| an entry on disk fits | it is loaded, without importing torch._dynamo |
| none of these | a new trace, kept: static, but with symbols where earlier programs differ |
| gradients are enabled, and an argument or weight requires grad | torch.compile |
| the module has hooks, or its forward was replaced | torch.compile |
| a trace of such a call could not be made or kept | torch.compile, without another try |
| the limit of traces is reached | torch.compile |
| a mode of torch that sees each operator is active | the original function |
| Dynamo, torch.export or torch.jit traces the calling code | the original, as part of that trace |
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import MethodType
from typing import TYPE_CHECKING, Any, SupportsIndex

import torch
from torch.compiler import is_dynamo_compiling

from kernelmill.artifact.manifest import Manifest
from kernelmill.artifact.paths import Path, name_of_argument
from kernelmill.artifact.settings import modes
from kernelmill.artifact.target import Values
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import GradientError, InputError, KernelmillError
from kernelmill.core.interpreter import collection_paused
from kernelmill.inference.compile_report import CompileReport, ProgramReport
from kernelmill.inference.kept_programs import KeptProgram, KeptPrograms, Options
from kernelmill.inference.torch_calls import TorchCalls, WithOriginal, is_traced
from kernelmill.inference.varying_sizes import Varying, with_gears
from kernelmill.plan.ir import Plan, TensorInput
from kernelmill.runtime.quick import REFUSED
from kernelmill.torch_internals.dynamo import is_operator_error, is_trace_error
from kernelmill.torch_internals.modules import all_have_hooks, own_hooks
from kernelmill.torch_internals.tracing import without_tracebacks

if TYPE_CHECKING:
    from kernelmill.backend.record import Recording

_ABOUT_GRADIENTS = frozenset(
    ("enable_grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled")
)
"""Names in code whose results may depend on the grad mode."""
_NEEDED = "gradients are on, and an argument or weight requires grad"
_ASKED = "gradients are on, and its code asks for that, or changes it"


class CompiledCalls(KeptPrograms, WithOriginal):
    """A compiled function or bound method. As an attribute of a class it is a method, which each
    object compiles for itself."""

    _traces_gradients = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        original = options.module or options.function
        self._torch = TorchCalls(original, options, self._by_name)
        self._refused: dict[Any, str] = {}
        self._untraceable: set[Any] = set()  # kinds that run as the original
        self._reason = ""  # why the trace under way is not kept
        self._counted: frozenset[Path] = frozenset()  # integers that calls change
        functools.update_wrapper(self, options.function)

    # ---- calls ------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function. Raises its errors, and those of our kernels."""
        if is_traced():
            return self.original(*args, **kwargs)
        if not kwargs and len(args) == self._count and not torch.is_grad_enabled():
            result = self._quick(args)
            if result is not REFUSED:
                return result
        return self._called(args, kwargs)

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            values = self._target.values(args, kwargs)
        except TypeError:
            return self.original(*args, **kwargs)  # raises the error
        gradients, level = torch.is_grad_enabled(), logging.WARNING
        reason = self._why_not_itself()
        if gradients and not reason and (reason := self._needs_gradients(values)):
            level = logging.INFO
        for program in () if reason else self._bound:
            result = program.bound.quick(values)
            if result is not REFUSED:
                self._take(program)
                return result
        if modes():
            return self.original(*args, **kwargs)
        if gradients and not reason and _trains(self._target.owner):
            reason, level = _NEEDED, logging.INFO
        if reason:
            return self._torch(reason, args, kwargs, level)
        kind = _kind_of(values), gradients, getattr(self._target.owner, "training", None)
        reason = self._refused.get(kind, "")
        if kind in self._untraceable:
            self._torch.count(reason)
            return self.original(*args, **kwargs)
        if not reason:
            result, reason = self._slowly(values, args, kwargs, kind)
            if not reason:
                return result
        with self._changing.lock:
            self.statistics["uncached"] += 1
        result = self._torch(reason, args, kwargs)
        # If it raises, the call was refused for that error.
        self._refused[kind] = reason
        return result

    def _why_not_itself(self) -> str:
        """Return why no program may be called, whatever the arguments are; "" if one may."""
        return ""

    def _needs_gradients(self, values: Values) -> str:
        """Return why a call with gradients on needs torch.compile, if known yet; "" else."""
        for program in self._bound:
            if not self._may_serve(program):
                return _ASKED if program.names & _ABOUT_GRADIENTS else _NEEDED
        return _NEEDED if any(map(_requires_gradient, values)) else ""

    def _may_serve(self, program: KeptProgram) -> bool:
        if not torch.is_grad_enabled():
            return True
        return not (program.names & _ABOUT_GRADIENTS or program.bound.reads_gradients)

    def _slowly(
        self, values: Values, args: tuple[Any, ...], kwargs: dict[str, Any], kind: Any
    ) -> tuple[Any, str]:
        """Return the result of a call that no fast path has taken; or the reason for
        torch.compile."""
        tried = self._bound
        try:
            result = self._by_one_of(tried, values)
            if result is not REFUSED:
                return result, ""
            with self._making.lock, collection_paused():
                # A program that another thread has loaded or traced while this one waited.
                new = [each for each in self._bound if each not in tried]
                result = self._by_one_of(filter(self._may_serve, new), values)
                if result is not REFUSED or kind in self._refused:
                    return result, "" if result is not REFUSED else self._refused[kind]
                if self.statistics["traced"] >= self._options.max_entries:
                    return None, (
                        f"{self._options.max_entries} traces were made of it in this process, and "
                        "none is for such a call"
                    )
                result = self._first_call(values, args, kwargs)
                if self._reason:
                    self._refused[kind], self._reason = self._reason, ""
                return result, ""
        except GradientError:
            return None, _NEEDED
        except Exception as error:
            if isinstance(error, KernelmillError) or not is_trace_error(error):
                raise
            reason, of_operator = _in_words(error), is_operator_error(error)
        if not of_operator:
            return None, reason
        result = self.original(*args, **kwargs)  # raises eager's error, as a rule
        # It is right in eager, and Dynamo would raise this again: torch.compile is no help.
        self._refused[kind] = reason
        self._untraceable.add(kind)
        self._torch.count(reason, as_it_is=True)
        return result, ""

    def _not_kept(self, recording: Recording) -> Any:
        new = self._counted.union(recording.counted)
        if self._options.dynamic is None and new != self._counted:
            self._counted = new  # the next trace has symbols for them
        else:
            self._reason = recording.reason
            self._torch.count(recording.reason)
        self.statistics["uncached"] += 1
        return recording.returned

    # ---- traces -----------------------------------------------------------------------------

    @contextmanager
    def _around_trace(
        self,
        values: Values,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        others: Sequence[KeptProgram],
    ) -> Generator[None]:
        target, options = self._target, self._options
        with ExitStack() as around:
            around.enter_context(without_tracebacks())
            if options.gears:
                around.enter_context(with_gears(options.gears, self._by_name(args, kwargs)))
            elif options.dynamic is None:
                known = [(each.manifest, each.programs.single) for each in others]
                plans = [(manifest, program.plan) for manifest, program in known if program]
                varying = Varying.of(plans, target, values) | Varying(integers=self._counted)
                around.enter_context(varying.marked(target, values))
            yield

    def _by_name(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by their users' names."""
        signature = inspect.signature(self._options.function)
        found = signature.bind_partial(*args, **kwargs).arguments
        kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
        rest = [
            found.pop(n) for n, kind in kinds.items() if kind is kind.VAR_KEYWORD and n in found
        ]
        return {**found, **(rest[0] if rest else {})}

    # ---- as a method, and elsewhere -----------------------------------------------------------

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Return the method of an object with this in its class, compiled for it alone."""
        if instance is None or self._target.owner is not None:
            return self
        method = MethodType(self._options.function, instance)
        if is_dynamo_compiling():
            return method
        space = getattr(instance, "__dict__", None)
        if space is None:
            raise InputError(
                f"objects of {type(instance).__name__} have no __dict__, in which the programs of "
                f"{method.__name__} could be: compile the method of each, kernelmill.compile(x."
                f"{method.__name__})"
            )
        key = f"_kernelmill {self._options.function.__qualname__}"
        held = space.get(key)
        if held is None or held.owner is not instance:
            with self._changing.lock:
                held = space.get(key)
                if held is None or held.owner is not instance:
                    calls = CompiledCalls(replace(self._options, function=method))
                    held = space[key] = _OfObject(instance, calls)
        return held.calls

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        # A function that was decorated is found by its name, as functions are.
        name, module = self._options.function.__qualname__, self._options.function.__module__
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else super().__reduce_ex__(protocol)

    def report(self, *others: CompiledCalls) -> CompileReport:
        """Return the report of the calls so far, and of those of `others`, with the reasons for
        torch.compile."""
        every, names = (self, *others), tuple(inspect.signature(self._options.function).parameters)
        bound = [program for each in every for program in each._bound]
        reasons, statistics = Counter[str](), Counter[str]()
        for each in every:
            reasons.update(each._torch.reasons)
            statistics.update(each.statistics)
        return CompileReport(
            tuple(_program_report(program, names) for program in bound), dict(reasons),
            tuple(capture for each in every for capture in each._torch.captures),
            dict(statistics), self._counts(bound), self._options.quantized,
        )  # fmt: skip


class CompiledForward(CompiledCalls):
    """The calls of a module: its forward, unless hooks belong to a call of it."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        module: Any = options.module
        self._module, self._forward = module, module.forward
        self._hooks = own_hooks(module) or ({"unknown": None},)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        if is_traced():
            return self._module(*args, **kwargs)
        plain = not kwargs and len(args) == self._count and not torch.is_grad_enabled()
        if plain and not any(self._hooks) and self._module.forward == self._forward:
            result = self._quick(args)
            if result is not REFUSED:
                return result
        return self._called(args, kwargs)

    def of_method(self) -> CompiledCalls:
        """Return the calls of the forward alone, for callers that run the hooks themselves."""
        return CompiledCalls(replace(self._options, module=None))

    def _why_not_itself(self) -> str:
        if any(self._hooks):
            return "the module has hooks"
        if all_have_hooks():
            return "all modules have hooks"
        if self._module.forward != self._forward:
            return "its forward is another than when it was compiled: compile it again"
        return ""


@dataclass(frozen=True)
class _OfObject:
    """The calls of the method of one object, which are left out of copies of the object."""

    owner: object
    calls: CompiledCalls

    def __reduce__(self) -> Any:
        return type(None), ()


def _trains(owner: object) -> bool:
    """Return whether an object is a module with a parameter that requires grad."""
    if not isinstance(owner, torch.nn.Module):
        return False
    return any(parameter.requires_grad for parameter in owner.parameters())


def _requires_gradient(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.requires_grad
    if isinstance(value, (list, tuple)):
        return any(map(_requires_gradient, value))
    return isinstance(value, dict) and any(map(_requires_gradient, value.values()))


def _kind_of(value: Any) -> Any:
    """Return the properties of arguments on which a trace may depend, the cheap ones."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.dim()
    if type(value) in (bool, str):
        return value
    if type(value) in (list, tuple):
        return tuple(map(_kind_of, value))
    if type(value) is dict:
        return tuple((name, _kind_of(each)) for name, each in value.items())
    return type(value)


def _in_words(error: Exception) -> str:
    """Return the first line of Dynamo's error, and the last line of the user's code in it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    places = [line for line in lines if line.startswith('File "')]
    where = f" ({places[-1]})" if places else ""
    return f"{lines[0] if lines else type(error).__name__}{where}"


def _program_report(program: KeptProgram, names: Sequence[str]) -> ProgramReport:
    single, gears = program.programs.single, program.manifest.gears
    plan = None if single is None else single.plan
    sizes = "gears" if gears else "dynamic" if plan and plan.symbols else "static"
    arguments = () if plan is None else tuple(_arguments(program.manifest, plan, names))
    if gears is not None:
        arguments = tuple(" x ".join(map(str, gear)) for gear, _ in gears.table)
    origin = "loaded" if program.loaded else "traced"
    return ProgramReport(program.manifest.spec.name, sizes, origin, arguments)


def _arguments(manifest: Manifest, plan: Plan, names: Sequence[str]) -> Iterator[str]:
    """Yield each argument with its type; `names` are of a wrapped function, for its `args`."""
    for source, entry in zip(manifest.spec.inputs, plan.inputs, strict=True):
        if source.own and isinstance(entry, TensorInput):
            shape = ", ".join(map(str, entry.shape))
            path = source.path
            match path:
                case (("argument", "args"), ("item", int(number)), *rest) if number < len(names):
                    path = (("argument", names[number]), *rest)
                case _:
                    pass
            yield f"{name_of_argument(path)} {entry.dtype}[{shape}]"
