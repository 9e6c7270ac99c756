"""Advice, logged once, on graph breaks that another form of the model avoids."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from kernelmill.core.interpreter import collection_paused
from kernelmill.core.log import get_logger
from kernelmill.core.version import BACKEND_NAME
from kernelmill.torch_internals.compiles import around_compiles, backend_of_compile, watch_forks
from kernelmill.torch_internals.dynamo import RECURRENT_BREAK, GraphBreak, graph_breaks

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
_BRANCH = "generic_jump TensorVariable"
"""Start of Dynamo's reason where Python branches on a tensor."""

_said: set[str] = set()


def advice(breaks: Iterable[GraphBreak]) -> tuple[str, ...]:
    """Return advice on these graph breaks, for those that can be avoided."""
    reasons = [each.reason for each in breaks]
    return tuple(text for mark, text in _ADVICE if any(mark in reason for reason in reasons))


def in_short(found: GraphBreak) -> str:
    """Return the reason of a graph break on one line: the construct, and its first hint."""
    if found.reason.startswith(_BRANCH):
        return "a branch on a tensor's value (Hint: torch.where and torch.cond break no graph)"
    lines = [line.strip() for line in found.reason.strip().splitlines()]
    hint = next((line for line in lines if line.startswith("Hint: ")), "")
    what = lines[0] if lines else "no reason is known"
    return f"{what} ({hint})" if hint else what


def place_of(found: GraphBreak) -> str:
    """Return the line of the user's code: "model.py:8 in forward"; "" where unknown."""
    if not found.file:
        return ""
    return f"{os.path.basename(found.file)}:{found.line} in {found.function}"


def say_breaks() -> None:
    """Log advice for the breaks that Dynamo has counted, each once in a process."""
    for text in advice(graph_breaks()):
        if text not in _said:
            _said.add(text)
            _log.warning(text)


_tracing = ExitStack()


def watch_compiles() -> None:
    """Pause garbage collection while Dynamo traces for this backend, and log breaks also for models
    of which nothing is captured. Until `torch._dynamo.reset()`; may be called again."""
    watch_forks()
    say_breaks()
    around_compiles(_before, _after)


def _before(_: Any) -> None:
    # Other backends may take minutes, and make more garbage than memory has room for.
    if backend_of_compile() == BACKEND_NAME:
        _tracing.enter_context(collection_paused())


def _after(_: Any) -> None:
    _tracing.close()
    say_breaks()
