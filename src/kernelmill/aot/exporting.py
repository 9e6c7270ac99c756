"""`kernelmill.aot.compile`: a model or function becomes one file that runs without tracing."""

from __future__ import annotations

import copy
import errno
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import MethodType
from typing import Any

import torch
from torch.export import ExportedProgram, export
from torch.fx.experimental import _config as fx_config
from torch.fx.proxy import _register_stack_trace_anchor
from torch.utils import _pytree as pytree

from kernelmill import codegen
from kernelmill.aot.compiled import CompiledGraph, check_target, compiled
from kernelmill.aot.exported import Decompositions, Exported, decomposed, read
from kernelmill.aot.file import AOT
from kernelmill.aot.manifest import Limit, Manifest, Packed
from kernelmill.aot.packs import PackCollector, bind_weights
from kernelmill.aot.weights import WeightLayout
from kernelmill.backend.guards import conditions_of
from kernelmill.config import CompilerConfig
from kernelmill.core.dim import Expr, Sym, as_sym, linear_part, of_atom, symbols
from kernelmill.core.errors import ConfigTypeError, InputError, UnsupportedError
from kernelmill.core.isa import Isa
from kernelmill.core.roles import InputRole
from kernelmill.core.version import ABI_VERSION, VERSION
from kernelmill.frontend import import_fx
from kernelmill.graph.ir import DimInput, Graph, Input
from kernelmill.graph.printer import print_graph
from kernelmill.kernel.printer import print_kernel
from kernelmill.plan.ir import Plan, SymbolInput, TensorInput
from kernelmill.plan.printer import print_plan
from kernelmill.runtime.dims import late_symbols
from kernelmill.runtime.program import load
from kernelmill.store.sealed import Pieces, write_sealed

SUFFIX = ".kmill"

Inputs = tuple[tuple[Any, ...], ...]


def compile(
    program: ExportedProgram | Callable[..., Any],
    args: tuple[Any, ...] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    path: str | os.PathLike[str] | None = None,
    dynamic_shapes: Any = None,
    config: CompilerConfig | None = None,
    custom_decompositions: Decompositions | None = None,
    mmap_packed_weights: bool = False,
) -> str:
    """Compile for this machine, or what `config.target` names, and write all that is needed to run
    into one file; returns its path.

    program         an ExportedProgram, a module, or a function or method of tensors
    args, kwargs    arguments to trace a module or function with
    dynamic_shapes  which sizes vary, as torch.export.export takes it
    path            the file; default: the name of what is compiled + ".kmill" in this folder
    custom_decompositions   operator overload -> function that is traced in its place

    mmap_packed_weights     keep the weights packed as well: they take room twice in the file, and
                            processes that load it share what each would pack for itself

    The file holds the weights too. It is for inference. Raises what torch.export does for code that
    it cannot trace, UnsupportedError for what no file can hold, InputError and ConfigTypeError for
    arguments of the wrong kind, ConfigError for options that run what this machine cannot, OSError
    when the file cannot be written.
    """
    config = CompilerConfig() if config is None else config
    if not isinstance(config, CompilerConfig):  # type: ignore[reportUnnecessaryIsInstance]
        raise ConfigTypeError(f"config: {type(config).__name__} is no CompilerConfig")
    check_target(config, mmap_packed_weights)
    name = _name_of(program)
    file = os.path.abspath(os.fspath(path) if path is not None else f"{name}{SUFFIX}")
    _check_folder(os.path.dirname(file))
    trace = lambda: _traced(program, args, kwargs, dynamic_shapes)  # noqa: E731
    exported = read(_decomposed(trace, custom_decompositions or {}))
    graph, held = _imported(exported, name)
    inputs = _with_hidden_sizes(graph, _plain_inputs(exported))
    made = compiled(graph, config)
    tensors, roles = _weights_of(exported, held)
    content = _Content(name, exported, inputs, made, config, WeightLayout(tensors, roles))
    collector = PackCollector(list(tensors.values()))
    if mmap_packed_weights:
        program = load(made.draft.lowered.plan, made.objects, place=collector)
        given = list(tensors.values())
        bind_weights(program, [given[e[1]] if e[0] == "weight" else None for e in inputs])
    content.write(file, collector)
    return file


def _check_folder(folder: str) -> None:
    """Told before minutes of compiling, not after: the folder is not there or cannot be written."""
    code = 0 if os.path.isdir(folder) else errno.ENOENT
    if not code and not os.access(folder, os.W_OK | os.X_OK):
        code = errno.EACCES
    if code:
        text = f"no compiled file can be written here ({os.strerror(code)}); pass another `path`"
        raise OSError(code, text, folder)


def _decomposed(
    trace: Callable[[], ExportedProgram], decompositions: Decompositions
) -> ExportedProgram:
    """The trace, for sizes 0 and 1 too where the code does not ask about them; else for sizes from
    2 on, as torch.export has it."""
    settings: Any = fx_config
    try:
        with settings.patch(backed_size_oblivious=True):
            return decomposed(trace(), decompositions)
    except InputError:
        raise
    except Exception:
        return decomposed(trace(), decompositions)


def _name_of(program: Any) -> str:
    if isinstance(program, ExportedProgram):
        stack = program.module_call_graph[0].fqn
        return re.sub(r"\W+", "_", stack) or "exported"
    name = getattr(program, "__name__", type(program).__name__)
    return re.sub(r"\W+", "_", str(name)).strip("_") or "function"


def _traced(program: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> ExportedProgram:
    if isinstance(program, ExportedProgram):
        if args is not None or kwargs is not None or dynamic_shapes is not None:
            raise InputError(
                "an ExportedProgram has been traced: args, kwargs and dynamic_shapes belong to "
                "torch.export.export"
            )
        return program
    if not callable(program):
        raise InputError(f"expected an ExportedProgram, a module or a function, got {program!r}")
    if not isinstance(args, tuple):
        raise InputError("args must be the tuple of positional arguments to trace with")
    apart, named = _apart((args, dict(kwargs or {})))
    with torch.no_grad():
        return export(_module_of(program), apart, named, dynamic_shapes=dynamic_shapes)


def _apart(values: Any) -> Any:
    """The same values, where a tensor that comes twice is two: the trace must not take two
    arguments for one."""
    seen: set[int] = set()

    def fresh(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) in seen:
            return tensor.clone()
        seen.add(id(tensor))
        return tensor

    return pytree.tree_map_only(torch.Tensor, fresh, values)


def _module_of(program: Any) -> torch.nn.Module:
    """A module whose forward is the function, with the parameters of its own signature."""
    if isinstance(program, torch.nn.Module):
        return program
    _register_stack_trace_anchor(program)  # export keeps lines of functions called forward alone
    owner = getattr(program, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        module = copy.copy(owner)
        module.forward = MethodType(program.__func__, module)
        return module
    module = torch.nn.Module()
    try:
        inspect.signature(program)
        module.forward = program
    except ValueError:  # some of torch's own functions have none
        module.forward = lambda *args, **kwargs: program(*args, **kwargs)
    return module


# ---- the graph ------------------------------------------------------------------------------


def _imported(exported: Exported, name: str) -> tuple[Graph, tuple[torch.Tensor, ...]]:
    """The graph, and constants that it holds besides the weights."""
    names = [leaf.name for leaf in exported.leaves if leaf.kind != "constant"]
    roles = [InputRole.USER] * len(names)
    for weight in exported.weights:
        names.append(weight.name)
        roles.append(InputRole.BUFFER if weight.role == "buffer" else InputRole.PARAM)
    imported = import_fx(exported.gm, name, roles, names)
    return imported.graph, imported.constants


def _plain_inputs(exported: Exported) -> list[tuple[Any, ...]]:
    leaves = [n for n, leaf in enumerate(exported.leaves) if leaf.kind != "constant"]
    weights = range(len(exported.weights))
    return [*[("leaf", n) for n in leaves], *[("weight", n) for n in weights]]


def _with_hidden_sizes(graph: Graph, inputs: list[tuple[Any, ...]]) -> Inputs:
    """Adds an integer input for each symbol that is only part of sizes, as n in 2*n + 1."""
    extra = len(graph.inputs) - len(inputs)
    found = [*inputs, *[("weight", len(_weights(inputs)) + n) for n in range(extra)]]
    for symbol in _hidden(graph):
        found.append(_size_of(graph, symbol, found))
        graph.inputs.append(DimInput(symbol))
    return tuple(found)


def _weights(inputs: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [entry for entry in inputs if entry[0] == "weight"]


def _hidden(graph: Graph) -> list[Sym]:
    late = graph.late_symbols()
    plain = {e.symbol.name for e in graph.inputs if isinstance(e, DimInput)}
    for entry in graph.tensor_inputs():
        plain |= {str(dim) for dim in entry.value.shape if isinstance(dim, Expr) and as_sym(dim)}
    return [s for name, s in sorted(graph.symbols.items()) if name not in plain | late]


def _size_of(graph: Graph, symbol: Sym, inputs: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    for number, entry in enumerate(graph.inputs):
        if not isinstance(entry, Input) or inputs[number][0] != "leaf":
            continue
        for axis, dim in enumerate(entry.value.shape):
            times, plus = linear_part(dim, symbol.name) or (0, 0)
            if isinstance(times, int) and isinstance(plus, int) and times > 0:
                return ("size", inputs[number][1], axis, times, plus)
    raise UnsupportedError(f"no size of an argument tells what {symbol.name} is")


# ---- the file -------------------------------------------------------------------------------


def _weights_of(
    exported: Exported, held: Sequence[torch.Tensor]
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Tensors and what they are, by name; `held` are those that the graph holds by itself."""
    tensors = {weight.name: weight.tensor for weight in exported.weights}
    roles = {weight.name: weight.role for weight in exported.weights}
    for number, tensor in enumerate(held):
        tensors[f"constant.{number}"], roles[f"constant.{number}"] = tensor, "constant"
    return tensors, roles


@dataclass(frozen=True)
class _Content:
    """What becomes a file."""

    name: str
    exported: Exported
    inputs: Inputs
    made: CompiledGraph
    config: CompilerConfig
    layout: WeightLayout

    def write(self, file: str, packs: PackCollector) -> None:
        plan, draft = self.made.draft.lowered.plan, self.made.draft
        kernels = [
            [ref.name, ref.type, print_kernel(draft.lowered.kernels[ref.name], name=False)]
            for ref in plan.kernels
        ]
        sections: dict[str, Pieces] = {
            "manifest": [self._manifest(packs.packed).text().encode()],
            "plan": [print_plan(plan).encode()],
            "graph": [print_graph(draft.graph, own_symbols=True).encode()],
            "kernels": [json.dumps(kernels).encode()],
            "objects": list(self.made.objects.values()),
            "weights": self.layout.pieces,
            "packed": packs.pieces,
        }
        write_sealed(file, AOT, sections)

    def _manifest(self, packed: Sequence[Packed]) -> Manifest:
        plan, exported = self.made.draft.lowered.plan, self.exported
        sizes = [len(image) for image in self.made.objects.values()]
        starts = [0, *accumulate(sizes)]
        return Manifest(
            name=self.name,
            parameters=exported.parameters,
            leaves=exported.leaves,
            inputs=self.inputs,
            result=exported.result,
            weights=self.layout.weights,
            limits=_limits(exported, plan),
            conditions=_conditions(exported, plan),
            objects=tuple(zip(self.made.objects, starts, sizes, strict=False)),
            options=_options(self.config),
            ingredients=_ingredients(self.made.isa),
            updates=tuple(self.inputs[number] for number in sorted(exported.written)),
            packed=tuple(packed),
        )


def _limits(exported: Exported, plan: Plan) -> tuple[Limit, ...]:
    """What torch.export's ranges ask of sizes of arguments, with what has these sizes. Sizes that
    operators find are checked where they are found."""
    late = late_symbols(plan)
    return tuple(
        Limit(symbol.name, *exported.ranges[symbol.name], _where(plan, symbol))
        for symbol in plan.symbols
        if symbol.name in exported.ranges and symbol.name not in late
    )


def _where(plan: Plan, symbol: Sym) -> str:
    for entry in plan.inputs:
        if isinstance(entry, TensorInput):
            for axis, dim in enumerate(entry.shape):
                if dim == of_atom(symbol):
                    return f"dim {axis} of argument {entry.name!r}"
    for entry in plan.inputs:
        if isinstance(entry, TensorInput):
            for axis, dim in enumerate(entry.shape):
                if symbol.name in symbols(dim):
                    return f"{symbol.name} in dim {axis} ({dim}) of argument {entry.name!r}"
    integers = [e.symbol for e in plan.inputs if isinstance(e, SymbolInput)]
    return f"integer argument number {integers.index(symbol.name)}"


def _conditions(exported: Exported, plan: Plan) -> tuple[tuple[str, str, str], ...]:
    """What the trace found of sizes besides their ranges."""
    known = frozenset(symbol.name for symbol in plan.symbols) - late_symbols(plan)
    for node in exported.gm.graph.find_nodes(op="placeholder"):
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        if mode is not None and mode.shape_env is not None and known:
            return conditions_of(mode.shape_env, known)
    return ()


def _options(config: CompilerConfig) -> dict[str, Any]:
    return {
        name: value
        for name, option, value in config.options()
        if (option.in_key or name == "check_weights") and value != option.default
    }


def _ingredients(isa: Isa) -> dict[str, str]:
    return {
        "kernelmill": VERSION,
        "torch": torch.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "kernel.isa": str(isa),
        "kernel.generator": codegen.GENERATOR_VERSION,
        "kernel.llvm": codegen.llvm_version(),
        "kernel.abi": ABI_VERSION,
    }
