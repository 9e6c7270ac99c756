"""Recurrent layers of torch in Dynamo's graphs: kept whole, decomposed, or refused.

AOTAutograd would decompose all of them, one time step after another. In inference each is one
operator, which `aten/recurrent.py` translates. In training few steps are decomposed; with many
steps the layer runs in torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from kernelmill.torch_internals.dispatch import any_autocast
from kernelmill.torch_internals.operators import recurrent
from kernelmill.torch_internals.tracing import all_nodes, graph_modules

MOST_STEPS = 32
"""Most steps of time, over all layers and directions, that are decomposed in training."""

_torch: Any = torch
_LAYERS = {getattr(_torch, name): name for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")}
_LIBRARY = torch.library.Library("kernelmill", "FRAGMENT")
_ARGUMENTS = (
    "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, "
    "bool bidirectional, bool batch_first"
)
_Sizes = tuple[Tensor, ...]


def _define(name: str) -> Any:
    """Define the operator `kernelmill::name`, which is never decomposed (see `aten_name`)."""
    several = name == "lstm"
    results = "(Tensor, Tensor, Tensor)" if several else "(Tensor, Tensor)"
    hidden = "Tensor[]" if several else "Tensor"
    _LIBRARY.define(f"{name}(Tensor input, {hidden} hx, {_ARGUMENTS}) -> {results}")
    _LIBRARY.impl(name, getattr(_torch, name), "CPU")
    _LIBRARY.impl(name, _traced, "Meta")
    return getattr(torch.ops.kernelmill, name).default


def _traced(
    input: Tensor, hx: Tensor | Sequence[Tensor], params: Sequence[Tensor], has_biases: bool,
    num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> _Sizes:  # fmt: skip
    """Return results with the shapes and layouts of the operators."""
    states = [hx] if isinstance(hx, Tensor) else list(hx)
    time, batch = input.shape[1::-1] if batch_first else input.shape[:2]
    wide = states[0].shape[2] * (2 if bidirectional else 1)
    output = input.new_empty((time, batch, wide))
    output = output.transpose(0, 1) if batch_first else output
    return (output, *(state.new_empty(state.shape) for state in states))


_WHOLE = {name: _define(name) for name in _LAYERS.values()}
_ATEN_NAMES = {str(whole): f"aten.{name}.input" for name, whole in _WHOLE.items()}


def aten_name(target: Any) -> str:
    """Return the ATen name of an overload in a plan, mostly its own."""
    return _ATEN_NAMES.get(str(target), str(target))


def settle_recurrent(gm: fx.GraphModule) -> str | None:
    """Decide for each recurrent layer of a Dynamo graph, in place, whether it is decomposed.

    Return the reason why torch has to run the whole graph, or None: torch's decomposition of the
    layer does not compute eager's result, or would be a graph without bound.
    """
    found = [n for n in all_nodes(gm) if n.op == "call_function" and n.target in _LAYERS]
    for node in found:
        reason = _settle(node)
        if reason is not None:
            return f"{_LAYERS[node.target]} {reason}"
    for part in graph_modules(gm) if found else ():
        part.recompile()
    return None


def _settle(node: fx.Node) -> str | None:
    name, args = _LAYERS[node.target], node.args
    if len(args) != 9 or not isinstance(args[3], bool):
        return "of a packed sequence"
    if any_autocast():
        return "under autocast"
    if not any(result.requires_grad for result in _results(node)):
        node.target = _WHOLE[name]
        return None
    if not recurrent.works:
        return "in training, which this version of torch takes apart otherwise"
    input: Any = args[0]
    if _drops(args):  # torch's own decomposition forgets it
        return "in training, with dropout between layers"
    if not _are_few(input.meta["example_value"], args):
        return "in training, too long"
    if name == "lstm":
        node.target = _lstm_by_steps
    return None


def _drops(args: Sequence[Any]) -> bool:
    """Return whether dropout between layers is active."""
    layers, dropout, train = args[4:7]
    return bool(train) and dropout != 0 and layers > 1


def _are_few(input: Tensor, args: Sequence[Any]) -> bool:
    """Return whether a layer with these arguments has few enough steps for decomposition."""
    layers, _, _, bidirectional, batch_first = args[4:]
    steps: Any = input.shape[1 if batch_first else 0]
    cells = steps * layers * (2 if bidirectional else 1) if isinstance(steps, int) else None
    return cells is not None and cells <= MOST_STEPS and input.dtype in (torch.float, torch.double)


def recurrent_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return the same choice as decompositions for exported programs, which never train."""
    return {getattr(torch.ops.aten, name).input: whole for name, whole in _WHOLE.items()}


def _results(node: fx.Node) -> Sequence[Tensor]:
    return node.meta["example_value"]


def _lstm_by_steps(
    input: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], has_biases: bool,
    num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> _Sizes:  # fmt: skip
    """Decompose as torch, but never to the operator that packs weights each time."""
    parts = recurrent.require()
    gathered = parts.gather_params(params, has_biases, hx[0].shape[2] != hx[1].shape[2])
    output, finals = parts.run_layers(
        input, list(zip(*hx, strict=True)), gathered, has_biases, num_layers, 0.0, False,
        bidirectional, batch_first, parts.one_layer_lstm,
    )  # fmt: skip
    hidden, cells = zip(*finals, strict=True)
    return output, torch.stack(hidden, 0), torch.stack(cells, 0)
