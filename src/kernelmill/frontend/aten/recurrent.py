"""Recurrent layers in inference: one product for all steps, and the rest of each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelmill.core.dtype import BF16, F16, F32
from kernelmill.frontend.emitter import Emitter, NotTranslated, translates_foreign
from kernelmill.graph.ir import CELL_GATES, Value, row_major

Results = tuple[Value, ...]


def _translator(cell: str) -> Callable[..., Results]:
    """Return the translator of `kernelmill::lstm` or one like it, with torch's arguments."""

    def recurrent(
        e: Emitter,
        input: Value,
        hx: Value | Sequence[Value],
        params: Sequence[Value],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Results:
        states = [hx] if isinstance(hx, Value) else list(hx)
        dtypes = {value.dtype for value in (input, *states, *params)}
        if len(dtypes) > 1 or input.dtype not in (F32, F16, BF16):
            raise NotTranslated(f"a recurrent layer of {input.dtype}")
        states, params = ([e.cast(value, F32) for value in each] for each in (states, params))
        if train and dropout and num_layers > 1:
            raise NotTranslated("dropout between recurrent layers")
        directions = 2 if bidirectional else 1
        each = len(params) // (num_layers * directions)  # one more where states are projected
        x = e.cast(e.permute(input, (1, 0, 2)) if batch_first else input, F32)
        finals: list[list[Value]] = []
        for layer in range(num_layers):
            found: list[Value] = []
            for number in range(layer * directions, (layer + 1) * directions):
                first = [e.select(state, 0, number) for state in states]
                weights = params[number * each : (number + 1) * each]
                backward = number % directions == 1
                output, last = _direction(e, cell, x, first, weights, backward)
                found.append(output)
                finals.append(last)
            x = found[0] if len(found) == 1 else e.emit("concat", *found, dim=2)
        output = e.permute(x, (1, 0, 2)) if batch_first else x
        results = (output, *(_stacked(e, some) for some in zip(*finals, strict=True)))
        return tuple(e.cast(each, input.dtype) for each in results)

    return recurrent


for _name, _cell in (("lstm", "lstm"), ("gru", "gru"), ("rnn_tanh", "tanh"), ("rnn_relu", "relu")):
    translates_foreign(f"kernelmill.{_name}")(_translator(_cell))


def _direction(
    e: Emitter, cell: str, x: Value, first: Sequence[Value], weights: Sequence[Value],
    backward: bool,
) -> tuple[Value, list[Value]]:  # fmt: skip
    """Return the states of one layer in one direction, and the last of each kind of state."""
    into, hidden, *biases = weights
    narrow = [e.permute(biases.pop(), (1, 0))] if len(weights) % 2 else []
    (steps, batch, inputs), (wide, width) = x.shape, hidden.shape
    if not (isinstance(wide, int) and isinstance(width, int)) or steps == 0 or batch == 0:
        raise NotTranslated("a recurrent layer without steps, or of symbolic size")
    size = wide // CELL_GATES[cell]
    if width > size:
        raise NotTranslated("a recurrent layer whose projection is wider than its cell")
    gates = e.emit("matmul", e.reshape(x, (steps * batch, inputs)), e.permute(into, (1, 0)))
    more = [*first[1:], *(_kept(e, value) for value in narrow)]
    if biases:
        given, kept = biases
        if cell == "gru":
            more = [e.slice(kept, 0, 2 * size, wide)]
            kept = e.emit("pad", e.slice(kept, 0, 0, 2 * size), low=(0,), high=(size,), value=0.0)
        gates = e.add(gates, e.add(given, kept))
    elif cell == "gru":
        more = [e.constant(0.0, F32, (size,))]
    found = e.emit(
        "recurrent", e.reshape(gates, (steps, batch, wide)), _kept(e, e.permute(hidden, (1, 0))),
        first[0], *more, cell=cell, backward=backward,
    )  # fmt: skip
    states = e.slice(found, 0, 0, steps) if cell == "lstm" else found
    for weight in narrow:
        flat = e.emit("matmul", e.reshape(states, (steps * batch, size)), weight)
        states = e.reshape(flat, (steps, batch, width))
    last = [e.select(states, 0, 0 if backward else steps - 1)]
    return states, [*last, e.select(found, 0, steps)] if cell == "lstm" else last


def _kept(e: Emitter, weight: Value) -> Value:
    """Return a weight as it is read step by step, row after row."""
    return e.emit("layout", weight, strides=row_major(weight.shape))


def _stacked(e: Emitter, states: Sequence[Value]) -> Value:
    found = [e.unsqueeze(state, 0) for state in states]
    return found[0] if len(found) == 1 else e.emit("concat", *found, dim=0)
