"""Results of the graph: in memory as traced, with memory shared exactly as in the trace.

Results that are updated arguments, or views of them.

A functional graph returns the new value of an updated argument, and views of this value. In eager
these share memory with the argument, so here they are made of the argument.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from kernelmill.core.dim import Dim
from kernelmill.frontend.context import ImportContext, dense_strides, lies_row_major, overlaps
from kernelmill.frontend.emitter import Computed, emit_aten
from kernelmill.frontend.operators import OperatorImporter, flattened
from kernelmill.graph.effects import memory_of
from kernelmill.graph.ir import Graph, NumberResult, Result, TensorType, Value, row_major
from kernelmill.torch_internals.autograd import output_strides
from kernelmill.torch_internals.operators import gives_views

Dims = tuple[Dim, ...]


_STRIDES = "kernelmill_strides"


def keep_strides(result: fx.Node, traced: torch.Tensor) -> None:
    """Note on a result that its strides are those of `traced`, the tensor before decomposition."""
    mine: Any = result.meta.get("val")
    if isinstance(mine, torch.Tensor) and mine.layout == traced.layout == torch.strided:
        result.meta[_STRIDES] = traced.stride()


class ResultImporter:
    """An importer of results. Values are pure, memory is not: a clone must be a copy, and a view
    that is returned beside its base (an argument or another result) must be a view.

    A result has the strides that were traced, those of dims of size 1 and of empty tensors too
    (before decompositions, where `keep_strides` has noted them). Results from `saved_from` on,
    which only a backward graph reads, are dense.
    """

    def __init__(
        self, context: ImportContext, operators: OperatorImporter, saved_from: int | None = None
    ) -> None:
        self.context, self.operators, self.saved_from = context, operators, saved_from
        self._views: dict[fx.Node, Value] = {}
        self._made: dict[fx.Node, list[Value]] = {}
        self._returned: dict[Value, fx.Node] = {}
        self._results: dict[tuple[fx.Node, bool], Result] = {}
        self._written: set[Any] = set()

    def run(self, entries: Sequence[Any]) -> list[Result]:
        """Return the results for the entries of FX's output node."""
        nodes = [node for node in self.context.env if node.op == "placeholder"]
        nodes += [entry for entry in entries if isinstance(entry, fx.Node)]
        tensors = [node for node in nodes if _has_elements(node.meta.get("val"))]
        shared = _shared_storages(tensors)
        self._written = _written_storages(self.context.env)
        kept = len(entries) if self.saved_from is None else self.saved_from
        return [self._once(entry, shared, at < kept) for at, entry in enumerate(entries)]

    def _once(self, entry: Any, shared: set[Any], exact: bool) -> Result:
        """Return the result of an entry, the same one if it is returned twice."""
        if not isinstance(entry, fx.Node):
            return entry
        entry = entry if exact else _attached(entry)
        if (entry, exact) not in self._results:
            self._results[entry, exact] = self._result(entry, shared, exact)
        return self._results[entry, exact]

    def _result(self, entry: fx.Node, shared: set[Any], exact: bool) -> Result:
        value = self.context.argument(entry)
        if isinstance(value, Computed):
            return NumberResult(value.kind, self.context.emitter.word(value))
        if not isinstance(value, Value):
            return value
        if entry.op == "placeholder" or entry.target is torch.ops.aten.copy_.default:
            return value
        viewed = _storage(entry) in shared or self._overlaps(entry) or self._is_replayed(entry)
        if viewed or (exact and self._is_of_aten(entry)):
            return self._view(entry)
        return self._own(entry, value, exact)

    def _overlaps(self, node: fx.Node) -> bool:
        """Return whether a view has elements that provably share addresses."""
        return _viewed(node, _maker(node)) is not None and overlaps(*self._memory(node))

    def _is_replayed(self, node: fx.Node) -> bool:
        """Return whether this may be a part of an updated argument. AOTAutograd then makes the same
        view of the argument: in graphs of symbolic sizes at the offset of this result."""
        if not self.context.builder.graph.symbols or _viewed(node, _maker(node)) is None:
            return False
        offset = self.context.symbols.dim(node.meta["val"].storage_offset())
        return offset != 0 and _storage(node) in self._written

    def _is_of_aten(self, node: fx.Node) -> bool:
        """Return whether this is a view of an ATen result, which has memory of its own."""
        root = node
        while (source := _viewed(root, _maker(root))) is not None:
            root = source
        value = self.context.env[root]
        return root is not node and isinstance(value, Value) and _is_aten(value)

    def _memory(self, node: fx.Node) -> tuple[Dims, Dims]:
        """Return the traced shape and strides."""
        tensor: torch.Tensor = node.meta["val"]
        strides = node.meta.get(_STRIDES) or tensor.stride()
        return self.context.symbols.dims(tensor.shape), self.context.symbols.dims(strides)

    def _own(self, node: fx.Node, value: Value, exact: bool = True) -> Value:
        """Return the value in memory that no argument and no other result shares."""
        kind = self.context.type_of(node.meta["val"], "a result")
        shape, strides = self._memory(node)
        if not exact or overlaps(shape, strides):
            if exact and _is_expanded(shape, strides):
                return self._expanded(value, strides)
            strides = dense_strides(kind) or row_major(value.shape)
        if value.node is None:
            return self.context.builder.emit("layout", value, strides=strides)
        if self.context.lies(value) not in (strides, self._memory(node)[1]):
            value = self.context.stored(value, strides)
        memory = memory_of(value)
        if memory.node is not None and self._returned.setdefault(memory, node) is node:
            return value
        lies = value.type.memory_strides
        # A clone of elements that share addresses is dense.
        kind = replace(kind, strides=strides if overlaps(shape, lies) else value.type.strides)
        return emit_aten(
            self.context.builder, "aten.clone.default", [value], {}, [kind], reason="a copy"
        )[0]

    def _expanded(self, value: Value, strides: Dims) -> Value:
        """Return a value that is constant along dims of stride 0, as an expanded view."""
        few = value
        for dim, stride in enumerate(strides):
            if stride == 0:
                few = self.context.emitter.slice(few, dim, 0, 1)
        stored = self.context.builder.emit("layout", few, strides=strides)
        kind = TensorType(value.dtype, value.shape, strides)
        return emit_aten(
            self.context.builder, "aten.expand.default", [stored, list(value.shape)], {}, [kind],
            reason="an expanded view that is returned",
        )[0]  # fmt: skip

    def _view(self, node: fx.Node) -> Value:
        """Return the node as ATen's own view of the argument or node whose memory it shares."""
        found = self._views.get(node)
        if found is None:
            found = self._views[node] = self._make_view(node)
        return found

    def _make_view(self, node: fx.Node) -> Value:
        maker = _maker(node)
        source = _viewed(node, maker)
        if source is None:
            value: Value = self.context.env[node]
            kept = node.op == "placeholder" or value.dtype.is_opaque
            return value if kept else self._own(node, value)
        if maker.target is torch.ops.aten.copy_.default:
            return self._view(source)
        if maker not in self._made:
            self._made[maker] = self._run_view(maker, source)
        index: Any = 0 if maker is node else node.args[1]
        return self._made[maker][index]

    def _run_view(self, maker: fx.Node, source: fx.Node) -> list[Value]:
        """Return ATen's views of the memory in which `source` is returned."""
        kept = self.context.env[source]
        self.context.env[source] = self._view(source)
        try:
            kinds = [
                self.context.type_of(tensor, "a result")
                for tensor in flattened(maker.meta["val"])
                if tensor is not None
            ]
            values = self.operators.as_aten(maker, kinds, "a view that is returned")
        finally:
            self.context.env[source] = kept
        return [value for value in values if value is not None]


def _attached(node: fx.Node) -> fx.Node:
    """Return the node without `detach`: a backward graph needs no gradients of its inputs."""
    while node.target is torch.ops.aten.detach.default:
        (node,) = node.all_input_nodes
    return node


def _is_aten(value: Value) -> bool:
    return value.node is not None and value.node.op == "aten"


def _has_elements(traced: Any) -> bool:
    """Return whether this is a tensor not known to be empty: empty ones share no memory."""
    return isinstance(traced, torch.Tensor) and all(
        isinstance(size, torch.SymInt) or size > 0 for size in traced.shape
    )


def _is_expanded(shape: Dims, strides: Dims) -> bool:
    """Return whether only dims of stride 0 make elements overlap."""
    return not overlaps(
        [1 if stride == 0 else size for size, stride in zip(shape, strides, strict=True)], strides
    )


def _storage(node: fx.Node) -> Any:
    return node.meta["val"].untyped_storage()


def _shared_storages(nodes: Sequence[fx.Node]) -> set[Any]:
    seen: dict[Any, fx.Node] = {}
    shared: set[Any] = set()
    for node in dict.fromkeys(nodes):
        if seen.setdefault(_storage(node), node) is not node:
            shared.add(_storage(node))
    return shared


def _written_storages(nodes: Iterable[fx.Node]) -> set[Any]:
    """Return the storages of the new values of updated arguments."""
    copies = (node for node in nodes if node.target is torch.ops.aten.copy_.default)
    sources = (node.args[1] for node in copies)
    return {_storage(source) for source in sources if isinstance(source, fx.Node)}


def _maker(node: fx.Node) -> fx.Node:
    """Return the operator that made a tensor: the node itself, or the source of a getitem."""
    if node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        return node.args[0]
    return node


def _viewed(node: fx.Node, maker: fx.Node) -> fx.Node | None:
    """Return the base of a view: the first argument of its maker, if it shares the storage."""
    if node.op == "placeholder" or not maker.args or not isinstance(maker.args[0], fx.Node):
        return None
    source = maker.args[0]
    same = isinstance(source.meta.get("val"), torch.Tensor) and _storage(source) == _storage(node)
    return source if same else None


class UpdatedArguments:
    """Results in terms of updated arguments. `copies` are the `copy_` nodes into arguments, by the
    copied value. Views are added to the graph."""

    def __init__(self, graph: fx.Graph, copies: Mapping[Any, fx.Node]) -> None:
        self._graph, self._found = graph, dict(copies)
        for copy in copies.values():
            argument: Any = copy.args[0]
            copy.meta["val"] = argument.meta["val"]

    def result(self, result: Any) -> Any:
        """Return the result, replaced by the argument or a view of it where possible."""
        source = _base_by_schema(result)
        if result in self._found or source is None:
            return self._found.get(result, result)
        base = self.result(source)
        if base is source:
            return result
        with self._graph.inserting_before(self._graph.output_node()):
            view = self._graph.node_copy(result, lambda node: base if node is source else node)
        found: Any = map_arg((view.args, view.kwargs), lambda node: node.meta["val"])
        args, kwargs = found
        function: Any = view.target
        view.meta = {**result.meta, "val": function(*args, **kwargs)}
        self._found[result] = view
        return view


def _base_by_schema(value: Any) -> fx.Node | None:
    """Return the base of a node's view, by its operator's schema."""
    if not isinstance(value, fx.Node) or not value.args or not isinstance(value.args[0], fx.Node):
        return None
    is_part = value.target is operator.getitem
    return value.args[0] if is_part or gives_views(str(value.target)) else None


def report_output_strides(gm: fx.GraphModule, graph: Graph) -> None:
    """Fill the tracing context's list: strides of a result that is row-major here and was traced
    with gaps (a slice of a larger tensor), None for every other one."""
    asked = output_strides()
    if asked is None:
        return
    traced: Any = gm.graph.output_node().args[0]
    for node, result in zip(traced, graph.results, strict=True):
        made = isinstance(result, Value) and result.node is not None and result.type.strides is None
        moved = made and not lies_row_major(node.meta["val"])
        shape = node.meta["val"].shape if moved else ()
        strides = tuple(accumulate(reversed(shape), operator.mul, initial=1))[-2::-1]
        asked.append(strides if moved else None)
