"""Says once what breaks a model's graph where there is a form that does not."""

from __future__ import annotations

from collections.abc import Iterable

from kernelmill.core.log import get_logger
from kernelmill.torch_internals.dynamo import RECURRENT_BREAK, graph_breaks

_log = get_logger("backend")
_ADVICE = (
    (
        "UserDefinedObjectVariable(ScriptObject)",
        "Dynamo breaks the graph at each layer of torch.ao.quantization.quantize_dynamic, whose "
        "packed weights it cannot trace; these run in torch. Weights of int8 or int4 that are "
        "plain tensors are compiled: kernelmill.ops.weight_quant_matmul, or quant_matmul for "
        "products of int8",
    ),
    (
        RECURRENT_BREAK,
        "Dynamo breaks the graph at torch.nn.LSTM, GRU and RNN, which run in torch; with "
        f"{RECURRENT_BREAK} = True they are compiled",
    ),
)
_said: set[str] = set()


def advice(reasons: Iterable[str]) -> tuple[str, ...]:
    """What to do about graph breaks with these reasons, as far as something can be done."""
    reasons = list(reasons)
    return tuple(text for mark, text in _ADVICE if any(mark in reason for reason in reasons))


def in_short(reason: str) -> str:
    """Dynamo's reason for a graph break on one line: what it met, and its first hint."""
    lines = [line.strip() for line in reason.strip().splitlines()]
    hint = next((line for line in lines if line.startswith("Hint: ")), "")
    what = lines[0] if lines else "no reason is known"
    return f"{what} ({hint})" if hint else what


def say_breaks() -> None:
    """Log advice for the breaks that Dynamo has counted, each once in a process."""
    for text in advice(graph_breaks()):
        if text not in _said:
            _said.add(text)
            _log.warning(text)
