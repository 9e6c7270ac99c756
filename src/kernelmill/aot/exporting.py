"""`kernelmill.aot.compile`: a model or function becomes one file that runs without tracing."""

from __future__ import annotations

import copy
import errno
import inspect
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram, export

from kernelmill.aot.allowed_sizes import (
    allowed_sizes,
    asked_layouts,
    line_of,
    results_follow_order,
    sizes_in,
)
from kernelmill.aot.exported import Exported, decomposed, read
from kernelmill.aot.gears import DeclaredGears, GivenGears, with_gears
from kernelmill.artifact.container import KMILL, SUFFIX, Artifact
from kernelmill.artifact.guards import equal_integers
from kernelmill.artifact.manifest import CallSpec, Manifest, Source
from kernelmill.artifact.paths import name_of_argument
from kernelmill.artifact.program_set import (
    artifact_of,
    graph_texts,
    program_set,
    with_objects,
)
from kernelmill.artifact.tensors import (
    HeldTensor,
    PackCollector,
    bind_weights,
    held_constants,
    tensors_of,
)
from kernelmill.backend.custom_passes import apply_passes
from kernelmill.backend.entry import Decompositions, configured, given_decompositions
from kernelmill.backend.quantization import quantization
from kernelmill.compiler.pipeline import Compiler
from kernelmill.compiler.precision import under_precision
from kernelmill.config import CompilerConfig, given_config
from kernelmill.config.schemes import Quantize
from kernelmill.config.tree import REDUCE_OVERHEAD
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Expr, Sym, as_sym
from kernelmill.core.dtype import InputRole
from kernelmill.core.errors import (
    ConfigError,
    InputError,
    IsFolderError,
    UnsupportedError,
    file_error,
    file_errors,
)
from kernelmill.core.interpreter import collection_paused
from kernelmill.core.target.isa import target_isa, why_not_here
from kernelmill.frontend.conditions import squeezed
from kernelmill.frontend.importer import import_fx
from kernelmill.graph.ir import DimInput, Graph, Input
from kernelmill.graph.text import parse_graph
from kernelmill.store.sealed import write_sealed
from kernelmill.torch_internals.export import (
    SizeQuestion,
    keep_lines,
    layout_questions,
    oblivious_sizes,
    size_questions,
    trees,
)


def _check_options(config: CompilerConfig, graph: Graph) -> None:
    for option, is_set in (
        ("debug.run_eagerly", config.debug.run_eagerly),
        ("debug.data_dump", config.debug.data_dump.type is not None),
        ("dump_config.enable_dump", config.dump_config.enable_dump),
    ):
        if is_set:
            raise ConfigError(f"config.{option} and aot.compile cannot be combined")
    if config.mode == REDUCE_OVERHEAD and graph.symbols:
        raise ConfigError(
            f"config.mode {REDUCE_OVERHEAD!r} captures each set of sizes when it comes, with the "
            "compiler: compile ahead of time with sizes that are fixed, or in the other mode"
        )


def retargeted(artifact: Artifact) -> Artifact:
    """Return the same programs for this machine: graphs compiled again, without packed weights."""
    manifest = replace(artifact.manifest, packed=(), ingredients={})
    options = {name: value for name, value in manifest.options.items() if name != "target"}
    tensors = zip(manifest.tensors, tensors_of(artifact), strict=True)
    held = [HeldTensor(kept.name, kept.role, tensor) for kept, tensor in tensors]
    config = configured(CompilerConfig(), options=options)
    graphs = [parse_graph(text) for text in graph_texts(artifact)]
    made = Compiler(config, to_run=False).compile_all(graphs)
    return with_objects(artifact_of(manifest, made, config, held), config)


def check_target(config: CompilerConfig, mmap_packed_weights: bool) -> None:
    """Raise ConfigError for options that run kernels, where this machine cannot run them."""
    reason = why_not_here(target_isa(config.target, to_run=False))
    if reason and config.aoe_config.aoe_mode is not None:
        raise ConfigError(
            f"config.aoe_config.aoe_mode measures kernels, and cannot those of config.target="
            f"{config.target!r}: {reason}"
        )
    if reason and mmap_packed_weights:
        raise ConfigError(
            f"mmap_packed_weights packs the weights with kernels, and cannot with those of "
            f"config.target={config.target!r}: {reason}"
        )


def compile(
    program: ExportedProgram | Callable[..., Any],
    args: tuple[Any, ...] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    path: str | os.PathLike[str] | None = None,
    dynamic_shapes: Any = None,
    gears: GivenGears | None = None,
    target: str | None = None,
    config: CompilerConfig | None = None,
    quantize: Quantize = None,
    custom_decompositions: Decompositions | None = None,
    mmap_packed_weights: bool = False,
) -> str:
    """Compile a model for inference, write all that it needs at run time into one file, weights
    included, and return the file's path.

    program         an ExportedProgram, a module, or a function or method of tensors
    args, kwargs    arguments to trace a module or function with
    dynamic_shapes  the sizes that vary, as for torch.export.export
    gears           sizes of dims of arguments, `{"x": {0: [2, 4]}}`: each combination is a program.
                    config.inference_config says how they combine, and what other sizes do
    path            the file; by default the name of the model + ".kmill" in the working directory
    target          the instruction set, instead of config.target and with the same names. Any
                    machine with these instructions can run the file, even if this one cannot
    quantize        as config.quantize; the file holds the original weights
    custom_decompositions   a dict from operator overloads to functions that are traced instead
    mmap_packed_weights     True: write packed weights too, which processes that load the file share

    Raises torch.export's error for code that it cannot trace, UnsupportedError for a model that
    eager refuses or no file can hold, InputError and ConfigTypeError for arguments of the wrong
    kind, GearError for impossible gears, ConfigError for options that run kernels if this machine
    cannot run the target, FileError for a file that cannot be written.
    """
    config = _settings(program, config, target=target, quantize=quantize)
    check_target(config, mmap_packed_weights)
    decompositions = given_decompositions(custom_decompositions)
    name = _name_of(program)
    file = os.path.abspath(os.fspath(path) if path is not None else f"{name}{SUFFIX}")
    _check_place(file)
    declared = None
    if gears is not None:
        _check_geared(program, args, dynamic_shapes, mmap_packed_weights)
        declared = DeclaredGears.of(gears, program, args, kwargs or {}, config)
        args, kwargs, dynamic_shapes = declared.traced(args or (), kwargs or {})
    trace = _tracer(program, args, kwargs, dynamic_shapes)
    with collection_paused():
        found = _decomposed(trace, decompositions)
        exported = read(found.program)
        if not isinstance(program, ExportedProgram):  # the code of an exported program is unknown
            layouts = asked_layouts(exported, found.layouts)
            exported = replace(exported, checks=(*exported.checks, *layouts))
        artifact = _artifact(name, exported, config, found, declared)
    if mmap_packed_weights:
        artifact = _with_packed(artifact)
    with file_errors(file):
        write_sealed(file, KMILL, artifact.sections())
    return file


def _settings(program: Any, config: CompilerConfig | None, **options: Any) -> CompilerConfig:
    """Return the config with the options given besides. ConfigError for layers to quantise that the
    program does not have."""
    given = {name: value for name, value in options.items() if value is not None}
    made = configured(given_config(config), options=given)
    if made.quantize is not None and isinstance(program, torch.nn.Module):
        quantization(program, program, made.quantize)
    return made


def exported_graph(program: ExportedProgram, name: str) -> Graph:
    """Return the graph that `compile` would compile of a program. Raises as `compile` does."""
    exported = read(_decomposed(lambda: program, {}).program)
    return _inputs(exported, name, CompilerConfig())[0]


def _inputs(
    exported: Exported, name: str, config: CompilerConfig
) -> tuple[Graph, tuple[HeldTensor, ...], tuple[Source, ...], tuple[tuple[int, Dim, Dim], ...]]:
    """Return the graph, the tensors that follow its arguments, the sources of all inputs, and
    integers that were equal to others (`ImportedGraph.repeated`)."""
    names = [name_of_argument(path) for path in exported.leaves]
    roles = [InputRole.USER] * len(names)
    for weight in exported.weights:
        names.append(weight.name)
        roles.append(InputRole.BUFFER if weight.role == "buffer" else InputRole.PARAM)
    placeholders = exported.gm.graph.find_nodes(op="placeholder")
    apply_passes(exported.gm, [node.meta["val"] for node in placeholders], config, name)
    imported = import_fx(exported.gm, name, roles, names)
    for place, _ in (*imported.objects, *imported.words):
        raise UnsupportedError(f"argument {names[place]} is no tensor and no integer")
    graph = under_precision(imported.graph)
    held = (*exported.weights, *held_constants(imported.constants))
    tensors = [Source((("tensor", number),)) for number in range(len(held))]
    sources = _with_hidden_sizes(graph, (*map(Source, exported.leaves), *tensors))
    return graph, held, sources, imported.repeated


def _check_geared(program: Any, args: Any, dynamic_shapes: Any, packed: bool) -> None:
    """Raise InputError or ConfigError for options that exclude gears."""
    if isinstance(program, ExportedProgram):
        raise InputError("gears are for a module or a function, and this has been traced: pass it")
    if dynamic_shapes is not None:
        raise InputError("gears and dynamic_shapes cannot be combined: gears say which dims vary")
    if not isinstance(args, tuple):
        raise InputError("args must be the tuple of positional arguments to trace with")
    if packed:
        raise ConfigError("mmap_packed_weights is for files of one program, and gears are several")


def _artifact(
    name: str,
    exported: Exported,
    config: CompilerConfig,
    traced: _Traced,
    declared: DeclaredGears | None,
) -> Artifact:
    graph, held, sources, repeated = _inputs(exported, name, config)
    sizes = sizes_in(graph)
    spec = CallSpec(
        name, exported.parameters, exported.checks, sources, exported.result,
        in_order=traced.in_order,
    )  # fmt: skip
    _check_options(config, graph)
    compiler = Compiler(config, to_run=False)
    made = None if declared else compiler.compile_all([graph])
    if made is None:  # a plan for all sizes has the sources of a call's sizes
        plan = Compiler(config, to_run=False, lower_only=True).compile(graph).draft.lowered.plan
    else:
        plan = made[0].lowered.plan
    limits, conditions = allowed_sizes(exported, sizes, plan, traced.sizes)
    conditions = (*conditions, *equal_integers(sources, repeated))
    asked = replace(spec, limits=limits, conditions=conditions)
    manifest = Manifest(asked, options=_options(config))
    if declared is not None:
        values = declared.values(graph, exported, asked)
        gears, made = with_gears(graph, values, declared.dynamic, compiler)
        # Without a program for other sizes each gear has its sizes in its plan.
        manifest = replace(manifest, spec=asked if declared.dynamic else spec, gears=gears)
    assert made is not None  # one of the two
    return with_objects(artifact_of(manifest, made, config, held), config)


def _with_packed(artifact: Artifact) -> Artifact:
    collector = PackCollector(artifact.tensors)
    program = program_set(artifact, place=collector).single
    assert program is not None
    bind_weights(program, artifact.manifest.spec, artifact.tensors)
    manifest = replace(artifact.manifest, packed=tuple(collector.packed))
    pieces = {**artifact.pieces, "packed": collector.pieces}
    return replace(artifact, manifest=manifest, pieces=pieces)


def _check_place(file: str) -> None:
    """Raise an error before minutes of compiling if the file is a folder, or its folder is not
    writable. Permissions are not reliable on every file system."""
    if os.path.isdir(file):
        raise IsFolderError(errno.EISDIR, "this is a folder; pass a file's name as `path`", file)
    folder = os.path.dirname(file)
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        text = f"no compiled file can be written here ({error.strerror}); pass another `path`"
        raise file_error(error, folder, text) from None


@dataclass(frozen=True)
class _Traced:
    """A trace in operators that the frontend knows, with its questions about sizes
    (`size_questions`) and about layouts (`layout_questions`). Arguments have to be `in_order` where
    strides of results follow theirs."""

    program: ExportedProgram
    in_order: bool
    sizes: Sequence[SizeQuestion] | None
    layouts: Sequence[str]


def _decomposed(trace: Callable[[], ExportedProgram], decompositions: Decompositions) -> _Traced:
    """Return the trace, for sizes 0 and 1 too where the code does not ask about them; else for
    sizes from 2 on, as torch.export has it."""

    def of(traced: ExportedProgram, *asked: Any) -> _Traced:
        program = decomposed(traced, decompositions)
        return _Traced(program, results_follow_order(traced), *asked)

    try:
        with oblivious_sizes():
            with size_questions() as sizes, layout_questions() as layouts:
                traced = trace()
            if not any(isinstance(size, torch.SymInt) for _, size in squeezed(traced.graph_module)):
                return of(traced, sizes, layouts)
    except InputError:
        raise
    except Exception:  # the code asks about sizes
        pass
    with size_questions() as sizes, layout_questions() as layouts:
        traced = trace()
    return of(traced, sizes, layouts)


def _name_of(program: Any) -> str:
    if isinstance(program, ExportedProgram):
        return "exported"
    name = getattr(program, "__name__", type(program).__name__)
    return re.sub(r"\W+", "_", str(name)).strip("_") or "function"


def _tracer(
    program: Any, args: Any, kwargs: Any, dynamic_shapes: Any
) -> Callable[[], ExportedProgram]:
    if isinstance(program, ExportedProgram):
        if args is not None or kwargs is not None or dynamic_shapes is not None:
            raise InputError(
                "an ExportedProgram has been traced: args, kwargs and dynamic_shapes belong to "
                "torch.export.export"
            )
        return lambda: program
    if not callable(program):
        raise InputError(f"expected an ExportedProgram, a module or a function, got {program!r}")
    if not isinstance(args, tuple):
        raise InputError("args must be the tuple of positional arguments to trace with")
    module = _module_of(program)
    apart, named = _apart((args, dict(kwargs or {})), module)
    export_it = torch.no_grad()(export)
    return lambda: export_it(module, apart, named, dynamic_shapes=dynamic_shapes)


def _apart(values: Any, module: torch.nn.Module) -> Any:
    """Return the values with memory of their own for tensors that share it with each other or with
    the module's: the trace must not take two arguments for one. A call is checked for it."""
    seen = {_memory(tensor) for tensor in (*module.parameters(), *module.buffers())}

    def fresh(tensor: torch.Tensor) -> torch.Tensor:
        memory = _memory(tensor)
        if memory not in seen:
            seen.add(memory)
            return tensor
        if memory is tensor or tensor.is_conj() or tensor.is_neg():
            return tensor.clone()
        # No contents are traced, but code may read the offset of a tensor in its storage.
        alone = torch.UntypedStorage(tensor.untyped_storage().nbytes())
        where = tensor.storage_offset(), tensor.shape, tensor.stride()
        return tensor.new_empty(0).set_(alone, *where)

    return trees.require().tree_map_only(torch.Tensor, fresh, values)


def _memory(tensor: torch.Tensor) -> torch.UntypedStorage | torch.Tensor:
    """Return the storage of a tensor, or the tensor itself where it has none."""
    plain = tensor.layout == torch.strided and type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return tensor.untyped_storage() if plain else tensor


def _call_without_hooks(module: Any, *args: Any, **kwargs: Any) -> Any:
    """Call forward alone: hooks of a module are not for other methods."""
    return module.forward(*args, **kwargs)


def _module_of(program: Any) -> torch.nn.Module:
    """Return a module whose forward is the function, with the parameters of its own signature."""
    if isinstance(program, torch.nn.Module):
        return program
    program = keep_lines(program)
    owner = getattr(program, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        # A module with the same weights: the method may call forward, which is still the owner's.
        module = copy.copy(owner)
        kind: Any = type(owner)
        module.__class__ = type(kind.__name__, (kind,), {"__call__": _call_without_hooks})
        module.forward = program
        return module
    module = torch.nn.Module()
    try:
        inspect.signature(program)
        module.forward = program
    except ValueError:  # some of torch's own functions have none
        module.forward = lambda *args, **kwargs: program(*args, **kwargs)
    return module


# ---- the graph ------------------------------------------------------------------------------


def _with_hidden_sizes(graph: Graph, sources: Sequence[Source]) -> tuple[Source, ...]:
    """Add an integer input for each symbol that is only part of sizes, as n in 2*n + 1."""
    found = [*sources]
    for symbol in _hidden(graph):
        found.append(_size_of(graph, symbol, found))
        graph.inputs.append(DimInput(symbol))
    return tuple(found)


def _hidden(graph: Graph) -> list[Sym]:
    late = graph.late_symbols()
    plain = {e.symbol.name for e in graph.inputs if isinstance(e, DimInput)}
    for entry in graph.tensor_inputs():
        plain |= {str(dim) for dim in entry.value.shape if isinstance(dim, Expr) and as_sym(dim)}
    return [
        s
        for name, s in sorted(graph.symbols.items())
        if s.value is None and name not in plain | late
    ]


def _size_of(graph: Graph, symbol: Sym, sources: Sequence[Source]) -> Source:
    for entry, source in zip(graph.inputs, sources, strict=True):
        if not isinstance(entry, Input) or not source.own:
            continue
        for axis, dim in enumerate(entry.value.shape):
            if line := line_of(dim, symbol.name):
                return Source(source.path, axis, *line)
    raise UnsupportedError(f"no size of an argument tells what {symbol.name} is")


def _options(config: CompilerConfig) -> dict[str, Any]:
    return {
        name: value
        for name, option, value in config.options()
        if (option.in_key or name == "check_weights") and value != option.default
    }
