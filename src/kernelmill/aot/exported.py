"""Import of torch.export's result into the graph IR: user inputs first, then the weights it reads.

An ExportedProgram returns its writes to inputs and buffers before its results; here these become
updates of the arguments.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram, default_decompositions
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    SymIntArgument,
    TensorArgument,
)
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from kernelmill.artifact.fingerprint import fingerprint, name_of
from kernelmill.artifact.guards import found_in
from kernelmill.artifact.manifest import Guard, Parameter
from kernelmill.artifact.paths import Path, name_of_argument
from kernelmill.artifact.results import Shape, Shaper
from kernelmill.artifact.tensors import HeldTensor
from kernelmill.backend.entry import Decompositions
from kernelmill.backend.runnable import settle_given
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import UnsupportedError
from kernelmill.frontend.context import overlaps
from kernelmill.frontend.decompositions import decomposition_table
from kernelmill.frontend.eager_checks import refused_by_eager
from kernelmill.frontend.recurrent import recurrent_decompositions
from kernelmill.frontend.results import UpdatedArguments, keep_strides
from kernelmill.runtime.weights.contents import span_of
from kernelmill.torch_internals.operators import OpOverload, is_composite, make_token, schema_of


def refused_write(program: ExportedProgram) -> str | None:
    """Describe the tensors of a program, that torch has failed to decompose, with writes that it
    cannot follow, and the remedy; None where there is none."""
    holders: dict[torch.UntypedStorage, list[str]] = {}
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    for spec in program.graph_signature.input_specs:
        traced = nodes[spec.arg.name].meta.get("val")
        if isinstance(traced, torch.Tensor) and traced.layout == torch.strided:
            name = spec.target or spec.arg.name
            holders.setdefault(traced.untyped_storage(), []).append(name)
    for written in _written(program.graph):
        names = holders.get(written.meta["val"].untyped_storage(), [])
        if len(names) > 1:
            listed = " and ".join(names)
            return f"{listed} share memory, and one of them is written to: clone it before"
        if any(view.target is _aten.as_strided.default for view in _views(written)):
            name = names[0] if names else "a tensor"
            return (
                f"{name} is written to through as_strided in a way that no trace can follow: "
                "write through slices of it, or to a clone"
            )
    return None


def _written(graph: fx.Graph) -> Iterator[fx.Node]:
    for node in graph.nodes:
        if not isinstance(node.target, OpOverload):
            continue
        for argument, value in zip(schema_of(node.target).arguments, node.args, strict=False):
            alias: Any = argument.alias_info
            if alias is not None and alias.is_write and isinstance(value, fx.Node):
                yield value


def _views(node: fx.Node) -> Iterator[fx.Node]:
    """Yield a tensor, and those it is a view of, up to the owner of the memory."""
    memory = node.meta["val"].untyped_storage()
    while True:
        yield node
        first = node.args[0] if node.args else None
        if not isinstance(first, fx.Node) or first.meta["val"].untyped_storage() != memory:
            return
        node = first


_ROLES = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
}
_WRITES = {
    OutputKind.BUFFER_MUTATION,
    OutputKind.USER_INPUT_MUTATION,
    OutputKind.PARAMETER_MUTATION,
}

_aten = torch.ops.aten
_FILLS = {_aten.fill, _aten.full, _aten.full_like, _aten.zero, _aten.zeros_like}

_BY_PLACE = {
    _aten.as_strided.default,
    _aten.as_strided_copy.default,
    _aten.as_strided_scatter.default,
}
"""Operators with offsets from the beginning of a storage."""


@dataclass(frozen=True)
class Exported:
    """An exported graph. `gm` takes the values at `leaves` in the arguments, then `weights`.
    `checks` are further guards of the arguments."""

    gm: fx.GraphModule
    parameters: tuple[Parameter, ...]
    checks: tuple[Guard, ...]
    leaves: tuple[Path, ...]
    weights: tuple[HeldTensor, ...]
    result: Shape
    ranges: Mapping[str, tuple[int, int | None]]


def decomposed(program: ExportedProgram, decompositions: Decompositions) -> ExportedProgram:
    """Return the program in ATen operators that the frontend knows, without mutation.
    UnsupportedError where eager refuses one of its calls."""
    gm = program.graph_module
    if refused := refused_by_eager(gm) or settle_given(gm):
        raise UnsupportedError(refused)
    for value, spec in zip(_values(program), program.graph_signature.output_specs, strict=True):
        if isinstance(value, fx.Node):
            spec.arg.name = value.name  # perhaps of an argument that a result aliases
    table = {
        operator: decompose
        for operator, decompose in default_decompositions().items()
        if is_composite(operator)
    }
    ours = {**decomposition_table(exported=True), **recurrent_decompositions()}
    try:
        with warnings.catch_warnings(), torch.no_grad():
            # Of torch's own code, which copies objects that it has deprecated.
            warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)
            found = program.run_decompositions({**table, **ours, **decompositions})
            if any(map(_lies_by_unknown_sizes, _returned(program))):
                # The first trace does not know how long a slice with a symbolic end is.
                program = program.run_decompositions({})
    except (AssertionError, RuntimeError) as error:
        if (refused := refused_write(program)) is None:
            raise
        raise UnsupportedError(refused) from error
    for before, after in zip(_returned(program), _returned(found), strict=True):
        traced: Any = getattr(before, "meta", {}).get("val")
        if isinstance(traced, torch.Tensor) and isinstance(after, fx.Node):
            keep_strides(after, traced)
    return found


def _lies_by_unknown_sizes(result: Any) -> bool:
    traced: Any = getattr(result, "meta", {}).get("val")
    dense = isinstance(traced, torch.Tensor) and traced.layout == torch.strided
    return dense and bool(free_unbacked_symbols(traced.stride()))


def _returned(program: ExportedProgram) -> list[Any]:
    """Return the program's results for its caller, as nodes where they are nodes."""
    specs = program.graph_signature.output_specs
    values = zip(_values(program), specs, strict=True)
    return [value for value, spec in values if spec.kind == OutputKind.USER_OUTPUT]


def _values(program: ExportedProgram) -> Sequence[Any]:
    values: Any = program.graph.output_node().args[0]
    return values


def read(program: ExportedProgram) -> Exported:
    """Split the result of `decomposed` into its parts; its graph module is changed.

    UnsupportedError names a part that no file can keep: custom objects, effects, arguments of a
    kind that nothing finds again.
    """
    return _Reader(program).run()


class _Reader:
    def __init__(self, program: ExportedProgram) -> None:
        self.program, self.gm = program, program.graph_module
        self.signature = program.graph_signature
        self.nodes = {node.name: node for node in self.gm.graph.find_nodes(op="placeholder")}
        self.arguments = _ArgumentStructure(program)

    def run(self) -> Exported:
        writes, results, result = self._results()
        arguments = self.arguments
        places = iter(arguments.leaves())
        leaves: list[Path] = []
        taken: list[fx.Node] = []
        weights: list[tuple[fx.Node, HeldTensor]] = []
        for spec in self.signature.input_specs:
            node = self.nodes[spec.arg.name]
            if spec.kind == InputKind.TOKEN:
                self._make_token(node)
            elif spec.kind == InputKind.USER_INPUT:
                path = next(places)
                if arguments.takes(spec, path):
                    leaves.append(path)
                    taken.append(node)
                    continue
            elif node.users or node in writes:
                weights.append((node, self._held(spec)))
                continue
            self.gm.graph.erase_node(node)
        self._check_places(weights)
        order = [*taken, *[node for node, _ in weights]]
        self._rearrange(order, writes, results)
        return Exported(
            self.gm,
            tuple(arguments.parameters),
            tuple(arguments.checks),
            tuple(leaves),
            tuple(held for _, held in weights),
            result,
            _ranges(self.program),
        )

    def _check_places(self, weights: Sequence[tuple[fx.Node, HeldTensor]]) -> None:
        """Check offsets that an operator counts from the beginning of a storage: a file keeps a
        storage from its first used element on, so that must be the beginning."""
        firsts: dict[torch.UntypedStorage, int] = {}
        for _, held in weights:
            storage = held.tensor.untyped_storage()
            first = span_of(held.tensor)[0]
            firsts[storage] = min(firsts.get(storage, first), first)
        names = {
            node.meta["val"].untyped_storage(): held.name
            for node, held in weights
            if firsts[held.tensor.untyped_storage()] > 0
        }
        for node in self.gm.graph.nodes:
            if node.op == "call_function" and node.target in _BY_PLACE:
                name = names.get(node.args[0].meta["val"].untyped_storage())
                if name is not None:
                    raise UnsupportedError(
                        f"{node.target} of {name}, which does not lie at the beginning of its "
                        "memory: clone it"
                    )

    def _make_token(self, node: fx.Node) -> None:
        """Make a token in the graph: tokens only order effects, as the order of the graph does."""
        with self.gm.graph.inserting_before(node):
            made = make_token(self.gm.graph)
        node.replace_all_uses_with(made)

    def _held(self, spec: InputSpec) -> HeldTensor:
        if spec.kind not in _ROLES or spec.target is None:
            raise UnsupportedError(f"it takes {spec.arg.name}, a {spec.kind.name.lower()}")
        place: Any = self.program.state_dict
        if spec.kind == InputKind.CONSTANT_TENSOR or spec.persistent is False:
            place = self.program.constants
        return HeldTensor(spec.target, _ROLES[spec.kind], place[spec.target])

    def _results(self) -> tuple[dict[fx.Node, Any], list[Any], Shape]:
        """Return values written to arguments, the results, and the shape of the returned value."""
        values: Sequence[Any] = self.gm.graph.output_node().args[0]  # type: ignore[assignment]
        by_target = {spec.target: spec.arg.name for spec in self.signature.input_specs}
        writes: dict[fx.Node, Any] = {}
        results: list[Any] = []
        marks: list[Any] = []
        returned: list[Any] = []
        for spec, value in zip(self.signature.output_specs, values, strict=True):
            if spec.kind in _WRITES:
                writes[self.nodes[by_target.get(spec.target) or str(spec.target)]] = value
            elif spec.kind == OutputKind.TOKEN:
                continue
            elif spec.kind != OutputKind.USER_OUTPUT:
                raise UnsupportedError(f"it returns a {spec.kind.name.lower()}")
            elif isinstance(spec.arg, ConstantArgument):
                returned.append(spec.arg.value)
            else:
                marks.append(object())
                returned.append(marks[-1])
                results.append(value)
        spec = self.program.call_spec.out_spec
        assert spec is not None
        shape = Shaper(marks, {}).describe(spec.unflatten(returned))
        return writes, results, shape

    def _rearrange(
        self, order: Sequence[fx.Node], writes: Mapping[fx.Node, Any], results: Sequence[Any]
    ) -> None:
        graph = self.gm.graph
        for node in reversed(order):
            next(iter(graph.nodes)).prepend(node)
        output = graph.output_node()
        with graph.inserting_before(output):
            copies: dict[Any, fx.Node] = {}
            for node, value in writes.items():
                _check_places_apart(node, value)
                copied = graph.call_function(_aten.copy_.default, (node, value))
                copies.setdefault(value, copied)
        updated = UpdatedArguments(graph, copies)
        output.args = (tuple(map(updated.result, results)),)


def _check_places_apart(node: fx.Node, value: Any) -> None:
    """Raise UnsupportedError where elements of a written tensor overlap, unless all are filled
    alike: the trace has a value for each of them, and no order of the writes."""
    written: torch.Tensor = node.meta["val"]
    filled = isinstance(value, fx.Node) and getattr(value.target, "overloadpacket", None) in _FILLS
    if not filled and overlaps(written.shape, written.stride()):
        raise UnsupportedError(
            f"{node.name} is written to, and several of its elements lie in one place: clone it"
        )


class _ArgumentStructure:
    """Structure of the arguments: parameters, paths of leaves, and guards of everything else."""

    def __init__(self, program: ExportedProgram) -> None:
        spec = program.call_spec.in_spec
        assert spec is not None
        marks = [object() for _ in range(spec.num_leaves)]
        args, kwargs = spec.unflatten(marks)
        signature = program.module_call_graph[0].signature
        names = list(signature.forward_arg_names or ()) if signature is not None else []
        names += [f"arg{n}" for n in range(len(names), len(args))]
        self.parameters: list[Parameter] = []
        self.checks: list[Guard] = []
        self._numbers = {id(mark): number for number, mark in enumerate(marks)}
        self._paths: dict[int, Path] = {}
        given = [*zip(names, args, strict=False), *kwargs.items()]
        for number, (name, value) in enumerate(given):
            self.parameters.append(Parameter(name, number >= len(args)))
            self._walk(value, (("argument", name),))

    def leaves(self) -> list[Path]:
        """Return the paths of all leaves, in their order."""
        return [self._paths[number] for number in sorted(self._paths)]

    def takes(self, spec: InputSpec, path: Path) -> bool:
        """Return whether the graph takes this leaf; a constant one is guarded instead."""
        if isinstance(spec.arg, TensorArgument):
            return True
        if isinstance(spec.arg, SymIntArgument):
            self.checks.append(Guard("type", path, "builtins.int"))
            return True
        if not isinstance(spec.arg, ConstantArgument):
            kind = type(spec.arg).__name__
            raise UnsupportedError(f"argument {name_of_argument(path)} is a {kind}")
        self.checks.append(Guard("value", path, fingerprint(spec.arg.value)))
        return False

    def _walk(self, value: Any, path: Path) -> None:
        if id(value) in self._numbers:
            self._paths[self._numbers[id(value)]] = path
            return
        kind, parts = _parts(value, path)
        self.checks.append(Guard(kind, path, found_in(Guard(kind, path), value, name_of)))
        for step, part in parts:
            self._walk(part, (*path, step))


def _parts(value: Any, path: Path) -> tuple[str, list[tuple[Any, Any]]]:
    """Return the guard kind of a container, and its parts with the steps to them."""
    if type(value) is dict and all(type(key) in (str, int, bool, type(None)) for key in value):
        return "keys", [(("item", key), part) for key, part in value.items()]
    if isinstance(value, tuple) or type(value) is list:
        plain = type(value) in (list, tuple)
        return "shape" if plain else "type", [(("item", n), p) for n, p in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return "type", [(("attribute", name), getattr(value, name)) for name in names]
    if type(value) in (type(None), bool, int, float, str):
        return "value", []
    kind = type(value)
    raise UnsupportedError(
        f"argument {name_of_argument(path)} is a {kind.__module__}.{kind.__qualname__}"
    )


def _ranges(program: ExportedProgram) -> dict[str, tuple[int, int | None]]:
    """Return least and most of torch's symbols by name."""
    found: dict[str, tuple[int, int | None]] = {}
    for symbol, allowed in program.range_constraints.items():
        if symbol.is_Symbol and allowed.lower.is_Integer:  # torch has infinities of its own
            most = int(allowed.upper) if allowed.upper.is_Integer else None
            found[str(symbol)] = int(allowed.lower), most
    return found
