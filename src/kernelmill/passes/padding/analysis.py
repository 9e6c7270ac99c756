"""The proof that padding changes nothing, and the padding and cropping to do around the graph.

By induction: an element that is kept (its indices are inside the shape at the true sizes) is what
the graph computes at the true sizes, when the arguments are padded at their ends with zeros. Every
operator has a rule that carries this from its operands to its results, or refuses.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kernelmill.core.dim import Expr, symbols
from kernelmill.core.dtype import InputRole
from kernelmill.core.errors import PaddingError
from kernelmill.graph.builder import live_values
from kernelmill.graph.effects import has_effect
from kernelmill.graph.ir import DimInput, Graph, Input, Node, NumberResult, OpKind, Value
from kernelmill.graph.ops import OPS
from kernelmill.passes.padding.axes import Unproven
from kernelmill.passes.padding.facts import FINITE, NONNEGATIVE, Known, pointwise
from kernelmill.passes.padding.rules import RULES, Scene, aten
from kernelmill.plan.ir import PaddedInput, PaddedResult, Padding


def padding_of(graph: Graph, symbols: frozenset[str], masks: frozenset[str]) -> Padding:
    """Return the padding by which `graph` at larger `symbols` computes the true results.

    `masks` are names of arguments that hide padding where they are zero: where one of them has gone
    into a value, sums over padding (reductions, softmax, attention, norms) are taken on the
    user's word. Raises PaddingError, with the node and the user's line, where padding could change
    a kept value.
    """
    scene = Scene(symbols, bool(masks))
    _check_masks(graph, masks)
    known = {entry.value: _input(scene, entry, masks) for entry in graph.tensor_inputs()}
    for node in _live(graph):
        try:
            results = _apply(scene, node, [known[operand] for operand in node.operands])
        except Unproven as refusal:
            raise _error(f"{node.op}{_origin(node)} {refusal}", masks) from None
        known.update(zip(node.results, results, strict=True))
    _check_updates(scene, graph)
    for number, result in enumerate(graph.results):
        if isinstance(result, NumberResult) and scene.depends(result.word):
            raise _error(f"result {number} is computed from a padded size")
    return Padding(
        inputs=tuple(_padded_inputs(scene, graph)),
        results=tuple(_padded_results(scene, graph, known)),
        sizes=tuple(
            (number, entry.symbol.name)
            for number, entry in enumerate(graph.inputs)
            if isinstance(entry, DimInput) and entry.symbol.name in symbols
        ),
        size_results=tuple(
            (number, result)
            for number, result in enumerate(graph.results)
            if isinstance(result, Expr) and scene.depends(result)
        ),
        ranges=tuple(
            (name, graph.symbols[name].lo, graph.symbols[name].hi) for name in sorted(symbols)
        ),
    )


def _error(reason: str, masks: Collection[str] = ()) -> PaddingError:
    hint = "" if masks else ", or name the argument that masks padding"
    return PaddingError(
        f'gear_miss="pad" could change results: {reason}. Use gear_miss="dynamic" or "error"{hint}'
    )


def _origin(node: Node) -> str:
    return f" ({node.origin})" if node.origin else ""


# ---- inputs ---------------------------------------------------------------------------------


def _check_masks(graph: Graph, masks: frozenset[str]) -> None:
    names = [entry.value.name for entry in graph.tensor_inputs() if entry.role == InputRole.USER]
    unknown = sorted(masks.difference(names))
    if unknown:
        raise PaddingError(
            f"no argument is called {', '.join(unknown)}: a mask must be one of {', '.join(names)}"
        )


def _input(scene: Scene, entry: Input, masks: frozenset[str]) -> Known:
    value = entry.value
    if scene.depends(value.shape):
        _check_input(entry)
    sign = FINITE if value.dtype.is_float or value.dtype.kind == "int" else NONNEGATIVE
    try:
        axes = tuple(scene.axis(size, 0) for size in value.shape)
    except Unproven as refusal:
        raise _error(f"argument {value.name} {refusal}") from None
    return Known(axes, sign, fixed=entry.role != InputRole.USER, masked=value.name in masks)


def _check_input(entry: Input) -> None:
    value = entry.value
    if entry.role != InputRole.USER:
        raise _error(f"the model's own tensor {value.name} has a padded size")
    strides = zip(value.shape, value.type.memory_strides, strict=True)
    if any(stride == 0 and size != 1 for size, stride in strides):
        raise _error(f"argument {value.name} is expanded: its elements share memory")
    sizes = {name for size in value.shape for name in symbols(size)}
    if any(symbols(stride).keys() - sizes for stride in value.type.memory_strides):
        raise _error(
            f"argument {value.name} has strides that do not follow from its sizes: pass a "
            "contiguous tensor"
        )


def _padded_inputs(scene: Scene, graph: Graph) -> list[PaddedInput]:
    return [
        PaddedInput(number, entry.value.shape, entry.value.type.memory_strides)
        for number, entry in enumerate(graph.inputs)
        if isinstance(entry, Input) and scene.depends(entry.value.shape)
    ]


# ---- nodes ----------------------------------------------------------------------------------


def _live(graph: Graph) -> list[Node]:
    needed: set[Value] = set(live_values(graph))
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if has_effect(node) or any(value in needed for value in node.results):
            needed.update(node.operands)
            kept.append(node)
    return kept[::-1]


def _apply(scene: Scene, node: Node, operands: Sequence[Known]) -> list[Known]:
    if node.op == "aten":
        return aten(scene, node, operands)
    if OPS[node.op].kind is OpKind.POINTWISE:
        return [pointwise(scene, node, operands)]
    return [RULES[node.op](scene, node, operands)]


# ---- results --------------------------------------------------------------------------------


def _check_updates(scene: Scene, graph: Graph) -> None:
    for held, _ in graph.updates:
        if scene.depends(held.shape):
            raise _error(f"argument {held.name} is padded, and is written to")


def _padded_results(scene: Scene, graph: Graph, known: dict[Value, Known]) -> list[PaddedResult]:
    found: list[PaddedResult] = []
    for number, result in enumerate(graph.results):
        if not isinstance(result, Value):
            continue
        strides = result.type.memory_strides
        if not scene.depends(result.shape, strides):
            continue
        if result.node is None:
            raise _error(f"argument {result.name} is padded, and is a result itself")
        try:
            for size in result.shape:
                scene.axis(size)
        except Unproven as refusal:
            raise _error(f"result {number} {refusal}") from None
        axes = tuple(tuple(factor.size for factor in axis) for axis in known[result].axes)
        found.append(PaddedResult(number, axes, strides))
    return found
