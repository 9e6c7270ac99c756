"""Operators of a torch.profiler session, each traced by itself, with its recorded shapes."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from kernelmill.compiler.static_build import Document, append, documents_of
from kernelmill.core.dtype import InputRole
from kernelmill.core.errors import ConfigError
from kernelmill.core.log import get_logger
from kernelmill.frontend.decompositions import decomposition_table
from kernelmill.frontend.importer import import_fx
from kernelmill.passes import run_pipeline
from kernelmill.torch_internals.operators import schema_of
from kernelmill.torch_internals.tracing import fake_mode

_log = get_logger("static_kernels")

_DTYPES = {
    "float": torch.float32, "double": torch.float64, "c10::Half": torch.float16,
    "c10::BFloat16": torch.bfloat16, "bool": torch.bool, "unsigned char": torch.uint8,
    "signed char": torch.int8, "short": torch.int16, "short int": torch.int16,
    "int": torch.int32, "long": torch.int64, "long int": torch.int64,
}  # fmt: skip
"""The profiler's names of tensor dtypes; other arguments are "Scalar" and so on."""


class _CannotRecord(Exception):
    """A call that cannot be repeated from the session's data."""


def record_session(profiler: Any, path: str) -> tuple[int, int]:
    """Record a profiler session; see `static_kernels.from_profiler`."""
    fake_mode.require()
    events = _outermost(profiler.profiler.kineto_results.events())
    if events and not any(event.shapes() for event in events):
        raise ConfigError("the session has no shapes: torch.profiler.profile(record_shapes=True)")
    documents: list[Document] = []
    skipped: set[str] = set()
    seen: set[str] = set()
    for event in events:
        call = str((event.name(), event.shapes(), event.dtypes(), event.concrete_inputs()))
        if call in seen:
            continue
        seen.add(call)
        try:
            documents += _traced(event)
        except Exception as error:  # any error of torch in a reconstructed call
            _log.info("%s is not recorded: %s", event.name(), error)
            skipped.add(event.name())
    return append(path, documents), len(skipped)


def _outermost(events: list[Any]) -> list[Any]:
    """Return ATen calls that no other ATen call made."""
    found: list[Any] = []
    ends: dict[int, int] = {}
    calls = (event for event in events if event.name().startswith("aten::"))
    for event in sorted(calls, key=lambda event: (event.start_ns(), -event.end_ns())):
        thread = event.start_thread_id()
        if event.end_ns() > ends.get(thread, 0):
            ends[thread] = event.end_ns()
            found.append(event)
    return found


def _traced(event: Any) -> list[Document]:
    with fake_mode.require()():
        overload, positional, named = _call(event)
        places = [n for n, argument in enumerate(positional) if isinstance(argument, torch.Tensor)]
        tensors = [positional[n] for n in places]

        def call(*given: torch.Tensor) -> Any:
            arguments = list(positional)
            for place, tensor in zip(places, given, strict=True):
                arguments[place] = tensor
            result = overload(*arguments, **named)
            return (result,) if isinstance(result, torch.Tensor) else result

        module = make_fx(call, decomposition_table=decomposition_table())(*tensors)
    count = len(tensors)
    names = [f"x{n}" for n in range(count)]
    imported = import_fx(module, event.name(), [InputRole.USER] * count, names)
    return documents_of(run_pipeline(imported.graph), fused=False)


def _call(event: Any) -> tuple[Any, list[Any], dict[str, Any]]:
    """Return (overload, positional arguments, the others) of a call, found by trying: the session
    does not record the overload. Called in a fake mode. An operator that writes into its first
    argument is recorded as its functional form."""
    arguments = _arguments(event)
    packet = getattr(torch.ops.aten, event.name().removeprefix("aten::").removesuffix("_"))
    names: list[str] = packet.overloads()
    for name in sorted(names, key=lambda name: name != event.overload_name()):
        overload = getattr(packet, name)
        schema = schema_of(overload)
        if schema.is_mutable or len(arguments) > len(schema.arguments):
            continue
        pairs = list(zip(schema.arguments, arguments, strict=False))
        positional = [value for argument, value in pairs if not argument.kwarg_only]
        named = {a.name: v for a, v in pairs if a.kwarg_only and v is not None}
        try:
            overload(*positional, **named)
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            continue
        return overload, positional, named
    raise _CannotRecord("no overload takes the arguments that the session knows")


def _arguments(event: Any) -> list[Any]:
    shapes, concrete = event.shapes(), event.concrete_inputs()
    strides = event.structured_input_strides()
    found: list[Any] = []
    for number, dtype in enumerate(event.dtypes()):
        if dtype in _DTYPES:
            known = len(strides[number]) == len(shapes[number])
            layout = strides[number] if known else torch.empty(shapes[number]).stride()
            found.append(torch.empty_strided(shapes[number], layout, dtype=_DTYPES[dtype]))
        elif dtype in ("Scalar", "ScalarList", ""):
            found.append(concrete[number])
        else:
            raise _CannotRecord(f"an argument of type {dtype}")
    if not any(isinstance(argument, torch.Tensor) for argument in found):
        raise _CannotRecord("it reads no tensor")
    return found
