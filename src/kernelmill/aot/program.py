"""A compiled file as something to call. Nothing here traces or compiles on a machine that has all
that the file's code needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from kernelmill.aot.arguments import Arguments
from kernelmill.aot.file import open_file
from kernelmill.aot.manifest import Manifest, read_manifest
from kernelmill.aot.packs import PacksOfFile, bind_weights
from kernelmill.aot.shortcut import quick_way
from kernelmill.aot.sizes import size_check
from kernelmill.aot.weights import tensors_over
from kernelmill.artifact.bind import refuse_gradients
from kernelmill.artifact.results import Builder
from kernelmill.artifact.shortcut import Shortcut
from kernelmill.config.compiler_config import CompilerConfig
from kernelmill.core import knobs
from kernelmill.core.errors import InputError, KernelmillError, StoreError, UnsupportedError
from kernelmill.core.isa import host_isa, machine_isa, parse_isa, why_not_here
from kernelmill.core.log import get_logger
from kernelmill.core.version import ABI_VERSION
from kernelmill.plan.parser import parse_plan
from kernelmill.runtime.program import Program
from kernelmill.runtime.program import load as load_program
from kernelmill.runtime.quick import REFUSED
from kernelmill.runtime.samples import span_of
from kernelmill.store.sealed import SealedFile

_log = get_logger("aot")


def load(
    path: str | os.PathLike[str], *, rebuild: bool = True, check_weights: bool = True
) -> AotProgram:
    """The program in a file of `kernelmill.aot.compile`, ready to call.

    rebuild        on a processor that cannot run the file's code, compile its graph for this one
                   (seconds); False: UnsupportedError says what it lacks
    check_weights  compare the checksum of the weights too, which reads them all

    FileNotFoundError when there is no such file. StoreError when it is damaged, of a format that
    this kernelmill does not read, or could have been written by another user.
    """
    file = open_file(path)
    manifest = read_manifest(file.text("manifest"))
    start, size, _ = file.sections["weights"]
    for section in ("weights", "packed"):
        file.section(section, check_weights)
    weights = tensors_over(file.mapping, start, size, manifest.weights)
    try:
        program = _program(file, manifest, weights, rebuild)
    except KernelmillError as error:
        raise type(error)(f"{file.path}: {error}") from error
    return AotProgram(file.path, manifest, program, weights)


def _program(
    file: SealedFile, manifest: Manifest, weights: Sequence[torch.Tensor], rebuild: bool
) -> Program:
    reason = _other_machine(manifest.ingredients)
    if reason and not rebuild:
        raise UnsupportedError(
            f"it was made for another machine: {reason}. Compile it here, or let load(rebuild=True)"
        )
    if reason:
        from kernelmill.aot.rebuilding import rebuilt

        _log.warning("%s was made for another machine, and is compiled for this one", file.path)
        return rebuilt(file, manifest)
    plan = parse_plan(file.text("plan"))
    section = file.section("objects")
    objects = {name: bytes(section[o : o + count]) for name, o, count in manifest.objects}
    place: PacksOfFile | None = None
    if manifest.packed:
        mapped = torch.frombuffer(file.mapping, dtype=torch.uint8)
        place = PacksOfFile(manifest.packed, weights, mapped, file.sections["packed"][0])
    program = load_program(plan, objects, check_sizes=size_check(manifest, plan), place=place)
    config = CompilerConfig()
    config.check_weights = manifest.options.get("check_weights", config.check_weights)
    program.check_weights(config.check_weights)
    if place is not None:
        # Before anybody can write to the weights.
        bind_weights(program, _in_order(manifest, weights))
    return program


def _in_order(manifest: Manifest, weights: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    return [weights[e[1]] if e[0] == "weight" else None for e in manifest.inputs]


def _other_machine(ingredients: Mapping[str, str]) -> str:
    """Why this process cannot run the objects; empty where it can. What KERNELMILL_TARGET names
    bounds it, as it does what is compiled."""
    made_for, abi = ingredients.get("kernel.isa", ""), ingredients.get("kernel.abi")
    host, reasons = host_isa(), list[str]()
    if abi != ABI_VERSION:
        reasons.append(f"its calling convention is {abi}, this one's {ABI_VERSION}")
    try:
        isa = parse_isa(made_for)
    except ValueError as error:
        return "; ".join((f"its instruction set: {error}", *reasons))
    reason = why_not_here(isa)
    if not reason and host != machine_isa() and not host.runs(isa):
        reason = f"{knobs.TARGET.name} is {knobs.TARGET.get()}"
    if reason:
        reasons.insert(0, f"its instruction set is {isa}, and {reason}")
    return "; ".join(reasons)


class AotProgram:
    """A compiled program. Calling it takes what the compiled function took, and gives what that
    returned; for inference: nothing that it returns requires grad.

    `tensors` are its parameters, buffers and constants by name. They may be written in place: the
    file is not changed by that.
    """

    def __init__(
        self, path: str, manifest: Manifest, program: Program, weights: Sequence[torch.Tensor]
    ) -> None:
        self.path = path
        self.name = manifest.name
        names = [weight.name for weight in manifest.weights]
        self.tensors: Mapping[str, torch.Tensor] = MappingProxyType(
            dict(zip(names, weights, strict=True))
        )
        self._manifest, self._program = manifest, program
        build = Builder().build(manifest.result)
        shortcut = quick_way(manifest, program, lambda results, values: build(results, ()))
        self._call = _caller(manifest, program.call, weights, shortcut)
        self._quick: Callable[[tuple[Any, ...]], Any] = (
            _refuse if shortcut is None else shortcut.call
        )
        self._names = self.parameters
        self._by_position = sum(not parameter.keyword for parameter in manifest.parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it. InputError names an argument that it cannot take; nothing is written then."""
        values = self._by_name(args, kwargs) if kwargs else args
        if len(values) == len(self._names) and len(args) <= self._by_position:
            result = self._quick(values)
            if result is not REFUSED:
                return result
        else:
            values = ()
        return self._call(args, kwargs, values)

    def _by_name(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """A value for each parameter in order; nothing when these are others."""
        rest = self._names[len(args) :]
        if len(rest) != len(kwargs) or not all(name in kwargs for name in rest):
            return ()
        return (*args, *[kwargs[name] for name in rest])

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its arguments; those that are passed by name alone come last."""
        return tuple(parameter.name for parameter in self._manifest.parameters)

    def report(self) -> dict[str, int]:
        """Counters of calls and launches, and sizes in bytes, as runtime/program.py has them."""
        return self._program.report()

    def __repr__(self) -> str:
        return f"AotProgram({self.name}({', '.join(self.parameters)}), {self.path!r})"


def _refuse(values: tuple[Any, ...]) -> Any:
    return REFUSED


def _caller(
    manifest: Manifest,
    run: Callable[..., list[Any]],
    weights: Sequence[torch.Tensor],
    shortcut: Shortcut | None,
) -> Callable[[tuple[Any, ...], Mapping[str, Any], tuple[Any, ...]], Any]:
    """The call in full; the shortcut learns from the values for all parameters, if given."""
    arguments = Arguments(manifest)
    builder = Builder()
    build = builder.build(manifest.result)
    single = manifest.result == {"result": 0}
    count, plain = len(manifest.leaves), arguments.plain
    gather = _gatherer(manifest, weights)
    is_grad = torch.is_grad_enabled

    def call(args: tuple[Any, ...], kwargs: Mapping[str, Any], values: tuple[Any, ...]) -> Any:
        if plain and len(args) == count and not kwargs:
            leaves: Sequence[Any] = args
        else:
            leaves = arguments.leaves(args, kwargs)
        if is_grad():
            refuse_gradients(leaves)
        inputs = gather(leaves)
        results = run(*inputs)
        if values and shortcut is not None:
            shortcut.learn(values, inputs, shortcut.generation)
        return results[0] if single else build(results, ())

    return call


def _gatherer(
    manifest: Manifest, weights: Sequence[torch.Tensor]
) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Gives the program's arguments from the leaves of a call."""
    gets = [_getter(entry, weights) for entry in manifest.inputs]
    held = [weights[entry[1]] for entry in manifest.inputs if entry[0] == "weight"]
    first = [("leaf", n) for n in range(len(manifest.leaves))]
    straight = list(manifest.inputs) == [
        *first, *[("weight", n) for n in range(len(held))]
    ]  # fmt: skip
    if straight and not manifest.updates:
        return lambda leaves: (*leaves, *held)

    def gather(leaves: Sequence[Any]) -> Sequence[Any]:
        if manifest.updates:
            _refuse_shared(manifest, leaves, weights)
        try:
            return [get(leaves) for get in gets]
        except (AttributeError, IndexError) as error:
            raise InputError(f"an argument is no tensor of the right rank: {error}") from error

    return gather


def _getter(
    entry: Sequence[Any], weights: Sequence[torch.Tensor]
) -> Callable[[Sequence[Any]], Any]:
    kind, number, *size = entry
    if kind == "leaf":
        return lambda leaves: leaves[number]
    if kind == "weight":
        weight = weights[number]
        return lambda leaves: weight
    if kind != "size":
        raise StoreError(f"an input of the kind {kind}")
    axis, times, plus = size
    return lambda leaves: (leaves[number].shape[axis] - plus) // times


def _refuse_shared(
    manifest: Manifest, leaves: Sequence[Any], weights: Sequence[torch.Tensor]
) -> None:
    """InputError when a tensor that is written to shares memory with another argument."""
    written = {tuple(entry) for entry in manifest.updates}
    entries = [(("leaf", n), leaf.name, leaves[n]) for n, leaf in enumerate(manifest.leaves)]
    entries += [
        ((kind, n), manifest.weights[n].name, weights[n]) for kind, n in written if kind == "weight"
    ]
    # The weights of a file lie in one storage: what counts is the bytes that a tensor reaches.
    spans = sorted(
        (value.data_ptr(), value.data_ptr() + last - first, name, entry in written)
        for entry, name, value in entries
        if isinstance(value, torch.Tensor) and value.numel()
        for first, last in [span_of(value)]
    )
    reader, writer = (0, ""), (0, "")  # what reaches furthest so far: its end and its name
    for start, end, name, writes in spans:
        other = max(reader, writer) if writes else writer
        if start < other[0]:
            raise InputError(
                f"arguments {other[1]!r} and {name!r} share memory, and one of them is "
                "written to: pass a clone"
            )
        reader, writer = (
            (reader, max(writer, (end, name))) if writes else (max(reader, (end, name)), writer)
        )
