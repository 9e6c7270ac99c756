"""What torch.export gives, as a graph of ours: user inputs first, then the weights that are read.

An ExportedProgram returns what it writes to its inputs and buffers in front of its results; here
these are updates of the arguments, as the compiler has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from torch.utils import _pytree as pytree

from kernelmill.aot.manifest import Leaf, Parameter
from kernelmill.artifact.fingerprint import fingerprint
from kernelmill.artifact.results import Shape, Shaper
from kernelmill.core.errors import UnsupportedError
from kernelmill.frontend import decomposition_table, keep_strides, recurrent_decompositions

Decompositions = Mapping[Any, Callable[..., Any]]

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


@dataclass(frozen=True)
class Held:
    """A tensor of the model: its name there, what it is ("parameter", "buffer" or "constant")."""

    name: str
    role: str
    tensor: torch.Tensor


@dataclass(frozen=True)
class Exported:
    """`gm` takes the leaves that are no constants, then `weights`. `written` are the numbers of
    its arguments that it updates."""

    gm: fx.GraphModule
    parameters: tuple[Parameter, ...]
    leaves: tuple[Leaf, ...]
    weights: tuple[Held, ...]
    written: frozenset[int]
    result: Shape
    ranges: Mapping[str, tuple[int, int | None]]


def decomposed(program: ExportedProgram, decompositions: Decompositions) -> ExportedProgram:
    """The program in ATen operators that the frontend knows, without mutation inside."""
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    table = {
        operator: decompose
        for operator, decompose in default_decompositions().items()
        if operator.has_kernel_for_dispatch_key(composite)
    }
    ours = {**decomposition_table(), **recurrent_decompositions()}
    with torch.no_grad():
        found = program.run_decompositions({**table, **ours, **decompositions})
    for before, after in zip(_returned(program), _returned(found), strict=True):
        traced: Any = getattr(before, "meta", {}).get("val")
        if isinstance(traced, torch.Tensor) and isinstance(after, fx.Node):
            keep_strides(after, traced)
    return found


def _returned(program: ExportedProgram) -> list[Any]:
    """What the program returns to its caller, as nodes where these are."""
    values: Any = program.graph.output_node().args[0]
    specs = program.graph_signature.output_specs
    return [v for v, s in zip(values, specs, strict=True) if s.kind == OutputKind.USER_OUTPUT]


def read(program: ExportedProgram) -> Exported:
    """Takes apart what `decomposed` gives; its graph module is changed by that.

    UnsupportedError names what no file can keep: custom objects, effects, arguments of a kind that
    nothing finds again.
    """
    return _Reader(program).run()


class _Reader:
    def __init__(self, program: ExportedProgram) -> None:
        self.program, self.gm = program, program.graph_module
        self.signature = program.graph_signature
        self.nodes = {node.name: node for node in self.gm.graph.find_nodes(op="placeholder")}
        self.parameters = _parameters(program)
        self.names = _leaf_names(self.parameters)

    def run(self) -> Exported:
        writes, results, result = self._results()
        leaves: list[Leaf] = []
        taken: list[fx.Node] = []
        weights: list[tuple[fx.Node, Held]] = []
        for spec in self.signature.input_specs:
            node = self.nodes[spec.arg.name]
            if spec.kind == InputKind.TOKEN:
                self._make_token(node)
            elif spec.kind == InputKind.USER_INPUT:
                leaf = _leaf(spec, self.names[len(leaves)])
                leaves.append(leaf)
                if leaf.kind != "constant":
                    taken.append(node)
                    continue
            elif node.users or node in writes:
                weights.append((node, self._held(spec)))
                continue
            self.gm.graph.erase_node(node)
        order = [*taken, *[node for node, _ in weights]]
        self._rearrange(order, writes, results)
        return Exported(
            self.gm,
            self.parameters,
            tuple(leaves),
            tuple(held for _, held in weights),
            frozenset(order.index(node) for node in writes),
            result,
            _ranges(self.program),
        )

    def _make_token(self, node: fx.Node) -> None:
        """Tokens only order effects, which the order of the graph does."""
        with self.gm.graph.inserting_before(node):
            made = self.gm.graph.call_function(torch.ops.prims._make_token.default)
        node.replace_all_uses_with(made)

    def _held(self, spec: InputSpec) -> Held:
        if spec.kind not in _ROLES or spec.target is None:
            raise UnsupportedError(f"it takes {spec.arg.name}, a {spec.kind.name.lower()}")
        place: Any = self.program.state_dict
        if spec.kind == InputKind.CONSTANT_TENSOR or spec.persistent is False:
            place = self.program.constants
        return Held(spec.target, _ROLES[spec.kind], place[spec.target])

    def _results(self) -> tuple[dict[fx.Node, Any], list[Any], Shape]:
        """What is written to which argument, the results, and how they are returned."""
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
        shape = Shaper(marks, {}, {}).describe(pytree.tree_unflatten(returned, spec))
        return writes, results, shape

    def _rearrange(
        self, order: Sequence[fx.Node], writes: Mapping[fx.Node, Any], results: Sequence[Any]
    ) -> None:
        graph = self.gm.graph
        for node in reversed(order):
            next(iter(graph.nodes)).prepend(node)
        output = graph.output_node()
        with graph.inserting_before(output):
            for node, value in writes.items():
                written = graph.call_function(torch.ops.aten.copy_.default, (node, value))
                written.meta["val"] = node.meta["val"]
        output.args = (tuple(results),)


def _leaf(spec: InputSpec, name: str) -> Leaf:
    if isinstance(spec.arg, TensorArgument):
        return Leaf(name, "tensor")
    if isinstance(spec.arg, SymIntArgument):
        return Leaf(name, "integer")
    if isinstance(spec.arg, ConstantArgument):
        return Leaf(name, "constant", fingerprint(spec.arg.value))
    raise UnsupportedError(f"argument {name} is a {type(spec.arg).__name__}")


def _parameters(program: ExportedProgram) -> tuple[Parameter, ...]:
    spec = program.call_spec.in_spec
    assert spec is not None
    marks = [object() for _ in range(spec.num_leaves)]
    args, kwargs = pytree.tree_unflatten(marks, spec)
    signature = program.module_call_graph[0].signature
    names = list(signature.forward_arg_names or ()) if signature is not None else []
    names += [f"arg{n}" for n in range(len(names), len(args))]
    shaper = Shaper(marks, {}, {})
    return (
        *[Parameter(name, shaper.describe(arg)) for name, arg in zip(names, args, strict=False)],
        *[Parameter(name, shaper.describe(arg), True) for name, arg in kwargs.items()],
    )


def _leaf_names(parameters: Sequence[Parameter]) -> list[str]:
    """The names of all leaves by their number: "x", "pair.1.q"."""
    found: dict[int, str] = {}
    for parameter in parameters:
        _name_leaves(parameter.shape, parameter.name, found)
    return [found[number] for number in sorted(found)]


def _name_leaves(shape: Shape, name: str, found: dict[int, str]) -> None:
    if "result" in shape:
        found[shape["result"]] = name
    elif "dict" in shape or "object" in shape:
        for key, part in shape.get("dict") or shape.get("fields", ()):
            _name_leaves(part, f"{name}.{key}", found)
    elif "constant" not in shape:
        parts = next(shape[kind] for kind in ("list", "tuple", "items") if kind in shape)
        for number, part in enumerate(parts):
            _name_leaves(part, f"{name}.{number}", found)


def _ranges(program: ExportedProgram) -> dict[str, tuple[int, int | None]]:
    """Least and most of torch's symbols by name."""
    found: dict[str, tuple[int, int | None]] = {}
    for symbol, allowed in program.range_constraints.items():
        if symbol.is_Symbol and allowed.lower.is_finite is not False:
            most = int(allowed.upper) if allowed.upper.is_Integer else None
            found[str(symbol)] = int(allowed.lower), most
    return found
