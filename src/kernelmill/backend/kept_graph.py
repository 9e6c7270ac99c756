"""Functions that torch keeps (`torch.compile(...).aot_compile`): the program of one graph as bytes
of a file (artifact/container.py), which another process loads without a trace.

The program takes the arguments of Dynamo's graph by position. It checks sizes and torch's settings;
other guards are torch's. Objects among the arguments are not in the file: operators get those of a
loaded program's first call, and each call has to bring objects written as those of the trace.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from tempfile import TemporaryFile
from typing import Any

import torch
from torch import fx
from torch.compiler import disable

from kernelmill.artifact.bind import Bound
from kernelmill.artifact.container import KMILL, Artifact, read_artifact, used
from kernelmill.artifact.guard_kinds import OBJECT
from kernelmill.artifact.guards import equal_integers, found_in
from kernelmill.artifact.manifest import CallSpec, Guard, Guards, Manifest, Parameter, Source
from kernelmill.artifact.program_set import artifact_of, program_set, with_objects
from kernelmill.artifact.settings import difference, state
from kernelmill.artifact.tensors import held_constants, tensors_of
from kernelmill.artifact.versions import versions
from kernelmill.backend.capture import Call, Traced, compile_capture, is_tested
from kernelmill.backend.gears import shape_env_of
from kernelmill.backend.report import Capture
from kernelmill.compiler.linking import Compiled, without_bodies
from kernelmill.compiler.pipeline import Compiler
from kernelmill.config import CompilerConfig
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.target.isa import host_isa
from kernelmill.frontend.conditions import conditions_of
from kernelmill.graph.ir import Held
from kernelmill.plan.ir import SymbolInput
from kernelmill.runtime.calls.engine import Bodies
from kernelmill.runtime.memory.dims import given_symbols
from kernelmill.runtime.quick import REFUSED
from kernelmill.store.sealed import SealedFile, sealed_pieces
from kernelmill.torch_internals.autograd import KeptFunction, output_kinds


class KeptGraph(KeptFunction):
    """The function of a graph."""

    @classmethod
    def deserialize_compile_artifacts(cls, data: bytes) -> KeptGraph:
        """Return the function of these bytes. StoreError for damaged ones and another format,
        UnsupportedError for another version, processor or setting of torch."""
        return cls(disable(_loaded(data), reason="it runs a compiled program"), lambda: data)


def compile_kept(
    gm: fx.GraphModule, example_inputs: Sequence[Any], compiler: Compiler,
    decompositions: Mapping[Any, Call], captures: list[Capture],
) -> KeptGraph:  # fmt: skip
    """Return the function of `compile_capture`, which adds to `captures`. To save it raises
    UnsupportedError with the reason, if it is not one program for inference."""
    made, traced, before = list[Compiled[Any]](), list[Traced](), len(captures)

    def note(each: Compiled[Any]) -> None:
        made.append(each)
        if compiler.on_compiled is not None:
            compiler.on_compiled(each)

    own, add = replace(compiler, on_compiled=note), captures.append
    call = compile_capture(gm, example_inputs, own, decompositions, add, traced.append)
    artifact, reason = None, ""
    try:
        graph, env = one_graph(traced, captures[before:]), shape_env_of(gm)
        artifact = _artifact(graph, without_bodies(made), env, compiler.config)
    except UnsupportedError as error:
        reason = str(error)

    def save() -> bytes:
        if artifact is None:
            again = "the next process traces it again, and takes its kernels from the store"
            raise UnsupportedError(f"it cannot be kept: {reason}; {again}")
        sections = with_objects(artifact, compiler.config).sections()
        return b"".join(sealed_pieces(KMILL, sections))

    return KeptGraph(call, save)


def one_graph(traced: Sequence[Traced], captures: Sequence[Capture]) -> Traced:
    """Return the one compiled graph, if that is all that has to be kept. UnsupportedError says why
    it is not."""
    refused = [capture.refused for capture in captures if capture.refused]
    if any(each.kind != "inference" for each in traced):
        raise UnsupportedError("it needs a backward pass")
    if refused or len(traced) != 1:
        raise UnsupportedError(refused[0] if refused else "it is traced in several graphs")
    (found,) = traced
    if found.imported.words:
        raise UnsupportedError("an argument of its graph is no tensor and no integer")
    if not found.whole:
        raise UnsupportedError(
            "torch does more around its graph than calling it, as with weights that are a subclass "
            "of Tensor (docs/generating.md says how to unwrap torchao's)"
        )
    kinds = output_kinds.require()
    if any(info.output_type not in kinds.known for info in found.metadata.output_info):
        raise UnsupportedError("a result is a view of another")
    return found


def _artifact(
    traced: Traced, made: Sequence[Compiled[Any]], shape_env: Any, config: CompilerConfig
) -> Artifact:
    if traced.geared is not None or not is_tested():
        version = f"torch {torch.__version__} has not been tested"
        raise UnsupportedError(version if traced.geared is None else "its arguments have gears")
    imported, plan = traced.imported, made[0].lowered.plan
    held = held_constants(imported.constants)
    own = [f"size {e.symbol}" if isinstance(e, SymbolInput) else e.name for e in plan.inputs]
    own = own[: len(own) - len(held)]
    names, checks, bodies = [*own], list[Guard](), made[0].draft.graph.bodies.items()
    for place, found in imported.objects:
        names.insert(place, f"object {place}")
        given = " ".join(n for n, body in bodies if isinstance(body, Held) and body.found is found)
        guard = Guard(OBJECT, (("argument", names[place]),), name=given)
        checks.append(replace(guard, found=found_in(guard, found, str)))
    inputs = [Source((("argument", name),)) for name in own]
    inputs += [Source((("tensor", number),)) for number in range(len(held))]
    sizes = conditions_of(shape_env, frozenset(given_symbols(plan)))
    spec = CallSpec(
        plan.name, tuple(map(Parameter, names)), tuple(checks), tuple(inputs),
        {"list": [{"result": number} for number in range(len(plan.results))]},
        conditions=(*sizes, *equal_integers(inputs, imported.repeated)), in_order=False,
    )  # fmt: skip
    options = {"check_weights": config.check_weights}
    manifest = Manifest(spec, Guards(settings=state()), options=options, ingredients=_here())
    return artifact_of(manifest, made, config, held)


def _here() -> dict[str, str]:
    """Return what a function has to be made with that is loaded here."""
    return {**versions(host_isa()), "kernels of torch": torch.backends.cpu.get_cpu_capability()}


def _loaded(data: bytes) -> Call:
    with TemporaryFile() as place:
        place.write(data)
        place.flush()
        file = SealedFile("a function kept by torch", KMILL, True, os.dup(place.fileno()))
    artifact = read_artifact(file)
    for name, value in _here().items():
        if (found := artifact.manifest.ingredients.get(name)) != value:
            raise UnsupportedError(f"it was made with {name} {found}, and here is {value}")
    if differs := difference(artifact.manifest.guards.settings):
        raise UnsupportedError(f"it was made with other settings of torch: {differs}")
    spec = artifact.manifest.spec
    places = {n: spec.names.index(c.path[0][1]) for c in spec.checks for n in c.name.split()}
    run = None if places else _bound(artifact, {})

    def call(*args: Any) -> Any:
        nonlocal run
        if run is not None:
            return run(args)
        first = _bound(artifact, {name: args[place] for name, place in places.items()})
        results = first(args)  # which has checked them
        run = first
        return results

    return call


def _bound(artifact: Artifact, bodies: Bodies) -> Callable[[tuple[Any, ...]], Any]:
    """Return the function of a program whose operators are given these objects."""
    with used(artifact.file):
        programs = program_set(artifact, bodies=bodies)
    bound = Bound(artifact.manifest, programs, tensors_of(artifact), any_class=True)
    quick = bound.quick

    def call(values: tuple[Any, ...]) -> Any:
        found = quick(values)
        return bound(values) if found is REFUSED else found

    return call
